"""A ledger whose table somebody has deleted: no tick runs, and people hear why."""

from datetime import timedelta

import pytest

from spindown.control.alert.ledger_missing import ledger_missed
from spindown.error import AccessDenied, LedgerMissing
from spindown.functions import scaler
from tests.control import DEPLOYMENT, WORKLOAD, ControlWorld
from tests.failure import failing

TICK = {"source": "spindown.tick", "workload": WORKLOAD}
TABLE = ("get", "get_each", "query", "query_each", "write", "transact")


def a_world_without_ledger() -> ControlWorld:
    world = ControlWorld()
    world.interfere = failing(LedgerMissing("there is no table demo--ledger"), *TABLE)
    return world


def tick(world: ControlWorld) -> None:
    with pytest.raises(LedgerMissing):
        scaler.handle(TICK, deployment=DEPLOYMENT, holder="r", ports=world.ports)


def test_a_tick_without_a_ledger_is_an_error_and_no_bad_event() -> None:
    world = a_world_without_ledger()

    tick(world)

    assert world.metrics.values("MalformedEvents") == []


def test_people_are_told_once_a_day_of_a_ledger_that_is_gone() -> None:
    world = a_world_without_ledger()

    for _ in range(3):
        tick(world)
        world.clock.advance(timedelta(minutes=1))

    ((subject, text),) = world.topic.said
    assert subject == "demo--ledger: ledger-missing"
    assert "demo--ledger" in text
    world.clock.advance(timedelta(days=1))
    tick(world)
    assert len(world.topic.said) == 2


def test_a_topic_that_refuses_it_is_asked_again() -> None:
    world = a_world_without_ledger()
    gone = world.interfere
    world.interfere = failing(AccessDenied("sns:Publish"), "publish")
    with pytest.raises(LedgerMissing), ledger_missed(world.ports):
        raise LedgerMissing("there is no table demo--ledger")

    world.interfere = gone
    tick(world)

    assert len(world.topic.said) == 1

"""What a tick has done is written down, whatever becomes of what people are told."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.codec import encode
from spindown.contract.decision import Outcome
from spindown.contract.row import DECISION
from spindown.domain.reason import ReasonCode
from spindown.memory import MemoryMetricSink
from spindown.port import Datum
from spindown.reason_text import say_outcome
from tests.builders import minutes
from tests.control import LAUNCH_VERSION, ControlWorld
from tests.failure import failing

BROKEN: list[dict[str, Any]] = [
    {"code": ReasonCode.STRIKES_SILENT, "about": {}},
    {"code": ReasonCode.STRIKES_SILENT, "about": {"count": 3, "fault_code": "of-another-version"}},
    {"code": ReasonCode.BREAKER_OPEN, "about": {"why": ReasonCode.BREAKER_OPEN}},
    {"code": ReasonCode.ACCOUNT_REFUSED, "about": {"refusal": "\x1b[2J\u202e"}},
]


def stored_at(world: ControlWorld) -> bool:
    """Tell whether the row of the last decision is that of the last tick."""
    row = world.row(DECISION)
    return row is not None and row["at"] == encode(world.now)


@pytest.mark.parametrize("reason", BROKEN)
def test_a_breaker_with_a_broken_reason(reason: dict[str, Any]) -> None:
    world = ControlWorld()
    world.tick()
    world.put(
        "breaker",
        silent=3,
        open_until=world.now + timedelta(hours=1),
        reason=reason,
        launch_version=LAUNCH_VERSION,
    )
    world.send(3)

    decision = world.tick(minutes(1))

    assert decision.outcome is Outcome.BLOCKED
    assert say_outcome(decision.outcome, decision.summary).isprintable()
    assert stored_at(world)
    assert world.metric("Ticks") == 1


@pytest.mark.parametrize("error", [KeyError("fault"), RecursionError()])
def test_a_topic_that_fails_as_no_topic_may(error: Exception) -> None:
    world = ControlWorld()
    world.tick()
    until = world.now + timedelta(hours=1)
    world.put("breaker", silent=3, open_until=until, launch_version=LAUNCH_VERSION)
    world.send()
    world.interfere = failing(error, "publish")

    world.tick(minutes(1))

    assert stored_at(world)
    assert world.metric("Untold") == 1


def test_people_are_told_in_printable_text() -> None:
    world = ControlWorld()
    world.put("requeued#\x1b[2J\u202e", sent_at="of no version")

    world.run(20)

    ((_, told),) = world.topic.said
    assert r"requeued#\x1b[2J\u202e" in told
    assert told.isprintable()


class BrokenSink(MemoryMetricSink):
    """Takes nothing."""

    def emit(self, data: Iterable[Datum]) -> None:
        raise KeyError(data)


def test_metrics_that_fail() -> None:
    world = ControlWorld()
    world.send()
    world.tick()
    world.ports = replace(world.ports, metrics=BrokenSink())
    world.send(20)

    decision = world.tick(minutes(1))

    assert decision.outcome is Outcome.LAUNCHED
    assert stored_at(world)

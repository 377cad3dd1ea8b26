"""A queue that somebody has deleted: what runs costs money, so ticks charge it and end it."""

from datetime import timedelta

from spindown.domain.reason import ReasonCode
from spindown.error import NotFound
from spindown.functions import scaler
from tests.control import DEPLOYMENT, REGION, WORKLOAD, ControlWorld
from tests.failure import failing
from tests.spending import dollars

TICK = {"source": "spindown.tick", "workload": WORKLOAD}


def a_world_without_queue() -> ControlWorld:
    world = ControlWorld()
    world.launched()
    world.interfere = failing(NotFound("no such queue"), "backlog")
    return world


def test_what_runs_is_charged_and_ended_without_a_queue() -> None:
    world = a_world_without_queue()
    before = dollars(world)

    world.run(30, beats=True)

    assert dollars(world) > before
    (instance,) = world.compute.instances(region=REGION, tags={})
    assert instance.state == "terminated"


def test_a_tick_without_a_queue_is_no_event_to_ignore() -> None:
    world = a_world_without_queue()

    said = scaler.handle(TICK, deployment=DEPLOYMENT, holder="r", ports=world.ports)

    assert said["outcome"] != "ignored"
    assert world.metrics.values("MalformedEvents") == []


def test_nothing_is_launched_without_a_queue() -> None:
    world = a_world_without_queue()
    world.change_policy(warm_workers=3)

    decision = world.tick(timedelta(minutes=1))

    assert decision.requests == ()
    assert ReasonCode.QUEUE_MISSING in {note.code for note in decision.notes}
    world.interfere = None
    assert world.tick(timedelta(minutes=1)).requests


def test_people_are_told_of_a_queue_that_is_gone() -> None:
    world = a_world_without_queue()

    world.run(5)

    (said,) = [text for subject, text in world.topic.said if subject.endswith("queue-missing")]
    assert "spindown deploy" in said

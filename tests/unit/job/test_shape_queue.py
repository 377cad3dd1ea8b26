"""Whoever looks for messages looks into the queue of each shape too."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.contract.job.manifest import JobState
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.job.cancel import cancel
from spindown.job.lost_message import count_lost, count_recent, redrive_lost
from spindown.job.old_message import resend
from spindown.job.shape_queue import queues_of
from spindown.job.submit import Draft, submit_items
from spindown.operate.drain import read_remainder
from spindown.port import WorkPorts
from tests.control import WORKLOAD, ControlWorld

SMALL = "c0m8"
TYPES = (JobType(name="small", needs=JobNeeds(memory_gib=5)),)
DAY = timedelta(days=1)


@pytest.fixture
def world() -> ControlWorld:
    """Return a world in which a batch of three jobs was routed, and one job waits for that."""
    world = ControlWorld(policy=replace(Policy(), types=TYPES), budget=0.0)
    draft = Draft(workload=WORKLOAD, batch_id="b", items_per_job=1, type="small")
    submit_items(["a", "b", "c"], draft, queue=world.queue, store=world.objects)
    world.tick()
    world.ask("later")
    return world


def ports_of(world: ControlWorld) -> WorkPorts:
    shapes = {name: world.queue_of(name) for name in world.view().shapes}
    return replace(world.work_ports(), shapes=shapes)


def test_a_job_that_was_routed_is_cancelled(world: ControlWorld) -> None:
    (done,) = cancel(WORKLOAD, ["b-00001"], ports_of(world))

    assert done.state == JobState.CANCELLED
    left = sorted(json.loads(body)["job_id"] for body in world.queue_of(SMALL).bodies())
    assert left == ["b-00000", "b-00002"]
    assert len(world.queue.bodies()) == 1
    assert world.queue_of(SMALL).backlog().visible == 2


def test_a_job_that_was_routed_is_not_lost(world: ControlWorld) -> None:
    world.clock.advance(timedelta(hours=1))
    settings = world.workload_settings()

    assert list(redrive_lost(WORKLOAD, ports_of(world))) == []
    assert count_recent(WORKLOAD, world.ports, lambda _: world.objects) == 0
    assert world.queue_of(SMALL).backlog().visible == 3
    # Without the queue of its shape it would be.
    found = count_lost(
        WORKLOAD,
        objects=world.objects,
        queues=[world.ports.queue(settings.queue_url)],
        table=world.table,
        now=world.now,
        reads_at_most=100,
    )
    assert found == 2


def test_old_messages_of_each_queue_are_resent(world: ControlWorld) -> None:
    for _ in range(8):
        world.clock.advance(DAY)
        world.tick()
    until = world.now + timedelta(minutes=2)
    resent = resend(WORKLOAD, world.ports, store=world.objects, until=until)

    assert resent is not None
    # The one that waited was routed on the first day.
    assert (resent.resent, resent.is_whole) == (4, True)
    assert world.queue_of(SMALL).backlog().visible == 3


def test_a_drain_tells_of_all_that_waits(world: ControlWorld) -> None:
    assert read_remainder(WORKLOAD, world.ports).waiting == 4
    assert len(queues_of(world.ports, world.workload_settings())) == 2

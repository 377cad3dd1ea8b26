"""Machines of their own for jobs, and machines that jobs share, as ticks launch them."""

from dataclasses import replace
from typing import Any

import pytest

from spindown.domain.fleet import Worker
from spindown.domain.past_cost import LEAST_BILLED
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy
from spindown.domain.reason import ReasonCode
from tests.builders import a_type, minutes
from tests.control import REGION, ZONES, ControlWorld

#: A launch may wait for long, and one machine could do all in time.
PATIENT = Policy(scale_up_threshold=50, start_within=minutes(90), max_workers=20)
TYPES = (
    JobType(name="large", needs=JobNeeds(memory_gib=48), dispatch=Dispatch.DEDICATED),
    JobType(name="small", needs=JobNeeds(memory_gib=6), dispatch=Dispatch.SHARED),
)
#: The only type that has the memory of one large job, or of eight small ones.
BIG = "g4dn.2xlarge"


def a_world(**policy: Any) -> ControlWorld:
    world = ControlWorld(policy=replace(PATIENT, **policy))
    kind = a_type(BIG, memory_mib=64 * 1024)
    world.market.offer(kind, region=REGION, zones=ZONES, on_demand=0.9, spot=0.4)
    return world


def launched(world: ControlWorld, shape: str) -> list[Worker]:
    return [worker for worker in world.workers() if worker.shape == shape]


def test_each_job_gets_a_machine_at_once() -> None:
    world = a_world(dispatch=Dispatch.DEDICATED)
    world.send(3)
    decision = world.tick()

    assert [worker.slots for worker in world.workers()] == [1, 1, 1]
    assert decision.sizing is not None
    assert decision.sizing.reason.code is ReasonCode.MACHINE_EACH


def test_a_machine_at_work_is_not_for_the_next_job() -> None:
    world = a_world(dispatch=Dispatch.DEDICATED)
    world.send()
    world.tick()
    (first,) = world.workers()
    world.check_in(first.instance_id)
    world.claim(first.instance_id)
    world.send()
    world.tick(after=minutes(1))
    world.tick(after=minutes(1))

    assert len(world.workers()) == 2


@pytest.mark.parametrize("most", [2, 3])
def test_who_may_take_over_is_told_and_stays_for_a_minute(most: int) -> None:
    world = a_world(dispatch=Dispatch.DEDICATED, max_workers=most)
    world.send(3)
    decision = world.tick()

    is_short = most < 3
    found = [note for note in decision.notes if note.code is ReasonCode.MAY_TAKE_OVER]
    assert [note.about["jobs"] for note in found] == [1] * is_short
    for worker in world.workers():
        stays = worker.launched_at + LEAST_BILLED if is_short else None
        assert worker.warm_until == stays


def test_each_type_comes_to_machines_in_its_own_way() -> None:
    world = a_world(types=TYPES, start_within=minutes(5))
    for number in range(2):
        world.ask(f"l{number}", type="large")
        world.ask(f"s{number}", type="small")
    world.run(3)

    assert [worker.slots for worker in launched(world, "c0m48d")] == [1, 1]
    (shared,) = launched(world, "c0m8s")
    assert (shared.slots, shared.instance_type) == (8, BIG)

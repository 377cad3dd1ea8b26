"""A worker that fails at any port call of its life, before the call's effect or after it.

Each life is lived once for every call that it makes and every kind of fault. Then whoever is
left goes on, and what must hold is checked: a single fault costs time, never a job.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from spindown.contract.job.manifest import (
    JobState,
)
from spindown.worker.child.failure_cause import Broken, FailureCause
from tests.proof.fault import FAULTS, Fault, Kind
from tests.proof.invariant import Chronicle
from tests.proof.process import Process
from tests.proof.record import count_points
from tests.proof.recovery import recover
from tests.proof.sweep import sweep
from tests.proof.typed import LARGE, SMALL, a_typed_world, grow_small
from tests.proof.world import BUCKET, MINUTE, ProofWorld, a_world
from tests.slot import square

_SECOND = timedelta(seconds=1)
_MALFORMED = '{"items": "not a list"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """What is there when an instance has been launched, and what its worker does."""

    prepare: Callable[[], ProofWorld]
    live: Callable[[ProofWorld, Process], None]
    #: States in which its jobs and their children may end.
    ends: frozenset[JobState] = frozenset({JobState.COMPLETED, JobState.SPLIT})


def a_world_with(*counts: int) -> Callable[[], ProofWorld]:
    def prepare() -> ProofWorld:
        world = a_world()
        for count in counts:
            world.submit(count, stored=True)
        return world

    return prepare


def work(world: ProofWorld, process: Process) -> None:
    """Work all jobs off, with a heartbeat in every one."""

    def happen(polls: int) -> None:
        world.clock.advance(10 * _SECOND)
        if polls % 4 == 3:
            process.beat()

    process.runner.before_poll = happen
    for _ in range(5):
        process.work()


def work_until_idle(world: ProofWorld, process: Process) -> None:
    """Work, then wait for work in vain and power off."""
    work(world, process)
    world.clock.advance(world.policy.idle_timeout or MINUTE)
    process.beat()
    process.retire()


def work_until_a_notice(world: ProofWorld, process: Process) -> None:
    """Work, until in the middle of it EC2 takes the instance away."""

    def happen(polls: int) -> None:
        if polls == 2:
            world.compute.reclaim(process.instance_id)
            process.look()
        if polls > 2:
            world.clock.advance(20 * _SECOND)

    process.runner.script = lambda task, batch: [*square(task, batch)[:1], *[None] * 20]
    process.runner.before_poll = happen
    process.work()
    process.retire()


def fail_twice(world: ProofWorld, process: Process) -> None:
    """Fail a job until it goes to the dead-letter queue."""
    broken = Broken(FailureCause.ENDED, "it is broken")
    process.runner.script = lambda task, batch: [*square(task, batch)[:1], broken]
    process.work()
    world.clock.advance(11 * MINUTE)
    process.beat()
    process.work()


def die_and_come_back(world: ProofWorld, process: Process) -> None:
    """Die in the middle of a job, and let the instance start the process anew."""
    for _ in range(4):
        process.step(0)
    process.checkpoint(0)
    world.boot(process.instance_id)
    for again in world.live:
        work(world, again)


def receive_twice(world: ProofWorld, process: Process) -> None:
    """Receive a message of a job that one holds oneself, then of jobs that are over."""
    for slot in (0, 0, 1, 1):
        process.step(slot)
    work(world, process)


def a_world_with_a_duplicate() -> ProofWorld:
    world = a_world_with(3)()
    world.send_again("job0")
    return world


def a_world_with_events() -> ProofWorld:
    """Return a world in which S3 tells of an object twice, and of it once more when it is new."""
    world = a_world()
    world.send_again(world.drop("in/a.png"))
    world.drop("in/a.png", sequencer="0B")
    return world


def a_world_with_an_old_message() -> ProofWorld:
    world = a_world_with(3)()
    world.clock.advance(timedelta(days=8))
    return world


def a_world_with_bad_input() -> ProofWorld:
    world = a_world_with(2)()
    del world.sources[f"{BUCKET}job0.jsonl"]
    world.send_text(_MALFORMED)
    return world


def outgrow(world: ProofWorld, process: Process) -> None:
    """Run out of memory on the small machine."""
    if process.shape == SMALL:
        broken = Broken(FailureCause.OUT_OF_MEMORY, "the kernel killed it")
        process.runner.script = lambda task, batch: [*square(task, batch)[:1], broken]
    process.work()


def a_typed_world_at_its_first_launch(*counts: int, **asked: Any) -> Callable[[], ProofWorld]:
    def prepare() -> ProofWorld:
        world = a_typed_world()
        for count in counts:
            world.submit(count, **asked)
        world.tick()
        return world

    return prepare


def with_a_type_that_has_grown() -> ProofWorld:
    """Return a world whose first worker is launched for a shape that suits its job no more."""
    world = a_typed_world_at_its_first_launch(3, type="small")()
    world.tick()
    grow_small(world)
    return world


def a_world_with_failures() -> ProofWorld:
    world = a_world(max_failures=2)
    world.submit(4)
    return world


LIVES = {
    "works-until-idle": Life(prepare=a_world_with(4, 3), live=work_until_idle),
    "splits": Life(prepare=a_world_with(9), live=work),
    "is-interrupted": Life(prepare=a_world_with(4), live=work_until_a_notice),
    "fails-a-job": Life(
        prepare=a_world_with_failures,
        live=fail_twice,
        ends=frozenset({JobState.COMPLETED, JobState.FAILED}),
    ),
    "dies-and-comes-back": Life(prepare=a_world_with(4), live=die_and_come_back),
    "receives-twice": Life(prepare=a_world_with_a_duplicate, live=receive_twice),
    "takes-events": Life(prepare=a_world_with_events, live=receive_twice),
    "finds-an-old-message": Life(prepare=a_world_with_an_old_message, live=work),
    "outgrows": Life(prepare=a_typed_world_at_its_first_launch(3, type="small"), live=outgrow),
    "splits-in-a-shape": Life(prepare=a_typed_world_at_its_first_launch(9, **LARGE), live=work),
    "sends-back": Life(prepare=with_a_type_that_has_grown, live=work),
    "refuses-input": Life(
        prepare=a_world_with_bad_input, live=work, ends=frozenset({JobState.FAILED})
    ),
}


#: The worst of the four stands for all in the fast tests.
_WORST = Kind.CRASH_AFTER


@pytest.mark.parametrize(
    "name", ["is-interrupted", "fails-a-job", "refuses-input", "outgrows", "takes-events"]
)
def test_a_crash_after_any_call_of_a_life_costs_no_job(name: str) -> None:
    assert live_through_all(LIVES[name], _WORST) > 15


@pytest.mark.proof
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.replace(" ", "-"))
@pytest.mark.parametrize("name", LIVES)
def test_a_fault_at_any_call_of_a_life_costs_no_job(name: str, kind: Kind) -> None:
    points = live_through_all(LIVES[name], kind)
    assert points > 15
    count_points("worker", name, kind, points)


def live_through_all(life: Life, kind: Kind) -> int:
    """Live a life once for every call in it; return how many that are."""
    return sweep(life.prepare, lambda world, fault: live_through(world, life, fault), kind)


def live_through(world: ProofWorld, life: Life, fault: Fault) -> bool:
    """Live a life with a fault, and recover; tell whether there was such a call."""
    chronicle = Chronicle(world)
    world.tick()
    world.clock.advance(2 * MINUTE)
    world.faults.arm(fault)
    for instance_id in world.bootable:
        world.boot(instance_id)
    for process in world.live:
        world.run_on(process, partial(life.live, world, process))
    was_hit = world.faults.hit is not None
    chronicle.look()
    recover(world, chronicle.look)
    chronicle.close()
    assert {manifest.state for manifest in chronicle.manifests.values()} <= life.ends
    if _MALFORMED in world.texts:
        assert _MALFORMED in world.dead_letters.bodies()
    return was_hit

"""Machines that cannot start, and messages that cannot be done, stop no honest work for long."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from spindown.contract.job.manifest import decode_manifest, manifest_key
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.policy import Dispatch, JobNeeds, JobType
from spindown.domain.reason import ReasonCode
from spindown.domain.useless_instance import STRIKES
from spindown.error import NotFound
from spindown.port import Outgoing
from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import Event, Task
from tests.proof.recovery import go_on
from tests.proof.world import MINUTE, ProofWorld, a_world
from tests.slot import square

_HOUR = timedelta(hours=1)


def _is_done(world: ProofWorld, job_id: str) -> bool:
    try:
        found = world.objects.get(manifest_key(job_id)).data
    except NotFound:
        return False
    return decode_manifest(found).state == "completed"


def _crash_if_evil(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
    if task.job_id.startswith("evil"):
        return [Broken(FailureCause.ENDED, "exit 1")]
    return square(task, batch)


def _pass_minutes(world: ProofWorld, minutes: int = 1) -> set[str]:
    """Let time pass for everybody; return all instances that there were."""
    seen: set[str] = set()
    for _ in range(minutes):
        go_on(world)
        seen.update(instance.instance_id for instance in world.instances)
        for process in world.live:
            for _ in range(30):
                if not process.is_dead:
                    process.work()
            if not process.is_dead:
                process.retire()
    return seen


def _wait(world: ProofWorld) -> tuple[timedelta, set[str]]:
    """Submit a job; return how long it took, and all instances that there were."""
    since, job_id, seen = world.now, world.submit(3), set[str]()
    while not _is_done(world, job_id):
        assert world.now - since < 2 * _HOUR
        seen |= _pass_minutes(world)
    return world.now - since, seen


@pytest.mark.parametrize(
    "is_broken",
    [
        pytest.param(lambda p: p.instance_type == "g4dn.xlarge", id="a type"),
        pytest.param(lambda p: p.zone == "us-west-2a", id="a zone"),
        pytest.param(lambda p: p.capacity_type is CapacityType.SPOT, id="a capacity type"),
        pytest.param(lambda p: p.instance_type != "g5.xlarge", id="all types but one"),
    ],
)
def test_what_never_starts_leaves_the_rest_to_work(is_broken: Callable[[Pool], bool]) -> None:
    world = a_world()
    world.is_broken = is_broken
    waits, seen = [], set[str]()
    for _ in range(6):
        waited, some = _wait(world)
        waits.append(waited)
        seen |= some | _pass_minutes(world, 60)

    assert max(waits) <= 90 * MINUTE
    # Half of them know better by then; each job is let gather for three of these minutes.
    assert sorted(waits)[3] <= 15 * MINUTE
    assert len(seen) <= len(waits) + 8


@pytest.mark.parametrize(
    ("body", "at_once", "each"),
    [
        pytest.param('{"job_id": "evil%d", "items": [1]}', 6, 60, id="its code crashes"),
        pytest.param('{"schema": 2, "items": [%d]}', 1, 12, id="its schema is newer"),
    ],
)
def test_bad_messages_stop_no_other_work_for_long(body: str, at_once: int, each: int) -> None:
    world, sent = a_world(), 0
    world.script = _crash_if_evil
    _wait(world)
    waits, seen = [], set[str]()
    for _ in range(6):
        for minute in range(0, 60, 4):
            if minute % each == 0:
                for _ in range(at_once):
                    world.queue.send([Outgoing(body=body % sent)])
                    sent += 1
            seen |= _pass_minutes(world, 4)
            if minute == 28:
                waited, some = _wait(world)
                waits.append(waited)
                seen |= some

    assert max(waits) <= 15 * MINUTE
    # What a bad message may buy, beside the machine of each honest one.
    assert len(seen) - len(waits) <= 2 * sent


@pytest.mark.parametrize(
    ("body", "at_once"),
    [
        pytest.param('{"job_id": "evil%d", "items": [1]}', 12, id="its code crashes"),
        pytest.param('{"schema": 2, "items": [%d]}', 9, id="its schema is newer"),
        pytest.param("%d, which is no job", 9, id="it cannot be read"),
    ],
)
@pytest.mark.parametrize("rounds", [1, 4])
def test_bad_messages_after_a_deploy_keep_nobody(body: str, at_once: int, rounds: int) -> None:
    world, sent, seen = a_world(), 0, set[str]()
    world.script = _crash_if_evil
    for _ in range(rounds):
        for _ in range(at_once // rounds):
            world.queue.send([Outgoing(body=body % sent)])
            sent += 1
        seen |= _pass_minutes(world, 40 // rounds)

    waited, some = _wait(world)

    assert waited <= 12 * MINUTE
    assert len(seen | some) <= 2 * sent


@pytest.mark.parametrize("dispatch", Dispatch)
def test_crashing_jobs_buy_few_machines_each_way(dispatch: Dispatch) -> None:
    world = a_world(dispatch=dispatch, max_workers=3)
    world.boot_time, world.script = 2 * MINUTE, _crash_if_evil
    for number in range(30):
        world.queue.send([Outgoing(body=f'{{"job_id": "evil{number}", "items": [1]}}')])

    seen = _pass_minutes(world, 60)

    # Three until it is seen, then one in five minutes.
    assert len(seen) <= 3 + 3 + 60 / 5
    assert world.view().breaker.reason.code is not ReasonCode.NONE


def test_crashing_jobs_of_many_sizes_buy_no_more_machines() -> None:
    sizes = [1, 2, 4, 8, 16]
    small = JobType(name="small", needs=JobNeeds(memory_gib=4))
    world = a_world(types=(small,), requirements_at_most=JobNeeds(memory_gib=16), max_workers=20)
    world.boot_time, world.script = 2 * MINUTE, _crash_if_evil
    for number in range(30):
        for gib in sizes:
            asked = f'{{"job_id": "evil{number}-{gib}", "items": [1], '
            asked += f'"requirements": {{"memory_gib": {gib}}}}}'
            world.queue.send([Outgoing(body=asked)])

    before = _pass_minutes(world, 5)
    seen = _pass_minutes(world, 60)

    assert {*(worker.shape for worker in world.workers())} > {"c0m4"}
    assert len(seen - before) <= 60 / 5


def test_where_nothing_was_ever_done_a_person_is_called() -> None:
    world = a_world()
    world.script = _crash_if_evil
    for number in range(30):
        world.queue.send([Outgoing(body=f'{{"job_id": "evil{number}", "items": [1]}}')])
    while world.view().breaker.failed < STRIKES:
        _pass_minutes(world)

    seen = _pass_minutes(world, 40)

    assert world.view().breaker.reason.code is ReasonCode.STRIKES_FAILED
    # One at a time, 5 minutes apart, beside the first six.
    assert len(seen) <= 6 + 8

"""Two at once, twice the same, too late, or of another version: what must hold all the same."""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.decision import Outcome
from spindown.contract.job.manifest import JobState, Manifest, decode_manifest, manifest_key
from spindown.domain.fleet import LaunchState
from spindown.domain.reason import ReasonCode
from spindown.memory import PortCall
from spindown.worker.child.runner import BatchDone, ItemDone
from tests.builders import NOW
from tests.proof.invariant import Chronicle
from tests.proof.process import Process
from tests.proof.recovery import recover
from tests.proof.world import MINUTE, ProofWorld, a_world
from tests.slot import Script


def up(workers: int = 1) -> ProofWorld:
    """Return a world of so many workers that are up and have nothing to do just now."""
    world = a_world(max_items_per_job=100, idle_timeout=30 * MINUTE)
    world.grow(workers)
    while world.queue.bodies():
        for process in world.live:
            process.work()
    return world


def begin(world: ProofWorld, process: Process, *, done: int = 0) -> str:
    """Submit a job of 8 items and let a worker commit so many of them; return its id."""
    job_id = world.submit(8)
    for _ in range(3):
        process.step(0)
    if done:
        process.step(0, count=done)
        process.checkpoint(0)
    held = process.hands[0].held
    assert held is not None
    assert (held.job_id, manifest_of(world, job_id).next_item) == (job_id, done)
    return job_id


def finish(world: ProofWorld, process: Process, job_id: str) -> Manifest:
    """Let a worker go on until a job is completed."""
    for _ in range(40):
        world.clock.advance(MINUTE)
        process.beat()
        process.work()
        if manifest_of(world, job_id).state is JobState.COMPLETED:
            break
    return manifest_of(world, job_id)


def manifest_of(world: ProofWorld, job_id: str) -> Manifest:
    return decode_manifest(world.objects.get(manifest_key(job_id)).data)


def close(world: ProofWorld) -> Chronicle:
    """Let the world come to rest; check that nothing was lost, doubled or left."""
    chronicle = Chronicle(world)
    recover(world, chronicle.look)
    chronicle.close()
    return chronicle


def during(method: str, act: Callable[[], object]) -> Callable[[PortCall, Callable[[], Any]], Any]:
    """Return an interceptor that lets something happen once, before the first such call."""
    happened = [False]

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == method and not happened[0]:
            happened[0] = True
            act()
        return proceed()

    return interfere


@pytest.mark.parametrize("method", ["query_each", "backlog", "launch", "transact"])
def test_of_two_ticks_at_once_one_acts(method: str) -> None:
    world = a_world()
    world.submit(4)
    seen: list[Outcome] = []
    world.interfere = during(method, lambda: seen.append(world.tick().outcome))

    first = world.tick()

    world.interfere = world.faults
    assert (first.outcome, seen) == (Outcome.LAUNCHED, [Outcome.LOCKED])
    assert len(world.instances) == 1
    close(world)


def test_an_alarm_that_comes_five_times_launches_once() -> None:
    world = a_world()
    world.submit(4)

    outcomes = [world.tick(source="alarm").outcome for _ in range(5)]

    assert outcomes.count(Outcome.LAUNCHED) == 1
    assert len(world.instances) == 1
    close(world)


@pytest.mark.parametrize("carried_out", [True, False], ids=["carried-out", "not-carried-out"])
def test_a_lost_answer_to_a_launch_costs_no_second_instance(carried_out: bool) -> None:
    world = a_world()
    world.submit(4)
    world.compute.lose_next_answer(is_carried_out=carried_out)

    for _ in range(4):
        world.tick(MINUTE)

    assert len(world.instances) == 1
    assert not [x for x in world.view().launches.values() if x.state is LaunchState.INTENDED]
    close(world)


@pytest.mark.parametrize("lived", [0, 10, 59 * 60])
@pytest.mark.parametrize("looked_after", [59, 61])
def test_an_unseen_end_is_missing_only_once_ec2_forgets_it(lived: int, looked_after: int) -> None:
    world = a_world()
    chronicle = Chronicle(world)
    world.submit(2)
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()
    (instance,) = world.running
    world.clock.advance(timedelta(seconds=lived))
    world.reclaim(instance, notice=False)
    chronicle.look()

    world.tick(timedelta(minutes=looked_after))

    (launch,) = (x for x in world.view().launches.values() if x.intended_at == NOW)
    assert (instance.instance_id in world.rows()) is (looked_after < 60)
    assert launch.reason.code is (
        ReasonCode.ADOPTED if looked_after < 60 else ReasonCode.FATE_UNKNOWN
    )
    recover(world, chronicle.look)
    chronicle.close()


def test_an_unseen_end_is_missing_beside_one_of_its_launch() -> None:
    world = a_world()
    chronicle = Chronicle(world)
    for _ in range(6):
        world.submit(10)
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()
    gone, *_ = world.running
    world.reclaim(gone, notice=False)
    chronicle.look()

    world.tick(timedelta(minutes=61))

    (launch,) = (x for x in world.view().launches.values() if x.intended_at == NOW)
    assert launch.reason.code is ReasonCode.ADOPTED_IN_PART
    recover(world, chronicle.look)
    chronicle.close()


@pytest.mark.parametrize("copies", [1, 3])
def test_a_message_delivered_again_and_again_is_done_once(copies: int) -> None:
    world = up(workers=2)
    job_id = world.submit(8)
    for _ in range(copies):
        world.send_again(job_id)
    for _ in range(4):
        for process in world.live:
            process.step(0)
            process.step(1)
    held = [hand.held for process in world.live for hand in process.hands if hand.held]

    manifest = manifest_of(world, job_id)
    assert [(one.job_id, one.manifest.epoch) for one in held] == [(job_id, manifest.epoch)]
    close(world)


def test_a_conflict_beside_a_claim_is_repeated_with_its_etag() -> None:
    world = up()
    (process,) = world.live
    world.objects.conflict_next(manifest_key("job9"), 2)
    begun = begin(world, process)

    assert manifest_of(world, begun).epoch == 1
    world.objects.conflict_next(manifest_key(begun), 2)
    process.step(0, count=2)
    process.checkpoint(0)

    manifest = manifest_of(world, begun)
    assert (manifest.epoch, manifest.next_item) == (1, 2)
    close(world)


def test_a_zombie_changes_nothing_of_a_job_finished_by_another() -> None:
    world = up(workers=2)
    zombie, other = world.live
    job_id = begin(world, zombie, done=2)
    finish(world, other, job_id)
    finished = world.objects.get(manifest_key(job_id))
    assert decode_manifest(finished.data).owner.startswith(other.instance_id)

    zombie.step(0, count=100)
    zombie.checkpoint(0)
    zombie.step(0, count=100)

    assert world.objects.get(manifest_key(job_id)).etag == finished.etag
    assert zombie.hands[0].is_free
    close(world)


def versioned(world: ProofWorld) -> tuple[Process, Process]:
    """Start a worker of v1 and one of v2 in place of the two that are there."""
    started = []
    for digest, instance in zip(("v1", "v2"), world.running, strict=True):
        world.code_digest = digest
        world.boot(instance.instance_id)
        process = world.processes[instance.instance_id][-1]
        process.runner.script = stamped(process)
        started.append(process)
    return started[0], started[1]


def stamped(process: Process) -> Script:
    """Return code whose results say who has computed them."""
    value = f"by {process.instance_id}"
    return lambda _, batch: [
        *(ItemDone(index=item.index, value=value) for item in batch),
        BatchDone(),
    ]


def computed_by(world: ProofWorld, job_id: str) -> set[str]:
    """Return the instances whose results a job's manifest lists."""
    parts = manifest_of(world, job_id).parts
    lines = [line for p in parts for line in world.objects.get(p.key).data.splitlines()]
    results = [json.loads(line)["result"] for line in lines]
    return {result.removeprefix("by ").partition("/")[0] for result in results}


@pytest.mark.parametrize("is_released", [True, False], ids=["given-back", "died"])
@pytest.mark.parametrize("first", [0, 1], ids=["forward", "backward"])
def test_a_job_under_new_code_holds_results_of_one_version(first: int, is_released: bool) -> None:
    world = up(workers=2)
    both = versioned(world)
    begins, goes_on = both[first], both[1 - first]
    job_id = begin(world, begins, done=3)
    if is_released:
        begins.leave()
    else:
        begins.die()

    manifest = finish(world, goes_on, job_id)

    assert manifest.state is JobState.COMPLETED
    assert manifest.code_version == goes_on.hands[0].context.slot_id.code_version
    assert computed_by(world, job_id) == {goes_on.instance_id}


def test_workers_of_two_versions_that_work_at_once_share_no_job() -> None:
    world = up(workers=2)
    both = versioned(world)
    jobs = [world.submit(8) for _ in range(6)]
    for turn in range(60):
        world.clock.advance(timedelta(seconds=4))
        process = both[turn % 2]
        process.step(turn % 4 // 2, count=3)
        process.checkpoint(turn % 4 // 2)
        process.beat()
    for process in both * 5:
        process.work()

    for job_id in jobs:
        assert manifest_of(world, job_id).state is JobState.COMPLETED
        assert len(computed_by(world, job_id)) == 1

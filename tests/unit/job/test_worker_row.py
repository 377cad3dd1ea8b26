"""A worker's row: what each of its writes says, and what it leaves to others."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.contract.codec import encode
from spindown.contract.row import CLAIMS, worker_partition
from spindown.domain.fleet import GpuUse, WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import SpindownError, Unreachable, WriteConflict
from spindown.job.lease_row import lease_key
from spindown.job.release import release
from spindown.job.worker_row import Condemned
from spindown.memory.interception import PortCall
from spindown.port import Key, Write
from tests.work import WORKLOAD, WorkWorld, a_slot_id, items

MINUTE = timedelta(minutes=1)
JOB = {"job_id": "j", "items": items(4)}


def backlog(world: WorkWorld, name: str) -> float:
    row = world.table.get(Key(partition=worker_partition(WORKLOAD), sort=CLAIMS)) or {}
    return float(row.get(name, 0))


def fail_once(method: str, error: type[SpindownError] = Unreachable) -> Callable[[PortCall], None]:
    """Return what fails the next call of a method."""
    left = iter([True])

    def fail(call: PortCall) -> None:
        if call.method == method and next(left, False):
            raise error("no answer")

    return fail


def test_a_busy_worker_says_so_and_since_when() -> None:
    world = WorkWorld()
    world.worker_row()
    world.clock.advance(MINUTE)

    world.hold(JOB)

    worker, now = world.worker(), world.clock.now()
    assert (worker.state, worker.busy_slots) == (WorkerState.BUSY, 1)
    assert (worker.claimed_at, worker.heartbeat_at, worker.idle_since) == (now, now, None)


def test_a_worker_that_is_free_again_is_idle_from_then_on() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    claimed_at = world.clock.now()
    world.clock.advance(MINUTE)

    world.worker_row().vacate(a_slot_id(), held.lease)

    worker = world.worker()
    assert (worker.state, worker.busy_slots) == (WorkerState.IDLE, 0)
    assert (worker.idle_since, worker.claimed_at) == (world.clock.now(), claimed_at)
    assert world.lease() is None


@pytest.mark.parametrize(("waited", "late"), [(4, 0), (5, 0), (16, 1)])
def test_a_claim_is_counted_and_as_late_after_start_within(waited: int, late: int) -> None:
    world = WorkWorld()
    world.policy = replace(world.policy, start_within=5 * MINUTE)
    world.send(JOB)
    world.clock.advance(waited * MINUTE)

    world.hold()

    assert (backlog(world, "claims"), backlog(world, "late")) == (1, late)


def test_who_takes_a_job_up_again_is_not_late() -> None:
    world = WorkWorld()
    world.policy = replace(world.policy, start_within=5 * MINUTE)
    world.put_manifest(owner="i-9/0", released=True)
    world.send(JOB)
    world.clock.advance(16 * MINUTE)

    world.hold()

    assert backlog(world, "late") == 0


def test_a_change_of_jobs_in_hand_raises_the_version() -> None:
    world = WorkWorld()
    worker_row = world.worker_row()
    versions = [world.worker().version]

    held = world.hold(JOB)
    versions.append(world.worker().version)
    worker_row.beat()
    versions.append(world.worker().version)
    worker_row.vacate(a_slot_id(), held.lease)
    versions.append(world.worker().version)

    assert [version - versions[0] for version in versions] == [0, 1, 1, 2]


@pytest.mark.parametrize("error", [Unreachable, WriteConflict], ids=lambda e: e.__name__)
def test_a_claim_whose_answer_was_lost_is_a_claim(error: type[SpindownError]) -> None:
    world = WorkWorld()
    world.worker_row()
    world.after = fail_once("transact", error)

    held = world.hold(JOB)

    assert world.lease() == held.lease
    assert (world.worker().state, world.worker().busy_slots) == (WorkerState.BUSY, 1)
    assert (held.manifest.released, backlog(world, "claims")) == (False, 1)
    world.worker_row().beat()
    assert world.worker().busy_slots == 1


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_claim_that_did_not_get_through_leaves_no_trace(is_dark: bool) -> None:
    def refuse(call: PortCall) -> None:
        if call.method == "transact" or (is_dark and call.port == "table"):
            raise Unreachable("no answer")

    world = WorkWorld()
    world.worker_row()
    world.before = refuse
    with pytest.raises(Unreachable):
        world.hold(JOB)
    world.before = None

    assert world.lease() is None
    assert world.manifest("j").released
    world.worker_row().beat()
    assert (world.worker().state, world.worker().busy_slots) == (WorkerState.IDLE, 0)


@pytest.mark.parametrize("ending", ["cleared", "cleared by another", "unanswered"])
def test_heartbeats_leave_the_time_since_when_a_worker_is_idle(ending: str) -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    worker_row = world.worker_row()
    world.clock.advance(MINUTE)
    if ending == "cleared by another":
        world.table.write(Write(key=a_slot_id().lease_key, delete=True))
    if ending == "unanswered":
        world.before = fail_once("transact")
        with pytest.raises(Unreachable):
            worker_row.vacate(a_slot_id(), held.lease)
        assert world.worker().busy_slots == 1
        worker_row.beat()
    else:
        worker_row.vacate(a_slot_id(), held.lease)
    idle_since = world.clock.now()

    for _ in range(3):
        world.clock.advance(MINUTE)
        worker_row.beat()

    worker = world.worker()
    assert (worker.state, worker.busy_slots) == (WorkerState.IDLE, 0)
    assert (worker.idle_since, worker.heartbeat_at) == (idle_since, world.clock.now())


def test_a_worker_that_is_condemned_is_told_which_it_is() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    worker_row = world.worker_row()
    world.change_worker("i-1", state=WorkerState.CONDEMNED)

    with pytest.raises(Condemned, match=r"^i-1$"):
        worker_row.beat()
    with pytest.raises(Condemned, match=r"^i-1$"):
        worker_row.occupy(a_slot_id(), held.lease, is_late=False, was_requeued=False)


def test_a_heartbeat_says_how_the_gpus_were_used_and_when() -> None:
    world = WorkWorld()
    worker_row = world.worker_row()
    world.clock.advance(MINUTE)

    worker_row.beat(GpuUse(percent=80.0, vram_percent=50.0, vram_gib=8.0))

    worker = world.worker()
    assert worker.heartbeat_at == world.clock.now()
    assert (worker.gpu_percent, worker.vram_percent, worker.vram_gib) == (80.0, 50.0, 8.0)


def test_a_worker_that_drains_says_since_when_with_every_write() -> None:
    world = WorkWorld()
    worker_row = world.worker_row()
    drained_at = world.clock.now()
    worker_row.begin_draining()
    world.change_worker("i-1", draining_at=None)
    world.clock.advance(MINUTE)

    worker_row.beat()

    assert world.worker().draining_at == drained_at


def test_a_worker_drains_though_the_answer_was_lost() -> None:
    world = WorkWorld()
    worker_row = world.worker_row()
    world.just_before("write", lambda call: world.table.write(*call.args))

    assert worker_row.drain(Reason(ReasonCode.IDLE), unless_warm=True)
    assert world.worker().version == 2


def test_a_worker_drained_and_ended_at_once_goes() -> None:
    def end(call: PortCall) -> None:
        if call.method == "write":
            world.after = None
            world.change_worker("i-1", state=WorkerState.ENDED)

    world = WorkWorld()
    worker_row = world.worker_row()
    world.after = end

    assert worker_row.drain(Reason(ReasonCode.IDLE))


@pytest.mark.parametrize("state", [WorkerState.BUSY, WorkerState.CONDEMNED])
def test_a_worker_that_is_not_idle_any_more_does_not_drain(state: WorkerState) -> None:
    world = WorkWorld()
    worker_row = world.worker_row()
    world.change_worker("i-1", state=state)

    assert not worker_row.drain(Reason(ReasonCode.IDLE))
    assert world.worker().state is state


def test_a_lease_row_lies_under_its_instance_and_slot() -> None:
    assert lease_key(WORKLOAD, "i-1/3").sort == a_slot_id("i-1", 3).lease_key.sort
    assert "i-1#3" in lease_key(WORKLOAD, "i-1/3").sort


def test_a_lease_knows_the_items_and_what_of_them_is_done() -> None:
    world = WorkWorld()
    world.hold(JOB)

    lease = world.lease()

    assert lease is not None
    assert (lease.items, lease.items_done, lease.epoch) == (4, 0, 1)


def test_a_release_uses_its_own_handle_and_no_other_job_s_row() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    others = replace(held.lease, job_id="k", receipt_handle="not ours")
    world.table.write(Write(key=a_slot_id().lease_key, set=encode(others)))

    release(
        held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports, policy=Policy()
    )

    assert world.lease() == others
    assert world.queue.backlog().visible == 1


def test_a_worker_with_its_row_in_history_is_condemned() -> None:
    world = WorkWorld()
    worker_row = world.worker_row()
    world.table.write(Write(key=world.worker_key("i-1"), delete=True))
    with pytest.raises(Condemned, match=r"^i-1$"):
        worker_row.beat()
    assert world.table.get(world.worker_key("i-1")) is None

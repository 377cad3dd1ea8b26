"""A worker comes up: it finds its row, checks in, and lets go what a process before it held."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.contract.codec import decode, encode
from spindown.contract.row import requeued_sort_key, worker_partition
from spindown.domain.fleet import RequeuedJob, WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import NotFound, PreconditionFailed
from spindown.job.worker_row import Condemned, WorkerRow
from spindown.port import Key, Write
from tests.work import WORKLOAD, WorkWorld, a_slot_id, items

MINUTE = timedelta(minutes=1)
JOB = {"job_id": "j", "items": items(4)}

SILENT = Reason(ReasonCode.NEVER_CHECKED_IN, {"within_seconds": 600.0})


def unknown(world: WorkWorld) -> WorkerRow:
    return WorkerRow(workload=WORKLOAD, instance_id="i-1", ports=world.ports)


def test_a_check_in_says_when_and_that_nothing_is_in_hand() -> None:
    world = WorkWorld()
    launched = world.launch(busy_slots=2, version=4)
    world.clock.advance(MINUTE)

    world.worker_row("i-2")
    worker = unknown(world).check_in(patience=timedelta(0))

    assert worker == world.worker()
    now = world.clock.now()
    assert (worker.state, worker.busy_slots) == (WorkerState.IDLE, 0)
    assert (worker.checked_in_at, worker.heartbeat_at, worker.idle_since) == (now, now, now)
    assert worker.version == launched.version + 1


def test_a_second_check_in_keeps_the_time_of_the_first() -> None:
    world = WorkWorld()
    first = world.clock.now()
    world.worker_row()
    world.clock.advance(MINUTE)

    assert unknown(world).check_in(patience=timedelta(0)).checked_in_at == first


@pytest.mark.parametrize("ask", [WorkerRow.await_row, WorkerRow.check_in])
def test_an_instance_without_a_row_waits_then_gives_up(
    ask: Callable[..., object],
) -> None:
    world = WorkWorld()
    began_at = world.clock.now()

    with pytest.raises(NotFound, match="i-1"):
        ask(unknown(world), patience=10 * MINUTE)

    assert world.clock.now() - began_at == 10 * MINUTE


def test_the_row_is_found_when_it_comes_late() -> None:
    world = WorkWorld()

    def launch_late(_: object) -> None:
        if world.clock.now() - began_at >= MINUTE:
            world.before = None
            world.launch()

    began_at, world.before = world.clock.now(), launch_late

    assert unknown(world).await_row(patience=2 * MINUTE).instance_id == "i-1"
    assert world.clock.now() - began_at == MINUTE


def test_who_is_condemned_is_told_why_at_its_check_in() -> None:
    world = WorkWorld()
    world.launch(state=WorkerState.CONDEMNED, reason=SILENT)

    with pytest.raises(Condemned, match="i-1 is condemned: never-checked-in"):
        unknown(world).check_in(patience=timedelta(0))


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_worker_given_up_during_its_check_in_stays_ended(is_gone: bool) -> None:
    world = WorkWorld()
    world.launch()

    def give_up(_: object) -> None:
        if is_gone:
            world.table.write(Write(key=world.worker_key("i-1"), delete=True))
        else:
            world.change_worker("i-1", state=WorkerState.CONDEMNED, version=1)

    world.just_before("write", give_up)
    with pytest.raises(NotFound if is_gone else Condemned):
        unknown(world).check_in(patience=timedelta(0))

    assert is_gone is (world.table.get(world.worker_key("i-1")) is None)


def test_who_never_finds_the_row_as_it_was_read_gives_up() -> None:
    world = WorkWorld()
    world.launch()
    row = world.table.get(world.worker_key("i-1")) or {}
    row.pop("version")
    world.table.write(Write(key=world.worker_key("i-1"), delete=True))
    world.table.write(Write(key=world.worker_key("i-1"), set=row))

    with pytest.raises(PreconditionFailed, match="i-1"):
        unknown(world).check_in(patience=10 * MINUTE)

    assert world.calls["table.write"] == 5


def test_a_check_in_behind_another_write_is_made_over_it() -> None:
    world = WorkWorld()
    world.launch()
    world.just_before("write", lambda _: world.change_worker("i-1", version=7))

    assert unknown(world).check_in(patience=timedelta(0)).version == 8


def test_a_new_process_frees_the_jobs_of_the_one_before() -> None:
    world = WorkWorld()
    lease = world.hold(JOB).lease
    assert world.lease() is not None
    assert world.queue.backlog().visible == 0
    world.clock.advance(MINUTE)

    unknown(world).check_in(patience=timedelta(0))

    assert world.lease() is None
    assert world.queue.backlog().visible == 1
    row = world.table.get(Key(partition=worker_partition(WORKLOAD), sort=requeued_sort_key("j")))
    assert row is not None
    assert decode(RequeuedJob, row) == lease.requeued(0, world.clock.now())


def test_a_lapsed_lease_is_remembered_from_when_it_lapsed() -> None:
    world = WorkWorld()
    lease = world.hold(JOB).lease
    world.clock.advance(60 * MINUTE)

    unknown(world).check_in(patience=timedelta(0))

    row = world.table.get(Key(partition=worker_partition(WORKLOAD), sort=requeued_sort_key("j")))
    assert row is not None
    assert decode(RequeuedJob, row).at == lease.deadline < world.clock.now()


def test_a_lease_that_is_another_by_now_is_not_let_go() -> None:
    world = WorkWorld()
    before = world.hold(JOB).lease
    later = replace(before, job_id="k")
    key = a_slot_id().lease_key
    world.just_before("transact", lambda _: world.table.write(Write(key=key, set=encode(later))))

    assert unknown(world).check_in(patience=timedelta(0)).state is WorkerState.IDLE

    assert world.lease() == later
    assert world.queue.backlog().visible == 0


@pytest.mark.parametrize("trouble", ["stale", "damaged"])
def test_an_old_lease_that_stays_blocks_no_other_and_no_worker(trouble: str) -> None:
    world = WorkWorld()
    first = world.hold(JOB)
    world.hold({**JOB, "job_id": "k"}, a_slot_id("i-1", 1))
    if trouble == "stale":
        world.queue.extend(first.message.receipt_handle, timedelta(0))
    else:
        world.table.write(Write(key=a_slot_id().lease_key, set={"deadline": "soon"}))
    hidden = world.queue.backlog().in_flight

    assert unknown(world).check_in(patience=timedelta(0)).state is WorkerState.IDLE

    assert (world.lease(), world.lease(a_slot_id("i-1", 1))) == (None, None)
    assert world.queue.backlog().in_flight == hidden - 1

"""How a worker goes: it drains, is unfit, or is told by EC2 that its instance is taken."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from spindown.contract.codec import encode
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.job.worker_row import WorkerRow
from spindown.port import Write
from tests.builders import unfit
from tests.work import WORKLOAD, WorkWorld, a_slot_id, items

MINUTE = timedelta(minutes=1)
JOB = {"job_id": "j", "items": items(4)}


def test_an_idle_worker_drains_with_its_reason_a_busy_one_stays() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    worker_row = world.worker_row()

    assert not worker_row.drain(Reason(ReasonCode.IDLE))
    worker_row.vacate(a_slot_id(), held.lease)
    before = world.worker()
    assert worker_row.drain(Reason(ReasonCode.IDLE))

    worker = world.worker()
    assert (worker.state, worker.reason) == (WorkerState.DRAINED, Reason(ReasonCode.IDLE))
    assert worker.version == before.version + 1


@pytest.mark.parametrize("leave", [WorkerRow.drain, WorkerRow.mark_unfit])
def test_to_leave_is_a_sign_of_life(leave: Callable[[WorkerRow, Reason], object]) -> None:
    world = WorkWorld()
    worker_row = world.worker_row()
    world.clock.advance(11 * MINUTE)

    leave(worker_row, Reason(ReasonCode.STOPPED))

    assert world.worker().last_sign == world.clock.now()


def test_a_default_caller_drains_a_warm_worker_too() -> None:
    world = WorkWorld()
    worker_row = world.worker_row()
    world.change_worker("i-1", warm_until=world.clock.now() + MINUTE)

    assert worker_row.drain(Reason(ReasonCode.INTERRUPTED))


@pytest.mark.parametrize(("unless_warm", "minutes_left", "drains"), [
    (True, 1, False),
    (True, 0, True),
    (False, 1, True),
])  # fmt: skip
def test_a_worker_that_is_kept_warm_stays_until_that_time(
    unless_warm: bool, minutes_left: int, drains: bool
) -> None:
    world = WorkWorld()
    worker_row = world.worker_row()
    world.change_worker("i-1", warm_until=world.clock.now() + minutes_left * MINUTE)

    assert worker_row.drain(Reason(ReasonCode.IDLE), unless_warm=unless_warm) is drains


def test_an_unfit_machine_says_why_and_takes_no_job() -> None:
    world = WorkWorld()
    worker_row = world.worker_row()

    before = world.worker()

    worker_row.mark_unfit(unfit("its GPU fails"))

    worker, now = world.worker(), world.clock.now()
    assert worker.version == before.version + 1
    assert (worker.unfit_at, worker.draining_at, worker.reason) == (
        now,
        now,
        unfit("its GPU fails"),
    )


@pytest.mark.parametrize(("record", "field"), [
    (WorkerRow.record_notice, "interrupted_at"),
    (WorkerRow.record_rebalance, "rebalance_at"),
])  # fmt: skip
def test_the_first_word_of_ec2_stands_and_makes_no_row(
    record: Callable[[WorkerRow, datetime], None], field: str
) -> None:
    world = WorkWorld()
    first = world.clock.now()
    record(WorkerRow(workload=WORKLOAD, instance_id="i-1", ports=world.ports), first)
    assert world.table.get(world.worker_key("i-1")) is None
    worker_row = world.worker_row()

    record(worker_row, first)
    record(worker_row, first + MINUTE)

    assert getattr(world.worker(), field) == first


def test_a_lease_ends_with_its_instance_in_row_and_holder() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    end = world.clock.now() + MINUTE

    bounded = world.worker_row().bound_lease(a_slot_id(), held.lease, end)

    assert bounded == replace(held.lease, deadline=end, not_after=end) == world.lease()


def test_a_lease_that_ends_before_its_instance_stays() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    end = held.lease.deadline + MINUTE

    bounded = world.worker_row().bound_lease(a_slot_id(), held.lease, end)

    assert bounded == replace(held.lease, not_after=end) == world.lease()


def test_the_end_of_an_instance_bounds_no_lease_of_another_job() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    others = replace(held.lease, job_id="k")
    world.table.write(Write(key=a_slot_id().lease_key, set=encode(others)))

    world.worker_row().bound_lease(a_slot_id(), held.lease, world.clock.now() + MINUTE)

    assert world.lease() == others

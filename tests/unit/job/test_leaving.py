"""How a worker goes: it drains, is unfit, or is told by EC2 that its instance is taken."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from spindown.contract.codec import encode
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.job.presence import Presence
from spindown.port import Write
from tests.builders import unfit
from tests.work import WORKLOAD, WorkWorld, a_slot_id, items

MINUTE = timedelta(minutes=1)
JOB = {"job_id": "j", "items": items(4)}


def test_an_idle_worker_drains_with_its_reason_a_busy_one_stays() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    presence = world.presence()

    assert not presence.drain(Reason(ReasonCode.IDLE))
    presence.vacate(a_slot_id(), held.lease)
    before = world.worker()
    assert presence.drain(Reason(ReasonCode.IDLE))

    worker = world.worker()
    assert (worker.state, worker.reason) == (WorkerState.DRAINED, Reason(ReasonCode.IDLE))
    assert worker.version == before.version + 1


@pytest.mark.parametrize("leave", [Presence.drain, Presence.mark_unfit])
def test_to_leave_is_a_sign_of_life(leave: Callable[[Presence, Reason], object]) -> None:
    world = WorkWorld()
    presence = world.presence()
    world.clock.advance(11 * MINUTE)

    leave(presence, Reason(ReasonCode.STOPPED))

    assert world.worker().last_sign == world.clock.now()


def test_a_default_caller_drains_a_warm_worker_too() -> None:
    world = WorkWorld()
    presence = world.presence()
    world.change_worker("i-1", warm_until=world.clock.now() + MINUTE)

    assert presence.drain(Reason(ReasonCode.INTERRUPTED))


@pytest.mark.parametrize(("unless_warm", "minutes_left", "drains"), [
    (True, 1, False),
    (True, 0, True),
    (False, 1, True),
])  # fmt: skip
def test_a_worker_that_is_kept_warm_stays_until_that_time(
    unless_warm: bool, minutes_left: int, drains: bool
) -> None:
    world = WorkWorld()
    presence = world.presence()
    world.change_worker("i-1", warm_until=world.clock.now() + minutes_left * MINUTE)

    assert presence.drain(Reason(ReasonCode.IDLE), unless_warm=unless_warm) is drains


def test_an_unfit_machine_says_why_and_takes_no_job() -> None:
    world = WorkWorld()
    presence = world.presence()

    before = world.worker()

    presence.mark_unfit(unfit("its GPU fails"))

    worker, now = world.worker(), world.clock.now()
    assert worker.version == before.version + 1
    assert (worker.unfit_at, worker.draining_at, worker.reason) == (
        now,
        now,
        unfit("its GPU fails"),
    )


@pytest.mark.parametrize(("record", "field"), [
    (Presence.record_notice, "interrupted_at"),
    (Presence.record_rebalance, "rebalance_at"),
])  # fmt: skip
def test_the_first_word_of_ec2_stands_and_makes_no_row(
    record: Callable[[Presence, datetime], None], field: str
) -> None:
    world = WorkWorld()
    first = world.clock.now()
    record(Presence(workload=WORKLOAD, instance_id="i-1", ports=world.ports), first)
    assert world.table.get(world.worker_key("i-1")) is None
    presence = world.presence()

    record(presence, first)
    record(presence, first + MINUTE)

    assert getattr(world.worker(), field) == first


def test_a_lease_ends_with_its_instance_in_row_and_holder() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    end = world.clock.now() + MINUTE

    bounded = world.presence().bound_lease(a_slot_id(), held.lease, end)

    assert bounded == replace(held.lease, deadline=end, not_after=end) == world.lease()


def test_a_lease_that_ends_before_its_instance_stays() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    end = held.lease.deadline + MINUTE

    bounded = world.presence().bound_lease(a_slot_id(), held.lease, end)

    assert bounded == replace(held.lease, not_after=end) == world.lease()


def test_the_end_of_an_instance_bounds_no_lease_of_another_job() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    others = replace(held.lease, job_id="k")
    world.table.write(Write(key=a_slot_id().lease_key, set=encode(others)))

    world.presence().bound_lease(a_slot_id(), held.lease, world.clock.now() + MINUTE)

    assert world.lease() == others

"""How much work is left of a job, and by when, whoever holds it or nobody does."""

from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.domain.fleet import Lease, RequeuedJob, Worker
from spindown.domain.learning import Knowledge, ThroughputRecord
from spindown.domain.schedule import (
    Unfinished,
    Waiting,
    held_job,
    is_measured,
    never_claimed,
    requeued,
)
from tests.builders import NOW, ON_DEMAND, SPOT, a_lease, a_policy, a_worker, job_sizes, minutes

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
#: A T4 does 60 items an hour, measured for so long that the prior is nothing.
RECORD = ThroughputRecord(items=60_000.0, hours=1000.0, reports=1000)
KNOWLEDGE = Knowledge(throughput={("T4", 1.0): RECORD}, jobs=job_sizes(100.0, 20.0))
#: The same of four on one machine, a slot each; no job was seen to end.
SIZELESS = Knowledge(throughput={("T4", 4.0): RECORD})
POLICY = a_policy(lease_duration=minutes(5), items_per_job_estimate=30.0)


def held(
    lease: Lease, worker: Worker | None = None, knowledge: Knowledge = KNOWLEDGE
) -> Unfinished:
    return held_job(
        lease, worker or a_worker(), within=DAY, knowledge=knowledge, policy=POLICY, now=NOW
    )


def a_long_lease(**changes: object) -> Lease:
    """Return a lease of an hour, on 600 items of which 60 are done, heard of now."""
    base = a_lease(
        items=600,
        items_done=60,
        claimed_at=NOW - HOUR,
        sent_at=NOW - 2 * HOUR,
        deadline=NOW + minutes(5),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def test_a_job_may_lose_its_time_since_claim_and_what_is_left() -> None:
    job = held(a_long_lease())

    assert (job.held, job.at_risk) == (HOUR, HOUR + job.work)


def test_work_left_is_items_left_at_the_measured_speed() -> None:
    job = held(a_long_lease())

    assert job.work == pytest.approx(9 * HOUR, rel=0.01)
    assert job.due == NOW + 22 * HOUR
    assert (job.on, job.instance_id, job.job_id) == (SPOT, "i-1", a_lease().job_id)


def test_a_job_that_is_slower_than_most_takes_longer() -> None:
    # 30 items in an hour, and the one in hand.
    assert held(a_long_lease(items_done=30)).work == pytest.approx(569 / 31 * HOUR, rel=1e-4)


def test_how_slow_a_job_is_its_last_heartbeat_told() -> None:
    # Two minutes of the lease are left of five: 19 items in 57 minutes.
    lease = a_long_lease(items_done=18, deadline=NOW + minutes(2))

    assert held(lease).work == pytest.approx(581 / 20 * HOUR, rel=1e-4)


def test_a_job_that_was_resumed_is_not_taken_to_be_fast() -> None:
    job = held(a_long_lease(items_done=560, first_item=500))

    assert job.work == pytest.approx(40 / 60 * HOUR, rel=0.05)


@pytest.mark.parametrize(
    ("age", "first_item", "left"),
    [
        pytest.param(0.0, 0, 10.0, id="not begun"),
        pytest.param(0.5, 0, 9.5, id="half done"),
        pytest.param(0.5, 500, 9.5, id="half done since it was resumed"),
        pytest.param(1.5, 0, 9.0, id="longer than it should take: done"),
    ],
)
def test_the_item_in_hand_counts_as_far_as_it_should_be(
    age: float, first_item: int, left: float
) -> None:
    lease = a_long_lease(
        items=first_item + 10,
        items_done=first_item,
        first_item=first_item,
        claimed_at=NOW - minutes(age),
    )

    assert held(lease).work == pytest.approx(minutes(left), rel=1e-4)


def test_one_slot_of_several_is_expected_to_do_its_share() -> None:
    lease = a_long_lease(items=10, items_done=0, claimed_at=NOW - minutes(0.5))
    worker = a_worker(gpu_count=4.0, slots=4)

    assert held(lease, worker, SIZELESS).work == pytest.approx(minutes(9.5), rel=1e-4)


def test_a_job_whose_items_are_all_done_takes_no_time() -> None:
    assert held(a_long_lease(items_done=600)).work == timedelta(0)


def test_what_ec2_takes_away_waits_already() -> None:
    worker = a_worker(interrupted_at=NOW + minutes(2), capacity_type=SPOT)

    assert held(a_long_lease(), worker).on is None
    assert held(a_long_lease(), a_worker(capacity_type=ON_DEMAND)).on is ON_DEMAND


@pytest.mark.parametrize(
    ("knowledge", "work"),
    [
        pytest.param(KNOWLEDGE, minutes(60), id="the mean of those that were done"),
        pytest.param(SIZELESS, minutes(30), id="none was: the estimate"),
    ],
)
def test_a_job_of_unknown_size_is_taken_for_a_usual_one(
    knowledge: Knowledge, work: timedelta
) -> None:
    lease = a_long_lease(items=0, items_done=0, claimed_at=NOW)
    due = RequeuedJob(job_id="j", sent_at=NOW, items=0, items_done=0, at=NOW)

    job = requeued(due, within=DAY, knowledge=knowledge, policy=POLICY)

    assert held(lease, knowledge=knowledge).work == pytest.approx(work, rel=1e-4)
    assert job.work == pytest.approx(work, rel=1e-4)


@pytest.mark.parametrize(
    ("pace", "hours"), [(None, 9.0), (30.0, 18.0), (600.0, 9.0)], ids=["untold", "slow", "fast"]
)
def test_a_job_nobody_holds_takes_what_its_last_holder_found(
    pace: float | None, hours: float
) -> None:
    due = RequeuedJob(
        job_id="j", sent_at=NOW, items=600, items_done=60, items_per_hour=pace, at=NOW
    )

    job = requeued(due, within=DAY, knowledge=KNOWLEDGE, policy=POLICY)

    assert job.work == pytest.approx(hours * HOUR, rel=0.01)
    assert (job.job_id, job.due, job.on) == ("j", NOW + DAY, None)


def test_a_requeued_job_with_all_items_done_takes_no_time() -> None:
    due = RequeuedJob(job_id="j", sent_at=NOW, items=600, items_done=600, at=NOW)

    assert requeued(due, within=DAY, knowledge=KNOWLEDGE, policy=POLICY).work == timedelta(0)


def test_unclaimed_messages_are_as_large_as_the_largest() -> None:
    waiting = [
        Waiting(since=NOW - HOUR, jobs=2),
        Waiting(since=NOW, jobs=5),
        Waiting(since=NOW, jobs=1),
    ]

    jobs = list(never_claimed(waiting, 3, items=50, within=DAY, knowledge=KNOWLEDGE, policy=POLICY))

    assert [(job.job_id, job.jobs) for job in jobs] == [("", 2), ("", 1)]
    # A tick may be a tick late to see them.
    assert jobs[0].due == NOW + 23 * HOUR - minutes(1)
    assert jobs[0].work == pytest.approx(100 / 60 * HOUR, rel=0.01)


def test_a_larger_held_job_shows_how_large_messages_may_be() -> None:
    waiting = [Waiting(since=NOW, jobs=1)]

    (job,) = never_claimed(waiting, 1, items=600, within=DAY, knowledge=KNOWLEDGE, policy=POLICY)

    assert job.work == pytest.approx(10 * HOUR, rel=0.01)


def test_without_a_known_size_messages_are_as_estimated() -> None:
    waiting = [Waiting(since=NOW, jobs=1)]

    (job,) = never_claimed(waiting, 1, items=0, within=DAY, knowledge=SIZELESS, policy=POLICY)

    assert job.work == pytest.approx(minutes(30), rel=1e-4)


@pytest.mark.parametrize(
    ("items", "hours", "expected"),
    [(0.0, 0.0, False), (0.0, 1.0, False), (1.0, 0.0, False), (1.0, 0.5, True)],
)
def test_speed_is_measured_once_items_were_done_in_some_time(
    items: float, hours: float, expected: bool
) -> None:
    record = ThroughputRecord(items=items, hours=hours)

    assert is_measured(Knowledge(throughput={("T4", 1.0): record})) is expected
    assert not is_measured(Knowledge())

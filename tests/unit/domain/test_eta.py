"""When a batch will be done follows from its items, its jobs and the slots that there are."""

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.eta import (
    ExpectedSlots,
    OwnPace,
    PaceSpread,
    WorkLeft,
    expect_end,
    expect_slots,
    pace_spread,
)
from spindown.domain.fleet import LaunchState
from spindown.domain.learning import Knowledge, ThroughputRecord
from spindown.domain.policy import Policy
from tests.builders import NOW, a_launch, a_lease, a_worker

EVEN = PaceSpread(slow=1.0, fast=1.0)
LEFT = WorkLeft(items=300.0, jobs=3, largest_job=100.0)


def slots(count: int, speed: float = 100.0, *, hours: float = 0.0, late: float = 0.0) -> Any:
    return ExpectedSlots(
        count=count,
        items_per_hour=speed,
        ready_at=NOW + timedelta(hours=hours),
        ready_late_at=NOW + timedelta(hours=max(hours, late)),
    )


def hours_of(left: WorkLeft, *there: ExpectedSlots, spread: PaceSpread = EVEN) -> tuple[float, ...]:
    eta = expect_end(left, there, spread, NOW)
    assert eta is not None
    return tuple((at - NOW) / timedelta(hours=1) for at in (eta.sooner, eta.likely, eta.later))


@pytest.mark.parametrize(
    ("left", "there", "spread", "hours"),
    [
        pytest.param(LEFT, [slots(2)], EVEN, (1.5, 1.5, 2.5), id="the example"),
        pytest.param(LEFT, [slots(9)], EVEN, (1.0, 1.0, 2.0), id="no more slots than jobs"),
        pytest.param(
            replace(LEFT, jobs=1, largest_job=300.0), [slots(9)], EVEN, (3, 3, 6), id="one job"
        ),
        pytest.param(
            LEFT, [slots(1), slots(1, hours=1.0)], EVEN, (2.0, 2.0, 3.0), id="one that boots"
        ),
        pytest.param(LEFT, [slots(2, hours=1.0, late=2.0)], EVEN, (2.5, 2.5, 4.5), id="slow boot"),
        pytest.param(
            LEFT, [slots(3), slots(3, hours=9.0)], EVEN, (1.0, 1.0, 2.0), id="boots for nothing"
        ),
        pytest.param(
            replace(LEFT, other_items=300.0, other_jobs=3),
            [slots(3)],
            EVEN,
            (1.0, 1.5, 3.0),
            id="other work",
        ),
        pytest.param(
            LEFT, [slots(3)], PaceSpread(slow=0.5, fast=2.0), (0.5, 1.0, 4.0), id="uneven items"
        ),
        pytest.param(
            WorkLeft(items=0.0, jobs=1, largest_job=0.0), [slots(1)], EVEN, (0, 0, 0), id="at once"
        ),
    ],
)
def test_the_range_follows_the_rule(
    left: WorkLeft, there: list[ExpectedSlots], spread: PaceSpread, hours: tuple[float, ...]
) -> None:
    assert hours_of(left, *there, spread=spread) == pytest.approx(hours)


def test_the_worked_example_of_a_batch_s_own_pace() -> None:
    own = OwnPace(hours=1.0, in_hand=1, hours_in_hand=1.0)

    assert own.usual(100.0) == pytest.approx(1.5 / 101)
    assert own.slowest(100.0) == pytest.approx(0.5 / 100)
    assert (OwnPace().usual(100.0), OwnPace().slowest(100.0)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("age", "minutes"),
    [
        # Before the data sheet's second is over, that is what is told.
        (0.0, (1 / 60, 1 / 60, 2 / 60)),
        (9.0, (1.0, 9.0, 81.0)),
        (90.0, (10.0, 90.0, 810.0)),
    ],
)
def test_an_item_in_hand_has_left_what_its_age_says(age: float, minutes: tuple[float, ...]) -> None:
    left = WorkLeft(items=1.0, jobs=1, largest_job=1.0)
    own = OwnPace(oldest=age / 60)

    eta = expect_end(left, [slots(1, 3600.0)], EVEN, NOW, own)

    assert eta is not None
    told = tuple((at - NOW) / timedelta(minutes=1) for at in (eta.sooner, eta.likely, eta.later))
    assert told == pytest.approx(minutes, rel=1e-4)


QUICK, LONG = 0.01, 120.0
#: Seconds after which the worker commits what is done, and tells that it is alive.
COMMIT, HEARTBEAT = 10.0, 60.0


def history(lengths: list[float]) -> Iterator[tuple[float, OwnPace, float]]:
    """Yield for each heartbeat of one job: when, what it has shown, and what is left of items."""
    ends = list(accumulate(lengths))
    for beat in range(1, int(ends[-1] / HEARTBEAT)):
        at = beat * HEARTBEAT
        done = sum(end <= at for end in ends)
        # The last commit was due with an item after so long, or is that of the first items.
        committed, committed_at = 0, 0.0
        for number, end in enumerate(ends[:done], 1):
            if end - committed_at >= COMMIT or number == done:
                committed, committed_at = number, end
        own = OwnPace(
            items=done,
            hours=at / 3600,
            in_hand=1,
            items_in_hand=done - committed,
            hours_in_hand=(at - committed_at) / 3600,
        )
        yield at, own, len(lengths) - done


@pytest.mark.parametrize("order", ["quick first", "long first", "mixed", "long alone"])
def test_long_items_after_quick_ones_are_within_the_range(order: str) -> None:
    lengths = [QUICK] * 1000 * (order != "long alone") + [LONG] * 10
    if order == "long first":
        lengths.reverse()
    if order == "mixed":
        Random(1).shuffle(lengths)
    end, seen, learned = sum(lengths), 0, 3600 / QUICK

    for at, own, left in history(lengths):
        work = WorkLeft(items=left, jobs=1, largest_job=left)
        eta = expect_end(work, [slots(1, learned)], EVEN, NOW, own)
        assert eta is not None
        if own.hours_in_hand * 3600 >= LONG / 4:
            sooner, later = eta.sooner - NOW, eta.later - NOW
            assert sooner <= timedelta(seconds=end - at) <= later
            seen += 1
    assert seen >= 9


@pytest.mark.parametrize("there", [[], [slots(0)], [slots(1, 0.0)]])
def test_without_a_slot_of_known_speed_nothing_is_said(there: list[ExpectedSlots]) -> None:
    assert expect_end(LEFT, there, EVEN, NOW) is None


AMOUNTS = st.floats(0.0, 1e15)


@given(
    items=AMOUNTS,
    jobs=st.integers(0, 10**9),
    others=AMOUNTS,
    speeds=st.lists(st.floats(1e-9, 1e15), min_size=1, max_size=4),
    ready=st.floats(0.0, 1e4),
    slow=st.floats(1e-6, 1.0),
)
def test_the_three_times_are_in_order_whatever_is_learned(
    items: float, jobs: int, others: float, speeds: list[float], ready: float, slow: float
) -> None:
    left = WorkLeft(items=items, jobs=jobs, largest_job=items, other_items=others, other_jobs=1)
    there = [slots(n + 1, speed, hours=ready * n) for n, speed in enumerate(speeds)]

    sooner, likely, later = hours_of(left, *there, spread=PaceSpread(slow=slow, fast=1 / slow))

    assert 0.0 <= sooner <= likely <= later


def known(*rates: float) -> Knowledge:
    record = ThroughputRecord(items=1000.0, hours=10.0, reports=len(rates), lives=9, rates=rates)
    return Knowledge(throughput={("T4", 1.0): record}, boots=(120.0, 120.0, 600.0))


def test_slots_are_those_of_workers_and_of_launches() -> None:
    there = a_worker("i-1", slots=2)
    boots = a_worker("i-2", checked_in_at=None, launched_at=NOW)
    asked = a_launch(count=3, slots=2)
    refused = a_launch("other", state=LaunchState.REFUSED)

    found = expect_slots([there, boots], [asked, refused], known(100.0), Policy(), NOW)

    assert [one.count for one in found] == [2, 1, 6]
    now, booting, launching = found
    assert now.ready_at <= NOW
    assert (booting.ready_at - NOW, booting.ready_late_at - NOW) == (
        timedelta(minutes=2),
        timedelta(seconds=6600 / 23),
    )
    assert launching.items_per_hour == 500.0
    assert now.items_per_hour > 0.0


@pytest.mark.parametrize(
    ("seconds", "usual", "late"),
    [(60, 120, 287), (200, 287, 287), (400, 800, 800)],
    ids=["as usual", "later than usual", "later than ever"],
)
def test_a_boot_ends_after_now_however_long_it_takes(seconds: int, usual: int, late: int) -> None:
    began = NOW - timedelta(seconds=seconds)
    worker = a_worker(checked_in_at=None, launched_at=began)

    (found,) = expect_slots([worker], [], known(100.0), Policy(), NOW)

    times = [round((at - began).total_seconds()) for at in (found.ready_at, found.ready_late_at)]
    assert times == [usual, late]


def test_a_job_is_not_done_before_it_can_be_received() -> None:
    at = NOW + timedelta(hours=4)

    assert hours_of(replace(LEFT, not_before=at), slots(2)) == (4.0, 5.0, 5.0)


def test_a_slot_that_holds_another_job_is_free_after_it() -> None:
    one = WorkLeft(items=1.0, jobs=1, largest_job=1.0)
    worker, begun = a_worker(slots=2), NOW - timedelta(hours=2)
    leases = [a_lease(items=1, claimed_at=begun), a_lease(items=3, items_done=1, claimed_at=begun)]
    alone = hours_of(one, *expect_slots([worker], [], known(100.0), Policy(), NOW, leases[:1]))
    held = hours_of(one, *expect_slots([worker], [], known(100.0), Policy(), NOW, leases))

    # An item takes 1 / 100 h, and twice that at the late end.
    assert alone == pytest.approx((0.01, 0.01, 0.02))
    # The second has one item in hand for an hour by the mean of two, and one more after it.
    assert held == pytest.approx((1 / 9 + 0.02, 1.02, 9.03))


def test_before_anything_was_measured_no_slot_is_of_use() -> None:
    assert expect_slots([a_worker()], [a_launch()], Knowledge(), Policy(), NOW) == ()


def test_the_spread_is_that_of_the_reports_once_there_are_some() -> None:
    few, even, uneven = (pace_spread(known(*rates)) for rates in ((9.0,), (9.0,) * 9, range(1, 12)))

    assert (few.slow, few.fast) == pytest.approx((math.exp(-0.384), math.exp(0.384)), rel=1e-3)
    assert (even.slow, even.fast) == (1.0, 1.0)
    assert (uneven.slow, uneven.fast) == pytest.approx((2 / 6, 10 / 6))

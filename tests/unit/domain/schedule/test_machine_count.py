"""How many workers a backlog needs."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.fleet import Backlog, Worker, WorkerState
from spindown.domain.learning import Knowledge, ThroughputRecord, traffic
from spindown.domain.machine_count import in_turn
from spindown.domain.reason import ReasonCode
from spindown.domain.schedule import limit_to_plan, missing, window
from tests.builders import (
    NOW,
    a_backlog,
    a_booting_worker,
    a_policy,
    a_start_plan,
    a_worker,
    job_sizes,
    minutes,
)
from tests.unit.domain.schedule.demand import HELD, KNOWLEDGE, POLICY, busy, present, sized


def test_the_worked_need() -> None:
    found = present([a_worker()])
    demand = missing(backlog=a_backlog(20), capacity=found, knowledge=KNOWLEDGE, policy=POLICY)

    assert demand.need_items_per_hour == pytest.approx(2000 / 0.9 - 1000)
    assert demand.backlog_items == pytest.approx(2000 - 900)
    assert demand.jobs == 19


def test_a_fleet_that_is_enough_leaves_no_backlog() -> None:
    found = present([a_worker(instance_id=f"i-{n}") for n in range(9)])
    demand = missing(backlog=a_backlog(20), capacity=found, knowledge=KNOWLEDGE, policy=POLICY)

    assert demand.need_items_per_hour < 0.0
    assert demand.backlog_items == 0.0


def test_the_demand_says_what_an_item_moves() -> None:
    seen = ThroughputRecord(items=99, hours=1, reports=1, moved=99, gib_in=0.5, gib_out=2.0)
    knowledge = replace(KNOWLEDGE, throughput={("T4", 1.0): seen})
    demand = missing(backlog=a_backlog(1), capacity=present(), knowledge=knowledge, policy=POLICY)

    moved = traffic(knowledge, POLICY)
    assert (demand.gib_in_per_item, demand.gib_out_per_item) == (moved.gib_in, moved.gib_out)
    assert demand.gib_out_per_item == pytest.approx(0.02)


def test_a_backlog_that_is_not_held_has_waited_too() -> None:
    assert sized(20, waited=minutes(7)).waited == minutes(7)


@pytest.mark.parametrize(
    ("drain_within", "expected"),
    [
        pytest.param(minutes(60), minutes(54), id="the target less a boot"),
        pytest.param(minutes(12), minutes(6), id="two boots"),
        pytest.param(minutes(7), minutes(6), id="never below one boot"),
        pytest.param(minutes(1), minutes(6), id="shorter than a boot"),
    ],
)
def test_never_plans_below_one_boot(drain_within: timedelta, expected: timedelta) -> None:
    assert window(KNOWLEDGE, a_policy(drain_within=drain_within)) == expected


def test_a_window_is_never_empty() -> None:
    assert window(Knowledge(boots=(0.0,)), a_policy(drain_within=minutes(0))) == timedelta(
        seconds=1
    )


def test_an_unknown_boot_takes_as_long_as_the_policy_says() -> None:
    policy = a_policy(drain_within=minutes(60), boot_estimate=minutes(4))

    assert window(Knowledge(), policy) == minutes(56)


def test_an_empty_queue_wants_nothing() -> None:
    assert sized(0).allowed == 0


@pytest.mark.parametrize(
    ("visible", "fleet", "policy", "need", "reason"),
    [
        pytest.param(20, [], {}, 2222.2, ReasonCode.THROUGHPUT_MISSING, id="work"),
        pytest.param(1, [a_worker()], {}, -888.9, ReasonCode.SLOTS_FREE, id="a free slot"),
        pytest.param(
            1,
            [a_worker()],
            {"warm_workers": 1},
            -888.9,
            ReasonCode.SLOTS_FREE,
            id="as many as are kept warm",
        ),
        pytest.param(
            3,
            [busy()[0]],
            {"start_within": minutes(30)},
            333.3 - 1000.0,
            ReasonCode.IN_TIME,
            id="busy, but fast enough",
        ),
        pytest.param(0, [], {"warm_workers": 2}, 0.0, ReasonCode.KEPT_WARM, id="kept warm"),
    ],
)
def test_a_sizing_says_what_is_needed_and_why(
    visible: int, fleet: list[Worker], policy: dict[str, Any], need: float, reason: ReasonCode
) -> None:
    # Held work has a reason of its own.
    found = sized(visible, fleet, policy=replace(POLICY, scale_up_threshold=0, **policy))

    assert found.reason.code is reason
    assert found.need_items_per_hour == pytest.approx(need, abs=0.1)


def test_what_waits_for_a_busy_slot_has_no_free_one() -> None:
    worker, lease = busy(items_done=50)
    waiting = sized(1, [worker], [lease], policy=replace(HELD, max_workers=1))
    idle = sized(1, [a_worker()], policy=HELD)

    assert (waiting.allowed, waiting.hold_until) == (0, None)
    assert waiting.reason.code is ReasonCode.IN_TIME
    assert idle.reason.code is ReasonCode.SLOTS_FREE


@pytest.mark.parametrize(
    ("in_flight", "fleet", "reason"),
    [
        pytest.param(0, [], ReasonCode.NOTHING_WAITS, id="nothing"),
        pytest.param(1, [busy()[0]], ReasonCode.NOTHING_WAITS, id="at work"),
        pytest.param(
            1,
            [],
            ReasonCode.ALL_IN_FLIGHT,
            id="one that nobody works on",
        ),
        pytest.param(
            2,
            [],
            ReasonCode.ALL_IN_FLIGHT,
            id="two",
        ),
    ],
)
def test_only_hidden_jobs_that_no_worker_may_hold_are_told(
    in_flight: int, fleet: list[Worker], reason: ReasonCode
) -> None:
    policy = replace(POLICY, scale_up_threshold=0)
    found = sized(0, fleet, policy=policy, backlog=a_backlog(0, in_flight))

    assert (found.allowed, found.reason.code) == (0, reason)


def test_a_need_below_one_item_an_hour_is_one() -> None:
    slow = replace(KNOWLEDGE, jobs=job_sizes(1.0))
    policy = replace(
        HELD, drain_within=timedelta(hours=30), throughput_estimate=1.0, scale_up_threshold=0
    )

    assert sized(2, policy=policy, knowledge=slow).wanted == 1


def test_what_may_wait_is_not_asked_for() -> None:
    demand = missing(backlog=a_backlog(20), capacity=present(), knowledge=KNOWLEDGE, policy=POLICY)
    due = a_start_plan(slots=2, side_by_side=1, items_per_hour=500.0, late_jobs=7, launch_by=NOW)
    start_plan = replace(due, slots=0, side_by_side=0)

    now = limit_to_plan(demand, due, KNOWLEDGE, POLICY)
    later = limit_to_plan(demand, start_plan, KNOWLEDGE, POLICY)

    assert now == replace(demand, need_items_per_hour=1000.0, backlog_items=700.0, jobs=7, slots=1)
    assert (later.need_items_per_hour, later.jobs, later.slots) == (0.0, 0, 0)


@pytest.mark.parametrize(
    ("late_jobs", "since", "waited"),
    [
        pytest.param(1, minutes(9), minutes(9), id="ours come too late for the oldest"),
        pytest.param(1, minutes(1), minutes(2), id="nobody claims"),
        pytest.param(0, minutes(9), minutes(2), id="ours are in time"),
    ],
)
def test_the_oldest_job_opens_rungs_while_our_slots_will_not_do(
    late_jobs: int, since: timedelta, waited: timedelta
) -> None:
    start_plan = a_start_plan(late_jobs=late_jobs, oldest_since=NOW - since)

    assert sized(1, waited=minutes(2), start_plan=start_plan).waited == waited


def test_wants_as_many_as_the_need_takes() -> None:
    # 2000 items in 0.9 h: 2222 an hour, three T4s.
    assert sized(20).allowed == 3


def test_wants_no_more_workers_than_jobs() -> None:
    policy = replace(POLICY, throughput_estimate=1.0)

    assert sized(2, policy=policy).allowed == 2


def test_what_is_launched_is_not_launched_again() -> None:
    first = sized(20)
    fleet = [a_booting_worker(f"i-{n}", age=timedelta(0)) for n in range(first.allowed)]

    assert sized(20, fleet).allowed == 0


@given(
    visible=st.integers(1, 500),
    drain=st.integers(1, 120),
    ages=st.lists(st.integers(0, 9), min_size=1, max_size=30),
)
def test_the_same_backlog_never_makes_launches_run_away(
    visible: int, drain: int, ages: list[int]
) -> None:
    # The trap: a drain target below the boot time, and ticks that see the backlog unchanged.
    policy = replace(POLICY, drain_within=minutes(drain), max_workers=10**6)
    fleet = [
        a_booting_worker(f"i-{n}", age=timedelta(0))
        for n in range(sized(visible, policy=policy).allowed)
    ]

    for minute in sorted(ages):
        aged = [replace(w, launched_at=NOW - minutes(minute)) for w in fleet]
        assert sized(visible, aged, policy=policy, waited=minutes(minute)).allowed == 0


def test_one_large_job_takes_one_worker_however_long_it_is() -> None:
    policy = replace(POLICY, throughput_estimate=1.0)

    assert sized(1, policy=policy).allowed == 1
    booting = [a_booting_worker(age=minutes(1))]
    assert sized(1, booting, policy=policy, waited=minutes(60)).allowed == 0


def test_warm_workers_are_kept_without_work_or_hold() -> None:
    policy = replace(HELD, warm_workers=2)

    assert sized(0, policy=policy).allowed == 2
    assert sized(0, [a_worker()], policy=policy).allowed == 1
    found = sized(3, policy=policy)
    assert found.allowed == 2
    assert found.hold_until is not None


fleets = st.lists(
    st.one_of(
        st.builds(
            a_worker,
            interrupted_at=st.sampled_from([None, NOW + minutes(1)]),
            noticed_at=st.sampled_from([None, NOW]),
        ),
        st.builds(a_booting_worker, age=st.integers(0, 20).map(minutes)),
        st.just(a_worker(state=WorkerState.BUSY, busy_slots=1)),
    ),
    max_size=8,
).map(lambda fleet: [replace(w, instance_id=f"i-{n}") for n, w in enumerate(fleet)])


@given(
    fleet=fleets,
    visible=st.integers(0, 300),
    more=st.integers(0, 300),
    most=st.integers(0, 20),
    warm=st.integers(0, 3),
    threshold=st.integers(1, 50),
    waited=st.integers(0, 90),
    drain=st.integers(1, 600),
)
def test_sizing_is_within_bounds_and_grows_with_the_backlog(
    fleet: list[Worker],
    visible: int,
    more: int,
    most: int,
    warm: int,
    threshold: int,
    waited: int,
    drain: int,
) -> None:
    policy = replace(
        HELD,
        max_workers=most,
        warm_workers=warm,
        scale_up_threshold=threshold,
        drain_within=minutes(drain),
    )

    fewer = sized(visible, fleet, policy=policy, waited=minutes(waited))
    larger = sized(visible + more, fleet, policy=policy, waited=minutes(waited))

    counted = sum(w.noticed_at is None for w in fleet)
    assert 0 <= fewer.allowed <= max(0, most - counted)
    assert fewer.allowed <= max(visible, warm)
    # From the threshold on it is the drain target that counts, below it the promise.
    if not visible < threshold <= visible + more:
        assert larger.allowed >= fewer.allowed


def test_a_backlog_that_nobody_sees_is_none() -> None:
    assert Backlog(visible=0, in_flight=0).is_empty
    assert not a_backlog(0, 1).is_empty


@given(st.lists(st.integers(0, 50), max_size=6), st.integers(-3, 60))
def test_places_are_given_in_turn(wanted: list[int], places: int) -> None:
    given_each = in_turn(wanted, places)

    assert sum(given_each) == min(max(places, 0), sum(wanted))
    assert all(got <= most for got, most in zip(given_each, wanted, strict=True))
    # Nobody has two more than somebody who wants another.
    short = [got for got, most in zip(given_each, wanted, strict=True) if got < most]
    assert max(given_each, default=0) <= min(short, default=places) + 1 or not short

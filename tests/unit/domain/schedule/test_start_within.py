"""How long a launch can wait, and how few launches keep the promise."""

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.learning import Knowledge, ThroughputRecord
from spindown.domain.reason import ReasonCode
from spindown.domain.schedule import (
    Capacity,
    SlotAhead,
    StartPlan,
    Waiting,
    next_margin,
    plan_starts,
)
from tests.builders import NOW, a_policy, job_sizes, minutes

#: Jobs of 80 s, boots of 90 s, a start within ten minutes.
POLICY = a_policy(start_within=minutes(10), throughput_estimate=45.0)
KNOWLEDGE = Knowledge(boots=(90.0,), jobs=job_sizes(1.0))


def asked(
    *waiting: tuple[int, float] | tuple[int, float, int],
    free_in: tuple[float, ...] = (),
    per_hour: float = 45.0,
    **changes: object,
) -> StartPlan:
    """Ask with (jobs, minutes waited, those put down) and slots free in so many minutes."""
    slots = tuple(SlotAhead(free_in=minutes(m), items_per_hour=per_hour) for m in free_in)
    capacity = Capacity(
        items_per_hour=0.0, free_slots=0, workers=len(slots), next_free=None, slots=slots
    )
    given = {"knowledge": KNOWLEDGE, "policy": POLICY, "now": NOW, **changes}
    groups = [
        Waiting(since=NOW - minutes(m), jobs=n, requeued=sum(requeued))
        for n, m, *requeued in waiting
    ]
    return plan_starts(groups, capacity, **given)  # type: ignore[arg-type]


def test_the_oldest_job_tells_since_when_the_promise_runs() -> None:
    assert asked((3, 7.0), (5, 1.0)).oldest_since == NOW - minutes(7)
    assert asked().oldest_since is None


@pytest.mark.parametrize(
    ("waited", "slots"),
    [
        pytest.param(6.4, 0, id="10 min less 90 s of boot, a tick and a retry: 6.5"),
        pytest.param(6.5, 1, id="and not a moment later"),
        pytest.param(60, 1, id="long too late"),
    ],
)
def test_one_job_starts_as_late_as_its_promise_allows(waited: float, slots: int) -> None:
    assert asked((1, waited)).slots == slots


def test_several_jobs_for_one_slot_start_their_length_earlier() -> None:
    # The fourth of 80 s starts 4 min after the slot is up.
    assert asked((4, 2.4)).slots == 0
    assert asked((4, 2.5)).slots == 1
    assert asked((4, 0)).launch_by == NOW + minutes(2.5)


def test_jobs_wait_behind_those_that_came_before_them() -> None:
    # Four of 80 s in all: as early as four that came at once, though none of two is due.
    assert asked((2, 2.5), (2, 2.5)).slots == asked((4, 2.5)).slots == 1
    assert asked((2, 2.5)).slots == 0


def test_what_would_take_a_slot_more_next_tick_is_not_put_off() -> None:
    found = asked((40, 0))

    # 7.5 min are left to a slot: 6 jobs each, 7 slots; 6.5 min a tick later: 5 jobs, 8 slots.
    assert found.late_jobs == 40
    assert 0 < found.slots < 7


def test_a_slot_that_is_free_in_time_is_waited_for() -> None:
    assert asked((1, 7), free_in=(2.9,)).late_jobs == 0
    assert asked((1, 3), free_in=(7.1,)).late_jobs == 1
    assert asked((1, 6.5), free_in=(4.1,)).slots == 1
    # A launch would be up no sooner than this slot.
    assert asked((1, 8), free_in=(2.4,)).slots == 0


@pytest.mark.parametrize(
    ("free_in", "per_hour", "late"),
    [
        pytest.param(2.0, 45.0, 3, id="three of 160 s in eight minutes"),
        pytest.param(119.99 / 60, 45.0, 2, id="and a fourth just before they are over"),
        pytest.param(2.0, 0.5, 5, id="of hours each only the first"),
        pytest.param(2.0, 0.0, 6, id="none by a slot that does nothing"),
        pytest.param(30.0, 45.0, 6, id="none by a slot that is free too late"),
    ],
)
def test_a_slot_of_ours_starts_as_many_jobs_as_its_time_allows(
    free_in: float, per_hour: float, late: int
) -> None:
    knowledge = replace(KNOWLEDGE, jobs=job_sizes(2.0))

    found = asked((6, 0), free_in=(free_in,), per_hour=per_hour, knowledge=knowledge)

    assert found.late_jobs == late


def test_a_group_that_has_its_slots_hides_no_later_one() -> None:
    assert asked((1, 3), (30, 0), free_in=(2.0,)).late_jobs == 25


def test_of_slots_that_are_needed_those_that_can_wait_do() -> None:
    # One is due in three minutes; the eleven of both groups need two slots, one of them later.
    assert asked((1, 7), (10, 0)).slots == 1
    # Four are past saving, and two slots will have started them one boot after the launch.
    assert asked((4, 60), (28, 0)).slots == 2
    # Of 20 s each: a slot does 23 now and 20 a tick later; five do 110 if four start now.
    assert asked((110, 0), policy=replace(POLICY, throughput_estimate=180.0)).slots == 4


def test_two_slots_may_wait_until_each_still_does_half() -> None:
    # Five of 80 s each: the last starts 320 s after the slot is up, in 150 s and a tick.
    assert asked((10, 0)).launch_by == NOW + timedelta(seconds=600 - 320 - 150 - 60)
    assert asked((1, 60)).launch_by == NOW


def test_unknown_boots_take_as_long_as_the_policy_says() -> None:
    policy = replace(POLICY, boot_estimate=timedelta(seconds=90))
    unknown = asked((100, 60), knowledge=Knowledge(jobs=job_sizes(1.0)), policy=policy)

    assert unknown == asked((100, 60))


@pytest.mark.parametrize(
    ("waiting", "side_by_side"),
    [
        pytest.param((3, 8.5), 3, id="each slot could start no more than one"),
        pytest.param((3, 5.8), 0, id="one slot could start two"),
    ],
)
def test_jobs_that_cannot_take_turns_want_slots_side_by_side(
    waiting: tuple[int, float], side_by_side: int
) -> None:
    # Of 100 s each, for one boot of 90 s after a launch.
    found = asked(waiting, policy=replace(POLICY, throughput_estimate=36.0))

    assert found.slots > 0
    assert found.side_by_side == side_by_side


def test_a_late_backlog_asks_for_no_slot_for_each_job() -> None:
    # One boot after the launch each slot has started two jobs.
    assert asked((100, 60)).slots == 50


@pytest.mark.parametrize(
    ("jobs", "waited", "slots"),
    [
        pytest.param(1, 6.4, 0, id="one slot gains nothing by an earlier launch"),
        pytest.param(1, 6.5, 1, id="it is launched when the promise says"),
        pytest.param(9, 4.4, 0, id="several can wait"),
        pytest.param(9, 4.5, 5, id="by the margin shorter"),
    ],
)
def test_a_margin_launches_more_than_one_slot_earlier(jobs: int, waited: float, slots: int) -> None:
    found = asked((jobs, waited), margin=minutes(2))

    assert found.slots == slots


@pytest.mark.parametrize(
    ("waited", "margin", "slots"),
    [
        pytest.param(7.4, 0, 1, id="a launch is up in time"),
        pytest.param(7.505, 0, 0, id="no longer up in time"),
        pytest.param(3, 4.5, 0, id="not in time for the margin: others may join it"),
        pytest.param(6.6, 4.5, 1, id="in time for the promise, though not for the margin"),
        pytest.param(9.4, -2, 1, id="in time with what was held in reserve"),
        pytest.param(9.6, -2, 0, id="not even then"),
    ],
)
def test_a_job_that_can_still_be_saved_waits_for_no_slot(
    waited: float, margin: float, slots: int
) -> None:
    # A slot is free in 200 s, a launch of now up in 150.
    found = asked((1, waited), free_in=(200 / 60,), margin=timedelta(minutes=margin))

    assert found.slots == slots


@given(waited=st.floats(0.0, 30.0), jobs=st.integers(1, 60), takes=st.floats(5.0, 500.0))
def test_no_slot_is_bought_for_less_work_than_its_boot(
    waited: float, jobs: int, takes: float
) -> None:
    found = asked((jobs, waited), policy=replace(POLICY, throughput_estimate=3600.0 / takes))

    assert found.slots <= math.ceil(jobs / (math.floor(90.0 / takes) + 1))


@given(waited=st.floats(0.0, 15.0), jobs=st.integers(1, 60), late=st.floats(90.0, 400.0))
def test_slow_boots_are_launched_earlier_and_not_in_number(
    waited: float, jobs: int, late: float
) -> None:
    even = asked((jobs, waited))
    spread = asked((jobs, waited), knowledge=replace(KNOWLEDGE, boots=(90.0,) * 18 + (late,) * 2))

    assert even.launch_by is not None
    assert spread.launch_by is not None
    assert spread.launch_by <= even.launch_by
    # All that are ever needed, and none of them a tick later.
    assert spread.slots <= asked((jobs, waited), headroom_slots=0).slots


#: The same, and nothing else than the promise says when to launch.
FREE = replace(POLICY, scale_up_threshold=None)
MEASURED = replace(
    KNOWLEDGE, throughput={("T4", 1.0): ThroughputRecord(items=45.0, hours=1.0, reports=1)}
)


def test_all_that_is_needed_is_launched_once_work_has_gathered() -> None:
    def found(waited: float) -> StartPlan:
        patient = replace(FREE, start_within=minutes(40))
        return asked((1, waited), (39, 0), policy=patient, knowledge=MEASURED)

    # A slot starts 29 of 80 s; a quarter of the promise is 10 min.
    assert (found(9.9).slots, found(10).slots) == (0, 2)
    assert found(10).why is ReasonCode.FEWEST_NOW
    assert found(0).launch_by == NOW + minutes(10)


def test_what_takes_no_more_slots_later_is_held_on() -> None:
    def found(jobs: int, *free_in: float, takes: float = 80.0) -> StartPlan:
        patient = replace(FREE, start_within=minutes(40), throughput_estimate=3600.0 / takes)
        record = ThroughputRecord(items=3600.0 / takes, hours=1.0, reports=1)
        knowledge = replace(KNOWLEDGE, throughput={("T4", 1.0): record})
        return asked((jobs, 10), policy=patient, knowledge=knowledge, free_in=free_in)

    # A slot does two of 80 s in the 90 s of a boot.
    assert found(2).slots == 0
    assert found(3).slots == 1
    # The slot that there is will start them in time.
    assert found(3, 4.0).slots == 0
    # Of 30 minutes each, a slot starts one, now or later.
    assert found(3, takes=1800.0).slots == 0


def test_while_no_speed_is_known_one_slot_starts_at_once() -> None:
    first = asked((9, 0), policy=FREE)

    assert (first.slots, first.why) == (1, ReasonCode.TO_MEASURE)
    assert asked((9, 0), policy=FREE, free_in=(9.0,)).slots == 0
    # What cannot wait asks for as many as ever.
    assert asked((40, 0), policy=FREE).slots == asked((40, 0)).slots > 1


def test_what_is_below_a_threshold_gathers_as_long_as_it_can() -> None:
    patient = replace(POLICY, scale_up_threshold=100)

    assert asked((9, 2.5), policy=patient, knowledge=MEASURED).slots == 0
    assert asked((9, 0), policy=patient).slots == 0


def test_nothing_waits_for_nothing() -> None:
    assert asked().slots == 0
    assert asked().launch_by is None


@given(
    groups=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 15)), min_size=1, max_size=6),
    free_in=st.lists(st.integers(0, 20), max_size=5),
)
def test_what_is_launched_is_not_launched_again(
    groups: list[tuple[int, int]], free_in: list[int]
) -> None:
    waiting = sorted(groups, key=lambda each: -each[1])
    first = asked(*waiting, free_in=tuple(free_in))
    launched = first.slots
    # The trap: ticks that see the backlog unchanged.
    while more := asked(*waiting, free_in=(*free_in, *(1.5,) * launched)).slots:
        launched += more

    assert launched <= first.late_jobs


@given(waited=st.integers(0, 20), margin=st.integers(0, 300))
def test_a_margin_above_0_only_ever_launches_earlier(waited: int, margin: int) -> None:
    plain = asked((1, waited))
    early = asked((1, waited), margin=timedelta(seconds=margin))

    assert early.slots >= plain.slots


def test_the_margin_rests_where_one_job_in_twenty_five_is_late() -> None:
    now = timedelta(seconds=60)

    def moved(started: int, late: int) -> float:
        return (next_margin(now, started=started, late=late, policy=POLICY) - now).total_seconds()

    assert moved(200, 8) == pytest.approx(0.0)
    assert moved(100, 10) == pytest.approx(10.8)
    assert moved(100, 0) == pytest.approx(-7.2)


def test_an_unknown_margin_is_a_quarter_of_the_promise() -> None:
    assert next_margin(None, started=0, late=0, policy=POLICY) == minutes(2.5)


def test_a_margin_stays_while_no_job_starts() -> None:
    assert next_margin(minutes(2), started=0, late=0, policy=POLICY) == minutes(2)


def test_jobs_in_time_lower_the_margin_and_late_ones_raise_it() -> None:
    assert next_margin(timedelta(0), started=9000, late=0, policy=POLICY) == minutes(-2)
    assert next_margin(timedelta(0), started=9000, late=9000, policy=POLICY) == minutes(5)
    double = replace(POLICY, start_within=minutes(20))
    assert next_margin(timedelta(0), started=9000, late=9000, policy=double) == minutes(10)

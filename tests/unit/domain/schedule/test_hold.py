"""Work below the threshold is held, and never past the promise."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.learning import Knowledge
from spindown.domain.machine_count import latest_launch, waited_for
from spindown.domain.reason import About, Reason, ReasonCode
from tests.builders import NOW, a_start_plan, a_worker, job_sizes, minutes
from tests.unit.domain.schedule.demand import HELD, KNOWLEDGE, POLICY, busy, sized


@pytest.mark.parametrize(
    ("visible", "waited", "held"),
    [
        pytest.param(1, 0, True, id="a little work waits for more"),
        pytest.param(1, 21.9, True, id="until just before the clock"),
        pytest.param(1, 22, False, id="the clock: 30 - 6 boot - 1 tick - 1 retry"),
        pytest.param(1, 500, False, id="long overdue"),
        pytest.param(3, 9.9, True, id="three jobs of 6 min: the third starts 12 min after"),
        pytest.param(3, 10, False, id="so the clock of three is 12 min earlier"),
        pytest.param(10, 0, False, id="the threshold"),
    ],
)
def test_work_below_the_threshold_starts_when_the_clock_says_so(
    visible: int, waited: float, held: bool
) -> None:
    found = sized(visible, policy=HELD, waited=minutes(waited))

    assert (found.allowed == 0) is held
    latest = minutes(22) - minutes(6) * (visible - 1)
    assert found.hold_until == (NOW - minutes(waited) + latest if held else None)
    assert found.waited == minutes(waited)


def test_a_hold_says_how_much_work_waits_and_until_when() -> None:
    held = sized(3, policy=HELD, waited=minutes(5))
    due = sized(3, policy=HELD, waited=minutes(10))

    until = (NOW + minutes(5)).isoformat()
    about: About = {"messages": 3, "threshold": 10, "until": until}
    assert held.reason == Reason(ReasonCode.HELD_FOR_MORE, about)
    assert due.reason == Reason(ReasonCode.TOO_LATE_NEXT_TICK, {"jobs": 3})
    one = sized(1, policy=HELD, waited=minutes(22))
    assert one.reason == Reason(ReasonCode.TOO_LATE_NEXT_TICK, {"jobs": 1})


def test_a_hold_of_as_much_as_is_due_at_once_says_it_can_wait() -> None:
    start_plan = a_start_plan(slots=0, late_jobs=0, launch_by=NOW + minutes(4))
    held = sized(10, policy=HELD, start_plan=start_plan)

    until = (NOW + minutes(4)).isoformat()
    assert held.reason == Reason(ReasonCode.CAN_WAIT, {"jobs": 10, "until": until})


@given(
    start=st.integers(0, 120),
    boot=st.integers(0, 3600),
    tick=st.integers(1, 300),
    waited=st.integers(0, 7200),
)
def test_a_hold_never_passes_its_limit(start: int, boot: int, tick: int, waited: int) -> None:
    policy = replace(HELD, start_within=minutes(start), tick=timedelta(seconds=tick))
    knowledge = Knowledge(boots=(float(boot),))
    since = NOW - timedelta(seconds=waited)

    limit = latest_launch(since, knowledge, policy)
    found = sized(1, policy=policy, waited=NOW - since, knowledge=knowledge)

    slack = minutes(start) - timedelta(seconds=boot + 2 * tick)
    assert limit == since + max(slack, timedelta(0))
    assert found.hold_until == (limit if limit > NOW else None)
    assert (found.allowed > 0) is (limit <= NOW)


def test_a_busy_fleet_does_not_starve_a_waiting_job() -> None:
    # Within a day's drain target one busy worker is enough, but it is busy for five hours.
    policy = replace(POLICY, drain_within=timedelta(hours=24), start_within=minutes(30))
    worker, lease = busy(items=5000)

    early = sized(1, [worker], [lease], policy=policy, waited=minutes(21))
    late = sized(1, [worker], [lease], policy=policy, waited=minutes(22))

    assert early.allowed == 0
    assert late.allowed == 1
    assert late.reason == Reason(ReasonCode.NO_SLOT_IN_TIME)


def test_a_slot_that_is_free_in_time_is_waited_for() -> None:
    policy = replace(POLICY, drain_within=timedelta(hours=24), start_within=minutes(30))
    worker, lease = busy(items=100)

    for waited in (23, 24):
        assert sized(1, [worker], [lease], policy=policy, waited=minutes(waited)).allowed == 0
    assert sized(1, [worker], [lease], policy=policy, waited=minutes(24.1)).allowed == 1


def test_a_job_with_a_free_slot_launches_nothing() -> None:
    assert sized(1, [a_worker()], waited=minutes(60)).allowed == 0


def test_a_launch_whose_boot_is_unknown_is_due_by_the_estimate() -> None:
    policy = replace(HELD, boot_estimate=minutes(5))

    assert latest_launch(NOW, Knowledge(), policy) == NOW + minutes(30 - 5 - 2)


def test_several_slots_that_are_due_are_launched_at_once() -> None:
    # Jobs of an hour: no slot starts two of them in time.
    knowledge = replace(KNOWLEDGE, jobs=job_sizes(1000.0))
    late = sized(3, policy=HELD, waited=minutes(40), knowledge=knowledge)
    nothing = sized(3, policy=HELD, waited=minutes(40), knowledge=knowledge, best=None)

    assert (late.allowed, late.wanted) == (3, 3)
    assert (nothing.allowed, nothing.wanted) == (0, 1)


def test_no_work_has_waited_no_time() -> None:
    assert waited_for(None, NOW) == timedelta(0)
    assert waited_for(NOW + minutes(1), NOW) == timedelta(0)

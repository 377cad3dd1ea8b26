"""What several jobs with deadlines ask for together, and from how many slots."""

import pytest

from spindown.domain.schedule import Demand, TimeReserve, forecast_deadlines, hurry
from spindown.domain.spot_or_on_demand import PurchaseMode
from tests.builders import NOW, ON_DEMAND, SPOT, a_demand, a_start_plan, minutes
from tests.unit.domain.schedule.unfinished import HOUR, RESERVE, a_job


def test_the_gravest_job_sets_the_mode_and_urgent_ones_count() -> None:
    jobs = [
        a_job(25, job_id="late", jobs=2),
        a_job(500, job_id="early"),
        a_job(15, job_id="running", on=SPOT),
        a_job(10, job_id="last"),
    ]

    forecast = forecast_deadlines(jobs, RESERVE, NOW, slots=9)

    assert forecast.mode is PurchaseMode.ON_DEMAND
    assert forecast.urgent == 3
    assert [each.job.job_id for each in forecast.jobs] == ["last", "running", "late", "early"]
    assert forecast.waits_until == NOW + minutes(460)
    # 10 h of work in as many, once a change is over.
    assert forecast.speed == pytest.approx(1.0)


def test_a_long_job_may_be_urgent_before_a_short_tighter_one() -> None:
    # One hour of work holds back 31 minutes, ten hold back 40.
    jobs = [a_job(35, work=1.0), a_job(39, work=10.0)]

    forecast = forecast_deadlines(jobs, RESERVE, NOW, slots=9)

    assert (forecast.mode, forecast.urgent) == (PurchaseMode.ANY, 1)
    assert forecast.waits_until == NOW + minutes(4)


@pytest.mark.parametrize(
    ("slack", "mode"),
    [(70, PurchaseMode.ON_DEMAND), (105, PurchaseMode.ANY), (106, PurchaseMode.SPOT)],
)
def test_a_short_job_behind_a_long_one_keeps_back_its_loss(
    slack: float, mode: PurchaseMode
) -> None:
    reserve = TimeReserve(change=minutes(35), redone=minutes(30), rate=0.0)
    long, short = a_job(0, work=2.0, on=SPOT), a_job(slack + 120, work=0.1)

    assert forecast_deadlines([long, short], reserve, NOW, slots=1).mode is mode


def test_a_short_job_s_machine_has_the_time_its_loss_leaves() -> None:
    reserve = TimeReserve(change=minutes(35), redone=minutes(30), rate=0.0)

    # Six minutes of work are due in 26, of which a change takes 11.
    forecast = forecast_deadlines([a_job(20, work=0.1)], reserve, NOW, slots=1)

    assert forecast.speed == pytest.approx(6 / 15)


def test_without_an_urgent_job_all_wait_for_spot_at_any_speed() -> None:
    forecast = forecast_deadlines([a_job(500), a_job(400)], RESERVE, NOW, slots=9)

    assert (forecast.mode, forecast.urgent, forecast.speed) == (PurchaseMode.SPOT, 0, 0.0)
    assert forecast.waits_until == NOW + minutes(360)


@pytest.mark.parametrize(
    ("slack", "speed"),
    [
        pytest.param(20, 600 / 610, id="a change leaves more time than the work takes"),
        pytest.param(10, 1.0, id="as much"),
        pytest.param(-290, 2.0, id="half as much"),
        pytest.param(-590, 0.0, id="none: no machine is fast enough"),
        pytest.param(-600, 0.0, id="due now"),
        pytest.param(-900, 0.0, id="overdue"),
    ],
)
def test_an_urgent_job_wants_a_machine_fast_enough_for_it(slack: float, speed: float) -> None:
    assert forecast_deadlines([a_job(slack)], RESERVE, NOW, slots=1).speed == pytest.approx(speed)


@pytest.mark.parametrize(
    ("slots", "slack"),
    [
        pytest.param(4, 10.0, id="each has a slot of its own"),
        # 12 h of work on two slots, in whatever order: 6 h and half of the longest.
        pytest.param(2, 13.0 - 7.5, id="two share the work"),
        pytest.param(1, 13.0 - 12.0, id="one after the other"),
    ],
)
def test_what_waits_has_the_work_before_it_that_is_due_before(slots: int, slack: float) -> None:
    jobs = [a_job(600, work=3.0, jobs=3), a_job(600, work=3.0, on=SPOT, job_id="first")]

    forecast = forecast_deadlines(jobs, RESERVE, NOW, slots=slots)

    (waits,) = [each for each in forecast.jobs if each.job.on is None]
    (runs,) = [each for each in forecast.jobs if each.job.on is SPOT]
    assert waits.slack / HOUR == pytest.approx(slack)
    assert runs.slack == 10 * HOUR


def test_what_does_not_wait_asks_for_no_launch() -> None:
    forecast = forecast_deadlines(
        [a_job(10, on=SPOT), a_job(10, on=ON_DEMAND)], RESERVE, NOW, slots=1
    )

    assert (forecast.mode, forecast.urgent, forecast.waits_until) == (None, 0, None)
    assert forecast.speed == 0.0


def test_urgent_jobs_get_slots_beside_whatever_else_is_wanted() -> None:
    waiting = a_start_plan(slots=1, items_per_hour=45.0, launch_by=NOW)
    demand = a_demand(need_items_per_hour=-5.0, backlog_items=0.0, jobs=0)

    asked, start_plan = hurry(demand, waiting, 3, usual=50.0)

    assert (asked.need_items_per_hour, asked.jobs, asked.slots) == (150.0, 3, 3)
    assert asked.backlog_items == 300.0
    assert start_plan is not None
    assert (start_plan.slots, start_plan.side_by_side, start_plan.late_jobs) == (3, 3, 3)
    assert hurry(demand, None, 3, usual=50.0) == (asked, None)


def test_more_than_what_is_urgent_stays_wanted() -> None:
    demand: Demand = a_demand(slots=7)

    assert hurry(demand, None, 1, usual=50.0)[0] == demand

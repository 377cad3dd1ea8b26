"""What a month costs once its budget is used up: each of the three ways, within its bound."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spindown.domain.policy import Policy, WhenSpent
from spindown.ledger import Ledger
from spindown.simulator import Run, SimResult, SimScenario, simulate
from spindown.simulator.world import WORKLOAD
from tests.overshoot import overshoot_at_most
from tests.simulator.scene import HOUR, a_listing, a_scenario, a_zone, an_arrival

#: With root volume and address, USD an hour.
PRICE = 0.20 + 100 * 0.08 / 730 + 0.005
BUDGET = 0.5
#: What 12 jobs of an hour cost without a budget, about.
WHOLE = 2.6


def some_jobs(number: int, item_seconds: float, **changes: Any) -> SimScenario:
    """Return a month in which jobs of 100 items come in the first minute."""
    jobs = [
        an_arrival(at=float(i % 50), items=100, item_seconds=item_seconds) for i in range(number)
    ]
    return replace(
        a_scenario(*jobs, length=6 * HOUR, overtime=HOUR, budget_per_month=BUDGET), **changes
    )


def a_policy(when_spent: WhenSpent) -> Policy:
    return Policy(when_spent=when_spent, idle_timeout=timedelta(minutes=2))


def bound(when_spent: WhenSpent, job: timedelta, until_idle: timedelta) -> float:
    """Return the overshoot of four machines; a job may be begun anew once."""
    return overshoot_at_most(
        [PRICE] * 4, a_policy(when_spent), longest_job=job, until_idle=until_idle
    )


def month_by_month(run: Run) -> list[float]:
    budgets = Ledger(run.world.table, WORKLOAD).read_account().budgets
    return [row.dollars for _, row in sorted(budgets.items())]


def simulated(when_spent: WhenSpent, scenario: SimScenario, seed: int = 1) -> SimResult:
    return simulate(scenario, a_policy(when_spent), seed)


@pytest.mark.parametrize(
    ("reclaims", "seed"), [(0.0, 1), (0.7, 1), pytest.param(0.7, 2, marks=pytest.mark.proof)]
)
@pytest.mark.parametrize("when_spent", WhenSpent)
def test_jobs_ten_times_as_long_as_expected(
    when_spent: WhenSpent, reclaims: float, seed: int
) -> None:
    listing = a_listing(zones={"us-west-2a": a_zone(reclaims_per_hour=reclaims)})
    scenario = some_jobs(12, 36.0, listings=(listing,))

    result = simulated(when_spent, scenario, seed)

    most = bound(when_spent, timedelta(hours=1.1), timedelta(hours=5))
    assert result.dollars <= BUDGET + most
    assert result.dead_letters == 0
    if when_spent is WhenSpent.STOP_LAUNCHES:
        # What EC2 takes back is not replaced.
        assert reclaims or result.items_done == result.items
    else:
        assert result.dollars > 0.7 * BUDGET
        assert result.items_done < result.items


@pytest.mark.parametrize("when_spent", [WhenSpent.FINISH_JOBS, WhenSpent.STOP])
def test_what_is_foreseen_rightly_is_never_exceeded(when_spent: WhenSpent) -> None:
    for number in (40, 120):
        result = simulated(when_spent, some_jobs(number, 3.6))

        assert 0.8 * BUDGET < result.dollars <= BUDGET
        assert result.items_done > 0.4 * 4000


def test_a_machine_is_not_bought_for_more_than_is_left() -> None:
    """Work that was there at once, and that the budget cannot pay for, is not begun."""
    scenario = some_jobs(120, 3.6)
    at_once = tuple(replace(each, at=1.0) for each in scenario.arrivals)

    result = simulated(WhenSpent.STOP_LAUNCHES, replace(scenario, arrivals=at_once))

    assert result.launches == 0
    assert simulated(WhenSpent.STOP_LAUNCHES, some_jobs(12, 3.6)).items_done == 1200


@pytest.mark.parametrize("when_spent", WhenSpent)
def test_a_budget_that_is_enough_changes_nothing(when_spent: WhenSpent) -> None:
    rich = some_jobs(12, 36.0, budget_per_month=10 * WHOLE)

    result = simulated(when_spent, rich)

    free = simulated(when_spent, replace(rich, budget_per_month=None))
    assert result.dollars == pytest.approx(free.dollars)
    assert result.items_done == result.items


@pytest.mark.parametrize("when_spent", [WhenSpent.FINISH_JOBS, WhenSpent.STOP])
def test_the_next_month_goes_on_with_what_is_left(when_spent: WhenSpent) -> None:
    """Nothing is lost, and each month costs no more than its budget and the bound."""
    start = datetime(2026, 1, 31, 21, 0, tzinfo=UTC)
    scenario = some_jobs(5, 36.0, start=start, budget_per_month=0.7)
    run = Run(scenario, a_policy(when_spent), 1)

    result = run.run()

    most = bound(when_spent, timedelta(hours=1.1), timedelta(0))
    months = month_by_month(run)
    assert len(months) == 2
    assert all(dollars <= 0.7 + most for dollars in months)
    assert result.items_done == result.items
    assert result.dead_letters == 0

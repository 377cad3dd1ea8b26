"""The bound of the linear relaxation: by hand, and below what is solved in whole numbers."""

from random import Random

import pytest

from research.bound import bound
from research.compare import relaxation
from research.compare.exact import optimum
from research.compare.relaxation import Relaxed
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import Boot, SimScenario
from spindown.simulator.sample import office_batches
from tests.simulator.scene import HOUR, a_scenario, an_arrival

HOURLY = (0.20 + extra_price_per_hour(100)) / HOUR
BOOT = Boot(at_least=90.0, median=0.0, sigma=0.0)


def relaxed(scenario: SimScenario, *, start_within: float) -> Relaxed:
    found = relaxation.relaxed(scenario, start_within=start_within)
    assert found is not None
    return found


def test_a_lone_job_costs_one_whole_boot_and_its_work() -> None:
    found = relaxed(a_scenario(an_arrival()), start_within=600)

    assert found.boots == pytest.approx(1.0)
    assert found.dollars == pytest.approx((90 + 600) * HOURLY)


def test_jobs_far_apart_need_a_boot_each_close_ones_share_one() -> None:
    apart = a_scenario(an_arrival(at=0.0), an_arrival(at=7200.0))
    close = a_scenario(an_arrival(at=0.0), an_arrival(at=300.0))

    assert relaxed(apart, start_within=600).dollars == pytest.approx((180 + 1200) * HOURLY)
    assert relaxed(close, start_within=600).dollars == pytest.approx((90 + 1200) * HOURLY)


def test_work_of_no_whole_number_of_steps_is_counted_in_full() -> None:
    scenario = a_scenario(*(an_arrival(item_seconds=0.7 + n / 10) for n in range(5)))
    work = sum(each.work_seconds for each in scenario.arrivals)

    found = relaxed(scenario, start_within=600)

    assert found.dollars - found.boot_dollars == pytest.approx(work * HOURLY, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_no_schedule_in_whole_numbers_is_cheaper(seed: int) -> None:
    random = Random(seed)
    arrivals = sorted(
        (
            an_arrival(at=30.0 * random.randrange(120), items=1, item_seconds=30.0 * size)
            for size in random.choices(range(1, 21), k=5)
        ),
        key=lambda each: each.at,
    )
    scenario = a_scenario(*arrivals, boot=BOOT)

    exact = optimum(arrivals, start_within=600.0, boot=90.0)

    assert relaxed(scenario, start_within=600).dollars <= exact.found * HOURLY * (1 + 1e-6)


def test_sees_boots_that_the_bound_of_empty_spans_does_not() -> None:
    arrivals = office_batches(seed=1, days=2, work_hours=13.0)
    scenario = a_scenario(*arrivals)

    plain = bound(scenario, start_within=600).bounded_wait

    assert plain < relaxed(scenario, start_within=600).dollars < 1.2 * plain

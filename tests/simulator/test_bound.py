"""Bounds by hand, and below everything that any policy pays."""

import pytest

from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import bound, simulate
from spindown.simulator.bound.price import refund_share
from spindown.simulator.sample import office_batches, sample_market
from tests.simulator.scene import DAY, HOUR, a_listing, a_policy, a_scenario, a_zone, an_arrival

EXTRA = extra_price_per_hour(100)
HOURLY = (0.20 + EXTRA) / HOUR


def test_one_job_costs_a_boot_and_its_work() -> None:
    found = bound(a_scenario(an_arrival()), start_within=600)

    assert found.work == pytest.approx(600 * HOURLY)
    assert found.bounded_wait == pytest.approx((90 + 600) * HOURLY)
    assert found.zero_wait == pytest.approx((90 + 600) * HOURLY)


def test_a_gap_costs_idling_or_a_boot_whichever_is_less_and_waiting_shortens_it() -> None:
    # The second comes 40 s after the first can have ended at the latest with 60 s of waiting.
    scenario = a_scenario(an_arrival(at=0.0), an_arrival(at=700.0))

    assert bound(scenario, start_within=60).bounded_wait == pytest.approx((90 + 1240) * HOURLY)
    assert bound(scenario, start_within=600).bounded_wait == pytest.approx((90 + 1200) * HOURLY)
    assert bound(scenario, start_within=0).zero_wait == pytest.approx((180 + 1200) * HOURLY)


def test_jobs_at_once_need_machines_at_once_only_if_they_may_not_wait() -> None:
    scenario = a_scenario(an_arrival(at=0.0), an_arrival(at=0.0))

    assert bound(scenario, start_within=0).zero_wait == pytest.approx((180 + 1200) * HOURLY)
    assert bound(scenario, start_within=0).bounded_wait == pytest.approx((90 + 1200) * HOURLY)


def test_work_costs_what_the_cheapest_hour_within_its_wait_costs() -> None:
    zone = a_zone(spot=((0.0, 0.20), (300.0, 0.10)))
    scenario = a_scenario(an_arrival(at=0.0), listings=(a_listing(zones={"us-west-2a": zone}),))

    assert bound(scenario, start_within=0).work == pytest.approx(600 * (0.10 + EXTRA) / HOUR)


def test_no_refund_without_reclaims_and_more_with_more() -> None:
    assert refund_share(0.0) == 0.0
    assert refund_share(0.1) == pytest.approx(0.049, abs=0.001)
    assert refund_share(0.1) < refund_share(1.0) < 1.0


@pytest.mark.parametrize("seed", range(3))
def test_the_shipped_policy_stays_above_every_bound(seed: int) -> None:
    scenario = a_scenario(
        *office_batches(seed=seed, days=1, work_hours=5),
        listings=sample_market(seed=seed, days=1, reclaims=5.0),
        length=DAY,
    )
    result = simulate(scenario, a_policy(), seed)
    found = bound(scenario, start_within=result.wait.most)

    assert found.work < found.bounded_wait < result.dollars

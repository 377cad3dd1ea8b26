"""What work costs as bought: one pool for each job, at the prices in force."""

import pytest

from research.bound import bought_work, bound
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import Zone
from tests.simulator.scene import a_listing, a_scenario, an_arrival

HOUR = 3600.0


def _paid(*zones: Zone, seconds: float = HOUR, within: float = 600.0) -> float:
    listing = a_listing(zones={f"z{at}": zone for at, zone in enumerate(zones)}, on_demand=None)
    scenario = a_scenario(an_arrival(at=0.0, items=1, item_seconds=seconds), listings=(listing,))
    extra = extra_price_per_hour(scenario.root_volume_gib) * seconds / HOUR
    return bought_work(scenario, start_within=within) - extra


def test_a_job_waits_for_a_price_that_falls_within_its_promise() -> None:
    falling = Zone(spot=((0.0, 1.0), (300.0, 0.5)))

    assert _paid(falling) == pytest.approx(0.5)
    assert _paid(falling, within=0.0) == pytest.approx((300 * 1.0 + 3300 * 0.5) / HOUR)


def test_a_job_does_not_hop_to_the_cheapest_pool_of_each_moment() -> None:
    early = Zone(spot=((0.0, 0.2), (1800.0, 1.0)))
    late = Zone(spot=((0.0, 1.0), (1800.0, 0.2)))

    assert _paid(early, late, within=0.0) == pytest.approx(0.6)
    assert _paid(early, late, within=600.0) == pytest.approx((1200 * 1.0 + 2400 * 0.2) / HOUR)


def test_where_prices_stand_still_it_is_the_work_bound() -> None:
    scenario = a_scenario(an_arrival(at=5.0, items=3, item_seconds=100.0))

    charged = bound(scenario, start_within=600.0, is_refunded=False)
    assert bought_work(scenario, start_within=600.0) == pytest.approx(charged.work)

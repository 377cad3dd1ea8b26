"""Bounds by hand, and below everything that any policy pays."""

import pytest

from research.bound import bound
from research.bound.refund import refund_share
from research.bound.supply import Supply, generous
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import simulate
from spindown.simulator.sample import office_batches, sample_market
from tests.simulator.scene import DAY, HOUR, a_listing, a_policy, a_scenario, a_zone, an_arrival

EXTRA = extra_price_per_hour(100)
HOURLY = (0.20 + EXTRA) / HOUR


def test_one_job_costs_a_boot_and_its_work() -> None:
    found = bound(a_scenario(an_arrival()), start_within=600)

    assert found.work == pytest.approx(600 * HOURLY)
    assert found.bounded_wait == pytest.approx((90 + 600) * HOURLY)
    assert found.zero_wait == pytest.approx((90 + 600) * HOURLY)


def test_a_gap_costs_idling_or_a_boot_and_waiting_shortens_it() -> None:
    # The second comes 40 s after the first can have ended at the latest with 60 s of waiting.
    scenario = a_scenario(an_arrival(at=0.0), an_arrival(at=700.0))

    assert bound(scenario, start_within=60).bounded_wait == pytest.approx((90 + 1240) * HOURLY)
    assert bound(scenario, start_within=600).bounded_wait == pytest.approx((90 + 1200) * HOURLY)
    assert bound(scenario, start_within=0).zero_wait == pytest.approx((180 + 1200) * HOURLY)


def test_jobs_at_once_share_machines_only_if_they_may_wait() -> None:
    scenario = a_scenario(an_arrival(at=0.0), an_arrival(at=0.0))

    assert bound(scenario, start_within=0).zero_wait == pytest.approx((180 + 1200) * HOURLY)
    assert bound(scenario, start_within=0).bounded_wait == pytest.approx((180 + 1200) * HOURLY)


def test_work_costs_its_cheapest_hour_within_its_wait() -> None:
    zone = a_zone(spot=((0.0, 0.20), (300.0, 0.10)))
    scenario = a_scenario(an_arrival(at=0.0), listings=(a_listing(zones={"us-west-2a": zone}),))

    assert bound(scenario, start_within=0).work == pytest.approx(600 * (0.10 + EXTRA) / HOUR)


def test_without_spot_in_time_work_costs_the_on_demand_price() -> None:
    zone = a_zone(capacity=((0.0, 0.0), (3600.0, 4.0)))
    scenario = a_scenario(an_arrival(at=0.0), listings=(a_listing(zones={"us-west-2a": zone}),))
    on_demand = (0.50 + EXTRA) / HOUR

    assert bound(scenario, start_within=600).bounded_wait == pytest.approx(690 * on_demand)
    assert bound(scenario, start_within=3600).bounded_wait == pytest.approx(690 * HOURLY)


def test_of_a_crowd_only_so_much_is_spot_as_there_are_machines() -> None:
    zone = a_zone(capacity=((0.0, 2.0),))
    scenario = a_scenario(
        *(an_arrival(at=0.0) for _ in range(8)), listings=(a_listing(zones={"us-west-2a": zone}),)
    )
    found = bound(scenario, start_within=0)

    # All start at once: two of eight on spot, boots as well.
    on_demand = (0.50 + EXTRA) / HOUR
    assert found.work == pytest.approx(600 * (2 * HOURLY + 6 * on_demand))
    assert found.bounded_wait == pytest.approx(690 * (2 * HOURLY + 6 * on_demand))


def test_a_first_hour_lost_to_capacity_is_free_with_its_notice() -> None:
    zone = a_zone(capacity=((0.0, 1.0), (7200.0, 0.0)))
    supply = Supply(a_scenario(listings=(a_listing(on_demand=None, zones={"us-west-2a": zone}),)))

    assert [x.price for x in supply.at(7200.0 + 120 - 3601)] == [0.20]
    assert [x.price for x in supply.at(7200.0 + 120 - 3599)] == [0.0]
    assert [x.machines for x in supply.at(7319.0)] == [1.0]
    assert supply.at(7321.0) == []
    assert [x.price for x in supply.within(7300.0, 7400.0)] == [0.0]


def test_a_bound_that_charges_every_hour_knows_no_luck() -> None:
    zone = a_zone(reclaims_per_hour=1.0, capacity=((0.0, 1.0), (1800.0, 0.0)))
    scenario = a_scenario(an_arrival(at=0.0), listings=(a_listing(zones={"us-west-2a": zone}),))

    charged = bound(scenario, start_within=600, is_refunded=False)
    assert charged.bounded_wait == pytest.approx(690 * HOURLY)
    assert bound(scenario, start_within=600).bounded_wait < charged.bounded_wait


def test_all_slots_of_an_instance_work_for_its_one_price() -> None:
    jobs = [an_arrival(at=30.0) for _ in range(4)]
    scenario = a_scenario(*jobs, slots="4")
    result = simulate(scenario, a_policy(), 1)
    found = bound(scenario, start_within=result.wait.most)

    # Four jobs side by side on one machine: a boot, their ten minutes, two idle ones.
    assert result.launches == 1
    assert found.work == pytest.approx(600 * HOURLY)
    assert found.bounded_wait == pytest.approx((90 + 600) * HOURLY)
    assert found.zero_wait == pytest.approx((90 + 600) * HOURLY)


def test_a_crowd_needs_a_machine_for_each_slotful_of_jobs() -> None:
    zone = a_zone(capacity=((0.0, 2.0),))
    scenario = a_scenario(
        *(an_arrival(at=0.0) for _ in range(8)),
        listings=(a_listing(zones={"us-west-2a": zone}),),
        slots="4",
    )

    # Two machines, both on spot.
    found = bound(scenario, start_within=0)
    assert found.bounded_wait == pytest.approx(690 * 2 * HOURLY)


def test_a_machine_pays_the_price_at_its_hour_s_begin() -> None:
    # It boots at 0.10, and before its first hour is over the price is fourfold.
    zone = a_zone(spot=((0.0, 0.10), (1000.0, 0.40)))
    scenario = a_scenario(
        an_arrival(at=30.0, items=120),
        an_arrival(at=1100.0),
        listings=(a_listing(zones={"us-west-2a": zone}),),
    )
    result = simulate(scenario, a_policy(max_workers=1), 1)

    assert result.dollars == pytest.approx(2015 * (0.10 + EXTRA) / HOUR, rel=0.01)
    assert bound(scenario, start_within=result.wait.most).bounded_wait < result.dollars


def test_an_hour_sells_at_the_least_price_of_the_hour_before() -> None:
    zone = a_zone(spot=((0.0, 0.30), (1000.0, 0.10), (1200.0, 0.40), (3000.0, 0.20)))
    supply = Supply(a_scenario(listings=(a_listing(on_demand=None, zones={"us-west-2a": zone}),)))
    paid = {at: supply.at(at)[0].price for at in (999.0, 1000.0, 4799.0, 4800.0)}

    assert paid == {999.0: 0.30, 1000.0: 0.10, 4799.0: 0.10, 4800.0: 0.20}


def test_the_bound_of_thin_work_is_at_least_that_of_empty_spans() -> None:
    arrivals = office_batches(seed=1, days=1, work_hours=5)
    scenario = a_scenario(*arrivals, listings=sample_market(seed=1, days=2))

    for within in (0.0, 60.0, 600.0):
        found = bound(scenario, start_within=within)
        assert found.sparse_wait >= found.bounded_wait


def test_no_refund_without_reclaims_and_more_with_more() -> None:
    assert refund_share(0.0) == 0.0
    assert refund_share(0.1) == pytest.approx(0.0507, abs=0.0001)
    assert refund_share(0.1) < refund_share(1.0) < 1.0


def test_the_shipped_policy_stays_above_a_dry_market_s_bound() -> None:
    zone = a_zone(capacity=tuple((HOUR * n, (n + 1) % 3) for n in range(24)))
    scenario = a_scenario(
        *office_batches(seed=4, days=1, work_hours=5),
        listings=(a_listing(zones={"us-west-2a": zone}),),
    )
    result = simulate(scenario, a_policy(max_workers=20), 1)
    found = bound(scenario, start_within=result.wait.most)

    assert result.interruptions > 0
    assert result.on_demand_dollars > 0
    assert found.bounded_wait < result.dollars


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


def test_whole_trace_bounds_take_each_hour_at_its_payable_price() -> None:
    spot = ((0.0, 0.10), (1000.0, 0.40), (9000.0, 0.20))
    zones = {"us-west-2a": a_zone(spot=spot)}
    scenario = a_scenario(an_arrival(), listings=(a_listing(zones=zones),))

    (listing,) = generous(scenario).listings

    assert listing.zones["us-west-2a"].spot == (
        (0.0, 0.10),
        (1000.0, 0.10),
        (1000.0 + HOUR, 0.40),
        (9000.0, 0.20),
    )

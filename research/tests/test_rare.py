"""Rare ways cost what arithmetic says, and stay above the bounds."""

from dataclasses import replace

import pytest

from research.baseline import ALL, RARE, simulate_any
from research.bound import bound
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import SimResult, SimScenario
from spindown.simulator.baseline import PoolChoice
from tests.simulator.every_baseline import (
    does_all_work_and_replays,
    has_slots_as_ours,
    taken_often,
)
from tests.simulator.scene import HOUR, a_listing, a_scenario, a_zone, an_arrival

EXTRA = extra_price_per_hour(100)


@pytest.mark.parametrize(
    ("on_demand", "on_spot"), [("warm", "warm-spot"), ("asg-on-demand", "asg-backlog")]
)
def test_spot_and_on_demand_differ_by_the_hourly_price(on_demand: str, on_spot: str) -> None:
    scenario = a_scenario(*(an_arrival(at=HOUR) for _ in range(5)))
    dear, cheap = (simulate_any(scenario, ALL[x], 1) for x in (on_demand, on_spot))

    assert (dear.on_demand_dollars, cheap.on_demand_dollars) == (dear.dollars, 0.0)
    assert (dear.wait, dear.launches) == (cheap.wait, cheap.launches)
    assert dear.dollars / cheap.dollars == pytest.approx((0.50 + EXTRA) / (0.20 + EXTRA))


def test_a_warm_machine_on_spot_is_replaced_when_ec2_takes_it() -> None:
    taken = a_zone(capacity=((0.0, 1.0), (2 * HOUR, 0.0)))
    zones = {"us-west-2a": taken, "us-west-2b": a_zone(spot=((0.0, 0.21),))}
    scenario = a_scenario(an_arrival(at=3 * HOUR), listings=(a_listing(zones=zones),))
    result = simulate_any(scenario, ALL["warm-spot"], 1)

    assert (result.interruptions, result.launches, result.wait.most) == (1, 2, 0.0)


def test_utilisation_adds_a_machine_and_takes_it_away_again() -> None:
    scenario = a_scenario(*(an_arrival(at=30.0) for _ in range(6)))
    result = simulate_any(scenario, ALL["asg-cpu"], 1)
    sizes = [sample.busy + sample.idle + sample.booting for sample in result.samples]

    assert max(sizes) > 1
    assert sizes[-1] == 1


def test_an_auto_scaling_group_replaces_what_ec2_takes_from_it() -> None:
    # Three machines are at work when the first zone is taken for good, and nobody else waits.
    taken = a_zone(capacity=((0.0, 9.0), (2 * HOUR, 0.0)))
    zones = {"us-west-2a": taken, "us-west-2b": a_zone(spot=((0.0, 0.21),))}
    jobs = [an_arrival(at=30.0, items=2000) for _ in range(3)]
    scenario = a_scenario(*jobs, listings=(a_listing(zones=zones),))
    result = simulate_any(scenario, ALL["asg-cpu"], 1, max_workers=3)

    assert result.interruptions == 3
    up = {x.seconds: x.booting + x.idle + x.busy for x in result.samples}
    assert up[2 * HOUR - 60.0] == 3
    assert up[2 * HOUR + 180.0] == 3


def test_a_refusal_sends_luna_on_and_the_informed_waits() -> None:
    dry = a_listing("g4dn.xlarge", zones={"us-west-2a": a_zone(capacity=((0.0, 0.0),))})
    other = a_listing("g5.xlarge", on_demand=1.0, speed=2.0)
    scenario = a_scenario(listings=(dry, other), overtime=HOUR)

    assert simulate_any(scenario, ALL["luna"], 1).jobs_done == 1
    stuck = replace(ALL["classic-alarm"], pools=PoolChoice.FIXED)
    assert simulate_any(scenario, stuck, 1).jobs_done == 0


@pytest.mark.parametrize("name", RARE)
def test_a_baseline_does_all_work_and_costs_more_than_the_bound(name: str) -> None:
    result = does_all_work_and_replays(lambda scenario: simulate_any(scenario, RARE[name], 3))

    least = bound(taken_often(), start_within=result.wait.most).bounded_wait
    assert result.dollars > least


@pytest.mark.parametrize("name", RARE)
def test_a_machine_has_as_many_slots_as_ours(name: str) -> None:
    def run(scenario: SimScenario) -> SimResult:
        return simulate_any(scenario, RARE[name], 1, max_workers=2)

    has_slots_as_ours(run, RARE[name])


def test_who_takes_jobs_from_sqs_leaves_old_ones_behind() -> None:
    scenario = replace(a_scenario(*(an_arrival(at=float(n)) for n in range(40))), disorder=10)
    in_order = simulate_any(scenario, ALL["warm"], 1)
    as_it_comes = simulate_any(scenario, replace(ALL["warm"], is_on_sqs=True), 1)

    assert as_it_comes.wait.most > in_order.wait.most
    assert as_it_comes.jobs_done == in_order.jobs_done

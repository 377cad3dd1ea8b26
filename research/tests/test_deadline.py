"""One long job with a deadline: the bound by hand, the rules of others as they are published."""

import math

import pytest

from research.baseline import DEADLINE_RULES, simulate_deadline
from research.baseline.deadline import DeadlineLook, Move, greedy, uniform_progress
from research.bound import optimal_schedule
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import SimScenario
from tests.simulator.scene import HOUR, a_listing, a_scenario, a_zone, an_arrival

EXTRA = extra_price_per_hour(100)
SPOT, ON_DEMAND = 0.20 + EXTRA, 0.50 + EXTRA
#: Ten hours.
JOB = an_arrival(at=0.0, items=3600)


def a_market(*capacity: tuple[float, float]) -> SimScenario:
    zone = a_zone(capacity=capacity)
    return a_scenario(JOB, listings=(a_listing(zones={"us-west-2a": zone}),), length=20 * HOUR)


def seen(**changes: object) -> DeadlineLook:
    plain = {"elapsed": 0.0, "deadline": 20.0, "work": 10.0, "done": 0.0, "change": 0.5}
    return DeadlineLook(**{**plain, **changes})  # type: ignore[arg-type]


def test_a_job_that_spot_can_do_costs_its_hours_and_a_boot() -> None:
    found = optimal_schedule(a_market((0.0, 1.0)), deadline=20 * HOUR)

    assert found == pytest.approx((10 + 90 / HOUR) * SPOT, rel=0.01)


def test_what_spot_cannot_do_in_time_is_bought_on_demand() -> None:
    market = a_market((0.0, 0.0), (2 * HOUR, 1.0), (8 * HOUR, 0.0))
    charged = optimal_schedule(market, deadline=12 * HOUR, is_refunded=False)
    refunded = optimal_schedule(market, deadline=12 * HOUR)

    # Six hours of spot and the two minutes of its notice; a boot of each.
    notice = 120 / HOUR
    spot, on_demand = 6 + notice, 4 - notice + 90 / HOUR
    assert charged == pytest.approx(spot * SPOT + on_demand * ON_DEMAND, rel=0.01)
    # The last hour before a fall is free to who launches for it.
    assert refunded < charged
    assert refunded > charged - 0.21


def test_no_way_leads_home_if_there_is_no_time() -> None:
    assert optimal_schedule(a_market((0.0, 1.0)), deadline=9 * HOUR) == math.inf


@pytest.mark.parametrize(
    ("state", "greedily", "evenly"),
    [
        ({"on_spot": True, "elapsed": 15.0}, Move.STAY, Move.STAY),
        ({"elapsed": 4.0, "done": 2.0}, Move.SPOT_OR_NOTHING, Move.SPOT_OR_NOTHING),
        ({"elapsed": 4.0, "done": 1.9}, Move.SPOT_OR_NOTHING, Move.EITHER),
        ({"elapsed": 12.0, "done": 2.9}, Move.HOME, Move.HOME),
        ({"elapsed": 4.0, "done": 2.4, "on_demand": True}, Move.SPOT_OR_NOTHING, Move.STAY),
        (
            {"elapsed": 4.0, "done": 2.5, "on_demand": True},
            Move.SPOT_OR_NOTHING,
            Move.SPOT_OR_NOTHING,
        ),
    ],
)
def test_each_rule_decides_as_its_source_says(
    state: dict[str, object], greedily: Move, evenly: Move
) -> None:
    assert greedy(seen(**state)) is greedily
    assert uniform_progress(seen(**state)) is evenly


@pytest.mark.parametrize("name", DEADLINE_RULES)
def test_every_rule_is_home_in_time_and_above_the_bound(name: str) -> None:
    steps = ((0.0, 0.0), (2 * HOUR, 1.0), (5 * HOUR + 0.3, 0.0), (7 * HOUR + 0.7, 1.0))
    market = a_market(*steps, (9 * HOUR, 0.0))
    result = simulate_deadline(
        market,
        DEADLINE_RULES[name],
        deadline=13 * HOUR,
        seed=1,
    )

    assert result.jobs_done == 1
    assert result.sojourn.most <= 13 * HOUR
    assert result.dollars > optimal_schedule(market, deadline=13 * HOUR)
    assert result.redo_seconds < 10


def test_even_progress_goes_back_to_spot_when_it_is_ahead() -> None:
    market = a_market((0.0, 0.0), (3 * HOUR, 1.0))
    result = simulate_deadline(
        market,
        DEADLINE_RULES["uniform-progress"],
        deadline=20 * HOUR,
        seed=1,
    )
    kinds = {1: result.on_demand_dollars, 0: result.dollars - result.on_demand_dollars}

    assert 0 < kinds[1] < 2 * ON_DEMAND
    assert kinds[0] > 8 * SPOT

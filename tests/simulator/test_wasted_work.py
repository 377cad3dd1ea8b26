"""Items too long to be done between reclaims, in the whole simulated system."""

from dataclasses import replace
from typing import Any

import pytest

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.domain.reason import ReasonCode
from spindown.simulator import Arrival, Run, SimResult, SimScenario
from tests.builders import minutes
from tests.simulator.scene import (
    DAY,
    HOUR,
    REGION,
    a_listing,
    a_scenario,
    a_zone,
    an_arrival,
)

pytestmark = pytest.mark.long

ON_DEMAND = 0.50
#: Hours of a boot, an idle tail and the wait for a message that workers leave to others.
AROUND = 0.4
SPOT_ONLY = Policy(ladder=(Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT})),))


def a_story(hours: float, rate: float, *more: Arrival, **changes: Any) -> SimScenario:
    """Return one long item in pools that are reclaimed so often an hour."""
    zones = {f"{REGION}{name}": a_zone(reclaims_per_hour=rate) for name in "ab"}
    base = a_scenario(
        an_arrival(items=1, item_seconds=hours * HOUR),
        *more,
        listings=(a_listing(zones=zones),),
        overtime=6 * DAY,
    )
    return replace(base, **changes)


def run(scenario: SimScenario, policy: Policy | None = None, seed: int = 1) -> SimResult:
    return Run(scenario, policy or Policy(), seed).run()


def most(hours: float) -> float:
    """Return twice what on-demand from the start costs, and one machine that came for nothing."""
    return 2.0 * ON_DEMAND * (hours + AROUND)


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.proof) for n in (2, 3))])
@pytest.mark.parametrize(("hours", "rate"), [(8.0, 0.5), (10.0, 1.0)])
def test_done_for_twice_on_demand(hours: float, rate: float, seed: int) -> None:
    """The first bought 86 machines for $29.22, the second was never done."""
    result = run(a_story(hours, rate), seed=seed)

    assert (result.jobs_done, result.dead_letters) == (1, 0)
    assert result.dollars <= most(hours)
    assert result.launches <= 10


def test_without_notice_too() -> None:
    result = run(a_story(8.0, 0.5, notice_missing=1.0))

    assert result.jobs_done == 1
    assert result.dollars <= most(8.0)


def test_with_checkpoints_it_stays_on_spot() -> None:
    story = a_story(8.0, 0.5)
    story = replace(story, arrivals=(replace(story.arrivals[0], keeps_state=True),))
    result = run(story)

    assert result.jobs_done == 1
    assert result.interruptions > 0
    assert result.on_demand_dollars == 0.0


def test_a_stabler_pool_comes_first() -> None:
    story = a_story(8.0, 1.0)
    sure = a_listing("g5.xlarge", on_demand=0.80, zones={f"{REGION}a": a_zone(spot=((0.0, 0.24),))})
    result = run(replace(story, listings=(*story.listings, sure)))

    assert result.jobs_done == 1
    assert result.types["g5.xlarge"] >= 1
    assert result.on_demand_dollars == 0.0


def test_where_nothing_is_sure_it_is_a_dead_letter() -> None:
    going = Run(a_story(10.0, 1.0), SPOT_ONLY, 1)
    result = going.run()

    assert (result.jobs_done, result.dead_letters) == (0, 1)
    assert result.dollars <= most(10.0)
    letter = going.world.dead_letters.receive(wait=minutes(0), visibility=minutes(1))
    assert letter is not None
    assert letter.attributes["code"] == ReasonCode.NEVER_DONE
    assert 0.0 < float(letter.attributes["dollars"]) <= most(10.0)


def test_short_jobs_beside_it_stay_on_spot() -> None:
    short = [an_arrival(at=hour * HOUR, items=60) for hour in range(20)]
    result = run(a_story(8.0, 0.5, *short))

    assert result.jobs_done == 21
    assert result.dollars <= most(8.0) + 20 * ON_DEMAND * AROUND


@pytest.mark.parametrize(
    ("zone", "policy"),
    [
        pytest.param({"on_demand_capacity": ((0.0, 0),)}, Policy(), id="no capacity"),
        pytest.param({}, Policy(max_dollars_per_hour=0.4), id="too dear for the fleet"),
    ],
)
def test_where_nothing_sure_can_be_had_it_ends(zone: dict[str, Any], policy: Policy) -> None:
    zones = {f"{REGION}{name}": a_zone(reclaims_per_hour=1.0, **zone) for name in "ab"}
    result = run(a_story(8.0, 1.0, listings=(a_listing(zones=zones),)), policy)

    assert (result.jobs_done, result.dead_letters) == (0, 1)
    assert result.dollars <= most(8.0)


@pytest.mark.parametrize("rate", [pytest.param(0.5, marks=pytest.mark.proof), 1.0])
def test_with_useless_checkpoints_it_leaves_spot(rate: float) -> None:
    story = a_story(8.0, rate)
    saving = replace(story.arrivals[0], keeps_state=True, uses_state=False)
    result = run(replace(story, arrivals=(saving,)))

    assert result.jobs_done == 1
    assert result.dollars <= 1.5 * most(8.0)


@pytest.mark.parametrize("rate", [pytest.param(0.2, marks=pytest.mark.proof), 1.0])
def test_a_checkpoint_of_a_day_stays_on_spot(rate: float) -> None:
    story = a_story(20.0, rate)
    result = run(replace(story, arrivals=(replace(story.arrivals[0], keeps_state=True),)))

    assert result.jobs_done == 1
    assert result.interruptions > 0
    assert result.on_demand_dollars == 0.0


@pytest.mark.parametrize(
    ("hours", "policy"),
    [
        pytest.param(8.0, SPOT_ONLY, id="nothing stays"),
        # A job is held for 11 hours at most.
        pytest.param(20.0, Policy(), id="longer than any hold"),
    ],
)
def test_useless_checkpoints_have_an_end(hours: float, policy: Policy) -> None:
    most_hours = 12.0
    story = a_story(hours, 1.0)
    saving = replace(story.arrivals[0], keeps_state=True, uses_state=False)
    limited = replace(policy, max_item_time=minutes(60 * most_hours))
    going = Run(replace(story, arrivals=(saving,)), limited, 1)
    result = going.run()

    assert (result.jobs_done, result.dead_letters) == (0, 1)
    letter = going.world.dead_letters.receive(wait=minutes(0), visibility=minutes(1))
    assert letter is not None
    assert letter.attributes["code"] == ReasonCode.ITEM_TOO_LONG
    # The last attempt goes on to its end; each has a boot.
    assert result.dollars <= ON_DEMAND * (most_hours + 11.0 + AROUND * result.launches)

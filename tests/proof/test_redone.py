"""What an interruption costs, in virtual time: work that is done again, with notice and without.

Figures go to docs/proof/redone.json.
"""

import math
from dataclasses import replace

import pytest

from spindown.domain.policy import Policy
from spindown.simulator import Arrival, SimResult, SimScenario, simulate
from tests.proof.record import record
from tests.simulator.scene import DAY, HOUR, a_listing, a_scenario, a_zone

#: A hot zone: the mean time between interruptions of one instance, in hours.
_BETWEEN_HOURS = 2.3
_ITEM_SECONDS = 10.0
_DAYS = 5
#: "auto" of a commit that takes 0.3 s: Young's interval, sqrt(2 x 0.3 s x 2.3 h).
_INTERVAL_SECONDS = math.sqrt(2 * 0.3 * _BETWEEN_HOURS * HOUR)


def a_hot_zone(*, notice_missing: float) -> SimScenario:
    """Return two hours of work an hour for some days, on instances that EC2 takes all the time."""
    listing = a_listing(zones={"us-west-2a": a_zone(reclaims_per_hour=1 / _BETWEEN_HOURS)})
    arrivals = tuple(
        Arrival(at=30.0 + hour * HOUR, items=720, item_seconds=_ITEM_SECONDS)
        for hour in range(24 * _DAYS)
    )
    scenario = a_scenario(*arrivals, listings=(listing,), length=_DAYS * DAY)
    return replace(scenario, notice_missing=notice_missing)


def figures(result: SimResult) -> dict[str, float]:
    return {
        "interruptions": result.interruptions,
        "billed_hours": round(result.billed_seconds / HOUR, 1),
        "redone_seconds_per_interruption": round(result.redo_seconds / result.interruptions, 1),
        "redone_share_of_billed_time": round(result.redo_seconds / result.billed_seconds, 5),
    }


@pytest.mark.proof
def test_an_interruption_costs_less_than_a_checkpoint_interval() -> None:
    told = simulate(a_hot_zone(notice_missing=0.0), Policy(max_workers=6), seed=3)
    untold = simulate(a_hot_zone(notice_missing=1.0), Policy(max_workers=6), seed=3)

    found = {"with_notice": figures(told), "without_notice": figures(untold)}
    record(
        "redone",
        {
            "mean_hours_between_interruptions": _BETWEEN_HOURS,
            "item_seconds": _ITEM_SECONDS,
            "checkpoint_interval_seconds": round(_INTERVAL_SECONDS, 1),
            **found,
        },
    )
    for result in (told, untold):
        assert result.items_done == result.items
        assert result.dead_letters == 0
        assert result.interruptions > 40
    assert found["without_notice"]["redone_seconds_per_interruption"] < _INTERVAL_SECONDS
    assert found["with_notice"]["redone_seconds_per_interruption"] < 2 * _ITEM_SECONDS
    assert found["with_notice"]["redone_share_of_billed_time"] < 0.01

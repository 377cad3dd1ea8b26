"""Which rungs a deadline opens."""

from datetime import timedelta

import pytest

from spindown.domain.deadline import PurchaseMode, allows, open_ladder
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from tests.builders import ON_DEMAND, SPOT, a_policy, minutes

LADDER = (
    Rung(after=timedelta(0), capacity_types=frozenset({SPOT}), max_price_per_hour=1.0),
    Rung(after=minutes(30), capacity_types=frozenset(CapacityType), max_price_per_hour=3.0),
)


@pytest.mark.parametrize(
    ("wanted", "open_now"),
    [
        (PurchaseMode.SPOT, [({SPOT}, 1.0)]),
        (PurchaseMode.ANY, [({SPOT}, 1.0), (set(CapacityType), 3.0)]),
        (PurchaseMode.ON_DEMAND, [({ON_DEMAND}, 3.0)]),
        (ON_DEMAND, [({ON_DEMAND}, 3.0)]),
        (SPOT, [({SPOT}, 1.0), ({SPOT}, 3.0)]),
    ],
)
def test_the_ladder_opens_by_the_course_and_not_by_the_wait(
    wanted: PurchaseMode | CapacityType, open_now: list[tuple[set[CapacityType], float]]
) -> None:
    rungs = open_ladder(Policy(ladder=LADDER), wanted).ladder

    assert [(set(r.capacity_types), r.max_price_per_hour) for r in rungs] == open_now
    assert all(rung.after == timedelta(0) for rung in rungs)


def test_a_kind_that_no_rung_allows_is_never_asked_for() -> None:
    policy = Policy(ladder=LADDER[:1])

    assert allows(policy, SPOT)
    assert not allows(policy, ON_DEMAND)
    assert open_ladder(policy, PurchaseMode.ON_DEMAND).ladder == policy.ladder
    assert allows(a_policy(), ON_DEMAND)


@pytest.mark.parametrize("wanted", [*PurchaseMode, *CapacityType])
def test_no_ladder_stays_none(wanted: PurchaseMode | CapacityType) -> None:
    assert open_ladder(a_policy(), wanted).ladder == ()

"""What a person reads of an offer that is left out, and that a limit itself is not above it."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.domain.offer import Requirements
from spindown.domain.policy import Rung
from spindown.wording import say
from tests.builders import (
    NOW,
    ON_DEMAND,
    SPOT,
    a_policy,
    a_pool,
    a_ranking,
    a_type,
    an_offer,
    an_unavailable,
    minutes,
)
from tests.unit.domain.ranking.reading import RUNGS, reason

UNTIL_DEAR = a_policy(
    ladder=(
        Rung(after=timedelta(0), capacity_types=frozenset({SPOT}), max_price_per_hour=0.5),
        Rung(after=minutes(5), capacity_types=frozenset({SPOT}), max_price_per_hour=1.0),
    ),
    start_within=minutes(60),
)


@pytest.mark.parametrize(
    ("offer", "changes", "sentence"),
    [
        pytest.param(
            {"instance_price": 0.0},
            {},
            "no price is known, neither as spot nor on demand",
            id="no price",
        ),
        pytest.param({"instance_price": -1.0}, {}, "-1 USD/h cannot be right", id="a wrong price"),
        pytest.param(
            {},
            {"policy": a_policy(max_price_per_hour=0.21)},
            "0.2200 USD/h is above 0.21",
            id="ceiling",
        ),
        pytest.param(
            {"instance_type": a_type("g4dn.12xlarge"), "instance_price": 1.18},
            {"policy": a_policy(max_price_per_gpu_hour=0.25)},
            "0.3000 USD per GPU-hour is above 0.25",
            id="ceiling by GPU",
        ),
        pytest.param(
            {},
            {"headroom_per_hour": 0.1},
            "0.2200 USD/h, and only 0.1000 USD/h may be added",
            id="the fleet's own ceiling",
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"policy": a_policy(ladder=RUNGS, start_within=minutes(60))},
            "on-demand at 0.2200 USD/h opens at 12:15:00",
            id="a later rung",
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"policy": a_policy(ladder=RUNGS[:2])},
            "no rung of the price ladder allows on-demand at 0.2200 USD/h",
            id="no rung",
        ),
        pytest.param(
            {"on_demand_price": 0.19},
            {},
            "0.2000 USD/h as spot is dearer than 0.1900 on demand",
            id="on demand",
        ),
        pytest.param(
            {"reclaim_share": 0.9},
            {"policy": a_policy(min_reliability=0.999)},
            f"it lives an hour with probability {0.1 ** (1 / 730):.3f}, below 0.999",
            id="reliability",
        ),
        pytest.param(
            {},
            {"unavailable": [an_unavailable()]},
            "InsufficientInstanceCapacity; left alone until 12:03:00",
            id="dry",
        ),
        pytest.param(
            {},
            {"blocked": {"us-west-2/G/Spot": NOW + minutes(15)}},
            "quota us-west-2/G/Spot is full; blocked until 12:15:00",
            id="a quota that EC2 says is full",
        ),
        pytest.param(
            {},
            {"quota_left": {"us-west-2/G/Spot": 3.0}},
            "it takes 4 vCPUs, quota us-west-2/G/Spot has 3 left",
            id="a quota that we know is too full",
        ),
        pytest.param(
            {},
            {"quota_left": {"us-west-2/G/Spot": -8.0}},
            "it takes 4 vCPUs, quota us-west-2/G/Spot has 0 left",
            id="a quota that is more than full",
        ),
    ],
)
def test_says_why_an_offer_is_left_out(
    offer: dict[str, Any], changes: dict[str, Any], sentence: str
) -> None:
    (rejection,) = a_ranking([replace(an_offer(), **offer)], **changes).rejected

    assert say(rejection.reason) == sentence


@pytest.mark.parametrize(
    ("offer", "changes"),
    [
        pytest.param({"on_demand_price": 0.75}, {}, id="as dear as on demand"),
        pytest.param({}, {"policy": a_policy(max_price_per_hour=1.0)}, id="at the ceiling"),
        pytest.param({}, {"headroom_per_hour": 1.0}, id="at the fleet's ceiling"),
        pytest.param(
            {"instance_price": 19_999.75},
            {"policy": a_policy(max_price_per_hour=math.inf)},
            id="at the highest price of all",
        ),
        pytest.param(
            {"instance_price": 0.25}, {"policy": UNTIL_DEAR}, id="at the ceiling of its rung"
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND}, {"policy": a_policy(min_reliability=1.0)}, id="reliable"
        ),
        pytest.param(
            {"instance_type": a_type(gpu_name="", gpu_count=0.0)},
            {
                "policy": a_policy(max_price_per_gpu_hour=0.1),
                "requirements": Requirements(gpu_count_min=0.0),
            },
            id="without a GPU",
        ),
    ],
)
def test_what_is_just_allowed_is_told_only_that_it_is_dry(
    offer: dict[str, Any], changes: dict[str, Any]
) -> None:
    dear = an_offer(instance_price=0.75, extra_price=0.25)
    dry = [an_unavailable(replace(a_pool(), capacity_type=kind)) for kind in (SPOT, ON_DEMAND)]

    assert reason(replace(dear, **offer), unavailable=dry, **changes) == (
        "unavailable",
        NOW + minutes(3),
    )


def test_a_rung_opens_for_what_costs_just_its_ceiling() -> None:
    dear = an_offer(instance_price=0.75, extra_price=0.25)

    assert reason(dear, policy=UNTIL_DEAR) == ("ladder", NOW + minutes(5))

"""What a person reads of an offer that is left out, and that a limit itself is not above it."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.domain.offer import InstanceRequirements
from spindown.domain.policy import Rung
from spindown.domain.reason import Reason, ReasonCode
from tests.builders import (
    NOW,
    ON_DEMAND,
    SPOT,
    a_policy,
    a_pool,
    a_pool_cooldown,
    a_ranking,
    a_type,
    an_offer,
    minutes,
)
from tests.unit.domain.ranking.reading import RUNGS, reason

SOON, LATER = ((NOW + minutes(count)).isoformat() for count in (3, 15))
UNTIL_DEAR = a_policy(
    ladder=(
        Rung(after=timedelta(0), capacity_types=frozenset({SPOT}), max_price_per_hour=0.5),
        Rung(after=minutes(5), capacity_types=frozenset({SPOT}), max_price_per_hour=1.0),
    ),
    start_within=minutes(60),
)


@pytest.mark.parametrize(
    ("offer", "changes", "expected"),
    [
        pytest.param(
            {"instance_price": 0.0},
            {},
            Reason(ReasonCode.PRICE_UNKNOWN, {"price": 0.0}),
            id="no price",
        ),
        pytest.param(
            {"instance_price": -1.0},
            {},
            Reason(ReasonCode.PRICE_ABSURD, {"price": -1.0}),
            id="a wrong price",
        ),
        pytest.param(
            {},
            {"policy": a_policy(max_price_per_hour=0.21)},
            Reason(ReasonCode.OVER_MAX_PRICE, {"price": 0.22, "most": 0.21}),
            id="ceiling",
        ),
        pytest.param(
            {"instance_type": a_type("g4dn.12xlarge"), "instance_price": 1.18},
            {"policy": a_policy(max_price_per_gpu_hour=0.25)},
            Reason(ReasonCode.OVER_GPU_PRICE, {"price": 0.3, "most": 0.25}),
            id="ceiling by GPU",
        ),
        pytest.param(
            {},
            {"headroom_per_hour": 0.1},
            Reason(ReasonCode.OVER_HEADROOM, {"price": 0.22, "left": 0.1}),
            id="the fleet's own ceiling",
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"policy": a_policy(ladder=RUNGS, start_within=minutes(60))},
            Reason(
                ReasonCode.RUNG_OPENS_LATER,
                {"capacity_type": ON_DEMAND, "price": 0.22, "at": LATER},
            ),
            id="a later rung",
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"policy": a_policy(ladder=RUNGS[:2])},
            Reason(ReasonCode.NO_RUNG, {"capacity_type": ON_DEMAND, "price": 0.22}),
            id="no rung",
        ),
        pytest.param(
            {"on_demand_price": 0.19},
            {},
            Reason(ReasonCode.ABOVE_ON_DEMAND, {"spot": 0.2, "on_demand": 0.19}),
            id="on demand",
        ),
        pytest.param(
            {"reclaim_share": 0.9},
            {"policy": a_policy(min_reliability=0.999)},
            Reason(ReasonCode.UNRELIABLE, {"survives": 0.1 ** (1 / 730), "least": 0.999}),
            id="reliability",
        ),
        pytest.param(
            {},
            {"pool_cooldowns": [a_pool_cooldown()]},
            Reason(
                ReasonCode.POOL_COOLING_DOWN,
                {
                    "why": ReasonCode.POOL_REFUSED.value,
                    "refusal": "InsufficientInstanceCapacity",
                    "until": SOON,
                },
            ),
            id="dry",
        ),
        pytest.param(
            {},
            {"blocked": {"us-west-2/G/Spot": NOW + minutes(15)}},
            Reason(
                ReasonCode.QUOTA_FULL,
                {"quota": "us-west-2/G/Spot", "until": LATER},
            ),
            id="a quota that EC2 says is full",
        ),
        pytest.param(
            {},
            {"quota_left": {"us-west-2/G/Spot": 3.0}},
            Reason(ReasonCode.QUOTA_SHORT, {"quota": "us-west-2/G/Spot", "vcpus": 4, "left": 3.0}),
            id="a quota that we know is too full",
        ),
        pytest.param(
            {},
            {"quota_left": {"us-west-2/G/Spot": -8.0}},
            Reason(ReasonCode.QUOTA_SHORT, {"quota": "us-west-2/G/Spot", "vcpus": 4, "left": 0.0}),
            id="a quota that is more than full",
        ),
    ],
)
def test_says_why_an_offer_is_left_out(
    offer: dict[str, Any], changes: dict[str, Any], expected: Reason
) -> None:
    (rejection,) = a_ranking([replace(an_offer(), **offer)], **changes).rejected

    assert rejection.reason.code is expected.code
    assert rejection.reason.about == pytest.approx(expected.about)


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
                "requirements": InstanceRequirements(gpu_count_min=0.0),
            },
            id="without a GPU",
        ),
    ],
)
def test_what_is_just_allowed_only_waits_for_its_pool_to_cool(
    offer: dict[str, Any], changes: dict[str, Any]
) -> None:
    dear = an_offer(instance_price=0.75, extra_price=0.25)
    dry = [a_pool_cooldown(replace(a_pool(), capacity_type=kind)) for kind in (SPOT, ON_DEMAND)]

    assert reason(replace(dear, **offer), pool_cooldowns=dry, **changes) == (
        "pool_cooldown",
        NOW + minutes(3),
    )


def test_a_rung_opens_for_what_costs_just_its_ceiling() -> None:
    dear = an_offer(instance_price=0.75, extra_price=0.25)

    assert reason(dear, policy=UNTIL_DEAR) == ("ladder", NOW + minutes(5))

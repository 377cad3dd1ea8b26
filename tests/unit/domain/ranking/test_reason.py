"""Why an offer may not be bought, and which one is nearest when none may."""

from typing import Any

import pytest

from spindown.domain.offer import CapacityType, InstanceRequirements, Offer
from spindown.domain.ranking import RegionBlock
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.domain.requirement import JUDGED, misfit
from tests.builders import (
    NOW,
    ON_DEMAND,
    a_policy,
    a_pool,
    a_pool_cooldown,
    a_ranking,
    a_type,
    an_offer,
    minutes,
)
from tests.unit.domain.ranking.reading import RUNGS, reason, zones

BLOCKED = {"us-west-2/G/Spot": NOW + minutes(15)}


LADDER = {"policy": a_policy(ladder=RUNGS, start_within=minutes(60))}


@pytest.mark.parametrize(
    ("offer", "changes", "expected"),
    [
        pytest.param({}, {}, None, id="taken"),
        pytest.param(
            {},
            {"requirements": InstanceRequirements(gpu_names=frozenset({"L4"}))},
            ("gpu_names", None),
            id="requirement",
        ),
        pytest.param({"instance_price": 0.0}, {}, ("price", None), id="a price of 0"),
        pytest.param({"instance_price": float("nan")}, {}, ("price", None), id="no number"),
        pytest.param(
            {"instance_price": 1e9},
            {"policy": a_policy(max_price_per_hour=1e12)},
            ("price", None),
            id="absurd",
        ),
        pytest.param(
            {},
            {"policy": a_policy(max_price_per_hour=0.2199)},
            ("max_price_per_hour", None),
            id="whole price above the ceiling",
        ),
        pytest.param({}, {"policy": a_policy(max_price_per_hour=0.2201)}, None, id="just below"),
        pytest.param(
            {"instance_type": a_type("g4dn.12xlarge"), "instance_price": 1.0},
            {"policy": a_policy(max_price_per_gpu_hour=0.25)},
            ("max_price_per_gpu_hour", None),
            id="dear by the GPU",
        ),
        pytest.param(
            {"instance_type": a_type("g4dn.12xlarge"), "instance_price": 0.9},
            {"policy": a_policy(max_price_per_gpu_hour=0.25)},
            None,
            id="four GPUs for four times the price",
        ),
        pytest.param(
            {
                "instance_type": a_type("g4dn.12xlarge"),
                "instance_price": 0.9,
                "capacity_type": ON_DEMAND,
            },
            {"policy": a_policy(max_price_per_gpu_hour=0.25)},
            None,
            id="four GPUs on demand",
        ),
        *(
            pytest.param(
                {"instance_price": 0.75, "extra_price": 0.25, "capacity_type": kind},
                {"policy": a_policy(max_price_per_hour=1.0)},
                None,
                id=f"{kind}, at the ceiling",
            )
            for kind in CapacityType
        ),
        pytest.param({}, {"policy": a_policy(min_reliability=0.5)}, None, id="reliable enough"),
        pytest.param(
            {
                "instance_type": a_type("g4dn.12xlarge"),
                "instance_price": 0.75,
                "extra_price": 0.25,
            },
            {
                "policy": a_policy(max_price_per_gpu_hour=0.25),
                "pool_cooldowns": [a_pool_cooldown(a_pool("g4dn.12xlarge"))],
            },
            ("pool_cooldown", NOW + minutes(3)),
            id="dry, and just as dear as a GPU may be",
        ),
        pytest.param(
            {"instance_type": a_type("c7i.large", gpu_name="", gpu_count=0.0)},
            {
                "policy": a_policy(max_price_per_gpu_hour=0.1),
                "requirements": InstanceRequirements(gpu_count_min=0.0),
            },
            None,
            id="without a GPU no GPU is dear",
        ),
        pytest.param(
            {}, {"headroom_per_hour": 0.1}, ("max_dollars_per_hour", None), id="fleet too dear"
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            LADDER,
            ("ladder", NOW + minutes(15)),
            id="on demand opens later",
        ),
        pytest.param(
            {"instance_price": 0.35}, LADDER, ("ladder", NOW + minutes(5)), id="dearer opens later"
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"policy": a_policy(ladder=RUNGS[:2])},
            ("ladder", None),
            id="never opens",
        ),
        pytest.param(
            {"on_demand_price": 0.19}, {}, ("on_demand_price", None), id="dearer than on demand"
        ),
        pytest.param({"on_demand_price": 0.20}, {}, None, id="as dear as on demand"),
        pytest.param(
            {"reclaim_share": 0.9},
            {"policy": a_policy(min_reliability=0.999)},
            ("min_reliability", None),
            id="too often reclaimed",
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"policy": a_policy(min_reliability=1.0)},
            None,
            id="on demand is never reclaimed",
        ),
        pytest.param(
            {},
            {"pool_cooldowns": [a_pool_cooldown()]},
            ("pool_cooldown", NOW + minutes(3)),
            id="ran dry",
        ),
        pytest.param(
            {}, {"pool_cooldowns": [a_pool_cooldown(until=NOW)]}, None, id="its time has passed"
        ),
        pytest.param(
            {"zone": "us-west-2b"}, {"pool_cooldowns": [a_pool_cooldown()]}, None, id="another zone"
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"pool_cooldowns": [a_pool_cooldown()]},
            None,
            id="another capacity type",
        ),
        pytest.param({}, {"blocked": BLOCKED}, ("quota", NOW + minutes(15)), id="quota is full"),
        pytest.param({"region": "eu-west-1"}, {"blocked": BLOCKED}, None, id="another region"),
        pytest.param({}, {"blocked": dict.fromkeys(BLOCKED, NOW)}, None, id="block has ended"),
        pytest.param(
            {},
            {"quota_left": {"us-west-2/G/Spot": 3.0}},
            ("quota", None),
            id="more vCPUs than its quota has left",
        ),
        pytest.param({}, {"quota_left": {"us-west-2/G/Spot": 4.0}}, None, id="just as many"),
        pytest.param(
            {},
            {"quota_left": {"us-west-2/G/Spot": 4.0, "us-west-2/P/Spot": 0.0}},
            None,
            id="just as many, and none of another class",
        ),
        pytest.param(
            {}, {"blocked": {"us-west-2/P/Spot": NOW + minutes(15)}}, None, id="another is full"
        ),
        pytest.param(
            {"instance_price": 0.3},
            {"policy": a_policy(max_price_per_gpu_hour=0.25)},
            ("max_price_per_gpu_hour", None),
            id="one GPU, dear by itself",
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"quota_left": {"us-west-2/G/Spot": 0.0}},
            None,
            id="the quota of another class",
        ),
    ],
)
def test_says_which_constraint_rules_an_offer_out(
    offer: dict[str, Any], changes: dict[str, Any], expected: tuple[str, Any] | None
) -> None:
    # mutmut runs every case twice in one process: what it is given stays as it is.
    offered = {"instance_type": "g4dn.xlarge", **offer}
    kind = offered.pop("instance_type")

    assert reason(an_offer(kind, **offered), **changes) == expected


def test_a_quota_too_full_for_one_offer_has_room_for_the_next() -> None:
    offers = [
        an_offer("g4dn.12xlarge"),
        an_offer("g4dn.xlarge"),
        an_offer("g4dn.12xlarge", capacity_type=ON_DEMAND),
        an_offer("g4dn.12xlarge", region="eu-west-1", zone="eu-west-1a"),
    ]
    left = {"us-west-2/G/Spot": 5.0, "us-west-2/P/Spot": 0.0, "eu-west-1/P/Spot": 0.0}

    found = a_ranking(offers, quota_left=left)

    assert [r.offer for r in found.rejected] == offers[:1]


def test_the_nearest_offer_is_the_one_that_comes_back_first() -> None:
    offers = [
        an_offer(zone="us-west-2a"),
        an_offer(zone="us-west-2b"),
        an_offer("g4dn.12xlarge", instance_price=1.0),
        an_offer(a_type(gpu_manufacturer="AMD"), instance_price=0.01),
    ]
    found = a_ranking(
        offers,
        pool_cooldowns=[
            a_pool_cooldown(until=NOW + minutes(9)),
            a_pool_cooldown(a_pool(zone="us-west-2b"), until=NOW + minutes(4)),
        ],
        policy=a_policy(max_price_per_hour=0.5),
    )

    assert not found
    assert found.nearest is not None
    assert found.nearest.offer.zone == "us-west-2b"
    assert found.nearest.retry_at == NOW + minutes(4)


def test_without_a_time_the_nearest_is_the_cheapest_that_fits() -> None:
    offers = [an_offer(instance_price=p) for p in (0.9, 0.7, 0.8)]
    offers.append(an_offer(a_type("g5g.xlarge", architecture="arm64"), instance_price=0.6))

    found = a_ranking(offers, policy=a_policy(max_price_per_hour=0.5))

    assert found.nearest is not None
    assert found.nearest.offer.instance_price == 0.7


def ruled_out(constraint: str, last: int, offers: int) -> Reason:
    about: About = {"constraint": constraint, "last": last, "offers": offers}
    return Reason(ReasonCode.LAST_RULED_OUT, about)


@pytest.mark.parametrize(
    ("offers", "changes", "expected"),
    [
        pytest.param([], {}, Reason(ReasonCode.NOTHING_ON_SALE), id="no zone"),
        pytest.param(
            [an_offer(), an_offer("g6.xlarge")],
            {"requirements": InstanceRequirements(gpu_names=frozenset({"A100"}), vcpus_min=8)},
            ruled_out("gpu_names", 2, 2),
            id="one requirement",
        ),
        pytest.param(
            [an_offer(), an_offer("g6.xlarge"), an_offer("p4d.24xlarge")],
            {
                "requirements": InstanceRequirements(
                    gpu_names=frozenset({"L4", "A100"}), vcpus_min=128
                )
            },
            ruled_out("vcpus_min", 2, 3),
            id="the last of the requirements",
        ),
        pytest.param(
            [an_offer(), an_offer("g6.xlarge", instance_price=9.0), an_offer(instance_price=0.0)],
            {"policy": a_policy(max_price_per_hour=5.0), "pool_cooldowns": [a_pool_cooldown()]},
            ruled_out("pool_cooldown", 1, 3),
            id="what fits is dry",
        ),
        pytest.param(
            [an_offer(instance_price=0.0)],
            {},
            ruled_out("price", 1, 1),
            id="no price",
        ),
    ],
)
def test_says_which_constraint_has_removed_the_last_offers(
    offers: list[Offer], changes: dict[str, Any], expected: Reason
) -> None:
    found = a_ranking(offers, **changes)

    assert found.best is None
    assert found.why_none() == expected


def test_every_constraint_has_its_turn() -> None:
    # What each of several jobs needs of a GPU is judged as its memory.
    of_jobs = {"gpu_jobs", "gpu_memory_mib_each"}
    assert set(JUDGED) == set(InstanceRequirements.__dataclass_fields__) - of_jobs
    # A type that meets nothing is told the first, and so on to the last.
    kind = a_type(gpu_name="V520", gpu_manufacturer="AMD", bare_metal=True, architecture="arm64")
    assert misfit(kind, InstanceRequirements()) == Reason(ReasonCode.ALLOW_BARE_METAL)


def test_nothing_is_near_when_nothing_meets_the_requirements() -> None:
    found = a_ranking([an_offer(a_type(architecture="arm64"))])

    assert found.best is None
    assert found.nearest is None
    assert found.top(5) == ()


def test_a_closed_region_says_why_and_when_it_opens() -> None:
    offers = [an_offer(), an_offer(region="eu-west-1", zone="eu-west-1a")]
    closed = {
        "us-west-2": RegionBlock(reason=Reason(ReasonCode.SLOW_DOWN), until=NOW + minutes(15))
    }

    found = a_ranking(offers, closed=closed)

    assert zones(found) == ["eu-west-1a"]
    (rejection,) = found.rejected
    assert (rejection.constraint, rejection.reason) == ("regions", Reason(ReasonCode.SLOW_DOWN))
    assert rejection.retry_at == NOW + minutes(15)

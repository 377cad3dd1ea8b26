from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from spindown.domain.learning import Knowledge, PoolRecord, ThroughputRecord
from spindown.domain.offer import CapacityType, Offer, Requirements
from spindown.domain.policy import Policy, RankBy, Rung
from spindown.domain.ranking import Candidate, Closure, bands, price_ceilings
from spindown.domain.requirement import JUDGED, misfit
from tests.builders import (
    NOW,
    ON_DEMAND,
    SPOT,
    a_demand,
    a_policy,
    a_pool,
    a_ranking,
    a_type,
    an_offer,
    an_unavailable,
    minutes,
)


def names(candidates: Any) -> list[str]:
    return [candidate.offer.instance_type.name for candidate in candidates]


def zones(candidates: Any) -> list[str]:
    return [candidate.offer.zone for candidate in candidates]


def measured(**items_per_hour: float) -> Knowledge:
    """Return knowledge of ten hours on one GPU of each name."""
    return Knowledge(
        throughput={
            (name, 1.0): ThroughputRecord(items=rate * 10, hours=10.0, reports=50)
            for name, rate in items_per_hour.items()
        }
    )


def test_the_worked_example_to_the_cent() -> None:
    # 3600 items, a T4 at 0.23 USD/h does 1800 an hour: 2 h of work. Boot and idle tail 3 min
    # each, a checkpoint of 18 s every 15 min: 2 x 1.02 + 0.1 = 2.14 h, 0.4922 USD.
    found = a_ranking(
        [an_offer(capacity_type=ON_DEMAND, instance_price=0.21, extra_price=0.02)],
        demand=a_demand(need_items_per_hour=3600.0, backlog_items=3600.0, jobs=1),
        knowledge=Knowledge(
            throughput={("T4", 1.0): ThroughputRecord(items=18000, hours=10, reports=9)},
            boots=(180.0,),
            checkpoints=(18.0,),
        ),
        policy=a_policy(idle_timeout=minutes(3), checkpoint_interval=minutes(15)),
    )

    (candidate,) = found.candidates
    assert candidate.cost_per_item * 3600 == pytest.approx(0.4922, abs=1e-6)
    assert candidate.expected_dollars == pytest.approx(0.4922, abs=1e-6)
    cents = {
        name: round(getattr(candidate.parts, name) * 3600 * 100, 2)
        for name in ("work", "boot", "redo", "idle", "refund", "transfer")
    }
    assert cents == {
        "work": 46.0,
        "boot": 1.15,
        "redo": 0.92,
        "idle": 1.15,
        "refund": 0.0,
        "transfer": 0.0,
    }


def test_the_parts_add_up_to_the_cost() -> None:
    knowledge = Knowledge(pools={a_pool(): PoolRecord(interruptions=9, hours=30)})
    away = an_offer(inbound_price_per_gib=0.02, outbound_price_per_gib=0.09)
    moved = a_demand(gib_in_per_item=0.001, gib_out_per_item=0.002)

    (candidate,) = a_ranking([away], knowledge=knowledge, demand=moved)

    assert candidate.parts.refund > 0.0
    assert candidate.parts.transfer == pytest.approx(0.0002)
    assert candidate.parts.total == pytest.approx(candidate.cost_per_item)


def test_with_equal_throughput_the_cheaper_comes_first() -> None:
    prices = [0.4, 0.1, 0.3, 0.2]
    offers = [an_offer(instance_price=p, zone=f"z{p}") for p in prices]

    assert zones(a_ranking(offers)) == ["z0.1", "z0.2", "z0.3", "z0.4"]


def test_a_short_backlog_prefers_cheap_hours_and_a_long_one_throughput_per_dollar() -> None:
    # The L40S does five times as much for three times as much.
    offers = [
        an_offer("g4dn.xlarge", instance_price=0.20),
        an_offer("g6e.xlarge", instance_price=0.60),
    ]
    knowledge = measured(T4=1000, L40S=5000)

    def order(items: float) -> list[str]:
        demand = a_demand(backlog_items=items, need_items_per_hour=items, jobs=1, items_per_job=1)
        return names(a_ranking(offers, demand=demand, knowledge=knowledge))

    assert order(10) == ["g4dn.xlarge", "g6e.xlarge"]
    assert order(10000) == ["g6e.xlarge", "g4dn.xlarge"]


def test_the_ranking_follows_what_was_measured() -> None:
    offers = [
        an_offer("g4dn.xlarge", instance_price=0.20),
        an_offer("g5.xlarge", instance_price=0.25),
    ]

    assert names(a_ranking(offers))[0] == "g5.xlarge"
    assert names(a_ranking(offers, knowledge=measured(T4=1000, A10G=900)))[0] == "g4dn.xlarge"


def test_a_reclaimed_pool_sinks() -> None:
    offers = [an_offer(zone="us-west-2a"), an_offer(zone="us-west-2b", instance_price=0.201)]
    hot = Knowledge(pools={a_pool(zone="us-west-2a"): PoolRecord(interruptions=3, hours=6)})

    assert zones(a_ranking(offers)) == ["us-west-2a", "us-west-2b"]
    assert zones(a_ranking(offers, knowledge=hot)) == ["us-west-2b", "us-west-2a"]


def test_ranks_by_price_if_told_so() -> None:
    offers = [
        an_offer("g5.xlarge", instance_price=0.25),
        an_offer("g6.xlarge", instance_price=0.20),
        an_offer("g4dn.xlarge", instance_price=0.20),
    ]

    found = a_ranking(offers, policy=a_policy(rank_by=RankBy.PRICE))

    # At the same price the L4 is the cheaper for an item.
    assert names(found) == ["g6.xlarge", "g4dn.xlarge", "g5.xlarge"]


def test_a_longer_list_than_is_kept_at_hand_is_whole() -> None:
    offers = [
        an_offer(zone=f"z{n:03d}", instance_price=0.2 + (n * 37 % 500) / 1000) for n in range(500)
    ]

    found = a_ranking(offers)

    assert len(found) == 500
    assert list(found) == sorted(found, key=lambda c: c.cost_per_item)
    assert found.top(100) == found.candidates[:100]
    assert found.top(20) == found[:20]
    assert found.best == found[0]


RUNGS = (
    Rung(after=timedelta(0), capacity_types=frozenset({SPOT}), max_price_per_hour=0.30),
    Rung(after=minutes(5), capacity_types=frozenset({SPOT}), max_price_per_hour=0.60),
    Rung(after=minutes(15), capacity_types=frozenset(CapacityType)),
)


@pytest.mark.parametrize(
    ("waited", "spot", "on_demand"),
    [
        pytest.param(0, 0.30, None, id="first rung"),
        pytest.param(4.9, 0.30, None, id="just before the second"),
        pytest.param(5, 0.60, None, id="second rung"),
        pytest.param(15, 2.0, 2.0, id="last rung, up to the ceiling"),
    ],
)
def test_the_ladder_is_climbed_by_waiting(
    waited: float, spot: float, on_demand: float | None
) -> None:
    policy = Policy(ladder=RUNGS, start_within=minutes(60), max_price_per_hour=2.0)

    found = price_ceilings(policy, minutes(waited))

    assert (found.get(SPOT), found.get(ON_DEMAND)) == (spot, on_demand)


def test_every_rung_of_the_default_ladder_says_when_it_really_opens() -> None:
    policy = Policy()
    last = policy.ladder[-1].after

    assert last <= policy.start_within
    assert price_ceilings(policy, last - timedelta(seconds=1)).keys() == {SPOT}
    assert price_ceilings(policy, last).keys() == {SPOT, ON_DEMAND}


def test_what_was_open_once_stays_open() -> None:
    rungs = (
        Rung(after=timedelta(0), capacity_types=frozenset({SPOT})),
        Rung(after=minutes(5), capacity_types=frozenset({ON_DEMAND}), max_price_per_hour=1.0),
    )
    policy = Policy(ladder=rungs, start_within=minutes(60), max_price_per_hour=2.0)

    assert price_ceilings(policy, minutes(6)) == {SPOT: 2.0, ON_DEMAND: 1.0}


def test_nothing_is_open_before_the_first_rung() -> None:
    policy = a_policy(ladder=RUNGS[1:2], start_within=minutes(60))

    found = a_ranking([an_offer()], policy=policy, waited=minutes(2))

    assert not found.candidates
    assert found.rejected[0].constraint == "ladder"
    assert found.rejected[0].retry_at == NOW + minutes(3)


def reason(offer: Offer, **changes: Any) -> tuple[str, datetime | None] | None:
    found = a_ranking([offer], **changes)
    if found.candidates:
        assert not found.rejected
        return None
    (rejection,) = found.rejected
    assert rejection.offer is offer
    assert rejection.reason
    return rejection.constraint, rejection.retry_at


BLOCKED = {"us-west-2/G/Spot": NOW + minutes(15)}
LADDER = {"policy": a_policy(ladder=RUNGS, start_within=minutes(60))}


@pytest.mark.parametrize(
    ("offer", "changes", "expected"),
    [
        pytest.param({}, {}, None, id="taken"),
        pytest.param(
            {},
            {"requirements": Requirements(gpu_names=frozenset({"L4"}))},
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
            {"unavailable": [an_unavailable()]},
            ("unavailable", NOW + minutes(3)),
            id="ran dry",
        ),
        pytest.param(
            {}, {"unavailable": [an_unavailable(until=NOW)]}, None, id="its time has passed"
        ),
        pytest.param(
            {"zone": "us-west-2b"}, {"unavailable": [an_unavailable()]}, None, id="another zone"
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"unavailable": [an_unavailable()]},
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
    kind = offer.pop("instance_type", "g4dn.xlarge")

    assert reason(an_offer(kind, **offer), **changes) == expected


OTHER_GPU = Requirements(gpu_names=frozenset({"L4"}))


@pytest.mark.parametrize(
    ("changes", "offer", "expected"),
    [
        pytest.param(
            {"requirements": OTHER_GPU, "policy": a_policy(max_price_per_hour=0.1)},
            {},
            "gpu_names",
            id="requirements before ceiling",
        ),
        pytest.param(
            {"requirements": OTHER_GPU, "waited": minutes(99)},
            {},
            "gpu_names",
            id="requirements before start_within",
        ),
        pytest.param(
            {"requirements": OTHER_GPU, "policy": a_policy(ladder=RUNGS)},
            {"capacity_type": ON_DEMAND},
            "gpu_names",
            id="requirements before ladder",
        ),
        pytest.param(
            {"requirements": OTHER_GPU, "headroom_per_hour": 0.1},
            {},
            "gpu_names",
            id="requirements before budget",
        ),
        pytest.param(
            {"policy": a_policy(max_price_per_hour=0.1), "waited": minutes(99)},
            {},
            "max_price_per_hour",
            id="ceiling before start_within",
        ),
        pytest.param(
            {"headroom_per_hour": 0.1, "waited": minutes(99)},
            {},
            "max_dollars_per_hour",
            id="budget before start_within",
        ),
        pytest.param(
            {"headroom_per_hour": 0.1, "policy": a_policy(ladder=RUNGS)},
            {"capacity_type": ON_DEMAND},
            "max_dollars_per_hour",
            id="budget before ladder",
        ),
        pytest.param(
            {"policy": a_policy(max_price_per_hour=0.1, ladder=RUNGS)},
            {},
            "max_price_per_hour",
            id="ceiling before ladder",
        ),
        pytest.param(
            {
                "policy": a_policy(ladder=RUNGS, start_within=minutes(3)),
                "waited": minutes(3),
            },
            {"capacity_type": ON_DEMAND},
            None,
            id="start_within before ladder",
        ),
    ],
)
def test_precedence(changes: dict[str, Any], offer: dict[str, Any], expected: str | None) -> None:
    found = reason(an_offer(**offer), **changes)

    assert (None if found is None else found[0]) == expected


@pytest.mark.parametrize(
    ("cheap", "changes"),
    [
        pytest.param(
            {"instance_type": a_type("g5g.xlarge", architecture="arm64")},
            {},
            id="requirements before cost",
        ),
        pytest.param(
            # Four GPUs for little more than one are the cheapest item, and above the ceiling.
            {"instance_type": a_type("g4dn.12xlarge"), "instance_price": 0.40},
            {"policy": a_policy(max_price_per_hour=0.3)},
            id="ceiling before cost",
        ),
        pytest.param(
            {"instance_type": a_type("g4dn.12xlarge"), "instance_price": 0.40},
            {"headroom_per_hour": 0.3},
            id="budget before cost",
        ),
        pytest.param(
            {"capacity_type": ON_DEMAND},
            {"policy": a_policy(ladder=RUNGS, start_within=minutes(60))},
            id="ladder before cost",
        ),
    ],
)
def test_what_comes_before_cost(cheap: dict[str, Any], changes: dict[str, Any]) -> None:
    low = replace(an_offer(instance_price=0.05), **cheap)
    dear = an_offer(instance_price=0.25)
    anything = {"requirements": Requirements(architectures=frozenset({"x86_64", "arm64"}))}

    assert a_ranking([low, dear], **anything)[0].offer == low
    assert [c.offer for c in a_ranking([low, dear], **changes)] == [dear]


def test_start_within_comes_before_cost() -> None:
    policy = a_policy(ladder=RUNGS, start_within=minutes(10))
    dear = an_offer(capacity_type=ON_DEMAND, instance_price=1.9)
    dry = an_offer()

    early = a_ranking([dry, dear], policy=policy, waited=minutes(9), unavailable=[an_unavailable()])
    late = a_ranking([dry, dear], policy=policy, waited=minutes(10), unavailable=[an_unavailable()])

    # Rather wait, as long as the promise allows; then rather pay.
    assert list(early) == []
    assert [c.offer for c in late] == [dear]


def test_the_nearest_offer_is_the_one_that_comes_back_first() -> None:
    offers = [
        an_offer(zone="us-west-2a"),
        an_offer(zone="us-west-2b"),
        an_offer("g4dn.12xlarge", instance_price=1.0),
        an_offer(a_type(gpu_manufacturer="AMD"), instance_price=0.01),
    ]
    found = a_ranking(
        offers,
        unavailable=[
            an_unavailable(until=NOW + minutes(9)),
            an_unavailable(a_pool(zone="us-west-2b"), until=NOW + minutes(4)),
        ],
        policy=a_policy(max_price_per_hour=0.5),
    )

    assert not found
    assert found.nearest is not None
    assert found.nearest.offer.zone == "us-west-2b"
    assert found.nearest.retry_at == NOW + minutes(4)


def test_without_a_time_the_nearest_offer_is_the_cheapest_that_meets_the_requirements() -> None:
    offers = [an_offer(instance_price=p) for p in (0.9, 0.7, 0.8)]
    offers.append(an_offer(a_type(architecture="arm64"), instance_price=0.6))

    found = a_ranking(offers, policy=a_policy(max_price_per_hour=0.5))

    assert found.nearest is not None
    assert found.nearest.offer.instance_price == 0.7


@pytest.mark.parametrize(
    ("offers", "changes", "expected"),
    [
        pytest.param([], {}, "nothing is on sale in the zones where it may run", id="no zone"),
        pytest.param(
            [an_offer(), an_offer("g6.xlarge")],
            {"requirements": Requirements(gpu_names=frozenset({"A100"}), vcpus_min=8)},
            "gpu_names rules out the last 2 of 2 offers",
            id="one requirement",
        ),
        pytest.param(
            [an_offer(), an_offer("g6.xlarge"), an_offer("p4d.24xlarge")],
            {"requirements": Requirements(gpu_names=frozenset({"L4", "A100"}), vcpus_min=128)},
            "vcpus_min rules out the last 2 of 3 offers",
            id="the last of the requirements",
        ),
        pytest.param(
            [an_offer(), an_offer("g6.xlarge", instance_price=9.0), an_offer(instance_price=0.0)],
            {"policy": a_policy(max_price_per_hour=5.0), "unavailable": [an_unavailable()]},
            "unavailable rules out the last 1 of 3 offers",
            id="what fits is dry",
        ),
        pytest.param(
            [an_offer(instance_price=0.0)],
            {},
            "price rules out the last 1 of 1 offers",
            id="no price",
        ),
    ],
)
def test_says_which_constraint_has_removed_the_last_offers(
    offers: list[Offer], changes: dict[str, Any], expected: str
) -> None:
    found = a_ranking(offers, **changes)

    assert found.best is None
    assert found.say_none() == expected


def test_every_constraint_has_its_turn() -> None:
    assert set(JUDGED) == set(Requirements.__dataclass_fields__)
    # A type that meets nothing is told the first, and so on to the last.
    kind = a_type(gpu_name="V520", gpu_manufacturer="AMD", bare_metal=True, architecture="arm64")
    assert misfit(kind, Requirements()) == ("allow_bare_metal", "it is bare metal")


def test_nothing_is_near_when_nothing_meets_the_requirements() -> None:
    found = a_ranking([an_offer(a_type(architecture="arm64"))])

    assert found.best is None
    assert found.nearest is None
    assert found.top(5) == ()


def grouped(candidates: Any, band: float = 0.05) -> list[list[str]]:
    found = bands(candidates, band, RankBy.COST_PER_ITEM)
    return [[str(candidate.offer) for candidate in each] for each in found]


def priced(price: float, zone: str = "a", **changes: Any) -> Offer:
    return an_offer(instance_price=price, extra_price=0.0, zone=zone, **changes)


def test_a_band_holds_what_costs_nearly_the_same() -> None:
    found = a_ranking([priced(0.200, "a"), priced(0.209, "b"), priced(0.220, "c")])

    assert grouped(found) == [
        ["g4dn.xlarge/a/spot", "g4dn.xlarge/b/spot"],
        ["g4dn.xlarge/c/spot"],
    ]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"capacity_type": ON_DEMAND}, id="capacity type"),
        pytest.param({"region": "eu-west-1"}, id="region"),
    ],
)
def test_a_band_has_one_capacity_type_and_one_region(other: dict[str, Any]) -> None:
    found = a_ranking([priced(0.200, "a"), priced(0.201, "b", **other), priced(0.202, "c")])

    assert [len(each) for each in grouped(found)] == [2, 1]


def test_a_band_has_one_architecture() -> None:
    arm = an_offer(
        a_type("g5g.xlarge", architecture="arm64"), instance_price=0.201, extra_price=0.0
    )
    both = Requirements(architectures=frozenset({"x86_64", "arm64"}))

    found = a_ranking([priced(0.200), arm], requirements=both)

    assert [len(each) for each in grouped(found)] == [1, 1]


def test_without_a_band_each_candidate_is_tried_alone_in_order() -> None:
    found = a_ranking([priced(0.2, "b"), priced(0.2, "a"), priced(0.19, "c")])

    assert [z for (z,) in grouped(found, band=0.0)] == [
        "g4dn.xlarge/c/spot",
        "g4dn.xlarge/b/spot",
        "g4dn.xlarge/a/spot",
    ]


def test_bands_by_price_measure_prices() -> None:
    offers = [
        an_offer("g4dn.xlarge", instance_price=0.200),
        an_offer("g6e.xlarge", instance_price=0.205),
    ]
    found = a_ranking(offers, policy=a_policy(rank_by=RankBy.PRICE))

    (band,) = bands(found, 0.05, RankBy.PRICE)

    assert names(band) == ["g4dn.xlarge", "g6e.xlarge"]


def test_an_interruption_rate_is_shown_for_spot_only() -> None:
    rates = {
        c.offer.capacity_type: c.interruption_rate
        for c in a_ranking([an_offer(), an_offer(capacity_type=ON_DEMAND)])
    }

    assert rates[SPOT] > 0.0
    assert rates[ON_DEMAND] == 0.0


def test_a_candidate_tells_measured_from_prior() -> None:
    offers = [an_offer("g4dn.xlarge"), an_offer("g5.xlarge")]

    found: dict[str, Candidate] = {
        c.offer.instance_type.gpu_name: c for c in a_ranking(offers, knowledge=measured(T4=1500))
    }

    assert found["T4"].measured
    assert found["T4"].items_per_hour == pytest.approx(1500)
    assert not found["A10G"].measured


def test_one_ranking_over_all_regions_weighs_what_crosses_them() -> None:
    offers = [
        an_offer(instance_price=0.35, region="us-east-1", zone="us-east-1a"),
        an_offer(
            instance_price=0.20,
            region="us-west-2",
            zone="us-west-2a",
            inbound_price_per_gib=0.02,
            outbound_price_per_gib=0.02,
        ),
    ]
    small = a_demand(gib_in_per_item=0.1 / 1024)
    large = a_demand(gib_in_per_item=8 / 1024, gib_out_per_item=1 / 1024)

    assert zones(a_ranking(offers, demand=small)) == ["us-west-2a", "us-east-1a"]
    assert zones(a_ranking(offers, demand=large)) == ["us-east-1a", "us-west-2a"]
    assert a_ranking(offers, demand=large)[1].parts.transfer == pytest.approx(9 / 1024 * 0.02)


def test_a_closed_region_says_why_and_when_it_opens() -> None:
    offers = [an_offer(), an_offer(region="eu-west-1", zone="eu-west-1a")]
    closed = {"us-west-2": Closure(reason="its image is gone", until=NOW + minutes(15))}

    found = a_ranking(offers, closed=closed)

    assert zones(found) == ["eu-west-1a"]
    (rejection,) = found.rejected
    assert (rejection.constraint, rejection.reason) == ("regions", "its image is gone")
    assert rejection.retry_at == NOW + minutes(15)


def test_one_worker_of_an_unknown_gpu_is_tried_on_the_hope_that_its_data_sheet_is_modest() -> None:
    # A data sheet of 1.9 T4s at 2.3 times the price.
    offers = [an_offer(), an_offer("g5.xlarge", instance_price=0.48)]
    known = measured(T4=1000.0)
    demand = a_demand(need_items_per_hour=8000.0, backlog_items=8000.0, jobs=80)

    first = a_ranking(offers, knowledge=known, demand=demand).best
    assert first is not None
    assert (first.offer, first.workers, first.measured) == (offers[1], 1, False)
    alive = replace(known, alive=frozenset({("A10G", 1.0)}))
    second = a_ranking(offers, knowledge=alive, demand=demand).best
    assert second is not None
    assert (second.offer, second.workers) == (offers[0], 8)
    assert names(a_ranking(offers, demand=demand)) == ["g4dn.xlarge", "g5.xlarge"]

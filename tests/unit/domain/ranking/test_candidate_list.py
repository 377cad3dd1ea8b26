"""What an item costs with an offer, and what comes first because of it."""

import pytest

from spindown.domain.learning import Knowledge, PoolRecord, ThroughputRecord
from spindown.domain.offer import InstanceRequirements
from spindown.domain.policy import RankBy
from spindown.domain.ranking import Candidate
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
    minutes,
)
from tests.unit.domain.ranking.reading import measured, names, zones


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
    assert candidate.items == 3600.0
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


def test_short_backlogs_prefer_cheap_hours_long_ones_throughput() -> None:
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
    assert [c.metric(RankBy.PRICE) for c in found] == [c.offer.price for c in found]
    assert [c.metric(RankBy.COST_PER_ITEM) for c in found] == [c.cost_per_item for c in found]


@pytest.mark.parametrize("by", RankBy)
def test_a_longer_list_than_is_kept_at_hand_is_whole(by: RankBy) -> None:
    offers = [
        an_offer(zone=f"z{n:03d}", instance_price=0.2 + (n * 37 % 500) / 1000) for n in range(500)
    ]

    found = a_ranking(offers, policy=a_policy(rank_by=by))

    assert len(found) == 500
    assert list(found) == sorted(found, key=lambda c: c.metric(by))
    assert found.top(100) == found.candidates[:100]
    assert all(found.top(count) == found[:count] for count in (1, 20, 31, 32, 33))
    assert found.best == found[0]


def test_one_that_comes_late_takes_the_last_place_at_hand() -> None:
    offers = [an_offer(zone=f"z{n:03d}", instance_price=0.2 + n / 1000) for n in range(64)]
    offers.append(an_offer(zone="late", instance_price=0.2305))

    assert zones(a_ranking(offers).top(32))[-1] == "late"


def test_of_many_at_one_price_the_cheapest_item_comes_first() -> None:
    offers = [an_offer(zone=f"z{n:03d}") for n in range(100)]
    offers.append(an_offer("g6.xlarge"))

    found = a_ranking(offers, policy=a_policy(rank_by=RankBy.PRICE))

    assert found.best is not None
    assert found.best.offer is offers[-1]


def test_an_offer_costs_the_same_whatever_stands_beside_it() -> None:
    offers = [
        an_offer(zone="us-west-2a"),
        an_offer(zone="us-west-2b", reclaim_share=0.9),
        *(
            an_offer(a_type(name, gpu_name="", gpu_count=0.0, vcpus=vcpus))
            for name, vcpus in (("c7i.large", 2), ("c7i.4xlarge", 16))
        ),
    ]
    anything = InstanceRequirements(gpu_count_min=0.0)

    together = {c.offer: c.cost_per_item for c in a_ranking(offers, requirements=anything)}
    alone = {o: a_ranking([o], requirements=anything)[0].cost_per_item for o in offers}

    assert together == alone
    assert len(set(together.values())) == 4


def test_an_offer_costs_the_same_beside_another_full_quota() -> None:
    offers = [an_offer(zone=f"us-west-2{z}", reclaim_share=s) for z, s in [("a", 0.05), ("b", 0.9)]]

    beside = a_ranking(offers, blocked={"us-west-2/P/Spot": NOW + minutes(15)})

    assert list(beside) == list(a_ranking(offers))
    assert beside[0].cost_per_item < beside[1].cost_per_item


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


def test_checkpoints_by_items_cost_each_gpu_its_own() -> None:
    # Of an A10G the interval of ten items is half as long as of a T4.
    offers = [an_offer(), an_offer("g5.xlarge", instance_price=0.4)]
    policy = a_policy(checkpoint_items=10)

    together = {c.offer: c.cost_per_item for c in a_ranking(offers, policy=policy)}
    alone = {o: a_ranking([o], policy=policy)[0].cost_per_item for o in offers}

    assert together == alone

"""What must hold for every ranking, whatever the market looks like."""

import math
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from spindown.domain.learning import Knowledge, PoolRecord, ThroughputRecord
from spindown.domain.offer import CapacityType, InstanceRequirements, Offer, Pool
from spindown.domain.policy import Policy, RankBy, Rung
from spindown.domain.ranking import Candidate, CandidateList, RegionBlock, bands
from spindown.domain.ranking.constraint import PRECEDENCE, rejections
from spindown.domain.ranking.terms import Situation, Terms
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.requirement import misfit
from spindown.domain.spot_or_on_demand import price_ceilings
from spindown.reason_text import say
from tests.builders import (
    NOW,
    SPOT,
    a_cpu_type,
    a_demand,
    a_policy,
    a_pool_cooldown,
    a_ranking,
    a_type,
    an_offer,
    minutes,
)

GPU_NAMES = ("g4dn.xlarge", "g4dn.12xlarge", "g5.xlarge", "g6.xlarge", "g6e.xlarge", "p4d.24xlarge")
CPU_NAMES = ("c7i.2xlarge", "c7g.xlarge", "m7i.4xlarge")
NAMES = GPU_NAMES + CPU_NAMES
ZONES = ("us-west-2a", "us-west-2b", "eu-west-1a")
QUOTAS = (
    "us-west-2/G/Spot",
    "eu-west-1/G/OnDemand",
    "us-west-2/P/Spot",
    "us-west-2/Standard/Spot",
)

types = st.builds(
    a_type,
    st.sampled_from(GPU_NAMES),
    architecture=st.sampled_from(["x86_64"] * 3 + ["arm64"]),
    gpu_manufacturer=st.sampled_from(["NVIDIA"] * 3 + ["AMD"]),
)


cpu_types = st.builds(
    a_cpu_type,
    vcpus=st.sampled_from([2, 8, 64]),
    architecture=st.sampled_from(["x86_64"] * 3 + ["arm64"]),
)


@st.composite
def markets(draw: st.DrawFn) -> list[Offer]:
    """Return offers of a few types, one description for each name."""
    kinds = {name: draw(types) for name in GPU_NAMES}
    kinds |= {name: draw(cpu_types) for name in CPU_NAMES}
    kinds = {name: replace(kind, name=name) for name, kind in kinds.items()}
    return [
        an_offer(
            kinds[draw(st.sampled_from(NAMES))],
            zone=(zone := draw(st.sampled_from(ZONES))),
            region=zone[:-1],
            inbound_price_per_gib=draw(st.sampled_from([0.0, 0.02])),
            outbound_price_per_gib=draw(st.sampled_from([0.0, 0.09])),
            capacity_type=draw(st.sampled_from(CapacityType)),
            instance_price=draw(st.floats(0.05, 6.0) | st.sampled_from([0.0, math.nan, 0.2])),
            on_demand_price=draw(st.none() | st.floats(0.1, 6.0)),
            reclaim_share=draw(st.sampled_from([None, 0.05, 0.2, 0.9])),
        )
        for _ in range(draw(st.integers(0, 12)))
    ]


policies = st.builds(
    Policy,
    rank_by=st.sampled_from(RankBy),
    max_price_per_hour=st.floats(0.1, 8.0),
    max_price_per_gpu_hour=st.none() | st.floats(0.05, 3.0),
    min_reliability=st.sampled_from([0.0, 0.5, 0.99, 0.9998]),
    start_within=st.sampled_from([minutes(5), minutes(60)]),
    checkpoint_items=st.sampled_from([None, 50]),
    ladder=st.lists(
        st.builds(
            Rung,
            after=st.integers(0, 30).map(minutes),
            capacity_types=st.frozensets(st.sampled_from(CapacityType), min_size=1),
            max_price_per_hour=st.none() | st.floats(0.1, 8.0),
        ),
        max_size=3,
    ).map(tuple),
)
requirements = st.builds(
    InstanceRequirements,
    gpu_names=st.none() | st.frozensets(st.sampled_from(["T4", "A10G", "L4", "L40S"]), min_size=1),
    gpu_count_min=st.sampled_from([1.0, 0.0]),
    gpu_count_max=st.none() | st.sampled_from([1.0, 4.0]),
    gpu_manufacturer=st.sampled_from([None, "NVIDIA"]),
)
pools = st.builds(
    Pool,
    instance_type=st.sampled_from(NAMES),
    zone=st.sampled_from(ZONES),
    capacity_type=st.sampled_from(CapacityType),
)
knowledges = st.builds(
    Knowledge,
    throughput=st.dictionaries(
        st.sampled_from([("T4", 1.0), ("T4", 4.0), ("A10G", 1.0), ("L4", 1.0), ("c7i vCPU", 8.0)]),
        st.builds(
            ThroughputRecord,
            items=st.floats(1, 1e6),
            hours=st.floats(0.001, 100.0),
            reports=st.just(1),
        ),
    ),
    pools=st.dictionaries(
        pools,
        st.builds(PoolRecord, interruptions=st.integers(0, 50), hours=st.floats(0.0, 500.0)),
        max_size=5,
    ),
    boots=st.lists(st.floats(1.0, 2000.0), max_size=3).map(tuple),
)
demands = st.builds(
    a_demand,
    need_items_per_hour=st.floats(-10.0, 1e6),
    backlog_items=st.floats(0.0, 1e6),
    jobs=st.integers(0, 1000),
    items_per_job=st.floats(1.0, 1000.0),
    gib_in_per_item=st.sampled_from([0.0, 0.01]),
    gib_out_per_item=st.sampled_from([0.0, 0.002]),
)
situations = st.fixed_dictionaries(
    {
        "demand": demands,
        "knowledge": knowledges,
        "policy": policies,
        "requirements": requirements,
        "waited": st.integers(0, 90).map(minutes),
        "headroom_per_hour": st.none() | st.floats(0.0, 8.0),
        "pool_cooldowns": st.lists(
            st.builds(
                a_pool_cooldown,
                pools,
                until=st.sampled_from([NOW - minutes(1), NOW + minutes(1)]),
            ),
            max_size=4,
        ),
        "quota_left": st.dictionaries(
            st.sampled_from(QUOTAS),
            st.sampled_from([-4.0, 0.0, 4.0, 48.0, 1000.0]),
        ),
        "blocked": st.dictionaries(
            st.sampled_from(QUOTAS),
            st.sampled_from([NOW - minutes(1), NOW + minutes(1)]),
        ),
        "closed": st.dictionaries(
            st.sampled_from(["us-west-2", "eu-west-1"]),
            st.just(RegionBlock(reason=Reason(ReasonCode.SLOW_DOWN))),
        ),
    }
)


@given(markets(), situations, st.floats(0.0, 0.5))
def test_a_ranking_keeps_all_rules_in_their_order(
    offers: list[Offer], situation: dict[str, Any], band: float
) -> None:
    found = a_ranking(offers, **situation)

    for candidate in found:
        _breaks_no_rule(candidate, situation)
    listed = [id(c.offer) for c in found] + [id(r.offer) for r in found.rejected]
    assert sorted(listed) == sorted(id(offer) for offer in offers)
    assert all(r.constraint and say(r.reason) for r in found.rejected)
    _is_judged_by_precedence(found, offers, situation)
    _is_sorted_by_what_it_says(found, situation["policy"].rank_by)
    _is_cut_into_bands(found, band, situation["policy"].rank_by)


def _breaks_no_rule(candidate: Candidate, situation: dict[str, Any]) -> None:
    policy: Policy = situation["policy"]
    offer, kind = candidate.offer, candidate.offer.instance_type
    assert misfit(kind, situation["requirements"]) is None
    assert offer.instance_price > 0.0
    assert offer.price <= policy.max_price_per_hour
    assert offer.price <= price_ceilings(policy, situation["waited"])[offer.capacity_type]
    assert situation["headroom_per_hour"] is None or offer.price <= situation["headroom_per_hour"]
    if policy.max_price_per_gpu_hour is not None and kind.gpu_count:
        assert offer.price <= policy.max_price_per_gpu_hour * kind.gpu_count
    if offer.capacity_type is SPOT:
        assert math.exp(-candidate.interruption_rate) >= policy.min_reliability * (1 - 1e-12)
        assert offer.on_demand_price is None or offer.instance_price <= offer.on_demand_price
    assert offer.pool not in {u.pool for u in situation["pool_cooldowns"] if u.until > NOW}
    blocked = {name for name, until in situation["blocked"].items() if until > NOW}
    assert offer.quota_class not in blocked
    assert offer.region not in situation["closed"]
    assert kind.vcpus <= situation["quota_left"].get(offer.quota_class, math.inf)


def _is_judged_by_precedence(
    found: CandidateList, offers: list[Offer], situation: dict[str, Any]
) -> None:
    most = situation["headroom_per_hour"]
    given_all = {**situation, "now": NOW, "headroom_per_hour": math.inf if most is None else most}
    terms = Terms(Situation(**given_all))
    taken = {id(c.offer) for c in found}
    for offer in offers:
        judged = [PRECEDENCE.index(each.constraint) for each in rejections(offer, terms)]
        assert judged == sorted(judged)
        assert bool(judged) is (id(offer) not in taken)


def _is_sorted_by_what_it_says(found: CandidateList, by: RankBy) -> None:
    metrics = [c.metric(by) for c in found]
    assert metrics == sorted(metrics)
    for candidate in found:
        assert math.isclose(candidate.parts.total, candidate.cost_per_item, rel_tol=1e-9)
        assert candidate.cost_per_item > 0.0
        assert min(candidate.parts.refund, candidate.parts.redo, candidate.parts.boot) >= 0.0


def _is_cut_into_bands(found: CandidateList, band: float, by: RankBy) -> None:
    """Check that each candidate is in one band, in order, and no band is too wide."""
    groups = list(bands(found, band, by))
    flat = [id(c.offer) for group in groups for c in group]
    assert sorted(flat) == sorted(id(c.offer) for c in found)
    leaders = [group[0].metric(by) for group in groups]
    assert leaders == sorted(leaders)
    for group in groups:
        keys = {
            (c.offer.capacity_type, c.offer.instance_type.architecture, c.offer.region)
            for c in group
        }
        assert len(keys) == 1
        assert group[-1].metric(by) <= group[0].metric(by) * (1 + band)


@given(markets(), situations)
def test_the_first_few_are_those_of_the_whole_list(
    offers: list[Offer], situation: dict[str, Any]
) -> None:
    found = a_ranking(offers * 8, **situation)

    assert found.top(20) == found.candidates[:20]


@given(st.data(), markets(), situations)
def test_raising_a_price_never_raises_its_rank(
    data: st.DataObject, offers: list[Offer], situation: dict[str, Any]
) -> None:
    assume(offers)
    before = a_ranking(offers, **situation)
    taken = [candidate.offer for candidate in before.candidates]
    offer = data.draw(st.sampled_from(taken or offers))
    dearer = replace(offer, instance_price=offer.instance_price * data.draw(st.floats(1.0, 3.0)))
    at = next(i for i, each in enumerate(offers) if each is offer)

    after = a_ranking([*offers[:at], dearer, *offers[at + 1 :]], **situation)

    assert rank_of(after, dearer) >= rank_of(before, offer)


def rank_of(found: CandidateList, offer: Offer) -> float:
    ranks = [i for i, c in enumerate(found) if c.offer is offer]
    return ranks[0] if ranks else math.inf


@given(
    before=st.builds(PoolRecord, interruptions=st.integers(0, 50), hours=st.floats(0.0, 500.0)),
    more=st.integers(1, 20),
    share=st.sampled_from([None, 0.05, 0.2, 0.9]),
    demand=demands,
    knowledge=knowledges,
    checkpoint=st.floats(0.0, 300.0),
    policy=st.builds(
        a_policy,
        checkpoint_items=st.sampled_from([None, 50]),
        checkpoint_interval=st.none() | st.integers(1, 60).map(minutes),
        idle_timeout=st.none() | st.integers(0, 60).map(minutes),
    ),
)
def test_a_reclaimed_pool_sinks(
    before: PoolRecord,
    more: int,
    share: float | None,
    demand: Any,
    knowledge: Knowledge,
    checkpoint: float,
    policy: Policy,
) -> None:
    offer = an_offer(reclaim_share=share)

    def cost(record: PoolRecord) -> float:
        known = replace(knowledge, pools={offer.pool: record}, checkpoints=(checkpoint,))
        (candidate,) = a_ranking([offer], demand=demand, knowledge=known, policy=policy)
        return candidate.cost_per_item

    after = replace(before, interruptions=before.interruptions + more)
    assert cost(after) >= cost(before) * (1 - 1e-12)


@given(
    st.lists(st.integers(500, 20000).map(lambda n: n / 10000), min_size=2, max_size=9, unique=True),
    demands,
    knowledges,
)
def test_with_equal_throughput_and_risk_the_order_is_by_price(
    prices: list[float], demand: Any, knowledge: Knowledge
) -> None:
    offers = [an_offer(instance_price=p, zone=f"z{n}") for n, p in enumerate(prices)]

    found = a_ranking(offers, demand=demand, knowledge=replace(knowledge, pools={}))

    assert [c.offer.instance_price for c in found] == sorted(prices)


@given(
    items=st.floats(1.0, 1e5),
    more=st.floats(1.0, 100.0),
    price=st.floats(0.05, 3.0),
)
def test_a_longer_backlog_moves_toward_throughput_per_dollar(
    items: float, more: float, price: float
) -> None:
    offers = [
        an_offer("g4dn.xlarge", instance_price=0.2),
        an_offer("g6e.xlarge", instance_price=price),
    ]

    def ahead(backlog: float) -> float:
        """Return by how much an item is cheaper on the faster GPU, relative to the slower."""
        demand = a_demand(need_items_per_hour=1.0, backlog_items=backlog, jobs=1, items_per_job=1.0)
        cost = {
            c.offer.instance_type.name: c.cost_per_item for c in a_ranking(offers, demand=demand)
        }
        return cost["g6e.xlarge"] / cost["g4dn.xlarge"]

    assert ahead(items * more) <= ahead(items) * (1 + 1e-9)


@given(policies, st.integers(0, 60), st.integers(0, 60))
def test_waiting_never_closes_what_was_open(policy: Policy, first: int, second: int) -> None:
    earlier, later = sorted((first, second))
    before = price_ceilings(policy, minutes(earlier))
    after = price_ceilings(policy, minutes(later))

    assert all(after[capacity_type] >= ceiling for capacity_type, ceiling in before.items())
    assert all(ceiling <= policy.max_price_per_hour for ceiling in after.values())

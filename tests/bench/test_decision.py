"""How long one decision takes: filter, score and sort of a whole market, the first 20 built.

The limits, 1 ms for 3,500 offers and 15 ms for 50,000, hold for one undisturbed core that sorts
3,500 prices in 0.16 ms. Without GPUs 3,500 offers may take 4 ms, since they are of 324 types in
place of 51, and each type is looked at once. Machines differ and are shared, so what is asserted is
the ratio to such a sort, both at their best of many turns in this process.
"""

import gc
from collections.abc import Callable
from dataclasses import replace
from statistics import median, quantiles
from time import perf_counter

import pytest

from spindown.domain.learning import Knowledge, PoolRecord, ThroughputRecord
from spindown.domain.offer import InstanceRequirements, Offer
from spindown.domain.policy import Policy
from spindown.domain.ranking import Candidate, rank
from tests.bench.market import a_market, the_cpu_types
from tests.bench.record import record
from tests.builders import NOW, a_demand, a_pool, a_pool_cooldown, minutes

pytestmark = pytest.mark.bench

#: Milliseconds that the machine of the limits takes to sort 3,500 prices.
REFERENCE_SORT = 0.16
FIRST = 20

#: As in production: some GPUs measured, some pools known, one of them dry.
KNOWLEDGE = Knowledge(
    throughput={
        ("T4", 1.0): ThroughputRecord(items=50_000, hours=40, reports=300),
        ("A10G", 1.0): ThroughputRecord(items=30_000, hours=12, reports=90),
    },
    pools={
        a_pool(zone="region-000a"): PoolRecord(interruptions=2, hours=30),
        a_pool("g5.xlarge", "region-001b"): PoolRecord(interruptions=0, hours=55),
    },
    boots=(95.0, 110.0, 180.0),
    gaps=(30.0, 60.0, 400.0, 90.0, 20.0, 1800.0),
)
#: Prices that rule out little, so that nearly every offer is scored.
POLICY = Policy(max_price_per_hour=60.0, start_within=minutes(5))


def decide(
    offers: tuple[Offer, ...], requirements: InstanceRequirements, knowledge: Knowledge
) -> tuple[Candidate, ...]:
    return rank(
        offers,
        demand=a_demand(
            need_items_per_hour=8000.0,
            backlog_items=8000.0,
            jobs=80,
            gib_in_per_item=0.008,
            gib_out_per_item=0.001,
        ),
        knowledge=knowledge,
        pool_cooldowns=[a_pool_cooldown(a_pool("g6.xlarge", "region-000b"))],
        policy=POLICY,
        requirements=requirements,
        waited=minutes(10),
        now=NOW,
    ).top(FIRST)


def timed(call: Callable[[], object]) -> float:
    start = perf_counter()
    call()
    return (perf_counter() - start) * 1000.0


#: Work that needs no GPU, on either architecture.
NO_GPU = InstanceRequirements(
    gpu_count_min=0.0, gpu_count_max=0.0, architectures=frozenset({"x86_64", "arm64"})
)
#: Two families have been measured.
CPU_KNOWLEDGE = replace(
    KNOWLEDGE,
    throughput={
        ("c7g vCPU", 8.0): ThroughputRecord(items=50_000, hours=40, reports=300),
        ("m6i vCPU", 4.0): ThroughputRecord(items=30_000, hours=12, reports=90),
    },
)


@pytest.mark.parametrize(("count", "repeats", "limit"), [(3_500, 400, 1.0), (50_000, 40, 15.0)])
def test_a_decision_over_a_whole_market(count: int, repeats: int, limit: float) -> None:
    name = "decision" if count == 3_500 else f"decision_{count}"
    take_time(name, a_market(count), InstanceRequirements(), KNOWLEDGE, repeats, limit)


@pytest.mark.parametrize(("count", "repeats", "limit"), [(3_500, 400, 4.0), (50_000, 40, 15.0)])
def test_a_decision_without_gpus(count: int, repeats: int, limit: float) -> None:
    offers = a_market(count, sold=the_cpu_types())
    take_time(f"decision_cpu_{count}", offers, NO_GPU, CPU_KNOWLEDGE, repeats, limit)


def take_time(
    name: str,
    offers: tuple[Offer, ...],
    requirements: InstanceRequirements,
    knowledge: Knowledge,
    repeats: int,
    limit: float,
) -> None:
    """Measure and record decisions, and compare the fastest with the limit, in milliseconds."""
    prices = [offer.price for offer in offers[:3_500]]
    assert len(decide(offers, requirements, knowledge)) == FIRST
    decisions, sorts = [], []
    gc.collect()
    for _ in range(repeats):
        decisions.append(timed(lambda: decide(offers, requirements, knowledge)))
        sorts.append(timed(lambda: sorted(prices)))

    ratio = min(decisions) / min(sorts)
    record(
        name,
        {
            "offers": len(offers),
            "p50_ms": round(median(decisions), 3),
            "p99_ms": round(quantiles(decisions, n=100)[98], 3),
            "best_ms": round(min(decisions), 3),
            "best_sort_of_3500_prices_ms": round(min(sorts), 3),
            "on_the_reference_ms": round(ratio * REFERENCE_SORT, 3),
            "limit_on_the_reference_ms": limit,
        },
    )
    assert ratio * REFERENCE_SORT <= limit

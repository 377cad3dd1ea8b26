"""What all workloads of an account share: EC2's calls, its quotas, the budget."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.decision import Outcome
from spindown.contract.row import (
    CALLS_PER_MINUTE,
    DEPLOYMENT_PARTITION,
    budget_sort_key,
    calls_sort_key,
    minute_of,
)
from spindown.control.market import refresh
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung, WhenSpent
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.memory import PortCall
from spindown.port import Key, RefusalKind, Write
from tests.builders import a_type, minutes
from tests.control import (
    REGION,
    STRICT,
    ZONES,
    ControlWorld,
    a_pool_of,
    every_spot_pool,
    pools,
    with_policy,
)


def _calls(world: ControlWorld) -> Any:
    return world.table.query(DEPLOYMENT_PARTITION, "calls#").get(f"calls#{REGION}")


def test_all_workloads_share_ec2s_bucket_of_calls() -> None:
    start_plan = {"start_within": minutes(20), "pool_cooldown": timedelta(seconds=1)}
    world = with_policy(**STRICT, **start_plan)
    world.dry(*every_spot_pool())
    # Others have asked all but two times in this minute.
    key = Key(partition=DEPLOYMENT_PARTITION, sort=calls_sort_key(REGION))
    used = {"minute": minute_of(world.now), "count": CALLS_PER_MINUTE - 2}
    world.table.write(Write(key=key, set=used))
    world.send()

    first, second = world.tick(), world.tick(timedelta(seconds=5))
    next_minute = world.tick(minutes(1))

    assert len(first.requests) == 2
    assert ReasonCode.CALLS_USED_UP in (first.summary.why.code, first.summary.ended_early.code)
    assert second.requests == ()
    assert len(next_minute.requests) == 6
    assert _calls(world) == {"minute": minute_of(world.now), "count": 6}


def test_counts_a_call_that_another_workload_takes_in_between() -> None:
    world = ControlWorld()
    world.send()

    def race(call: PortCall, proceed: Callable[[], Any]) -> Any:
        # Between our look at the account and our intent another workload begins the minute.
        if call.method == "spot_prices":
            key = Key(partition=DEPLOYMENT_PARTITION, sort=calls_sort_key(REGION))
            world.table.write(Write(key=key, set={"minute": minute_of(world.now), "count": 1}))
        return proceed()

    world.interfere = race
    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    assert _calls(world)["count"] == 2


def test_a_full_quota_blocks_its_class_and_the_next_is_tried() -> None:
    world = with_policy(**STRICT, ladder=())
    refresh(world.ports)
    world.market.limit("L-3819A6DF", 0, region=REGION)
    world.send()

    decision = world.tick()

    # One refusal is enough for the whole class: the next try is on-demand.
    assert [a.outcome for a in decision.requests] == ["quota", "launched"]
    assert pools(decision) == ["g4dn.xlarge/us-west-2a/on-demand"]
    row = world.table.query(DEPLOYMENT_PARTITION, "quota#")["quota#us-west-2/G/Spot"]
    assert row["code"] == "MaxSpotInstanceCountExceeded"
    assert world.metric("QuotaBlocked") == 1
    assert a_pool_of("g4dn.xlarge") not in world.view().pool_cooldowns


def test_nothing_is_asked_of_a_quota_that_is_known_to_be_full() -> None:
    world = with_policy(**STRICT, ladder=())
    world.market.limit("L-3819A6DF", 0, region=REGION)
    world.send()

    decision = world.tick()

    assert [a.outcome for a in decision.requests] == ["launched"]
    assert pools(decision) == ["g4dn.xlarge/us-west-2a/on-demand"]
    (left_out,) = [r for r in decision.rejections if r.constraint == "quota"]
    assert left_out.offers == 6
    assert left_out.reason.code is ReasonCode.QUOTA_SHORT
    assert (left_out.reason.about["vcpus"], left_out.reason.about["left"]) == (4, 0.0)
    assert world.metric("QuotaBlocked") == 0


def test_a_quota_bounds_how_many_are_launched() -> None:
    spot = Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT}))
    world = with_policy(drain_within=minutes(10), max_workers=10, ladder=(spot,))
    world.market.limit("L-3819A6DF", 12, region=REGION)
    world.send(100)

    first = world.tick()
    world.run(2)

    assert first.sizing is not None
    assert first.sizing.reason.code is ReasonCode.CUT_BY_BOUND
    assert first.sizing.reason.about["bound"] == "quota"
    assert len(pools(first)) == len(world.workers()) == 3


def test_says_that_a_quota_stops_everything_and_counts_it() -> None:
    spot = Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT}))
    world = with_policy(**STRICT, ladder=(spot,))
    world.market.limit("L-3819A6DF", 3, region=REGION)
    world.send()

    decision = world.tick()

    assert decision.outcome is Outcome.NOTHING_FITS
    short: About = {"quota_class": "us-west-2/G/Spot", "left": 3.0, "smallest": 4}
    assert Reason(ReasonCode.NO_QUOTA_LEFT, short) in decision.notes
    assert world.metric("QuotaBlocked") == 1


def test_a_quota_is_not_blocked_while_ours_gives_it_back() -> None:
    world = with_policy(**STRICT, ladder=(), max_price_per_hour=0.3)
    world.compute.ec2.ending = minutes(2)
    worker = world.launched()
    world.market.limit("L-3819A6DF", 4, region=REGION)
    world.claim(worker.instance_id)
    world.put(f"worker#{worker.instance_id}", interrupted_at=world.now + minutes(2))

    refused = world.tick()
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    later = world.tick(minutes(3))

    assert [a.outcome for a in refused.requests] == ["quota"]
    assert world.table.query(DEPLOYMENT_PARTITION, "quota#") == {}
    assert later.outcome is Outcome.LAUNCHED


@pytest.mark.parametrize("when_spent", WhenSpent)
def test_a_spent_budget_launches_nothing_more(when_spent: WhenSpent) -> None:
    world = ControlWorld(policy=Policy(when_spent=when_spent), budget=10.0)
    worker = world.launched(2)
    world.claim(worker.instance_id)
    _spend(world, 10.0)
    world.send(500)

    decision = world.tick(minutes(1))

    assert decision.outcome is Outcome.BLOCKED
    assert decision.summary.why.code is ReasonCode.BUDGET_USED_UP
    assert world.metric("BudgetStopped") == 1
    assert world.metric("BudgetUsed") >= 100
    (held,) = world.workers()
    assert held.state is WorkerState.BUSY
    assert (held.spent_at is None) is (when_spent is WhenSpent.STOP_LAUNCHES)


def test_two_workloads_cannot_reserve_the_same_dollars() -> None:
    world = ControlWorld(budget=1.0)
    world.send()

    def race(call: PortCall, proceed: Callable[[], Any]) -> Any:
        # Between our look at the budget and our intent another workload reserves all of it.
        if call.method == "spot_prices":
            _spend(world, 0.999)
        return proceed()

    world.interfere = race
    decision = world.tick()

    assert decision.requests == ()
    assert ReasonCode.BUDGET_TOO_LOW in (
        decision.summary.why.code,
        decision.summary.ended_early.code,
    )
    assert world.compute.bills() == []


def _spend(world: ControlWorld, dollars: float) -> None:
    key = Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort_key(world.now))
    world.table.write(Write(key=key, add={"dollars": dollars, "committed": dollars}))


def test_a_full_quota_blocks_the_class_that_it_counts() -> None:
    world = with_policy(band=0.05, rank_by="price")
    world.market.offer(
        a_type("p6-b200.48xlarge"), region=REGION, zones=ZONES, on_demand=0.5, spot=0.20
    )
    refresh(world.ports)
    for zone in ZONES:
        world.dry(a_pool_of("g4dn.xlarge", zone))
        pool = a_pool_of("p6-b200.48xlarge", zone)
        world.compute.refuse_next(RefusalKind.QUOTA, "MaxSpotInstanceCountExceeded", pool=pool)
    world.send()

    decision = world.tick()

    first, second = decision.requests
    assert {pool.partition("/")[0] for pool in first.pools} == {"g4dn.xlarge", "p6-b200.48xlarge"}
    assert first.outcome == "quota"
    assert list(second.instances.values()) == ["g6.xlarge/us-west-2a/spot"]

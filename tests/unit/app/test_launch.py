"""Launching: in the order of the list, once, within every bound, whatever EC2 answers."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.app.explain.plan import plan
from spindown.app.offers import refresh
from spindown.app.policy import edit_policy
from spindown.app.port import Key, LaunchAnswer, Refusal, RefusalKind, Write
from spindown.app.reconcile import reconcile
from spindown.contract.decision import Decision, EndingRecord, Outcome
from spindown.contract.row import (
    CALLS_PER_MINUTE,
    DEPLOYMENT_PARTITION,
    LOCK,
    LOCK_LEASE,
    budget_sort,
    calls_sort,
    minute_of,
)
from spindown.domain.fleet import LaunchState, WorkerState
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.policy import RankBy, Rung, WarmSpan, Weekday
from spindown.error import AccessDenied, Throttled, Unreachable
from spindown.memory import PortCall
from tests.builders import minutes
from tests.control import (
    PRICES,
    REGION,
    WORKLOAD,
    ZONES,
    ControlWorld,
    a_pool_of,
    pools,
    with_policy,
)

STRICT = {"band": 0.0, "rank_by": "price"}


def test_launches_the_cheapest_offer_for_the_first_message() -> None:
    world = ControlWorld()
    world.send()

    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    assert pools(decision) == ["g4dn.xlarge/us-west-2a/spot"]
    (worker,) = world.workers()
    assert worker.state is WorkerState.BOOTING
    assert worker.price_per_hour == pytest.approx(0.20 + 100 * 0.08 / 730 + 0.005)
    assert (worker.gpu_name, worker.slots) == ("T4", 1)
    assert world.metric("InstancesLaunched") == 1


def test_does_not_launch_the_same_backlog_again_while_it_boots() -> None:
    world = ControlWorld()
    world.send(3)
    world.tick()
    booting = len(world.workers())

    assert all(d.outcome is Outcome.ENOUGH for d in world.run(3))
    assert len(world.workers()) == booting


def test_tries_dry_pools_strictly_in_the_order_of_the_list() -> None:
    world = with_policy(**STRICT)
    dry = [a_pool_of(name, zone) for name in ("g4dn.xlarge", "g6.xlarge") for zone in ZONES]
    world.dry(*dry)
    world.send()

    decision = world.tick()

    tried = [attempt.pools for attempt in decision.attempts]
    assert tried == [(str(pool),) for pool in dry] + [("g5.xlarge/us-west-2a/spot",)]
    assert tried == [(c.offer,) for c in decision.candidates[: len(tried)]]
    assert [a.outcome for a in decision.attempts] == ["capacity"] * 4 + ["launched"]


@pytest.mark.parametrize("rank_by", ["cost_per_item", "price"])
@pytest.mark.parametrize("dry", range(7))
def test_with_the_first_k_dry_the_list_is_tried_in_exactly_its_order(
    rank_by: str, dry: int
) -> None:
    world = with_policy(band=0.0, rank_by=RankBy(rank_by))
    # No two pools cost the same, and the order is not that of the names.
    for n, (name, zone) in enumerate((n, z) for n in reversed(PRICES) for z in ZONES):
        world.market.move_spot_price(name, zone, 0.20 + 0.031 * n)
    world.send()
    order = [c.offer for c in plan(WORKLOAD, world.ports).candidates]
    assert len(order) == 6
    world.dry(*(offer.pool for offer in order[:dry]))

    decision = world.tick()

    tried = [attempt.pools for attempt in decision.attempts]
    assert tried == [(str(offer),) for offer in order[: dry + 1]]
    assert pools(decision) == [str(offer) for offer in order[dry : dry + 1]]
    assert [c.offer for c in decision.candidates] == [str(offer) for offer in order]


def test_asks_for_a_band_of_equal_offers_in_one_request() -> None:
    world = with_policy(band=0.05)
    world.dry(a_pool_of("g4dn.xlarge", ZONES[0]))
    world.send()

    decision = world.tick()

    (attempt,) = decision.attempts
    assert attempt.pools == tuple(str(a_pool_of("g4dn.xlarge", zone)) for zone in ZONES)
    assert pools(decision) == ["g4dn.xlarge/us-west-2b/spot"]


def test_leaves_a_dry_pool_alone_and_longer_with_each_time() -> None:
    world = with_policy(**STRICT, max_price_per_hour=0.3)
    world.dry(*(a_pool_of("g4dn.xlarge", zone) for zone in ZONES))
    world.send()
    pool = a_pool_of("g4dn.xlarge")

    refused = world.tick()
    first = world.view().unavailable[pool]
    waiting = world.tick(minutes(1))
    world.tick(minutes(3))
    second = world.view().unavailable[pool]

    assert refused.outcome is Outcome.REFUSED
    assert waiting.attempts == ()
    assert waiting.next_try_at == first.until
    assert (first.strikes, second.strikes) == (1, 2)
    assert second.until - world.now == minutes(6)


def test_forgets_that_a_pool_was_dry_once_it_gives() -> None:
    world = with_policy(**STRICT, max_price_per_hour=0.3)
    world.dry(*(a_pool_of("g4dn.xlarge", zone) for zone in ZONES))
    world.send()
    world.tick()
    world.compute.set_capacity(a_pool_of("g4dn.xlarge"), None)

    decision = world.tick(minutes(4))

    assert pools(decision) == ["g4dn.xlarge/us-west-2a/spot"]
    assert a_pool_of("g4dn.xlarge") not in world.view().unavailable


def test_stops_after_a_bounded_number_of_tries() -> None:
    world = with_policy(**STRICT, max_attempts_per_tick=2)
    world.dry(*(a_pool_of(name, zone) for name in ("g4dn.xlarge", "g6.xlarge") for zone in ZONES))
    world.send()

    first, second = world.tick(), world.tick(minutes(1))

    assert len(first.attempts) == 2
    assert "the next tick goes on" in first.summary
    # The next tick goes on where this one stopped, since what was dry is remembered.
    assert [a.pools[0] for a in second.attempts] == [
        "g6.xlarge/us-west-2a/spot",
        "g6.xlarge/us-west-2b/spot",
    ]


def _calls(world: ControlWorld) -> Any:
    return world.table.query(DEPLOYMENT_PARTITION, "calls#").get(f"calls#{REGION}")


def test_all_workloads_share_ec2s_bucket_of_calls() -> None:
    world = with_policy(**STRICT, unavailable_for=timedelta(seconds=1))
    world.dry(*_every_spot_pool())
    # Others have asked all but two times in this minute.
    key = Key(partition=DEPLOYMENT_PARTITION, sort=calls_sort(REGION))
    used = {"minute": minute_of(world.now), "count": CALLS_PER_MINUTE - 2}
    world.table.write(Write(key=key, set=used))
    world.send()

    first, second = world.tick(), world.tick(timedelta(seconds=5))
    next_minute = world.tick(minutes(1))

    assert len(first.attempts) == 2
    assert f"EC2 has been asked {CALLS_PER_MINUTE} times this minute" in first.summary
    assert second.attempts == ()
    assert len(next_minute.attempts) == 6
    assert _calls(world) == {"minute": minute_of(world.now), "count": 6}


def test_a_call_that_another_workload_takes_in_between_is_counted_too() -> None:
    world = ControlWorld()
    world.send()

    def race(call: PortCall, proceed: Callable[[], Any]) -> Any:
        # Between our look at the account and our intent another workload begins the minute.
        if call.method == "spot_prices":
            key = Key(partition=DEPLOYMENT_PARTITION, sort=calls_sort(REGION))
            world.table.write(Write(key=key, set={"minute": minute_of(world.now), "count": 1}))
        return proceed()

    world.interfere = race
    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    assert _calls(world)["count"] == 2


def test_begins_no_request_when_its_time_is_up() -> None:
    world = with_policy(**STRICT)
    world.dry(a_pool_of("g4dn.xlarge"))
    world.send()

    def slow(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch":
            world.clock.advance(timedelta(seconds=45))
        return proceed()

    world.interfere = slow
    decision = world.tick()

    assert len(decision.attempts) == 1
    assert "time is up" in decision.summary


@pytest.mark.parametrize("carried_out", [True, False], ids=["after-its-effect", "before-it"])
def test_a_lost_answer_to_a_launch_never_launches_twice(carried_out: bool) -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=carried_out)

    lost = world.tick()
    (intent,) = world.view().launches.values()
    adopted = world.tick(minutes(1))

    assert lost.attempts == ()
    assert "gave no answer" in lost.summary
    assert intent.state is LaunchState.INTENDED
    assert [a.outcome for a in adopted.attempts] == ["adopted"]
    assert len(world.compute.bills()) == len(world.workers()) == 1
    assert {x.state for x in world.view().launches.values()} == {LaunchState.LAUNCHED}


def test_a_lost_answer_is_adopted_though_ec2_does_not_show_the_instance_yet() -> None:
    world = ControlWorld()
    world.compute._lag = minutes(3)
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()

    world.tick(minutes(1))

    assert len(world.compute.bills()) == len(world.workers()) == 1


def test_an_old_intent_that_ec2_does_not_know_never_happened() -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=False)
    world.tick()
    world.queue.delete(_receive(world))

    world.tick(minutes(30))

    (launch,) = world.view().launches.values()
    assert (launch.state, launch.reason) == (LaunchState.REFUSED, "it never reached EC2")
    assert world.compute.bills() == []
    assert _committed(world) == pytest.approx(0.0)


def test_a_throttled_replay_says_nothing_of_the_first_request() -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=False)
    world.tick()
    world.compute.refuse_next(RefusalKind.THROTTLE, "RequestLimitExceeded")

    world.tick(minutes(1))
    (intent,) = world.view().launches.values()
    world.tick(minutes(1))

    assert intent.state is LaunchState.INTENDED
    assert len(world.workers()) == 1


def test_a_crash_after_the_launch_is_adopted() -> None:
    world = ControlWorld()
    world.send()

    def crash(call: PortCall, proceed: Callable[[], Any]) -> Any:
        answer = proceed()
        if call.method == "launch":
            raise KeyboardInterrupt
        return answer

    world.interfere = crash
    with pytest.raises(KeyboardInterrupt):
        world.tick()
    world.interfere = None
    shut_out = world.tick(minutes(1))
    adopted = world.tick(LOCK_LEASE)

    assert shut_out.outcome is Outcome.LOCKED
    assert [a.outcome for a in adopted.attempts] == ["adopted"]
    assert len(world.compute.bills()) == 1


def test_a_second_reconcile_at_the_same_time_leaves_at_once() -> None:
    world = ControlWorld()
    world.send()
    inner: list[Decision] = []

    def interleave(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch" and not inner:
            inner.append(reconcile(WORKLOAD, world.ports, holder="other"))
        return proceed()

    world.interfere = interleave
    decision = world.tick()

    assert inner[0].outcome is Outcome.LOCKED
    assert decision.outcome is Outcome.LAUNCHED
    assert len(world.compute.bills()) == 1
    assert world.metrics.values("LockBusy") == [1]


def test_a_reconcile_that_outlived_its_lock_launches_nothing_more() -> None:
    world = ControlWorld()
    world.send()
    taken: list[Decision] = []

    def stall(call: PortCall, proceed: Callable[[], Any]) -> Any:
        # Just before the intent is written, another reconcile finds the lease over.
        if call.method == "spot_prices" and world.interfere is not None:
            world.interfere = None
            world.clock.advance(LOCK_LEASE)
            taken.append(reconcile(WORKLOAD, world.ports, holder="other"))
        return proceed()

    world.interfere = stall
    late = world.tick()

    assert taken[0].outcome is Outcome.LAUNCHED
    assert late.outcome is Outcome.LOCKED
    assert len(world.compute.bills()) == len(world.workers()) == 1


def test_a_full_quota_blocks_its_class_and_the_next_class_is_tried() -> None:
    world = with_policy(**STRICT, ladder=())
    refresh(world.ports)
    world.market.limit("L-3819A6DF", 0, region=REGION)
    world.send()

    decision = world.tick()

    # One refusal is enough for the whole class: the next try is on-demand.
    assert [a.outcome for a in decision.attempts] == ["quota", "launched"]
    assert pools(decision) == ["g4dn.xlarge/us-west-2a/on-demand"]
    row = world.table.query(DEPLOYMENT_PARTITION, "quota#")["quota#us-west-2/G/Spot"]
    assert row["code"] == "MaxSpotInstanceCountExceeded"
    assert world.metric("QuotaBlocked") == 1
    assert a_pool_of("g4dn.xlarge") not in world.view().unavailable


def test_nothing_is_asked_of_a_quota_that_is_known_to_be_full() -> None:
    world = with_policy(**STRICT, ladder=())
    world.market.limit("L-3819A6DF", 0, region=REGION)
    world.send()

    decision = world.tick()

    assert [a.outcome for a in decision.attempts] == ["launched"]
    assert pools(decision) == ["g4dn.xlarge/us-west-2a/on-demand"]
    (left_out,) = [r for r in decision.rejections if r.reason == "quota"]
    assert left_out.offers == 6
    assert left_out.example.endswith("it takes 4 vCPUs, quota us-west-2/G/Spot has 0 left")
    assert world.metric("QuotaBlocked") == 0


def test_a_quota_bounds_how_many_are_launched() -> None:
    world = with_policy(drain_within=minutes(10), max_workers=10)
    world.market.limit("L-3819A6DF", 12, region=REGION)
    world.send(100)

    first = world.tick()
    world.run(2)

    assert first.sizing is not None
    assert "quota allows 3 of" in first.sizing.reason
    assert len(pools(first)) == len(world.workers()) == 3


def test_says_that_a_quota_stops_everything_and_counts_it() -> None:
    spot = Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT}))
    world = with_policy(**STRICT, ladder=(spot,))
    world.market.limit("L-3819A6DF", 3, region=REGION)
    world.send()

    decision = world.tick()

    assert decision.outcome is Outcome.NOTHING_FITS
    assert "quota us-west-2/G/Spot: 3 vCPUs are left, the smallest offer takes 4" in decision.notes
    assert world.metric("QuotaBlocked") == 1


def test_a_quota_is_not_blocked_while_one_of_ours_is_giving_it_back() -> None:
    world = with_policy(**STRICT, ladder=(), max_price_per_hour=0.3)
    world.compute._ending = minutes(2)
    worker = world.launched()
    world.market.limit("L-3819A6DF", 4, region=REGION)
    world.claim(worker.instance_id)
    world.put(f"worker#{worker.instance_id}", interrupted_at=world.now + minutes(2))

    refused = world.tick()
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    later = world.tick(minutes(3))

    assert [a.outcome for a in refused.attempts] == ["quota"]
    assert world.table.query(DEPLOYMENT_PARTITION, "quota#") == {}
    assert later.outcome is Outcome.LAUNCHED


def test_an_account_error_opens_the_breaker_and_says_what_ec2_said() -> None:
    world = ControlWorld()
    world.compute.refuse_next(RefusalKind.ACCOUNT, "UnauthorizedOperation")
    world.send()

    refused, stopped = world.tick(), world.tick(minutes(1))
    later = world.tick(minutes(15))

    assert [a.outcome for a in refused.attempts] == ["account"]
    assert stopped.outcome is Outcome.STOPPED
    assert "UnauthorizedOperation" in stopped.summary
    assert world.metrics.values("BreakerOpen")[:2] == [1, 1]
    # It is tried again by itself, so that mending the account is enough.
    assert later.outcome is Outcome.LAUNCHED


@pytest.mark.parametrize("as_error", [True, False], ids=["raised", "answered"])
def test_a_throttle_ends_the_tick_and_backs_off(as_error: bool) -> None:
    world = with_policy(**STRICT)
    world.send()
    if as_error:
        world.interfere = _raise_once("launch", Throttled("slow down"))
    else:
        world.compute.refuse_next(RefusalKind.THROTTLE, "RequestLimitExceeded")

    throttled = world.tick()
    waiting = world.tick(timedelta(seconds=5))
    world.run(2)

    assert len(throttled.attempts) <= 1
    assert waiting.attempts == ()
    assert any("slow down" in said for said in (waiting.summary, *waiting.notes))
    assert len(world.workers()) == 1
    assert world.view().backlog.backoffs == {}


def test_an_unknown_refusal_counts_as_a_dry_pool() -> None:
    world = with_policy(**STRICT)
    pool = a_pool_of("g4dn.xlarge")
    world.compute.refuse_next(RefusalKind.UNKNOWN, "SomethingNew", pool=pool)
    world.send()

    decision = world.tick()

    assert [a.outcome for a in decision.attempts] == ["unknown", "launched"]
    assert world.view().unavailable[pool].reason == "SomethingNew"


def test_a_subnet_without_an_address_left_is_left_alone_whatever_the_type() -> None:
    world = with_policy(**STRICT)
    # So that the second in the list is another type of the first zone.
    world.market.move_spot_price("g4dn.xlarge", ZONES[1], 0.40)
    refusal = Refusal(
        kind=RefusalKind.CAPACITY,
        code="InsufficientFreeAddressesInSubnet",
        message="no address",
        zone=ZONES[0],
    )
    answers = [LaunchAnswer(refusals=(refusal,))]

    def full(call: PortCall, proceed: Callable[[], Any]) -> Any:
        return answers.pop() if call.method == "launch" and answers else proceed()

    world.interfere = full
    world.send()
    decision = world.tick()

    first, second = decision.attempts
    assert first.pools == ("g4dn.xlarge/us-west-2a/spot",)
    # Not g6.xlarge in the same zone, which comes before it in the list.
    assert second.pools == ("g6.xlarge/us-west-2b/spot",)
    assert world.view().unavailable.keys() == {a_pool_of("g4dn.xlarge", ZONES[0])}


def test_an_answer_with_nothing_in_it_is_a_failure_of_its_pools() -> None:
    world = with_policy(**STRICT)
    answers = [LaunchAnswer()]

    def empty(call: PortCall, proceed: Callable[[], Any]) -> Any:
        return answers.pop() if call.method == "launch" and answers else proceed()

    world.interfere = empty
    world.send()
    decision = world.tick()

    assert [a.outcome for a in decision.attempts] == ["capacity", "launched"]
    assert world.view().unavailable[a_pool_of("g4dn.xlarge")].reason == "NoInstances"


def test_errors_beside_instances_are_heeded() -> None:
    world = with_policy(drain_within=minutes(20), max_workers=10)
    world.compute.set_capacity(a_pool_of("g4dn.xlarge"), 1)
    world.send(10)

    decision = world.tick()

    first = decision.attempts[0]
    assert "g4dn.xlarge/us-west-2a/spot" in first.instances.values()
    assert [r.pool for r in first.refusals] == ["g4dn.xlarge/us-west-2a/spot"]
    assert a_pool_of("g4dn.xlarge") in world.view().unavailable


def test_a_missing_grant_stops_launching_with_its_name() -> None:
    world = ControlWorld()
    world.interfere = _raise_once("launch", AccessDenied("ec2:CreateFleet"))
    world.send()

    decision = world.tick()

    assert [a.outcome for a in decision.attempts] == ["account"]
    assert "ec2:CreateFleet" in world.tick(minutes(1)).summary


def test_a_missing_grant_to_look_stops_no_launch() -> None:
    world = ControlWorld()
    world.interfere = _raise_once("instances", AccessDenied("ec2:DescribeInstances"))

    idle = world.tick()
    world.send()

    assert idle.notes == ("looking at EC2: a grant is missing (ec2:DescribeInstances)",)
    assert world.tick().outcome is Outcome.LAUNCHED


def test_the_budget_stops_launches_and_never_work() -> None:
    world = ControlWorld(budget=10.0)
    worker = world.launched(2)
    world.claim(worker.instance_id)
    _spend(world, 10.0)
    world.send(500)

    decision = world.tick(minutes(1))

    assert decision.outcome is Outcome.STOPPED
    assert "budget" in decision.summary
    assert world.metric("BudgetStopped") == 1
    assert world.metric("BudgetUsed") >= 100
    assert [w.state for w in world.workers()] == [WorkerState.BUSY]


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

    assert decision.attempts == ()
    assert "no room for another launch" in decision.summary
    assert world.compute.bills() == []


def test_max_dollars_per_hour_bounds_the_fleet() -> None:
    world = with_policy(max_dollars_per_hour=0.5, max_workers=10, drain_within=minutes(10))
    world.send(100)

    world.run(3)

    assert len(world.workers()) == 2


def test_max_workers_bounds_the_fleet_and_costs_no_look_at_prices() -> None:
    world = with_policy(max_workers=2, drain_within=minutes(10))
    world.send(100)
    world.tick()
    before = world.calls["table.query"]

    decision = world.tick(minutes(1))

    assert len(world.workers()) == 2
    assert "max_workers is 2" in decision.summary
    assert world.calls["table.query"] - before == 1


def test_fills_the_need_from_several_bands_when_pools_are_small() -> None:
    world = with_policy(max_workers=10, drain_within=minutes(20), band=0.0)
    world.compute.set_capacity(a_pool_of("g4dn.xlarge"), 1)
    world.compute.set_capacity(a_pool_of("g4dn.xlarge", ZONES[1]), 1)
    world.send(10)

    decision = world.tick()

    launched = pools(decision)
    assert {"g4dn.xlarge/us-west-2a/spot", "g4dn.xlarge/us-west-2b/spot"} < set(launched)
    assert world.tick(minutes(1)).attempts == ()


def test_says_which_constraint_is_in_the_way_when_nothing_fits() -> None:
    world = with_policy(max_price_per_hour=0.01)
    world.send()

    decision = world.tick()

    assert decision.outcome is Outcome.NOTHING_FITS
    assert {r.reason for r in decision.rejections} == {"max_price_per_hour"}
    assert any("nearest is g4dn.xlarge" in note for note in decision.notes)
    assert world.metric("NothingFits") == 1


def test_estimates_the_spot_price_when_none_is_known() -> None:
    world = ControlWorld()
    for zone in ZONES:
        world.market.move_spot_price("g4dn.xlarge", zone, None)
    world.send()

    decision = world.tick()

    listed = {c.offer: c.price_per_hour for c in decision.candidates}
    assert listed["g4dn.xlarge/us-west-2a/spot"] == pytest.approx(0.263 + 0.016, abs=1e-3)


def test_goes_on_without_a_launch_when_prices_cannot_be_read() -> None:
    world = ControlWorld()
    world.interfere = _raise_once("spot_prices", Unreachable("no answer"))
    world.send()

    decision, next_one = world.tick(), world.tick(minutes(1))

    assert decision.outcome is Outcome.STOPPED
    assert "prices could not be read" in decision.summary
    assert next_one.outcome is Outcome.LAUNCHED


def test_spot_prices_of_a_while_ago_stand_in_for_those_that_cannot_be_read() -> None:
    world = with_policy(**STRICT)
    world.dry(*_every_spot_pool())
    world.send()
    world.tick()
    read_at = world.now
    world.interfere = _raise_always("spot_prices", Unreachable("no answer"))

    world.compute.set_capacity(a_pool_of("g4dn.xlarge"), None)
    decision = world.tick(minutes(6))

    assert pools(decision)[0] == "g4dn.xlarge/us-west-2a/spot"
    assert f"spot prices of us-west-2 were last read at {read_at:%H:%M:%S}: no answer" in (
        decision.notes
    )


def test_without_spot_prices_nothing_is_bought_while_the_work_can_wait() -> None:
    world = with_policy(**STRICT, start_within=minutes(60))
    world.interfere = _raise_always("spot_prices", Unreachable("no answer"))
    world.send()
    world.tick()

    waiting, late = world.tick(minutes(59)), world.tick(minutes(1))

    assert waiting.outcome is Outcome.STOPPED
    assert "prices could not be read: no answer" in waiting.summary
    # Half of 0.526 on demand, as the policy estimates.
    assert late.outcome is Outcome.LAUNCHED
    assert world.workers()[0].price_per_hour == pytest.approx(0.263 + 0.01596, abs=1e-5)
    assert any("are estimated from on-demand: no answer" in note for note in late.notes)


def test_list_prices_that_nobody_could_read_for_a_week_buy_nothing_on_demand() -> None:
    world = with_policy(**STRICT, ladder=())
    refresh(world.ports)
    read_at = world.now
    world.dry(*_every_spot_pool())
    world.clock.advance(timedelta(days=7, minutes=1))
    world.send()

    decision = world.tick()

    assert {a.outcome for a in decision.attempts} == {"capacity"}
    assert not any("on-demand" in pool for a in decision.attempts for pool in a.pools)
    assert decision.notes[0].endswith(f"was last read at {read_at:%Y-%m-%d %H:%M}")
    assert decision.notes[1].startswith("on-demand prices of us-west-2 were last read at ")
    assert decision.notes[1].endswith("they are not trusted")
    assert world.metric("CatalogueAge") == timedelta(days=7, minutes=1).total_seconds()


def test_marks_the_launch_with_its_template_version_token_and_tag() -> None:
    world = ControlWorld()
    seen: list[Any] = []

    def record(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch":
            seen.append(call.args[0])
        return proceed()

    world.interfere = record
    world.send()
    decision = world.tick()

    (request,) = seen
    assert request.template.version == "3"
    assert len(request.client_token) == 64
    lives_for = world.policy.max_lifetime + world.policy.lifetime_grace
    assert request.tags == {
        "spindown:launch": decision.attempts[0].launch_id,
        "spindown:lease-until": f"{world.now + lives_for:%Y-%m-%dT%H:%M:%SZ}",
    }
    assert request.capacity_type is CapacityType.SPOT


def test_a_warm_worker_is_kept_without_any_work() -> None:
    world = with_policy(warm_workers=1)

    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    assert len(world.workers()) == 1
    assert world.tick(minutes(1)).attempts == ()


def test_workers_are_kept_warm_at_their_hours_and_no_longer() -> None:
    noon = timedelta(hours=12)
    span = WarmSpan(
        days=frozenset(Weekday), start=noon + minutes(10), end=noon + minutes(60), workers=2
    )
    world = with_policy(warm_schedule=(span,), idle_timeout=minutes(3))

    before = world.run(9)
    at_work = world.tick(minutes(1))
    for worker in world.workers():
        world.check_in(worker.instance_id)
    for _ in range(55):
        world.beat()
        world.tick(minutes(1))

    assert not any(d.attempts for d in before)
    assert len(pools(at_work)) == 2
    assert at_work.sizing is not None
    assert "2 workers are kept warm" in at_work.sizing.reason
    # Past the hour nobody renews their stay.
    assert all(
        w.warm_until is not None and w.warm_until <= world.now + minutes(1) for w in world.workers()
    )
    assert world.policy.warm_workers == 0


def test_a_warm_worker_stays_as_long_as_it_is_kept_and_ends_when_it_is_not() -> None:
    world = with_policy(warm_workers=1, idle_timeout=minutes(3))
    world.tick()
    (worker,) = world.workers()
    world.clock.advance(minutes(2))
    world.check_in(worker.instance_id)

    def until() -> timedelta:
        (found,) = world.workers()
        assert found.warm_until is not None
        return found.warm_until - world.now

    for _ in range(60):
        world.clock.advance(minutes(1))
        world.beat()
        assert world.tick().attempts == ()
        assert until() == minutes(5)
        assert world.metric("IdleBeyondExpectation") == 0
    edit_policy(WORKLOAD, {"warm_workers": 0}, settings=world.settings, table=world.table)
    condemned: list[EndingRecord] = []
    for _ in range(13):
        world.clock.advance(minutes(1))
        world.beat()
        condemned += world.tick().condemned

    # Five minutes until the stay is over, three idle, two and one of grace.
    assert [e.reason for e in condemned] == ["idle for 7 min, beyond its timeout and grace"]


def _raise_once(method: str, error: Exception) -> Callable[[PortCall, Callable[[], Any]], Any]:
    left = [error]

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == method and left:
            raise left.pop()
        return proceed()

    return interfere


def _raise_always(method: str, error: Exception) -> Callable[[PortCall, Callable[[], Any]], Any]:
    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == method:
            raise error
        return proceed()

    return interfere


def _every_spot_pool() -> list[Pool]:
    return [a_pool_of(name, zone) for name in PRICES for zone in ZONES]


def _receive(world: ControlWorld) -> str:
    message = world.queue.receive(wait=timedelta(0), visibility=minutes(5))
    assert message is not None
    return message.receipt_handle


def _spend(world: ControlWorld, dollars: float) -> None:
    key = Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort(world.now))
    world.table.write(Write(key=key, add={"dollars": dollars, "committed": dollars}))


def _committed(world: ControlWorld) -> float:
    row = world.table.get(Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort(world.now)))
    return float((row or {}).get("committed", 0.0))


def test_the_lock_is_free_after_a_tick() -> None:
    world = ControlWorld()
    world.tick()

    assert world.tick().outcome is Outcome.IDLE
    assert (world.row(LOCK) or {})["fence"] == 2

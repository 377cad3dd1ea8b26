"""What EC2 may answer instead of an instance, and what is left alone after it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.decision import Outcome
from spindown.domain.offer import CapacityType
from spindown.domain.reason import ReasonCode
from spindown.error import AccessDenied, Throttled
from spindown.memory import PortCall
from spindown.port import LaunchAnswer, Refusal, RefusalKind
from tests.builders import minutes
from tests.control import (
    REGION,
    STRICT,
    ZONES,
    ControlWorld,
    a_pool_of,
    codes,
    every_spot_pool,
    pools,
    with_policy,
)
from tests.failure import failing


def test_leaves_a_dry_pool_alone_for_as_long_each_time() -> None:
    world = with_policy(**STRICT, max_price_per_hour=0.3)
    world.dry(*(a_pool_of("g4dn.xlarge", zone) for zone in ZONES))
    world.send()
    pool = a_pool_of("g4dn.xlarge")

    refused = world.tick()
    first = world.view().pool_cooldowns[pool]
    waiting = world.tick(minutes(1))
    world.tick(minutes(3))
    second = world.view().pool_cooldowns[pool]

    assert refused.outcome is Outcome.REFUSED
    assert waiting.requests == ()
    assert waiting.next_try_at == first.until
    assert (first.strikes, second.strikes) == (0, 0)
    assert second.until - world.now == minutes(3)


def test_forgets_that_a_pool_was_dry_once_it_gives() -> None:
    world = with_policy(**STRICT, max_price_per_hour=0.3)
    world.dry(*(a_pool_of("g4dn.xlarge", zone) for zone in ZONES))
    world.send()
    world.tick()
    world.compute.set_capacity(a_pool_of("g4dn.xlarge"), None)

    decision = world.tick(minutes(4))

    assert pools(decision) == ["g4dn.xlarge/us-west-2a/spot"]
    assert a_pool_of("g4dn.xlarge") not in world.view().pool_cooldowns


def test_an_account_error_opens_the_breaker_in_ec2_s_words() -> None:
    world = ControlWorld()
    world.compute.refuse_next(RefusalKind.ACCOUNT, "UnauthorizedOperation")
    world.send()

    refused, stopped = world.tick(), world.tick(minutes(1))
    later = world.tick(minutes(15))

    assert [a.outcome for a in refused.requests] == ["account"]
    assert stopped.outcome is Outcome.BLOCKED
    assert stopped.summary.why.about["refusal"] == "UnauthorizedOperation"
    assert world.metrics.values("BreakerOpen")[:2] == [1, 1]
    # It is tried again by itself, so that fixing the account is enough.
    assert later.outcome is Outcome.LAUNCHED


DENIED = ("UnauthorizedOperation", "OptInRequired", "InvalidParameterCombination")


@pytest.mark.parametrize("code", DENIED)
def test_one_type_refused_is_not_the_account_refused(code: str) -> None:
    world = with_policy(**STRICT)
    denied = [a_pool_of("g4dn.xlarge", zone) for zone in ZONES]
    for pool in denied:
        world.compute.refuse_next(RefusalKind.ACCOUNT, code, pool=pool, times=99)
    world.send()

    decision = world.tick()

    assert [a.outcome for a in decision.requests] == ["account", "account", "launched"]
    assert world.view().breaker.open_until is None
    left_alone = world.view().pool_cooldowns
    assert [left_alone[pool].reason.about["refusal"] for pool in denied] == [code] * 2
    # It is asked again, and longer is waited each time.
    waits = [left_alone[denied[0]].until - world.now]
    for _ in range(2):
        world.clock.advance(waits[-1])
        world.empty_the_queue()
        world.send(9)
        world.tick()
        waits.append(world.view().pool_cooldowns[denied[0]].until - world.now)
    assert waits == [minutes(30), minutes(60), minutes(120)]


def test_a_bad_override_beside_instances_stops_nothing() -> None:
    world = with_policy(band=0.9, max_workers=4, drain_within=minutes(5))
    pool = a_pool_of("g4dn.xlarge")
    world.compute.refuse_next(RefusalKind.ACCOUNT, "InvalidParameterValue", pool=pool)
    world.send(100)

    decision = world.tick()

    assert len(pools(decision)) == len(world.workers()) == 4
    assert world.view().breaker.open_until is None
    assert pool in world.view().pool_cooldowns


def test_the_account_is_refused_once_three_launches_were() -> None:
    world = with_policy(**STRICT, max_requests_per_tick=2)
    for pool in every_spot_pool():
        world.compute.refuse_next(RefusalKind.ACCOUNT, "OptInRequired", pool=pool, times=99)
    world.send()

    refused = [world.tick(), world.tick(minutes(1)), world.tick(minutes(1))]
    stopped = world.tick(minutes(1))
    breaker = world.view().breaker
    again = world.tick(minutes(15))

    assert [a.outcome for decision in refused for a in decision.requests] == ["account"] * 6
    assert stopped.outcome is Outcome.BLOCKED
    assert breaker.reason.about["refusal"] == "OptInRequired"
    assert breaker.reason.about["types"] == "g5.xlarge"
    # What was refused before is not all that is ever asked.
    assert pools(again) == [str(a_pool_of("g4dn.xlarge", ZONES[0], CapacityType.ON_DEMAND))]


def test_an_account_that_forbids_spot_gets_what_it_allows() -> None:
    world = with_policy(start_within=minutes(10))
    for pool in every_spot_pool():
        world.compute.refuse_next(RefusalKind.ACCOUNT, "OptInRequired", pool=pool, times=99)
    world.send()

    decisions = world.run(10)

    assert next(pool for decision in decisions for pool in pools(decision)).endswith("on-demand")
    assert world.view().breaker.forbidden == 0


def test_a_full_pool_beside_a_refused_one_leaves_the_rest() -> None:
    world = with_policy(**STRICT, max_requests_per_tick=2)
    world.compute.refuse_next(
        RefusalKind.ACCOUNT, "OptInRequired", pool=a_pool_of("g4dn.xlarge"), times=99
    )
    world.dry(a_pool_of("g4dn.xlarge", ZONES[1]))
    world.send()

    refused, later = world.tick(), world.tick(minutes(1))

    assert refused.outcome is Outcome.REFUSED
    assert pools(later) == [str(a_pool_of("g6.xlarge"))]


def test_after_a_deploy_without_a_subnet_one_tick_asks_for_it() -> None:
    world = ControlWorld()
    world.tick()
    settings = world.workload_settings()
    home = replace(settings.regions[REGION], subnets={ZONES[1]: "subnet-b"})
    world.settings.deploy(replace(settings, regions={REGION: home}))
    world.compute.refuse_next(RefusalKind.ACCOUNT, "InvalidSubnetID.NotFound")
    world.send()

    refused, anew = world.tick(), world.tick(minutes(1))

    assert [a.outcome for a in refused.requests] == ["account"]
    assert anew.outcome is Outcome.LAUNCHED
    assert {pool.split("/")[1] for pool in pools(anew)} == {ZONES[1]}


@pytest.mark.parametrize("as_error", [True, False], ids=["raised", "answered"])
def test_a_throttle_ends_the_tick_and_backs_off(as_error: bool) -> None:
    world = with_policy(**STRICT)
    world.send()
    if as_error:
        world.interfere = failing(Throttled("slow down"), "launch", times=1)
    else:
        world.compute.refuse_next(RefusalKind.THROTTLE, "RequestLimitExceeded")

    throttled = world.tick()
    waiting = world.tick(timedelta(seconds=5))
    world.run(2)

    assert len(throttled.requests) <= 1
    assert waiting.requests == ()
    told = [waiting.summary.why.code, *codes(waiting)]
    assert {ReasonCode.SLOW_DOWN, ReasonCode.LAUNCH_WAITS}.intersection(told)
    assert len(world.workers()) == 1
    assert world.view().backlog.backoffs == {}


def test_an_unknown_refusal_counts_as_a_dry_pool() -> None:
    world = with_policy(**STRICT)
    pool = a_pool_of("g4dn.xlarge")
    world.compute.refuse_next(RefusalKind.UNKNOWN, "SomethingNew", pool=pool)
    world.send()

    decision = world.tick()

    assert [a.outcome for a in decision.requests] == ["unknown", "launched"]
    assert world.view().pool_cooldowns[pool].reason.about["refusal"] == "SomethingNew"


def test_a_subnet_without_addresses_is_avoided_for_every_type() -> None:
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

    first, second = decision.requests
    assert first.pools == ("g4dn.xlarge/us-west-2a/spot",)
    # Not g6.xlarge in the same zone, which comes before it in the list.
    assert second.pools == ("g6.xlarge/us-west-2b/spot",)
    assert world.view().pool_cooldowns.keys() == {a_pool_of("g4dn.xlarge", ZONES[0])}


def test_an_answer_with_nothing_in_it_is_a_failure_of_its_pools() -> None:
    world = with_policy(**STRICT)
    answers = [LaunchAnswer()]

    def empty(call: PortCall, proceed: Callable[[], Any]) -> Any:
        return answers.pop() if call.method == "launch" and answers else proceed()

    world.interfere = empty
    world.send()
    decision = world.tick()

    assert [a.outcome for a in decision.requests] == ["capacity", "launched"]
    assert (
        world.view().pool_cooldowns[a_pool_of("g4dn.xlarge")].reason.about["refusal"]
        == "NoInstances"
    )


def test_errors_beside_instances_are_heeded() -> None:
    world = with_policy(drain_within=minutes(20), max_workers=10)
    world.compute.set_capacity(a_pool_of("g4dn.xlarge"), 1)
    world.send(10)

    decision = world.tick()

    first = decision.requests[0]
    assert "g4dn.xlarge/us-west-2a/spot" in first.instances.values()
    assert [r.pool for r in first.refusals] == ["g4dn.xlarge/us-west-2a/spot"]
    assert a_pool_of("g4dn.xlarge") in world.view().pool_cooldowns


def test_a_missing_grant_stops_launching_with_its_name() -> None:
    world = ControlWorld()
    world.interfere = failing(AccessDenied("ec2:CreateFleet"), "launch", times=1)
    world.send()

    decision = world.tick()

    assert [a.outcome for a in decision.requests] == ["account"]
    assert world.tick(minutes(1)).summary.why.about["message"] == "ec2:CreateFleet"


def test_a_missing_grant_to_look_stops_no_launch() -> None:
    world = ControlWorld()
    world.interfere = failing(AccessDenied("ec2:DescribeInstances"), "instances", times=1)

    idle = world.tick()
    world.send()

    assert codes(idle) == [ReasonCode.GRANT_MISSING]
    assert world.tick().outcome is Outcome.LAUNCHED


def _answering(
    change: Callable[[LaunchAnswer], LaunchAnswer],
) -> Callable[[PortCall, Callable[[], Any]], Any]:
    """Let EC2 answer launches otherwise than it carries them out."""

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        return change(proceed()) if call.method == "launch" else proceed()

    return interfere


@pytest.mark.parametrize("strange", [{"instance_type": "g9.new"}, {"zone": ""}])
def test_an_instance_no_offer_names_costs_as_the_dearest_asked(
    strange: dict[str, Any],
) -> None:
    world = with_policy(band=0.9)
    world.interfere = _answering(
        lambda answer: replace(
            answer, instances=tuple(replace(one, **strange) for one in answer.instances)
        )
    )
    world.send()

    decision = world.tick()

    (request,) = decision.requests
    prices = {c.offer: c.price_per_hour for c in decision.candidates}
    (worker,) = world.workers()
    asked = [prices[pool] for pool in request.pools]
    alike = [prices[pool] for pool in request.pools if pool.startswith(worker.instance_type)]
    assert worker.price_per_hour == pytest.approx(max(alike or asked))
    assert worker.slots == 1


def test_an_instance_that_an_answer_names_twice_is_one() -> None:
    world = with_policy(max_workers=2, warm_workers=2)
    world.compute.set_capacity(a_pool_of("g4dn.xlarge", ZONES[0]), 1)
    world.compute.set_capacity(a_pool_of("g4dn.xlarge", ZONES[1]), 0)
    world.interfere = _answering(lambda answer: replace(answer, instances=answer.instances * 2))

    decision = world.tick()

    assert len(pools(decision)) == len(world.workers()) == 2
    assert sum(day.instances for day in world.view().spend.values()) == 2

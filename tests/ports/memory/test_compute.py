"""What EC2 does seldom and the compute in memory at will."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from threading import Thread

import pytest

from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType, InstanceType, Pool
from spindown.error import NotFound, Unreachable
from spindown.memory import MemoryClock, MemoryCompute, MemoryMarket
from spindown.port import LaunchOverride, LaunchRequest, RefusalKind

REGION = "us-east-1"
A, B = "us-east-1a", "us-east-1b"
SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
G6_A = Pool(instance_type="g6.xlarge", zone=A, capacity_type=SPOT)

_tokens = (f"token-{number}" for number in itertools.count())


@pytest.fixture
def market(clock: MemoryClock) -> MemoryMarket:
    market = MemoryMarket(clock)
    market.offer(
        InstanceType(name="g6.xlarge", vcpus=4, memory_mib=16384, architecture="x86_64"),
        region=REGION,
        zones=[A, B],
        on_demand=0.8,
        spot={A: 0.4, B: 0.3},
    )
    return market


@pytest.fixture
def compute(clock: MemoryClock, market: MemoryMarket) -> MemoryCompute:
    return MemoryCompute(clock, market)


def _request(
    *, zones: Sequence[str] = (A, B), capacity_type: CapacityType = SPOT, count: int = 1
) -> LaunchRequest:
    return LaunchRequest(
        client_token=next(_tokens),
        region=REGION,
        template=TemplateRef(id="lt-1", version="1"),
        capacity_type=capacity_type,
        overrides=tuple(
            LaunchOverride(instance_type="g6.xlarge", zone=zone, subnet_id=f"subnet-{zone}")
            for zone in zones
        ),
        count=count,
        tags={"spindown:launch": "l-1"},
    )


def _launch(compute: MemoryCompute, capacity_type: CapacityType = SPOT) -> str:
    (given,) = compute.launch(_request(zones=[A], capacity_type=capacity_type)).instances
    return given.instance_id


def _state(compute: MemoryCompute, instance_id: str) -> tuple[str, str]:
    seen = compute.instance(region=REGION, instance_id=instance_id)
    return seen.state, seen.state_reason


def test_a_dry_pool_is_refused_and_the_next_one_gives(compute: MemoryCompute) -> None:
    compute.set_capacity(G6_A, 0)
    answer = compute.launch(_request())

    assert [given.zone for given in answer.instances] == [B]
    (refusal,) = answer.refusals
    assert refusal.kind is RefusalKind.CAPACITY
    assert refusal.code == "InsufficientInstanceCapacity"
    assert (refusal.instance_type, refusal.zone) == ("g6.xlarge", A)


def test_a_pool_gives_what_it_has_and_the_next_one_the_rest(compute: MemoryCompute) -> None:
    compute.set_capacity(G6_A, 2)
    answer = compute.launch(_request(count=3))

    assert [given.zone for given in answer.instances] == [A, A, B]
    assert compute.launch(_request(zones=[A])).instances == ()
    compute.set_capacity(G6_A, None)
    assert len(compute.launch(_request(zones=[A])).instances) == 1


@pytest.mark.parametrize(
    ("capacity_type", "quota", "code"),
    [
        pytest.param(SPOT, "L-3819A6DF", "MaxSpotInstanceCountExceeded", id="spot"),
        pytest.param(ON_DEMAND, "L-DB2E81BA", "VcpuLimitExceeded", id="on-demand"),
    ],
)
def test_a_full_quota_refuses_until_an_instance_is_gone(
    clock: MemoryClock,
    market: MemoryMarket,
    capacity_type: CapacityType,
    quota: str,
    code: str,
) -> None:
    compute = MemoryCompute(clock, market, ending=MINUTE)
    market.limit(quota, 7, region=REGION)
    first = _launch(compute, capacity_type)
    request = _request(zones=[A], capacity_type=capacity_type)
    (refusal,) = compute.launch(request).refusals
    assert (refusal.kind, refusal.code) == (RefusalKind.QUOTA, code)

    compute.terminate(region=REGION, instance_ids=[first])
    assert compute.launch(replace(request, client_token=next(_tokens))).instances == ()
    clock.advance(MINUTE)
    assert len(compute.launch(replace(request, client_token=next(_tokens))).instances) == 1


def test_quotas_of_other_classes_do_not_count(compute: MemoryCompute, market: MemoryMarket) -> None:
    market.limit("L-DB2E81BA", 0, region=REGION)
    market.limit("L-7212CCBC", 0, region=REGION)
    assert _launch(compute, SPOT)


def test_what_is_not_sold_is_refused(compute: MemoryCompute, market: MemoryMarket) -> None:
    market.move_spot_price("g6.xlarge", A, None)
    market.withdraw("g6.xlarge", region=REGION, zone=B)
    answer = compute.launch(_request())

    assert answer.instances == ()
    assert [refusal.code for refusal in answer.refusals] == [
        "UnfulfillableCapacity",
        "InvalidFleetConfiguration",
    ]


def test_the_same_token_gives_the_same_answer(compute: MemoryCompute, clock: MemoryClock) -> None:
    request = _request()
    first = compute.launch(request)
    compute.set_capacity(G6_A, 0)
    clock.advance(timedelta(hours=24))

    assert compute.launch(request) == first
    assert len(compute.bills()) == 1


def test_the_same_token_with_another_request_is_a_mistake(compute: MemoryCompute) -> None:
    request = _request()
    compute.launch(request)
    (refusal,) = compute.launch(replace(request, count=2)).refusals

    assert refusal.kind is RefusalKind.ACCOUNT
    assert refusal.code == "IdempotentParameterMismatch"


def test_a_refused_token_stays_refused(compute: MemoryCompute) -> None:
    compute.set_capacity(G6_A, 0)
    request = _request(zones=[A])
    compute.launch(request)
    compute.set_capacity(G6_A, 1)

    assert compute.launch(request).instances == ()


def test_refuses_on_purpose(compute: MemoryCompute) -> None:
    compute.refuse_next(RefusalKind.UNKNOWN, "NeverHeardOf", pool=G6_A)
    compute.refuse_next(RefusalKind.THROTTLE, "RequestLimitExceeded")

    whole = compute.launch(_request())
    assert whole.instances == ()
    assert [(r.kind, r.instance_type) for r in whole.refusals] == [(RefusalKind.THROTTLE, None)]
    part = compute.launch(_request())
    assert [given.zone for given in part.instances] == [B]
    assert [(r.code, r.zone) for r in part.refusals] == [("NeverHeardOf", A)]
    assert compute.launch(_request()).refusals == ()


def test_a_lost_answer_had_its_effect_and_is_found_again(compute: MemoryCompute) -> None:
    request = _request()
    compute.lose_next_answer()
    with pytest.raises(Unreachable):
        compute.launch(request)
    (there,) = compute.instances(region=REGION, tags={"spindown:launch": "l-1"})

    assert [given.instance_id for given in compute.launch(request).instances] == [there.instance_id]


def test_a_lost_request_had_none(compute: MemoryCompute) -> None:
    compute.lose_next_answer(is_carried_out=False)
    with pytest.raises(Unreachable):
        compute.launch(_request())

    assert compute.bills() == []


def test_an_instance_appears_only_after_a_while(clock: MemoryClock, market: MemoryMarket) -> None:
    compute = MemoryCompute(clock, market, lag=timedelta(seconds=5))
    instance_id = _launch(compute)

    assert compute.instances(region=REGION, tags={}) == []
    with pytest.raises(NotFound):
        compute.instance(region=REGION, instance_id=instance_id)
    clock.advance(timedelta(seconds=5))
    assert len(compute.instances(region=REGION, tags={})) == 1


def test_the_life_of_an_instance(clock: MemoryClock, market: MemoryMarket) -> None:
    compute = MemoryCompute(clock, market, pending=MINUTE, ending=MINUTE)
    instance_id = _launch(compute)
    assert _state(compute, instance_id) == ("pending", "")
    clock.advance(MINUTE)
    assert _state(compute, instance_id) == ("running", "")
    compute.power_off(instance_id)
    assert _state(compute, instance_id) == ("shutting-down", "Client.InstanceInitiatedShutdown")
    clock.advance(MINUTE)
    assert _state(compute, instance_id) == ("terminated", "Client.InstanceInitiatedShutdown")
    clock.advance(HOUR)
    assert compute.instances(region=REGION, tags={}) == []
    assert len(compute.bills()) == 1


def test_a_reclaim_gives_notice_and_then_takes(compute: MemoryCompute, clock: MemoryClock) -> None:
    instance_id = _launch(compute)
    metadata = compute.metadata(instance_id)
    assert metadata.interruption() is None
    goes_at = compute.reclaim(instance_id)

    assert goes_at == clock.now() + 2 * MINUTE
    assert metadata.interruption() == goes_at
    assert metadata.identity().instance_id == instance_id
    assert compute.reclaimed(region=REGION, instance_ids=[instance_id]) == {instance_id}
    assert _state(compute, instance_id) == ("running", "")
    clock.advance(2 * MINUTE)
    assert _state(compute, instance_id) == ("terminated", "Server.SpotInstanceTermination")


def test_a_reclaim_without_notice_takes_at_once(compute: MemoryCompute) -> None:
    instance_id = _launch(compute)
    compute.reclaim(instance_id, notice=timedelta(0))

    assert compute.metadata(instance_id).interruption() is None
    assert _state(compute, instance_id) == ("terminated", "Server.SpotInstanceTermination")


def test_on_demand_is_never_reclaimed(compute: MemoryCompute) -> None:
    with pytest.raises(ValueError, match="i-"):
        compute.reclaim(_launch(compute, ON_DEMAND))


@pytest.mark.parametrize(
    ("runs", "end", "dollars", "is_free"),
    [
        pytest.param(90 * MINUTE, "terminate", 0.4 + 0.2, False, id="by the second"),
        pytest.param(MINUTE / 2, "terminate", 0.4 / 60, False, id="a minute at least"),
        pytest.param(59 * MINUTE, "reclaim", 0.0, True, id="reclaimed in the first hour"),
        pytest.param(HOUR, "reclaim", 0.4, False, id="reclaimed after it"),
        pytest.param(59 * MINUTE, "power off", 0.4 * 59 / 60, False, id="ended by ourselves"),
        pytest.param(30 * MINUTE, "none", 0.2, False, id="still running"),
        pytest.param(timedelta(0), "terminate", 0.0, False, id="never ran"),
    ],
)
def test_bills_what_ec2_would(
    compute: MemoryCompute,
    clock: MemoryClock,
    runs: timedelta,
    end: str,
    dollars: float,
    *,
    is_free: bool,
) -> None:
    instance_id = _launch(compute)
    clock.advance(runs)
    if end == "terminate":
        compute.terminate(region=REGION, instance_ids=[instance_id])
    elif end == "reclaim":
        compute.reclaim(instance_id, notice=timedelta(0))
    elif end == "power off":
        compute.power_off(instance_id)
    if end != "none":
        clock.advance(30 * HOUR)

    (bill,) = compute.bills()
    assert bill.dollars == pytest.approx(dollars)
    assert bill.seconds == runs.total_seconds()
    assert bill.is_free is is_free


def test_ending_it_ourselves_after_the_notice_bills_the_hour(
    compute: MemoryCompute, clock: MemoryClock
) -> None:
    instance_id = _launch(compute)
    clock.advance(30 * MINUTE)
    compute.reclaim(instance_id)
    clock.advance(MINUTE)
    compute.power_off(instance_id)
    clock.advance(HOUR)

    (bill,) = compute.bills()
    assert not bill.is_free
    assert bill.dollars == pytest.approx(0.4 * 31 / 60)


def test_each_hour_is_sold_at_the_price_of_its_beginning(
    compute: MemoryCompute, market: MemoryMarket, clock: MemoryClock
) -> None:
    _launch(compute)
    for price in (0.6, 1.0):
        clock.advance(HOUR / 2)
        market.move_spot_price("g6.xlarge", A, price)
    clock.advance(HOUR)

    (bill,) = compute.bills()
    assert bill.dollars == pytest.approx(0.4 + 1.0)


def test_volume_and_address_are_never_free(clock: MemoryClock, market: MemoryMarket) -> None:
    compute = MemoryCompute(clock, market, pending=MINUTE, extra_price_per_hour=0.06)
    instance_id = _launch(compute)
    clock.advance(HOUR / 2)
    compute.reclaim(instance_id, notice=timedelta(0))

    (bill,) = compute.bills()
    assert bill.instance_dollars == 0
    assert bill.dollars == pytest.approx(0.03)


def test_racing_launches_with_one_token_give_one_instance(compute: MemoryCompute) -> None:
    request = _request()
    threads = [Thread(target=compute.launch, args=(request,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(compute.bills()) == 1

"""The model of EC2 by itself: what its three users share, and the choices that they make."""

from datetime import timedelta

import pytest

from spindown.domain.offer import CapacityType, InstanceType, Pool
from spindown.ec2sim import (
    Agenda,
    CapacityLimit,
    Ec2,
    Ec2Fleet,
    Ec2Instance,
    EndReason,
    InstanceState,
    LaunchOrder,
    LaunchTemplate,
    Listings,
    MemoryClock,
    PriceSteps,
    Subnet,
    Turn,
)
from spindown.port import Refusal
from tests.builders import ON_DEMAND, SPOT

REGION, ZONE = "us-east-1", "us-east-1a"
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
G6 = InstanceType(name="g6.xlarge", vcpus=4, memory_mib=16384, architecture="x86_64")


def an_ec2(clock: MemoryClock, **changes: object) -> Ec2:
    """Return EC2 with one type in one zone: 0.40 USD/h as spot, 0.80 on demand."""
    listings = Listings()
    listings.offer(G6, region=REGION, zones=[ZONE])
    listings.move_spot_price(G6.name, ZONE, 0.4, at=clock.now())
    listings.move_on_demand_price(G6.name, REGION, 0.8, at=clock.now())
    ec2 = Ec2(listings=listings, now=clock.now)
    for name, value in changes.items():
        setattr(ec2, name, value)
    return ec2


def an_order(kind: CapacityType = SPOT) -> LaunchOrder:
    return LaunchOrder(
        pool=Pool(instance_type=G6.name, zone=ZONE, capacity_type=kind),
        region=REGION,
        subnet=Subnet(subnet_id="subnet-a", zone=ZONE),
        template=LaunchTemplate(template_id="lt-1", version="1"),
    )


def launched(ec2: Ec2, order: LaunchOrder) -> Ec2Instance:
    outcome = ec2.launch(order)
    assert isinstance(outcome, Ec2Instance)
    return outcome


@pytest.mark.parametrize(
    ("held_for", "dollars"),
    [
        # The first hour at 0.40, half of the second at 1.00.
        pytest.param(HOUR, 0.4 + 0.5, id="hour by hour"),
        # Half an hour at 0.40, the last hour at 1.00.
        pytest.param(timedelta(0), 0.2 + 1.0, id="as it moves"),
    ],
)
def test_a_price_holds_for_an_hour_or_until_it_moves(held_for: timedelta, dollars: float) -> None:
    clock = MemoryClock()
    ec2 = an_ec2(clock, price_held_for=held_for)
    instance = launched(ec2, an_order())
    clock.advance(HOUR / 2)
    ec2.listings.move_spot_price(G6.name, ZONE, 1.0, at=clock.now())
    clock.advance(HOUR)

    assert ec2.bill(instance).dollars == pytest.approx(dollars)


def test_prices_to_come_are_not_told_before_their_time() -> None:
    start = MemoryClock().now()
    steps = PriceSteps(((start + n * HOUR, float(n)) for n in range(1, 9)), opening=(start, 0.5))

    assert steps.at(start + 3 * HOUR) == 3.0
    assert steps.between(start + HOUR / 2, start + 2 * HOUR) == [
        (start, 0.5),
        (start + HOUR, 1.0),
        (start + 2 * HOUR, 2.0),
    ]


def test_a_stopped_instance_is_billed_to_its_stop_and_can_end() -> None:
    clock = MemoryClock()
    ec2 = an_ec2(clock, ending=MINUTE)
    instance = launched(ec2, an_order(ON_DEMAND))
    seen = []
    clock.advance(HOUR)
    ec2.power_off(instance.instance_id)
    for _ in range(2):
        seen.append(instance.state)
        clock.advance(MINUTE)
    ec2.terminate(instance.instance_id)
    for _ in range(2):
        seen.append(instance.state)
        clock.advance(MINUTE)

    assert [state.value for state in seen] == ["stopping", "stopped", "shutting-down", "terminated"]
    assert instance.reason is EndReason.TERMINATED_BY_CALL
    assert ec2.bill(instance).dollars == pytest.approx(0.8)


def test_the_limit_of_a_pool_counts_what_is_alive() -> None:
    clock = MemoryClock()
    ec2 = an_ec2(clock, capacity=lambda _: CapacityLimit(1, "Novel"))
    first = launched(ec2, an_order())
    refusal = ec2.launch(an_order())
    ec2.terminate(first.instance_id)

    assert isinstance(refusal, Refusal)
    assert refusal.code == "Novel"
    assert ec2.capacity_left(first.pool) == 1
    ec2.dry_up(first.pool, until=clock.now() + MINUTE)
    assert ec2.capacity_left(first.pool) == 0
    clock.advance(MINUTE)
    assert ec2.capacity_left(first.pool) == 1


def test_a_token_is_forgotten_after_a_day() -> None:
    clock = MemoryClock()
    ec2 = an_ec2(clock)

    def fleet() -> Ec2Fleet:
        made = ec2.create_fleet([an_order()], count=1, region=REGION, request="the same", token="t")
        assert isinstance(made, Ec2Fleet)
        return made

    first = fleet()
    clock.advance(24 * HOUR)
    assert fleet() is first
    clock.advance(MINUTE)
    assert fleet() is not first
    assert ec2.fleet(first.fleet_id) is None


def test_only_the_bill_remains_of_what_ec2_describes_no_more() -> None:
    clock = MemoryClock()
    ec2 = an_ec2(clock)
    instance = launched(ec2, an_order())
    clock.advance(HOUR)
    ec2.terminate(instance.instance_id)
    before = ec2.bills()
    clock.advance(HOUR)
    ec2.forget_past()

    assert instance.state is InstanceState.TERMINATED
    assert (ec2.instances, ec2.bills()) == ({}, before)


def test_an_agenda_follows_a_clock_and_dates_what_it_missed() -> None:
    start = MemoryClock().now()
    agenda, seen = Agenda(start), list[float]()
    for seconds in (30.0, 10.0, 90.0):
        agenda.plan_at(seconds, Turn.MARKET, lambda: seen.append(agenda.seconds))
    agenda.run_to(start + MINUTE)
    agenda.run_to(start)

    assert seen == [10.0, 30.0]
    assert agenda.now == start + MINUTE

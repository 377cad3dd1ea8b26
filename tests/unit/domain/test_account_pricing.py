"""Prices as they are for one account: discounts, and machines that are paid already."""

from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.domain.account_pricing import (
    PAID_PRICE,
    Discount,
    PaidMachines,
    Pricing,
    adjust,
    open_to_paid,
    unmatched_paid,
)
from spindown.domain.offer import CapacityType, InstanceRequirements, Offer
from spindown.domain.policy import Policy
from spindown.domain.spot_or_on_demand import price_ceilings
from tests.builders import a_type, a_worker

SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND


def an_offer(kind: CapacityType, zone: str = "us-west-2a", name: str = "g4dn.xlarge") -> Offer:
    return Offer(
        instance_type=a_type(name),
        region=zone[:-1],
        zone=zone,
        capacity_type=kind,
        instance_price=1.0 if kind is ON_DEMAND else 0.4,
        extra_price=0.02,
        on_demand_price=1.0,
    )


@pytest.mark.parametrize(
    ("discount", "spot", "on_demand"),
    [
        (Discount(multiplier=0.7), 0.28, 0.7),
        (Discount(multiplier=0.7, capacity_types=frozenset({ON_DEMAND})), 0.4, 0.7),
        (Discount(multiplier=0.7, families=frozenset({"g5"})), 0.4, 1.0),
        (Discount(multiplier=0.7, families=frozenset({"g4dn"})), 0.28, 0.7),
        (Discount(multiplier=0.7, regions=frozenset({"eu-west-1"})), 0.4, 1.0),
        (Discount(multiplier=1.2, regions=frozenset({"us-west-2"})), 0.48, 1.2),
    ],
)
def test_a_discount_holds_for_what_it_names(
    discount: Discount, spot: float, on_demand: float
) -> None:
    offers = [an_offer(SPOT), an_offer(ON_DEMAND)]

    found = adjust(offers, Pricing(discounts=(discount, Discount(multiplier=1.0))), ())

    assert [one.instance_price for one in found] == pytest.approx([spot, on_demand])
    # Spot is compared with what on-demand costs here.
    assert [one.on_demand_price for one in found] == pytest.approx([on_demand] * 2)
    assert {one.extra_price for one in found} == {0.02}


PAID = PaidMachines(instance_type="g4dn.xlarge", count=2, region="us-west-2")


@pytest.mark.parametrize(
    ("paid", "requirements", "is_matched"),
    [
        (PAID, InstanceRequirements(), True),
        (replace(PAID, zone="us-west-2a"), InstanceRequirements(), True),
        (replace(PAID, zone="us-west-2f"), InstanceRequirements(), False),
        (replace(PAID, region="us-east-1"), InstanceRequirements(), False),
        (replace(PAID, instance_type="g4dn.xlrge"), InstanceRequirements(), False),
        (PAID, InstanceRequirements(vcpus_min=64), False),
    ],
)
def test_what_is_paid_for_is_matched_by_an_offer(
    paid: PaidMachines, requirements: InstanceRequirements, is_matched: bool
) -> None:
    pricing = Pricing(paid=(paid,))

    unmatched = unmatched_paid(pricing, [an_offer(SPOT), an_offer(ON_DEMAND)], requirements)

    assert unmatched == (() if is_matched else (paid,))
    assert unmatched_paid(pricing, [an_offer(SPOT)], requirements) == (paid,)


def running(zone: str = "us-west-2a", price: float = PAID_PRICE) -> dict[str, object]:
    return {"zone": zone, "capacity_type": ON_DEMAND, "price_per_hour": 0.02 + price}


@pytest.mark.parametrize(
    ("paid", "workers", "left"),
    [
        ([PAID], [], [2, 2, 0]),
        ([PAID], [running()], [1, 1, 0]),
        # It was bought at the full price.
        ([PAID], [running(price=1.0)], [2, 2, 0]),
        ([PAID], [running()] * 2, [0, 0, 0]),
        ([replace(PAID, zone="us-west-2b")], [], [0, 2, 0]),
        ([replace(PAID, zone="us-west-2b"), PAID], [running()], [1, 3, 0]),
        ([replace(PAID, region="eu-west-1")], [], [0, 0, 0]),
        ([replace(PAID, instance_type="g5.xlarge")], [], [0, 0, 2]),
    ],
)
def test_paid_machines_cost_nothing_until_as_many_run(
    paid: list[PaidMachines], workers: list[dict[str, object]], left: list[int]
) -> None:
    offers = [
        an_offer(ON_DEMAND),
        an_offer(ON_DEMAND, "us-west-2b"),
        an_offer(ON_DEMAND, name="g5.xlarge"),
    ]
    there = [a_worker(f"i-{n}", extra_price=0.02, **one) for n, one in enumerate(workers)]

    found = adjust([*offers, an_offer(SPOT)], Pricing(paid=tuple(paid)), there)

    assert [one.paid_left for one in found] == [*left, 0]
    prices = [PAID_PRICE if count else 1.0 for count in left]
    assert [one.instance_price for one in found] == [*prices, 0.4]


def test_without_an_address_none_is_paid() -> None:
    offer = replace(an_offer(SPOT), extra_price=0.02, volume_price=0.015)

    (found,) = adjust([offer], Pricing(has_addresses=False), ())

    assert (found.extra_price, found.instance_price) == (0.015, 0.4)


def test_whatever_the_ladder_says_paid_machines_may_be_had() -> None:
    policy = Policy()
    opened = open_to_paid(policy, Pricing(paid=(PAID,)), 100)

    before = price_ceilings(policy, timedelta(0))
    after = price_ceilings(opened, timedelta(0))
    assert ON_DEMAND not in before
    assert 0.02 < after[ON_DEMAND] < 0.05
    assert after[SPOT] == before[SPOT]
    assert open_to_paid(policy, Pricing(discounts=(Discount(multiplier=0.5),)), 100) is policy
    assert open_to_paid(policy, None, 100) is policy

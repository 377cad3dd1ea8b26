"""Prices as they are for one account: its discounts, and machines whose hours are paid already.

EC2 tells list prices and spot prices. What an account pays may differ: by a private discount or a
Savings Plan (a multiplier), or since reserved instances, a Savings Plan or a capacity reservation
pay for so many machines whether they run or not (hours already paid).

What a disk and an address add to the price of a machine: ``offer``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from spindown.domain.fleet import Worker
from spindown.domain.offer import CapacityType, InstanceRequirements, Offer, extra_price_per_hour
from spindown.domain.policy import Policy, Rung
from spindown.domain.requirement import misfit

#: USD per hour that running an instance adds whose hours are paid for. Not 0: that would say that
#: no price is known.
PAID_PRICE = 1e-6
#: USD per GiB-month of gp3: no region asks for more (AWS Price List, 2026: 0.08 to 0.19).
_DEAREST_GIB = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Discount:
    """A share of EC2's price, for instances that all of its sets hold; an empty one holds all."""

    #: What is paid of a dollar.
    multiplier: float
    families: frozenset[str] = frozenset()
    regions: frozenset[str] = frozenset()
    capacity_types: frozenset[CapacityType] = frozenset()

    def holds(self, instance_type: str, region: str, capacity_type: CapacityType) -> bool:
        """Tell whether it is for such an instance."""
        return (
            (not self.families or instance_type.partition(".")[0] in self.families)
            and (not self.regions or region in self.regions)
            and (not self.capacity_types or capacity_type in self.capacity_types)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidMachines:
    """So many machines of a type at once are paid for, on demand.

    With a zone it is an open capacity reservation, or a reserved instance of a zone: EC2 gives what
    is reserved to whatever matches it first (EC2 User Guide, "On-Demand Capacity Reservations").
    """

    instance_type: str
    count: int
    region: str
    #: "": any zone of the region.
    zone: str = ""

    def holds(self, instance_type: str, region: str, zone: str) -> bool:
        """Tell whether it pays for such a machine."""
        return (instance_type, region) == (self.instance_type, self.region) and (
            not self.zone or zone == self.zone
        )

    def __str__(self) -> str:
        """Name type and place."""
        return f"{self.instance_type} in {self.zone or self.region}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing:
    """What a workload pays other than EC2's prices."""

    #: The first that holds counts.
    discounts: tuple[Discount, ...] = ()
    paid: tuple[PaidMachines, ...] = ()
    #: Whether machines have public addresses, which EC2 bills.
    has_addresses: bool = True

    def factor(self, instance_type: str, region: str, capacity_type: CapacityType) -> float:
        """Return what is paid of a dollar of EC2's price."""
        for discount in self.discounts:
            if discount.holds(instance_type, region, capacity_type):
                return discount.multiplier
        return 1.0

    def left(self, workers: Iterable[Worker]) -> Sequence[tuple[PaidMachines, int]]:
        """Return how many of the paid machines are not in use, by what they are paid by."""
        left = [one.count for one in self.paid]
        for worker in workers:
            if not worker.is_live or not _is_paid(worker):
                continue
            for number, one in enumerate(self.paid):
                is_its = one.holds(worker.instance_type, worker.region, worker.zone)
                if left[number] > 0 and is_its:
                    left[number] -= 1
                    break
        return tuple(zip(self.paid, left, strict=True))


def _is_paid(worker: Worker) -> bool:
    """Tell whether it was launched as one that is paid for; its row says at what price."""
    return (
        worker.capacity_type is CapacityType.ON_DEMAND
        and worker.price_per_hour - worker.extra_price < 2 * PAID_PRICE
    )


def adjust(offers: Iterable[Offer], pricing: Pricing, workers: Iterable[Worker]) -> list[Offer]:
    """Return the offers at what the account pays.

    Worked: g5.xlarge at 1.00 on demand and 0.40 spot, a multiplier of 0.7 on demand, one paid of
    which none runs: on demand it costs nothing more, once; with that one running, 0.70.

    Args:
        offers: at EC2's prices.
        pricing: what differs.
        workers: those of the workload that there are; some may use what is paid.
    """
    left = pricing.left(workers)
    return [_adjusted(offer, pricing, left) for offer in offers]


def _adjusted(offer: Offer, pricing: Pricing, left: Sequence[tuple[PaidMachines, int]]) -> Offer:
    if not pricing.has_addresses:
        offer = replace(offer, extra_price=offer.volume_price)
    name, region, kind = offer.instance_type.name, offer.region, offer.capacity_type
    listed = offer.on_demand_price
    found = replace(
        offer,
        instance_price=offer.instance_price * pricing.factor(name, region, kind),
        on_demand_price=None
        if listed is None
        else listed * pricing.factor(name, region, CapacityType.ON_DEMAND),
    )
    if kind is not CapacityType.ON_DEMAND:
        return found
    count = sum(count for one, count in left if one.holds(name, region, offer.zone))
    return replace(found, instance_price=PAID_PRICE, paid_left=count) if count else found


def unmatched_paid(
    pricing: Pricing, offers: Iterable[Offer], requirements: InstanceRequirements
) -> tuple[PaidMachines, ...]:
    """Return what is paid for that no offer is: a type misspelt, not sold there, or unsuitable."""
    fitting = [
        offer
        for offer in offers
        if offer.capacity_type is CapacityType.ON_DEMAND
        and misfit(offer.instance_type, requirements) is None
    ]
    return tuple(
        one
        for one in pricing.paid
        if not any(one.holds(x.instance_type.name, x.region, x.zone) for x in fitting)
    )


def open_to_paid(policy: Policy, pricing: Pricing | None, root_gib: float) -> Policy:
    """Return the policy with a last rung, open at once, for machines that are paid for.

    Whatever the ladder says of on-demand machines, these cost no more than disk and address.
    """
    if pricing is None or not pricing.paid or not policy.ladder:
        return policy
    rung = Rung(
        after=timedelta(0),
        capacity_types=frozenset({CapacityType.ON_DEMAND}),
        max_price_per_hour=extra_price_per_hour(root_gib, _DEAREST_GIB) + PAID_PRICE,
    )
    return replace(policy, ladder=(*policy.ladder, rung))

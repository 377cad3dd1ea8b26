"""EC2: who gets an instance and who is refused, what ends one, and what each costs.

Worked example of a bill: running from 10:00 to 11:30 at a spot price of $0.40 at 10:00 and
$0.60 at 11:00 costs 0.40 + 0.60 / 2 = $0.70, since an hour is sold at the price of its
beginning. Had EC2 taken the instance back before 11:00 it would have cost nothing.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from spindown.domain.notice_time import NOTICE
from spindown.domain.offer import CapacityType, InstanceType, Pool
from spindown.ec2sim.instance import (
    Ec2Instance,
    EndReason,
    InstanceState,
    LaunchOrder,
    SpotNotice,
)
from spindown.ec2sim.listing import Listings, quota_of
from spindown.port import Refusal, RefusalKind

#: EC2 remembers a ClientToken at least this long.
TOKEN_FOR = timedelta(hours=24)
#: EC2 describes a terminated instance for about this long.
DESCRIBED_FOR = timedelta(hours=1)
#: A spot instance that EC2 itself takes within this long of its start is free (AWS, "Billing
#: for interrupted Spot Instances"); any other is billed by the second, at least a minute.
FREE_WITHIN = timedelta(hours=1)
BILLED_AT_LEAST = timedelta(minutes=1)

_DRY = "InsufficientInstanceCapacity"
_HOUR = timedelta(hours=1)
_ZERO = timedelta(0)


class CapacityLimit(NamedTuple):
    """A pool holds at most so many instances at once, and refuses more with this code."""

    most: int
    code: str = _DRY


#: Returns how many instances a pool may hold now; None: it has no end.
Capacity = Callable[[Pool], CapacityLimit | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPart:
    """What came of one override of a fleet: instances, and why there are no more of them."""

    order: LaunchOrder
    instances: tuple[Ec2Instance, ...]
    refusal: Refusal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Fleet:
    """An instant fleet that was made, whatever came of it."""

    fleet_id: str
    region: str
    created_at: datetime
    #: As it was sent: the same token with another request is a mistake.
    request: object
    #: The overrides that were tried, in their order.
    parts: tuple[FleetPart, ...]
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ec2Bill:
    """What one instance costs up to now, USD."""

    instance_id: str
    pool: Pool
    #: Time run, whether charged or not.
    seconds: float
    #: Time charged.
    paid_seconds: float
    instance_dollars: float
    #: Root volume and public IPv4: never free.
    extra_dollars: float
    #: EC2 took it back within its first hour.
    is_free: bool

    @property
    def dollars(self) -> float:
        """Return the whole cost."""
        return self.instance_dollars + self.extra_dollars


@dataclass(slots=True, kw_only=True)
class Ec2:
    """The instances of an account, in every region; not safe for threads by itself."""

    listings: Listings
    now: Callable[[], datetime]
    #: Returns a fresh id with a prefix: "i", "fleet". None: ids are counted.
    new_id: Callable[[str], str] | None = None
    #: None: no pool has an end.
    capacity: Capacity | None = None
    #: How long an instance is pending.
    pending: timedelta = _ZERO
    #: How long it is shutting down, during which its quota is still used.
    ending: timedelta = _ZERO
    #: How long after its launch an instance is described for the first time.
    lag: timedelta = _ZERO
    #: How long a terminated instance is described.
    described_for: timedelta = DESCRIBED_FOR
    #: For how long a spot price holds for who buys at it: an hour, as EC2 sells it; 0: until
    #: it moves, for worlds in which an hour is played in seconds.
    price_held_for: timedelta = _HOUR
    #: USD per hour for root volume and public IPv4.
    extra_price_per_hour: float = 0.0

    #: All that EC2 has not forgotten, oldest first.
    instances: dict[str, Ec2Instance] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)
    _fleets: dict[str, Ec2Fleet] = field(default_factory=dict)
    _tokens: dict[tuple[str, str], Ec2Fleet] = field(default_factory=dict)
    _past_bills: list[Ec2Bill] = field(default_factory=list)
    #: How many more instances a pool gives.
    _left: dict[Pool, int] = field(default_factory=dict)
    _dry_until: dict[Pool, datetime] = field(default_factory=dict)
    #: None: of the whole request.
    _injected: dict[Pool | None, deque[Refusal]] = field(default_factory=dict)

    # Launching.

    def create_fleet(
        self,
        orders: Sequence[LaunchOrder],
        *,
        count: int,
        region: str,
        request: object,
        token: str = "",
        tags: Mapping[str, str] | None = None,
    ) -> Ec2Fleet | Refusal:
        """Launch instances from the orders in turn, once for each client token.

        Each order gives instances until its pool refuses, which a later order may make good.

        Args:
            orders: the overrides, in the order in which they are tried.
            count: how many instances are wanted in all.
            region: where tokens and fleets are known.
            request: compared with that of an earlier fleet of the same token.
            token: ClientToken; "": none.
            tags: of the fleet itself.
        """
        self._forget_fleets()
        earlier = self._tokens.get((region, token))
        if earlier is not None:
            return earlier if earlier.request == request else _mismatch()
        injected = self._next_injected(None)
        if injected is not None:
            return injected
        if not orders or count < 1:
            return _refuse(
                None,
                RefusalKind.ACCOUNT,
                "MissingParameter",
                "Overrides and a count of 1 are required.",
            )
        fleet_id = self._id("fleet")
        fleet = Ec2Fleet(
            fleet_id=fleet_id,
            region=region,
            created_at=self.now(),
            request=request,
            parts=tuple(self._fill(orders, count, fleet_id)),
            tags=tags or {},
        )
        self._fleets[fleet_id] = fleet
        if token:
            self._tokens[region, token] = fleet
        return fleet

    def _fill(
        self, orders: Iterable[LaunchOrder], count: int, fleet_id: str
    ) -> Iterable[FleetPart]:
        for order in orders:
            given: list[Ec2Instance] = []
            refusal: Refusal | None = None
            while len(given) < count and refusal is None:
                outcome = self.launch(order, fleet_id=fleet_id)
                if isinstance(outcome, Refusal):
                    refusal = outcome
                else:
                    given.append(outcome)
            yield FleetPart(order=order, instances=tuple(given), refusal=refusal)
            count -= len(given)
            if not count:
                return

    def fleet(self, fleet_id: str) -> Ec2Fleet | None:
        """Return a fleet of the last day."""
        return self._fleets.get(fleet_id)

    def launch(self, order: LaunchOrder, *, fleet_id: str = "") -> Ec2Instance | Refusal:
        """Launch one instance, or say why EC2 would not."""
        now, pool = self.now(), order.pool
        price = self.listings.price_at(pool, region=order.region, at=now)
        refusal = self._refusal(order, price)
        if refusal is not None:
            return refusal
        if pool in self._left:
            self._left[pool] -= 1
        tags = dict(order.tags)
        if fleet_id:
            tags["aws:ec2:fleet-id"] = fleet_id
            tags["aws:ec2launchtemplate:id"] = order.template.template_id
            tags["aws:ec2launchtemplate:version"] = order.template.version
        self._counts["launched"] += 1
        number = self._counts["launched"]
        instance = Ec2Instance(
            instance_id=self._id("i"),
            order=order,
            hardware=self.listings.types[pool.instance_type],
            tags=tags,
            clock=self.now,
            launched_at=now,
            runs_at=now + self.pending,
            ending=self.ending,
            price_per_hour=price or 0.0,
            shutdown_behaviour=order.template.shutdown_behaviour,
            private_ip=f"10.0.{number // 250 % 250}.{number % 250 + 4}",
            fleet_id=fleet_id,
        )
        self.instances[instance.instance_id] = instance
        return instance

    def _id(self, prefix: str) -> str:
        if self.new_id is not None:
            return self.new_id(prefix)
        self._counts[prefix] += 1
        return f"{prefix}-{self._counts[prefix]:017x}"

    # Refusing.

    def refuse_next(self, refusal: Refusal, *, pool: Pool | None = None, times: int = 1) -> None:
        """Refuse the next tries of a pool, or without one the next whole requests."""
        self._injected.setdefault(pool, deque()).extend([refusal] * times)

    def set_capacity(self, pool: Pool, instances: int | None) -> None:
        """Let a pool give so many more instances; None: it has no end."""
        if instances is None:
            self._left.pop(pool, None)
        else:
            self._left[pool] = instances

    def dry_up(self, pool: Pool, *, until: datetime) -> None:
        """Let a pool give nothing until an instant."""
        self._dry_until[pool] = until

    def capacity_left(self, pool: Pool) -> float:
        """Return how many more instances a pool holds now."""
        return self._room(pool)[0]

    def _room(self, pool: Pool) -> tuple[float, str]:
        """Return how many more instances a pool holds, and the code once there are none."""
        if self.now() < self._dry_until.get(pool, self.now()):
            return 0.0, _DRY
        room: float = self._left.get(pool, float("inf"))
        limit = self.capacity(pool) if self.capacity else None
        if limit is not None:
            taken = sum(one.pool == pool and one.state.is_alive for one in self.instances.values())
            if max(limit.most - taken, 0) < room:
                return max(limit.most - taken, 0), limit.code
        return room, _DRY

    def _refusal(self, order: LaunchOrder, price: float | None) -> Refusal | None:
        pool = order.pool
        injected = self._next_injected(pool)
        if injected is not None:
            return injected
        if order.template.spot_request_tags and pool.capacity_type is not CapacityType.SPOT:
            # github.com/aws/karpenter-provider-aws/issues/5850
            return _refuse(
                pool,
                RefusalKind.ACCOUNT,
                "InvalidParameterValue",
                "You cannot specify tags for Spot instances requests if there are no Spot "
                "instances requests being created by the request.",
            )
        hardware = self.listings.types.get(pool.instance_type)
        if not self._is_offered(order, hardware):
            return _refuse(
                pool,
                RefusalKind.CAPACITY,
                "InvalidFleetConfiguration",
                f"Your requested instance type ({pool.instance_type}) is not supported in your "
                f"requested Availability Zone ({pool.zone}).",
            )
        if hardware is None or price is None:
            return _refuse(
                pool,
                RefusalKind.CAPACITY,
                "UnfulfillableCapacity",
                "Unable to fulfill capacity due to your request configuration.",
            )
        if order.max_price is not None and order.max_price < price:
            return _refuse(
                pool,
                RefusalKind.CAPACITY,
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {order.max_price:g} is lower than the minimum "
                f"required Spot request fulfillment price of {price:g}.",
            )
        return self._over_quota(order, hardware.vcpus) or self._without_room(pool)

    def _is_offered(self, order: LaunchOrder, hardware: InstanceType | None) -> bool:
        name, zone = order.pool.instance_type, order.pool.zone
        is_sold_so = hardware is None or order.pool.capacity_type in hardware.capacity_types
        return is_sold_so and self.listings.is_offered(name, region=order.region, zone=zone)

    def _over_quota(self, order: LaunchOrder, vcpus: int) -> Refusal | None:
        pool = order.pool
        quota = quota_of(pool.instance_type, pool.capacity_type)
        limit = self.listings.quotas.get(order.region, {}).get(quota.code)
        if limit is None:
            return None
        # A request counts until EC2 has closed it, so an instance that has only begun to shut
        # down still blocks its own replacement.
        gone = {InstanceState.TERMINATED, InstanceState.STOPPED}
        used = sum(
            one.hardware.vcpus
            for one in self.instances.values()
            if one.region == order.region
            and one.state not in gone
            and quota_of(one.instance_type, one.capacity_type) == quota
        )
        if used + vcpus <= limit:
            return None
        if pool.capacity_type is CapacityType.SPOT:
            code, message = "MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"
        else:
            code = "VcpuLimitExceeded"
            message = (
                f"You have requested more vCPU capacity than your current vCPU limit of {limit:g} "
                "allows for the instance bucket that the specified instance type belongs to."
            )
        return _refuse(pool, RefusalKind.QUOTA, code, message)

    def _without_room(self, pool: Pool) -> Refusal | None:
        room, code = self._room(pool)
        if room >= 1:
            return None
        if code != _DRY:
            message = f"{code} is what {pool} answers now."
        elif pool.capacity_type is CapacityType.SPOT:
            message = "There is no Spot capacity available that matches your request."
        else:
            message = (
                f"We currently do not have sufficient {pool.instance_type} capacity in the "
                f"Availability Zone you requested ({pool.zone})."
            )
        return _refuse(pool, RefusalKind.CAPACITY, code, message)

    def _next_injected(self, pool: Pool | None) -> Refusal | None:
        waiting = self._injected.get(pool)
        return waiting.popleft() if waiting else None

    # Ending.

    def terminate(self, instance_id: str) -> None:
        """End an instance as TerminateInstances does; one that ends already goes on ending."""
        self.instances[instance_id].end(self.now(), EndReason.TERMINATED_BY_CALL)

    def power_off(self, instance_id: str) -> None:
        """Shut an instance down from within: EC2 terminates it or stops it.

        A one-time spot instance cannot be stopped, so it is terminated either way.
        """
        instance = self.instances[instance_id]
        if instance.is_spot or instance.shutdown_behaviour == "terminate":
            instance.end(self.now(), EndReason.POWERED_OFF)
        elif instance.state.is_alive:
            instance.stop(self.now(), EndReason.POWERED_OFF)

    def reclaim(
        self, instance_id: str, *, notice: timedelta = NOTICE, cause: str = "no-capacity"
    ) -> datetime:
        """Take a spot instance back after a notice (0: at once); return when it goes.

        Raises:
            ValueError: it is on-demand, which EC2 does not take back.
        """
        instance, now = self.instances[instance_id], self.now()
        if not instance.is_spot:
            raise ValueError(f"{instance_id} is not a spot instance")
        due_at = now + notice
        if instance.ended_at is None:
            instance.notice = SpotNotice(given_at=now, due_at=due_at, cause=cause)
            instance.end(due_at, EndReason.RECLAIMED)
        return due_at

    # Describing.

    def described(self, region: str) -> list[Ec2Instance]:
        """Return the instances of a region that EC2 describes now, oldest first."""
        now = self.now()
        return [one for one in self.instances.values() if self._is_described(one, region, now)]

    def find_described(self, instance_id: str, region: str) -> Ec2Instance | None:
        """Return an instance that EC2 describes in a region now."""
        found = self.instances.get(instance_id)
        if found is None or not self._is_described(found, region, self.now()):
            return None
        return found

    def _is_described(self, one: Ec2Instance, region: str, now: datetime) -> bool:
        return (
            one.order.region == region
            and now >= one.launched_at + self.lag
            and (one.ends_at is None or not one.is_gone(now, for_=self.described_for))
        )

    def forget_past(self) -> None:
        """Keep of instances that EC2 describes no more only their bills."""
        now, ending = self.now(), [one for one in self.instances.values() if one.ends_at]
        for instance in [one for one in ending if one.is_gone(now, for_=self.described_for)]:
            self._past_bills.append(self.bill(instance))
            del self.instances[instance.instance_id]

    def _forget_fleets(self) -> None:
        # Both keep the order in which fleets were made.
        since = self.now() - TOKEN_FOR
        while self._fleets and next(iter(self._fleets.values())).created_at < since:
            del self._fleets[next(iter(self._fleets))]
        while self._tokens and next(iter(self._tokens.values())).created_at < since:
            del self._tokens[next(iter(self._tokens))]

    # Billing.

    def bills(self) -> list[Ec2Bill]:
        """Return what every instance that ever was costs up to now."""
        return [*self._past_bills, *map(self.bill, self.instances.values())]

    def bill(self, instance: Ec2Instance) -> Ec2Bill:
        """Return what an instance costs up to now, or up to its end."""
        until = instance.ended_at or self.now()
        ran = max(until - instance.runs_at, _ZERO)
        is_free = instance.reason is EndReason.RECLAIMED and ran < FREE_WITHIN
        paid = max(ran, BILLED_AT_LEAST) if ran and not is_free else _ZERO
        prices = self.listings.prices(instance.pool, region=instance.region)
        begins, held_for = instance.runs_at, self.price_held_for
        dollars = prices.cost(begins, begins + paid, held_for=held_for) if prices and paid else 0.0
        return Ec2Bill(
            instance_id=instance.instance_id,
            pool=instance.pool,
            seconds=ran.total_seconds(),
            paid_seconds=paid.total_seconds(),
            instance_dollars=dollars,
            extra_dollars=(until - instance.launched_at) / _HOUR * self.extra_price_per_hour,
            is_free=is_free,
        )


def _refuse(pool: Pool | None, kind: RefusalKind, code: str, message: str) -> Refusal:
    return Refusal(
        kind=kind,
        code=code,
        message=message,
        instance_type=pool.instance_type if pool else None,
        zone=pool.zone if pool else None,
    )


def _mismatch() -> Refusal:
    return _refuse(
        None,
        RefusalKind.ACCOUNT,
        "IdempotentParameterMismatch",
        "Arguments on this idempotent request are inconsistent with arguments used in "
        "previous request(s).",
    )

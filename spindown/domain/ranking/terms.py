"""What one ranking works out once: per kind of GPU, per instance type, per interruption rate."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from spindown.domain.fleet import Unavailable
from spindown.domain.idle import idle_timeout
from spindown.domain.learning import (
    Knowledge,
    Throughput,
    boot_p50,
    checkpoint_cost,
    interruption_rate,
    published_rate,
    throughput,
    workload_scale,
)
from spindown.domain.offer import (
    CapacityType,
    InstanceType,
    Offer,
    Requirements,
    slot_count,
)
from spindown.domain.policy import Policy
from spindown.domain.ranking.bill import Bill, Load, Overhead, bill, charged_hours, pace
from spindown.domain.ranking.candidate import Demand, RegionBlock
from spindown.domain.ranking.ladder import price_ceilings
from spindown.domain.ranking.trial import exploration_bonus, is_worth_a_trial
from spindown.domain.requirement import misfit

_HOUR = timedelta(hours=1)
_SPOT = CapacityType.SPOT
_ON_DEMAND = CapacityType.ON_DEMAND
#: A ceiling that no price meets.
CLOSED = -math.inf
_NOWHERE: frozenset[str] = frozenset()
#: USD per hour; a hundred times the dearest instance. More is a mistake of the source.
HIGHEST_PRICE = 20_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a ranking is made for; the arguments of ``rank``."""

    demand: Demand
    knowledge: Knowledge
    policy: Policy
    requirements: Requirements
    waited: timedelta
    now: datetime
    unavailable: Iterable[Unavailable] = ()
    blocked: Mapping[str, datetime] = field(default_factory=dict)
    closed: Mapping[str, RegionBlock] = field(default_factory=dict)
    quota_left: Mapping[str, float] = field(default_factory=dict)
    headroom_per_hour: float = math.inf


@dataclass(slots=True)
class GpuTerms:
    """What all instance types with the same GPUs share in one ranking."""

    load: Load
    #: W/r, hours.
    work: float
    throughput: Throughput
    #: Charged hours per item on demand.
    on_demand: float
    #: Published share -> charged hours per item as spot; 0: too unreliable.
    spot: dict[float | None, float]


@dataclass(slots=True)
class TypeTerms:
    """What one ranking knows of one instance type."""

    kind: GpuTerms
    spot_ceiling: float
    on_demand_ceiling: float
    #: Zones and regions in which its offers need a closer look.
    watched: frozenset[str]


#: Any type that does not meet the requirements: no price is low enough, nothing is worked out.
_MISFIT = TypeTerms(
    kind=GpuTerms(
        load=Load(items_per_hour=1.0, workers=1, items=1.0, slot_items_per_hour=1.0),
        work=1.0,
        throughput=Throughput(items_per_hour=1.0, measured=False, samples=0),
        on_demand=0.0,
        spot={},
    ),
    spot_ceiling=CLOSED,
    on_demand_ceiling=CLOSED,
    watched=_NOWHERE,
)


class Terms:
    """One ranking's inputs, and what has been worked out from them."""

    def __init__(self, situation: Situation) -> None:
        policy, knowledge, now = situation.policy, situation.knowledge, situation.now
        self.situation = situation
        self.blocked = {name: until for name, until in situation.blocked.items() if until > now}
        self.dry = {
            (u.pool.instance_type, u.pool.zone, u.pool.capacity_type): u
            for u in situation.unavailable
            if u.until > now
        }
        self.records = {
            (pool.instance_type, pool.zone): record
            for pool, record in knowledge.pools.items()
            if pool.capacity_type is _SPOT
        }
        self.zones_watched: dict[str, frozenset[str]] = {}
        for name, zone, *_ in (*self.dry, *self.records):
            self.zones_watched[name] = self.zones_watched.get(name, _NOWHERE) | {zone}
        self.ceilings = price_ceilings(policy, situation.waited)
        most = min(situation.headroom_per_hour, HIGHEST_PRICE)
        self.spot_ceiling = min(most, self.ceilings.get(_SPOT, CLOSED))
        self.on_demand_ceiling = min(most, self.ceilings.get(_ON_DEMAND, CLOSED))
        self.scale = workload_scale(knowledge, policy)
        self.overhead = Overhead(
            boot=boot_p50(knowledge, policy) / _HOUR,
            idle=idle_timeout(knowledge, policy) / _HOUR,
            checkpoint=checkpoint_cost(knowledge) / _HOUR,
            policy=policy,
        )
        self.rest = self.overhead.boot + self.overhead.idle
        least = policy.min_reliability
        #: A pool with more interruptions an hour is not reliable enough.
        self.rate_at_most = -math.log(least) if least > 0.0 else math.inf
        #: Published share -> rate.
        self.rates: dict[float | None, float] = {}
        #: Rate -> F, as long as it is the same for every kind of GPU.
        self.paces: dict[float, tuple[float, float]] = {}
        self.kinds: dict[tuple[str, float, int], GpuTerms] = {}
        self.types: dict[str, TypeTerms] = {}
        #: Type, region and capacity type -> what is left of a quota that is too full for it.
        self.short: dict[tuple[str, str, CapacityType], float | None] = {}

    def type_of(self, instance_type: InstanceType) -> TypeTerms:
        """Return what is known of a type, worked out at its first offer."""
        known = self.types.get(instance_type.name)
        if known is None:
            known = self.types[instance_type.name] = self._look_at(instance_type)
        return known

    def _look_at(self, instance_type: InstanceType) -> TypeTerms:
        situation = self.situation
        if misfit(instance_type, situation.requirements) is not None:
            return _MISFIT
        gpus = instance_type.gpu_count
        key = (instance_type.gpu_name, gpus, 0 if gpus > 0.0 else instance_type.vcpus)
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = self._kind_of(instance_type)
        spot, on_demand = self.spot_ceiling, self.on_demand_ceiling
        per_gpu = situation.policy.max_price_per_gpu_hour
        if per_gpu is not None and gpus > 0.0:
            spot, on_demand = min(spot, per_gpu * gpus), min(on_demand, per_gpu * gpus)
        return TypeTerms(
            kind=kind,
            spot_ceiling=spot,
            on_demand_ceiling=on_demand,
            watched=self._watched(instance_type),
        )

    def _watched(self, instance_type: InstanceType) -> frozenset[str]:
        zones = self.zones_watched.get(instance_type.name, _NOWHERE)
        left = self.situation.quota_left
        short = [name for name, vcpus in left.items() if vcpus < instance_type.vcpus]
        if not self.blocked and not self.situation.closed and not short:
            return zones
        regions = (name.partition("/")[0] for name in (*self.blocked, *short))
        return zones.union(regions, self.situation.closed)

    def vcpus_short(self, offer: Offer) -> float | None:
        """Return what is left of an offer's quota if that is too little for it, else None."""
        key = (offer.instance_type.name, offer.region, offer.capacity_type)
        if key not in self.short:
            left = self.situation.quota_left.get(offer.quota_class, math.inf)
            self.short[key] = left if left < offer.instance_type.vcpus else None
        return self.short[key]

    def _kind_of(self, instance_type: InstanceType) -> GpuTerms:
        expected = throughput(
            self.situation.knowledge, instance_type, self.situation.policy, scale=self.scale
        )
        slots = slot_count(instance_type.gpu_count, self.situation.knowledge.slots)
        is_tried = self.situation.demand.slots <= 1 and is_worth_a_trial(
            self.situation.knowledge, instance_type, expected
        )
        if is_tried:
            hoped = expected.items_per_hour * exploration_bonus(self.situation.knowledge)
            expected = replace(expected, items_per_hour=hoped)
        load = load_of(self.situation.demand, expected.items_per_hour, slots)
        if is_tried:
            load = replace(load, workers=1)
        kind = GpuTerms(
            load=load, work=load.work_hours, throughput=expected, on_demand=0.0, spot={}
        )
        kind.on_demand = self._hours_per_item(kind, 0.0)
        return kind

    def bill_of(self, load: Load, rate: float) -> Bill:
        """Return the hours of a worker under a rate of interruptions."""
        return bill(load, self.overhead, rate, self._pace(load, rate))

    def published(self, kind: GpuTerms, share: float | None) -> float:
        """Return charged hours per item as spot in a pool that we know nothing of ourselves."""
        hours = kind.spot.get(share)
        if hours is None:
            rate = self.rates.get(share)
            if rate is None:
                rate = self.rates[share] = published_rate(share)
            hours = kind.spot[share] = self._hours_per_item(kind, rate)
        return hours

    def _hours_per_item(self, kind: GpuTerms, rate: float) -> float:
        if rate > self.rate_at_most:
            return 0.0
        factors = self._pace(kind.load, rate)
        return charged_hours(kind.work, self.rest, rate, factors) / kind.load.items

    def _pace(self, load: Load, rate: float) -> tuple[float, float]:
        factors = self.paces.get(rate)
        if factors is None:
            factors = pace(load, self.overhead, rate)
            if self.overhead.policy.checkpoint_items is None:
                self.paces[rate] = factors
        return factors

    def rate_of(self, offer: Offer) -> float:
        """Return the interruptions per hour to expect of an offer."""
        if offer.capacity_type is _ON_DEMAND:
            return 0.0
        record = self.records.get((offer.instance_type.name, offer.zone))
        return interruption_rate(record, offer.reclaim_share)

    def transfer(self, offer: Offer) -> float:
        """Return USD per item for what crosses regions."""
        demand = self.situation.demand
        inbound = offer.inbound_price_per_gib * demand.gib_in_per_item
        return inbound + offer.outbound_price_per_gib * demand.gib_out_per_item

    def closer(self, offer: Offer, kind: GpuTerms) -> float:
        """Return charged hours per item of a watched offer; 0: not now."""
        name, situation = offer.instance_type.name, self.situation
        if (
            (name, offer.zone, offer.capacity_type) in self.dry
            or offer.region in situation.closed
            or (self.blocked and offer.quota_class in self.blocked)
            or (situation.quota_left and self.vcpus_short(offer) is not None)
        ):
            return 0.0
        if offer.capacity_type is _ON_DEMAND:
            return kind.on_demand
        if (name, offer.zone) not in self.records:
            return self.published(kind, offer.reclaim_share)
        return self._hours_per_item(kind, self.rate_of(offer))


def load_of(demand: Demand, items_per_hour: float, slots: int) -> Load:
    """Return how many workers of a throughput share the backlog, and the items of each.

    n = min(jobs, ceil(need / r)), W = max(backlog left / n, one job's items). An instance with
    several slots takes as many jobs at once: n counts instances, and with fewer jobs than slots
    only that share of its throughput is of use. ``demand.slots`` are wanted however fast they are.
    """
    jobs = max(1, demand.jobs)
    useful = items_per_hour * min(1.0, jobs / slots)
    needed = math.ceil(demand.need_items_per_hour / useful)
    needed = max(1, needed, math.ceil(demand.slots / slots))
    workers = min(math.ceil(jobs / slots), needed)
    return Load(
        items_per_hour=useful,
        workers=workers,
        items=max(demand.backlog_items / workers, demand.items_per_job, 1.0),
        slot_items_per_hour=items_per_hour / slots,
    )

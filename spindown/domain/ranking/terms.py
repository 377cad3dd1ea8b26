"""What one ranking works out once: per processor, per instance type, per interruption rate.

The hours that an item takes come from ``charged_hours``; ``candidate_list`` multiplies them by the
price of each offer.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

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
from spindown.domain.machine_count import Load, share_work
from spindown.domain.offer import (
    VCPU,
    CapacityType,
    InstanceRequirements,
    InstanceType,
    Offer,
    slot_count,
)
from spindown.domain.policy import Policy
from spindown.domain.pool_cooldown import PoolCooldown
from spindown.domain.ranking.candidate import RegionBlock
from spindown.domain.ranking.charged_hours import (
    Overhead,
    WorkerHours,
    charged_hours,
    pace,
    worker_hours,
)
from spindown.domain.ranking.exploration import exploration_bonus, is_worth_a_trial
from spindown.domain.reason import Reason
from spindown.domain.relative_throughput import relative_throughput
from spindown.domain.requirement import misfit
from spindown.domain.schedule import Demand
from spindown.domain.spot_or_on_demand import price_ceilings

_HOUR = timedelta(hours=1)
_SPOT = CapacityType.SPOT
_ON_DEMAND = CapacityType.ON_DEMAND
#: A ceiling that no price meets.
CLOSED = -math.inf
_NOWHERE: frozenset[str] = frozenset()
#: USD per hour; a hundred times the most expensive instance. More is a mistake of the source.
HIGHEST_PRICE = 20_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What a ranking is made for; the arguments of ``rank``."""

    demand: Demand
    knowledge: Knowledge
    policy: Policy
    requirements: InstanceRequirements
    waited: timedelta
    now: datetime
    pool_cooldowns: Iterable[PoolCooldown] = ()
    blocked: Mapping[str, datetime] = field(default_factory=dict)
    closed: Mapping[str, RegionBlock] = field(default_factory=dict)
    quota_left: Mapping[str, float] = field(default_factory=dict)
    headroom_per_hour: float = math.inf


@dataclass(slots=True)
class ProcessorTerms:
    """What one ranking knows of all instance types with the same GPUs, or the same vCPUs."""

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

    kind: ProcessorTerms
    spot_ceiling: float
    on_demand_ceiling: float
    #: Zones and regions in which its offers need a closer look.
    watched: frozenset[str]


#: Stands for any type that does not meet the requirements: no price is low enough for it.
_MISFIT = TypeTerms(
    kind=ProcessorTerms(
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
        self.cooldowns = {
            (x.pool.instance_type, x.pool.zone, x.pool.capacity_type): x
            for x in situation.pool_cooldowns
            if x.is_active(now)
        }
        self.records = {
            (pool.instance_type, pool.zone): record
            for pool, record in knowledge.pools.items()
            if pool.capacity_type is _SPOT
        }
        self.zones_watched: dict[str, frozenset[str]] = {}
        for name, zone, *_ in (*self.cooldowns, *self.records):
            self.zones_watched[name] = self.zones_watched.get(name, _NOWHERE) | {zone}
        self.ladder = price_ceilings(policy, situation.waited)
        #: GPUs -> the lowest ceiling as spot, and on demand.
        self.lowest: dict[float, tuple[float, float]] = {}
        self.scale = workload_scale(knowledge, policy)
        self.bonus = exploration_bonus(knowledge)
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
        #: Rate -> F, as long as it is the same for every processor.
        self.paces: dict[float, tuple[float, float]] = {}
        self.kinds: dict[tuple[str, float, float], ProcessorTerms] = {}
        #: What the workload has run on, or runs on.
        self.known_names = {name for name, _ in (*knowledge.throughput, *knowledge.alive)}
        self.types: dict[str, TypeTerms] = {}
        self.misfits: dict[str, Reason] = {}
        #: Type, region and capacity type -> what is left of a quota that is too full for it.
        self.short: dict[tuple[str, str, CapacityType], float | None] = {}

    def type_of(self, instance_type: InstanceType) -> TypeTerms:
        """Return what is known of a type, worked out at its first offer."""
        known = self.types.get(instance_type.name)
        if known is None:
            known = self.types[instance_type.name] = self._look_at(instance_type)
        return known

    def misfit_of(self, instance_type: InstanceType) -> Reason | None:
        """Return the first requirement that a type does not meet; None when it fits."""
        self.type_of(instance_type)
        return self.misfits.get(instance_type.name)

    def _look_at(self, instance_type: InstanceType) -> TypeTerms:
        situation = self.situation
        unfit = misfit(instance_type, situation.requirements)
        if unfit is not None:
            self.misfits[instance_type.name] = unfit
            return _MISFIT
        key = self._key_of(instance_type)
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = self._kind_of(instance_type)
        gpus = instance_type.gpu_count
        spot_ceiling, on_demand_ceiling = self.lowest.get(gpus) or self._lowest_ceilings(gpus)
        return TypeTerms(
            kind=kind,
            spot_ceiling=spot_ceiling,
            on_demand_ceiling=on_demand_ceiling,
            watched=self._watched(instance_type),
        )

    def _key_of(self, instance_type: InstanceType) -> tuple[str, float, float]:
        """Return what all types with the same throughput have in common.

        Families without a GPU of which nothing is known differ by their prior alone. So hundreds of
        types share a few dozen values.
        """
        name, count = instance_type.gpu_name, instance_type.gpu_count
        if name or count > 0.0:
            return name, count, 0.0 if count > 0.0 else float(instance_type.vcpus)
        name, count = instance_type.processor
        if name in self.known_names:
            return name, count, 0.0
        return VCPU, 0.0, relative_throughput(name, count)

    def ceilings(self, capacity_type: CapacityType, gpus: float) -> Mapping[str, float]:
        """Return all ceilings of the whole price by name, in order of precedence."""
        policy = self.situation.policy
        found = {"price": HIGHEST_PRICE, "max_price_per_hour": policy.max_price_per_hour}
        if policy.max_price_per_gpu_hour is not None and gpus > 0.0:
            found["max_price_per_gpu_hour"] = policy.max_price_per_gpu_hour * gpus
        found["max_dollars_per_hour"] = self.situation.headroom_per_hour
        found["ladder"] = self.ladder.get(capacity_type, CLOSED)
        return found

    def _lowest_ceilings(self, gpus: float) -> tuple[float, float]:
        spot, on_demand = (min(self.ceilings(x, gpus).values()) for x in (_SPOT, _ON_DEMAND))
        self.lowest[gpus] = spot, on_demand
        return spot, on_demand

    def _watched(self, instance_type: InstanceType) -> frozenset[str]:
        zones, situation = self.zones_watched.get(instance_type.name, _NOWHERE), self.situation
        if not (self.blocked or situation.closed or situation.quota_left):
            return zones
        short = [n for n, vcpus in situation.quota_left.items() if vcpus < instance_type.vcpus]
        regions = (name.partition("/")[0] for name in (*self.blocked, *short))
        return zones.union(regions, situation.closed)

    def block_of(self, offer: Offer) -> RegionBlock | None:
        """Return why nothing is asked for in an offer's region, if so."""
        return self.situation.closed.get(offer.region)

    def cooldown_of(self, offer: Offer) -> PoolCooldown | None:
        """Return the cooldown of an offer's pool; None: it may be asked."""
        return self.cooldowns.get((offer.instance_type.name, offer.zone, offer.capacity_type))

    def quota_blocked_until(self, offer: Offer) -> datetime | None:
        """Return until when nothing of an offer's quota class is asked for, if so."""
        return self.blocked.get(offer.quota_class) if self.blocked else None

    def vcpus_short(self, offer: Offer) -> float | None:
        """Return what is left of an offer's quota if that is too little for it, else None."""
        if not self.situation.quota_left:
            return None
        key = (offer.instance_type.name, offer.region, offer.capacity_type)
        if key not in self.short:
            left = self.situation.quota_left.get(offer.quota_class, math.inf)
            self.short[key] = left if left < offer.instance_type.vcpus else None
        return self.short[key]

    def _kind_of(self, instance_type: InstanceType) -> ProcessorTerms:
        expected = throughput(
            self.situation.knowledge, instance_type, self.situation.policy, scale=self.scale
        )
        slots = slot_count(instance_type.gpu_count, self.situation.knowledge.slots)
        is_tried = self.situation.demand.slots <= 1 and is_worth_a_trial(
            self.situation.knowledge, instance_type, expected
        )
        if is_tried:
            expected = Throughput(
                items_per_hour=expected.items_per_hour * self.bonus,
                measured=expected.measured,
                samples=expected.samples,
            )
        load = share_work(self.situation.demand, expected.items_per_hour, slots, is_tried=is_tried)
        kind = ProcessorTerms(
            load=load, work=load.work_hours, throughput=expected, on_demand=0.0, spot={}
        )
        kind.on_demand = self._hours_per_item(kind, 0.0)
        return kind

    def hours_of(self, load: Load, rate: float) -> WorkerHours:
        """Return the hours of a worker under a rate of interruptions."""
        return worker_hours(load, self.overhead, rate, self._pace(load, rate))

    def published(self, kind: ProcessorTerms, share: float | None) -> float:
        """Return charged hours per item as spot in a pool without measurements of its own."""
        hours = kind.spot.get(share)
        if hours is None:
            rate = self.rates.get(share)
            if rate is None:
                rate = self.rates[share] = published_rate(share)
            hours = kind.spot[share] = self._hours_per_item(kind, rate)
        return hours

    def _hours_per_item(self, kind: ProcessorTerms, rate: float) -> float:
        if rate > self.rate_at_most:
            return 0.0
        factors = self.paces.get(rate) or self._pace(kind.load, rate)
        return charged_hours(kind.work, self.rest, rate, factors) / kind.load.items

    def _pace(self, load: Load, rate: float) -> tuple[float, float]:
        factors = self.paces.get(rate)
        if factors is None:
            factors = pace(load, self.overhead, rate)
            if self.overhead.policy.checkpoint_items is None:
                self.paces[rate] = factors
        return factors

    def is_too_unreliable(self, rate: float) -> bool:
        """Tell whether so many interruptions an hour are more than ``min_reliability`` allows."""
        return rate > self.rate_at_most

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

    def closer(self, offer: Offer, kind: ProcessorTerms) -> float:
        """Return charged hours per item of a watched offer; 0: not now."""
        if (
            self.cooldown_of(offer) is not None
            or self.block_of(offer) is not None
            or self.quota_blocked_until(offer) is not None
            or self.vcpus_short(offer) is not None
        ):
            return 0.0
        if offer.capacity_type is _ON_DEMAND:
            return kind.on_demand
        if (offer.instance_type.name, offer.zone) not in self.records:
            return self.published(kind, offer.reclaim_share)
        return self._hours_per_item(kind, self.rate_of(offer))

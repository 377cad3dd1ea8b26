"""What one ranking works out once: per kind of GPU, per instance type, per interruption rate."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spindown.domain.fleet import Unavailable
from spindown.domain.idle import idle_timeout
from spindown.domain.learning import (
    Knowledge,
    Throughput,
    boot_p50,
    checkpoint_cost,
    interruption_rate,
    throughput,
    workload_scale,
)
from spindown.domain.offer import (
    CapacityType,
    InstanceType,
    Offer,
    Requirements,
    misfit,
    slot_count,
)
from spindown.domain.policy import Policy
from spindown.domain.ranking.bill import Bill, Load, bill
from spindown.domain.ranking.candidate import Demand
from spindown.domain.ranking.ladder import price_ceilings

_HOUR = timedelta(hours=1)
_SPOT = CapacityType.SPOT
_ON_DEMAND = CapacityType.ON_DEMAND
#: A ceiling that no price meets.
_CLOSED = -math.inf
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
    headroom_per_hour: float = math.inf


@dataclass(slots=True)
class _Kind:
    """What all instance types with the same GPUs share in one ranking."""

    load: Load
    throughput: Throughput
    #: Charged hours per item on demand.
    on_demand: float
    #: Published share -> charged hours per item as spot; 0: too unreliable.
    spot: dict[float | None, float]


@dataclass(slots=True)
class _Type:
    """What one ranking knows of one instance type."""

    kind: _Kind
    spot_ceiling: float
    on_demand_ceiling: float
    spot: dict[float | None, float]
    on_demand: float
    #: Whether a pool of it needs a closer look.
    watched: bool


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
        self.watched = {key[0] for key in self.dry} | {key[0] for key in self.records}
        self.ceilings = price_ceilings(policy, situation.waited)
        self.scale = workload_scale(knowledge, policy)
        self.boot = boot_p50(knowledge, policy) / _HOUR
        self.idle = idle_timeout(knowledge, policy) / _HOUR
        self.checkpoint = checkpoint_cost(knowledge) / _HOUR
        self.kinds: dict[tuple[str, float, int], _Kind] = {}
        self.types: dict[str, _Type] = {}

    def type_of(self, instance_type: InstanceType) -> _Type:
        """Return what is known of a type, worked out at its first offer."""
        known = self.types.get(instance_type.name)
        if known is None:
            known = self.types[instance_type.name] = self._look_at(instance_type)
        return known

    def _look_at(self, instance_type: InstanceType) -> _Type:
        gpus = instance_type.gpu_count
        key = (instance_type.gpu_name, gpus, 0 if gpus > 0.0 else instance_type.vcpus)
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = self._kind_of(instance_type)
        spot = on_demand = _CLOSED
        if misfit(instance_type, self.situation.requirements) is None:
            per_gpu = self.situation.policy.max_price_per_gpu_hour
            most = math.inf if per_gpu is None or gpus <= 0.0 else per_gpu * gpus
            most = min(most, self.situation.headroom_per_hour, HIGHEST_PRICE)
            spot = min(most, self.ceilings.get(_SPOT, _CLOSED))
            on_demand = min(most, self.ceilings.get(_ON_DEMAND, _CLOSED))
        return _Type(
            kind=kind,
            spot_ceiling=spot,
            on_demand_ceiling=on_demand,
            spot=kind.spot,
            on_demand=kind.on_demand,
            watched=bool(self.blocked) or instance_type.name in self.watched,
        )

    def _kind_of(self, instance_type: InstanceType) -> _Kind:
        expected = throughput(
            self.situation.knowledge, instance_type, self.situation.policy, scale=self.scale
        )
        slots = slot_count(instance_type.gpu_count, self.situation.knowledge.slots)
        load = load_of(self.situation.demand, expected.items_per_hour, slots)
        hours = self.bill_of(load, 0.0).charged
        return _Kind(load=load, throughput=expected, on_demand=hours / load.items, spot={})

    def bill_of(self, load: Load, rate: float) -> Bill:
        """Return the hours of a worker under a rate of interruptions."""
        return bill(
            load,
            rate=rate,
            boot=self.boot,
            idle=self.idle,
            checkpoint=self.checkpoint,
            policy=self.situation.policy,
        )

    def published(self, kind: _Kind, share: float | None) -> float:
        """Return charged hours per item as spot in a pool that we know nothing of ourselves."""
        hours = self._hours_per_item(kind, interruption_rate(None, share))
        kind.spot[share] = hours
        return hours

    def _hours_per_item(self, kind: _Kind, rate: float) -> float:
        if math.exp(-rate) < self.situation.policy.min_reliability:
            return 0.0
        return self.bill_of(kind.load, rate).charged / kind.load.items

    def rate_of(self, offer: Offer) -> float:
        """Return the interruptions per hour to expect of an offer."""
        if offer.capacity_type is _ON_DEMAND:
            return 0.0
        record = self.records.get((offer.instance_type.name, offer.zone))
        return interruption_rate(record, offer.reclaim_share)

    def closer(self, offer: Offer, kind: _Kind) -> float:
        """Return charged hours per item of a watched offer; 0: not now."""
        name = offer.instance_type.name
        if (name, offer.zone, offer.capacity_type) in self.dry:
            return 0.0
        if self.blocked and offer.quota_class in self.blocked:
            return 0.0
        if offer.capacity_type is _ON_DEMAND:
            return kind.on_demand
        return self._hours_per_item(kind, self.rate_of(offer))


def load_of(demand: Demand, items_per_hour: float, slots: int) -> Load:
    """Return how many workers of a throughput share the backlog, and the items of each.

    n = min(jobs, ceil(need / r)), W = max(backlog left / n, one job's items). An instance with
    several slots takes as many jobs at once: n counts instances, and with fewer jobs than slots
    only that share of its throughput is of use.
    """
    jobs = max(1, demand.jobs)
    useful = items_per_hour * min(1.0, jobs / slots)
    needed = max(1, math.ceil(demand.need_items_per_hour / useful))
    workers = min(math.ceil(jobs / slots), needed)
    return Load(
        items_per_hour=useful,
        workers=workers,
        items=max(demand.backlog_items / workers, demand.items_per_job, 1.0),
        slot_items_per_hour=items_per_hour / slots,
    )

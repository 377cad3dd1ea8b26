"""Score every offer in one pass, and explain the result on demand.

A few operations an offer; what costs time is done once per kind of GPU (throughput, workers,
items of each) and rate of interruption. Candidates with their cost parts, and rejections with
their reasons, are built only when somebody asks for them.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import overload

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
from spindown.domain.policy import Policy, RankBy, Rung
from spindown.domain.ranking.bill import Bill, Load, bill
from spindown.domain.ranking.candidate import Candidate, CostParts, Demand, Rejection

_HOUR = timedelta(hours=1)
_SPOT = CapacityType.SPOT
_ON_DEMAND = CapacityType.ON_DEMAND
#: A ceiling that no price meets.
_CLOSED = -math.inf


def rank(
    offers: Sequence[Offer],
    *,
    demand: Demand,
    knowledge: Knowledge,
    unavailable: Iterable[Unavailable] = (),
    blocked: Mapping[str, datetime] | None = None,
    policy: Policy,
    requirements: Requirements,
    waited: timedelta,
    now: datetime,
    headroom_per_hour: float | None = None,
) -> "CandidateList":
    """Return every offer that may be bought now, cheapest item first.

    Args:
        offers: all that is on sale, best in the order of ``build_offers``.
        demand: what is wanted.
        knowledge: what the workload has shown.
        unavailable: pools to leave alone until their time has passed.
        blocked: quota class -> until when nothing of it is asked for.
        policy: ceilings, ladder, reliability, and what to sort by.
        requirements: what an instance must have.
        waited: how long the backlog has been waiting.
        now: the present.
        headroom_per_hour: USD that the fleet may still grow by; None: no such cap.
    """
    context = _Context(
        demand=demand,
        knowledge=knowledge,
        unavailable=unavailable,
        blocked=blocked or {},
        policy=policy,
        requirements=requirements,
        waited=waited,
        now=now,
        headroom=headroom_per_hour,
    )
    return CandidateList(offers, context)


def open_rungs(policy: Policy, waited: timedelta) -> tuple[Rung, ...]:
    """Return the rungs of the price ladder that have been reached.

    Once ``start_within`` has passed, all of them: the promise comes before the ladder.
    """
    if waited >= policy.start_within:
        return policy.ladder
    return tuple(rung for rung in policy.ladder if rung.after <= waited)


def price_ceilings(policy: Policy, waited: timedelta) -> dict[CapacityType, float]:
    """Return the highest whole price in force by capacity type; a missing one is not open.

    Rungs add up: what was open once stays open while the same work waits.
    """
    if not policy.ladder:
        return dict.fromkeys(CapacityType, policy.max_price_per_hour)
    found: dict[CapacityType, float] = {}
    for rung in open_rungs(policy, waited):
        own = math.inf if rung.max_price_per_hour is None else rung.max_price_per_hour
        for capacity_type in rung.capacity_types:
            ceiling = min(own, policy.max_price_per_hour)
            found[capacity_type] = max(found.get(capacity_type, ceiling), ceiling)
    return found


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


class _Context:
    """One ranking's inputs, and what has been worked out from them."""

    def __init__(
        self,
        *,
        demand: Demand,
        knowledge: Knowledge,
        unavailable: Iterable[Unavailable],
        blocked: Mapping[str, datetime],
        policy: Policy,
        requirements: Requirements,
        waited: timedelta,
        now: datetime,
        headroom: float | None,
    ) -> None:
        self.demand = demand
        self.knowledge = knowledge
        self.policy = policy
        self.requirements = requirements
        self.waited = waited
        self.now = now
        self.headroom = math.inf if headroom is None else headroom
        self.blocked = {name: until for name, until in blocked.items() if until > now}
        self.dry = {
            (u.pool.instance_type, u.pool.zone, u.pool.capacity_type): u
            for u in unavailable
            if u.until > now
        }
        self.records = {
            (pool.instance_type, pool.zone): record
            for pool, record in knowledge.pools.items()
            if pool.capacity_type is _SPOT
        }
        self.watched = {key[0] for key in self.dry} | {key[0] for key in self.records}
        self.ceilings = price_ceilings(policy, waited)
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
        if misfit(instance_type, self.requirements) is None:
            per_gpu = self.policy.max_price_per_gpu_hour
            most = math.inf if per_gpu is None or gpus <= 0.0 else per_gpu * gpus
            most = min(most, self.headroom)
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
        expected = throughput(self.knowledge, instance_type, self.policy, scale=self.scale)
        slots = slot_count(instance_type.gpu_count, self.knowledge.slots)
        load = load_of(self.demand, expected.items_per_hour, slots)
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
            policy=self.policy,
        )

    def published(self, kind: _Kind, share: float | None) -> float:
        """Return charged hours per item as spot in a pool that we know nothing of ourselves."""
        hours = self._hours_per_item(kind, interruption_rate(None, share))
        kind.spot[share] = hours
        return hours

    def _hours_per_item(self, kind: _Kind, rate: float) -> float:
        if math.exp(-rate) < self.policy.min_reliability:
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


class CandidateList(Sequence[Candidate]):
    """One ranking: the candidates in order, and every other offer with its reason.

    Reading the first few costs little; ``candidates`` and ``rejected`` build all of them once.
    """

    def __init__(self, offers: Sequence[Offer], context: _Context) -> None:
        self._offers = offers
        self._context = context
        #: Index of each candidate among the offers, and beside it what it is sorted by.
        self._indices: list[int] = []
        self._metrics: list[float] = []
        self._score()
        if context.policy.rank_by is RankBy.PRICE:
            # Of equal prices the cheaper item comes first.
            self._metrics = [
                (self._offers[i].price, cost)  # type: ignore[misc]
                for i, cost in zip(self._indices, self._metrics, strict=True)
            ]

    def _score(self) -> None:
        context = self._context
        types, gib = context.types, context.demand.gib_per_item
        add_index, add_metric = self._indices.append, self._metrics.append
        for index, offer in enumerate(self._offers):
            instance_type = offer.instance_type
            known = types.get(instance_type.name) or context.type_of(instance_type)
            alone = offer.instance_price
            price = alone + offer.extra_price
            if offer.capacity_type is _SPOT:
                if not price <= known.spot_ceiling:
                    continue
                on_demand = offer.on_demand_price
                if on_demand is not None and alone > on_demand:
                    continue
                share = offer.reclaim_share
                if share in known.spot:
                    hours = known.spot[share]
                else:
                    hours = context.published(known.kind, share)
            elif price <= known.on_demand_ceiling:
                hours = known.on_demand
            else:
                continue
            if known.watched:
                hours = context.closer(offer, known.kind)
            if hours > 0.0 and alone > 0.0:
                add_index(index)
                add_metric(
                    price * hours + offer.transfer_price_per_gib * gib if gib else price * hours
                )

    @cached_property
    def _order(self) -> list[int]:
        metrics = self._metrics
        return sorted(range(len(metrics)), key=metrics.__getitem__)

    def top(self, count: int) -> tuple[Candidate, ...]:
        """Return the first candidates without sorting the rest."""
        metrics = self._metrics
        best = heapq.nsmallest(count, range(len(metrics)), key=metrics.__getitem__)
        return tuple(self._candidate(self._offers[self._indices[at]]) for at in best)

    @property
    def best(self) -> Candidate | None:
        """Return the first candidate; None when nothing may be bought."""
        return next(iter(self.top(1)), None)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return all candidates in order."""
        return tuple(self._candidate(self._offers[self._indices[at]]) for at in self._order)

    @cached_property
    def rejected(self) -> tuple[Rejection, ...]:
        """Return all other offers with the first constraint that rules each out."""
        taken = set(self._indices)
        return tuple(
            rejection
            for index, offer in enumerate(self._offers)
            if index not in taken
            for rejection in [self._rejection(offer)]
        )

    @property
    def nearest(self) -> Rejection | None:
        """Return the rejection that is closest to being taken, to say so when nothing fits.

        Of the offers that meet the requirements: the one that comes back soonest, else the
        cheapest.
        """
        fitting = [r for r in self.rejected if r.constraint not in _REQUIREMENTS]
        return min(
            fitting,
            key=lambda r: (r.retry_at is None, r.retry_at or self._context.now, r.offer.price),
            default=None,
        )

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.candidates[index]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    def _candidate(self, offer: Offer) -> Candidate:
        context = self._context
        kind = context.type_of(offer.instance_type).kind
        rate = context.rate_of(offer)
        hours = context.bill_of(kind.load, rate)
        usd = offer.price / kind.load.items
        parts = CostParts(
            work=usd * hours.work,
            boot=usd * hours.boot,
            redo=usd * hours.redo,
            idle=usd * hours.idle,
            refund=usd * hours.refund,
            transfer=offer.transfer_price_per_gib * context.demand.gib_per_item,
        )
        return Candidate(
            offer=offer,
            cost_per_item=parts.total,
            parts=parts,
            items_per_hour=kind.throughput.items_per_hour,
            measured=kind.throughput.measured,
            interruption_rate=rate,
            workers=kind.load.workers,
            items=kind.load.items,
            charged_hours=hours.charged,
        )

    def _rejection(self, offer: Offer) -> Rejection:
        constraint, reason, retry_at = next(_reasons(offer, self._context))
        return Rejection(offer=offer, constraint=constraint, reason=reason, retry_at=retry_at)


_REQUIREMENTS = frozenset(Requirements.__dataclass_fields__)


def _reasons(offer: Offer, context: _Context) -> Iterator[tuple[str, str, datetime | None]]:
    """Yield what rules an offer out, in order of precedence."""
    policy, kind = context.policy, offer.instance_type
    unfit = misfit(kind, context.requirements)
    if unfit is not None:
        yield (*unfit, None)
    price = offer.price
    if not (math.isfinite(price) and offer.instance_price > 0.0):
        yield "price", f"{offer.instance_price:g} USD/h is no price", None
    yield from _over_ceiling(offer, context)
    yield from _off_ladder(offer, context)
    on_demand = offer.on_demand_price
    if offer.capacity_type is _SPOT and on_demand is not None and offer.instance_price > on_demand:
        yield (
            "on_demand_price",
            f"{offer.instance_price:.4f} USD/h as spot is dearer than {on_demand:.4f} on demand",
            None,
        )
    alive = math.exp(-context.rate_of(offer))
    if offer.capacity_type is _SPOT and alive < policy.min_reliability:
        yield (
            "min_reliability",
            f"it lives an hour with probability {alive:.3f}, below {policy.min_reliability:g}",
            None,
        )
    dry = context.dry.get((kind.name, offer.zone, offer.capacity_type))
    if dry is not None:
        yield "unavailable", f"{dry.reason}; left alone until {dry.until:%H:%M:%S}", dry.until
    until = context.blocked.get(offer.quota_class)
    if until is not None:
        yield "quota", f"quota {offer.quota_class} is full; blocked until {until:%H:%M:%S}", until


def _over_ceiling(offer: Offer, context: _Context) -> Iterator[tuple[str, str, datetime | None]]:
    policy, price, gpus = context.policy, offer.price, offer.instance_type.gpu_count
    if price > policy.max_price_per_hour:
        ceiling = policy.max_price_per_hour
        yield "max_price_per_hour", f"{price:.4f} USD/h is above {ceiling:g}", None
    per_gpu = policy.max_price_per_gpu_hour
    if per_gpu is not None and gpus > 0.0 and price > per_gpu * gpus:
        each = price / gpus
        yield "max_price_per_gpu_hour", f"{each:.4f} USD per GPU-hour is above {per_gpu:g}", None
    if price > context.headroom:
        left = context.headroom
        yield "max_dollars_per_hour", f"{price:.4f} USD/h, and {left:.4f} are left to grow", None


def _off_ladder(offer: Offer, context: _Context) -> Iterator[tuple[str, str, datetime | None]]:
    price, capacity_type = offer.price, offer.capacity_type
    ceiling = context.ceilings.get(capacity_type, _CLOSED)
    if price <= ceiling:
        return
    policy, waited = context.policy, context.waited
    fitting = [
        rung.after
        for rung in policy.ladder
        if capacity_type in rung.capacity_types
        and (rung.max_price_per_hour is None or price <= rung.max_price_per_hour)
    ]
    if not fitting:
        yield "ladder", f"no rung allows {capacity_type} at {price:.4f} USD/h", None
        return
    wait = max(min(*fitting, policy.start_within) - waited, timedelta(0))
    opens = context.now + wait
    yield "ladder", f"{capacity_type} at {price:.4f} USD/h opens at {opens:%H:%M:%S}", opens

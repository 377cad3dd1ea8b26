"""Score every offer in one pass, and explain the result on demand.

Candidates with their cost parts, and rejections with their reasons, are built only when somebody
asks for them.
"""

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import overload

from spindown.domain.fleet import Unavailable
from spindown.domain.learning import Knowledge
from spindown.domain.offer import CapacityType, Offer, Requirements
from spindown.domain.policy import Policy, RankBy
from spindown.domain.ranking.candidate import Candidate, CostParts, Demand, Rejection
from spindown.domain.ranking.reason import reasons
from spindown.domain.ranking.terms import Situation, Terms

_SPOT = CapacityType.SPOT
_REQUIREMENTS = frozenset(Requirements.__dataclass_fields__)


def rank(  # noqa: PLR0913 - the whole situation, each part with its own name
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
    return CandidateList(
        offers,
        Situation(
            demand=demand,
            knowledge=knowledge,
            policy=policy,
            requirements=requirements,
            waited=waited,
            now=now,
            unavailable=tuple(unavailable),
            blocked=blocked or {},
            headroom_per_hour=math.inf if headroom_per_hour is None else headroom_per_hour,
        ),
    )


class CandidateList(Sequence[Candidate]):
    """One ranking: the candidates in order, and every other offer with its reason.

    Reading the first few costs little; ``candidates`` and ``rejected`` build all of them once.
    """

    def __init__(self, offers: Sequence[Offer], situation: Situation) -> None:
        self._offers = offers
        self._terms = Terms(situation)
        #: Index of each candidate among the offers, and beside it what it is sorted by.
        self._indices: list[int] = []
        self._keys: Sequence[float] | Sequence[tuple[float, float]]
        self._costs = self._score()
        self._keys = self._costs
        if situation.policy.rank_by is RankBy.PRICE:
            # Of equal prices, the cheaper item first.
            prices = [offers[index].price for index in self._indices]
            self._keys = list(zip(prices, self._costs, strict=True))

    def _score(self) -> list[float]:
        """Find the candidates; return the cost per item of each.

        The hot loop: each line of it runs for every offer of every tick, so it reads attributes
        once, calls nothing in the usual case, and leaves all words to ``reasons``.
        """
        terms = self._terms
        types, gib, spot = terms.types, terms.situation.demand.gib_per_item, CapacityType.SPOT
        costs: list[float] = []
        add_index, add_cost = self._indices.append, costs.append
        for index, offer in enumerate(self._offers):
            instance_type = offer.instance_type
            known = types.get(instance_type.name) or terms.type_of(instance_type)
            alone = offer.instance_price
            price = alone + offer.extra_price
            # Written so that a price that is not a number fails.
            if offer.capacity_type is spot:
                if not price <= known.spot_ceiling:
                    continue
                on_demand = offer.on_demand_price
                if on_demand is not None and alone > on_demand:
                    continue
                share = offer.reclaim_share
                if share in known.spot:
                    hours = known.spot[share]
                else:
                    hours = terms.published(known.kind, share)
            elif price <= known.on_demand_ceiling:
                hours = known.on_demand
            else:
                continue
            if known.watched:
                hours = terms.closer(offer, known.kind)
            if hours > 0.0 and alone > 0.0:
                cost = price * hours
                if gib:
                    cost += offer.transfer_price_per_gib * gib
                add_index(index)
                add_cost(cost)
        return costs

    def top(self, count: int) -> tuple[Candidate, ...]:
        """Return the first candidates without sorting the rest."""
        best = heapq.nsmallest(count, range(len(self._keys)), key=self._keys.__getitem__)
        return tuple(self._candidate(at) for at in best)

    @property
    def best(self) -> Candidate | None:
        """Return the first candidate; None when nothing may be bought."""
        return next(iter(self.top(1)), None)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return all candidates in order."""
        order = sorted(range(len(self._keys)), key=self._keys.__getitem__)
        return tuple(self._candidate(at) for at in order)

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
            key=lambda r: (
                r.retry_at is None,
                r.retry_at or self._terms.situation.now,
                r.offer.price,
            ),
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

    def _candidate(self, at: int) -> Candidate:
        terms, offer = self._terms, self._offers[self._indices[at]]
        kind = terms.type_of(offer.instance_type).kind
        rate = terms.rate_of(offer)
        hours = terms.bill_of(kind.load, rate)
        usd = offer.price / kind.load.items
        parts = CostParts(
            work=usd * hours.work,
            boot=usd * hours.boot,
            redo=usd * hours.redo,
            idle=usd * hours.idle,
            refund=usd * hours.refund,
            transfer=offer.transfer_price_per_gib * terms.situation.demand.gib_per_item,
        )
        return Candidate(
            offer=offer,
            cost_per_item=self._costs[at],
            parts=parts,
            items_per_hour=kind.throughput.items_per_hour,
            measured=kind.throughput.measured,
            interruption_rate=rate,
            workers=kind.load.workers,
            items=kind.load.items,
            charged_hours=hours.charged,
        )

    def _rejection(self, offer: Offer) -> Rejection:
        constraint, reason, retry_at = next(reasons(offer, self._terms))
        return Rejection(offer=offer, constraint=constraint, reason=reason, retry_at=retry_at)

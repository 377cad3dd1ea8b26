"""The order of the candidate list: the offer whose item costs least is first, or the cheapest hour.

Every offer is scored in one pass (``_score`` sorts), and the result is explained on demand:
candidates with their cost parts, and rejections with their reasons, are built only when somebody
asks for them.

What an item costs on an offer is its price times the hours that EC2 charges for it, and what its
bytes cost between regions: ``terms`` has the hours, of which ``charged_hours`` counts boots,
interruptions and idle time, and ``_score`` the product.

Also decided in: ``learning.throughput`` and ``relative_throughput`` (how fast a machine is, before
it is measured too), ``constraint`` (which offers are excluded), ``candidate`` (bands of nearly
equal offers), ``useless_trait`` (which are asked last), ``exploration`` (which unmeasured ones are
worth a try), ``control.plan.launch_request`` (which requests are made of the list). Within one
request EC2 chooses (``aws.ec2``).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import overload

from spindown.domain.learning import Knowledge
from spindown.domain.offer import CapacityType, InstanceRequirements, InstanceType, Offer
from spindown.domain.policy import Policy, RankBy
from spindown.domain.pool_cooldown import PoolCooldown
from spindown.domain.ranking.candidate import Candidate, CostParts, RegionBlock, Rejection
from spindown.domain.ranking.constraint import (
    NEVER,
    PRECEDENCE,
    rejections,
)
from spindown.domain.ranking.terms import Situation, Terms
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.domain.schedule import Demand

#: Sort key, cost per item, place among the offers, offer. Equal keys are sorted by cost, then by
#: the order of the offers, so that the list is always the same.
_Score = tuple[float, float, int, Offer]
#: Candidates that are kept at hand; a tick tries no more than a few.
_FIRST = 32


def rank(  # noqa: PLR0913 - the whole situation, each part with its own name
    offers: Sequence[Offer],
    *,
    demand: Demand,
    knowledge: Knowledge,
    pool_cooldowns: Iterable[PoolCooldown] = (),
    blocked: Mapping[str, datetime] | None = None,
    closed: Mapping[str, RegionBlock] | None = None,
    quota_left: Mapping[str, float] | None = None,
    policy: Policy,
    requirements: InstanceRequirements,
    waited: timedelta,
    now: datetime,
    headroom_per_hour: float | None = None,
) -> "CandidateList":
    """Return every offer that may be bought now, cheapest item first.

    Args:
        offers: all that is on sale, best in the order of ``build_offers``.
        demand: what is wanted.
        knowledge: what the workload has shown.
        pool_cooldowns: of pools that are asked for nothing until their time has passed.
        blocked: quota class -> until when nothing of it is asked for.
        closed: region -> why nothing is asked for there.
        quota_left: quota class -> vCPUs that may still be launched; missing: EC2 will say.
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
            pool_cooldowns=tuple(pool_cooldowns),
            blocked=blocked or {},
            closed=closed or {},
            quota_left=quota_left or {},
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
        self._first = self._score(_FIRST)

    # The hot loop, run for every offer of every tick. It looks a type up once while its offers
    # follow each other, and drops early what cannot be among the first. Transfer is computed here
    # as in ``Terms.transfer``, and a price judged as by ``lacks_price`` and
    # ``is_dearer_than_on_demand``: a call for each offer would take a third of the loop's time.
    def _score(self, keep: int | None = None) -> list[_Score]:
        """Return the best ``keep`` candidates, or all of them, sorted."""
        terms, demand = self._terms, self._terms.situation.demand
        types, spot = terms.types, CapacityType.SPOT
        fetched, returned = demand.gib_in_per_item, demand.gib_out_per_item
        by_price = terms.situation.policy.rank_by is RankBy.PRICE
        instance_type: InstanceType | None = None
        seen_share: float | None = None
        found: list[_Score] = []
        worst, full, order = math.inf, math.inf if keep is None else 2 * keep, 0
        for offer in self._offers:
            if offer.instance_type is not instance_type:
                instance_type = offer.instance_type
                known = types.get(instance_type.name) or terms.type_of(instance_type)
                spot_ceiling, on_demand_ceiling = known.spot_ceiling, known.on_demand_ceiling
                kind, watched, seen_share = known.kind, known.watched, math.nan
            alone = offer.instance_price
            price = alone + offer.extra_price
            # Written so that a price that is not a number fails.
            if offer.capacity_type is spot:
                if not price <= spot_ceiling:
                    continue
                if offer.reclaim_share is not seen_share:
                    seen_share = offer.reclaim_share
                    spot_hours = kind.spot.get(seen_share) or terms.published(kind, seen_share)
                hours = spot_hours
            elif price <= on_demand_ceiling:
                hours = kind.on_demand
            else:
                continue
            if watched and (offer.zone in watched or offer.region in watched):
                hours = terms.closer(offer, kind)
            cost = price * hours
            # Hours are 0 for what must not be taken. Few come further: what crosses regions, which
            # only adds to the cost, is last.
            if (
                (price if by_price else cost) <= worst
                and hours > 0.0
                and alone > 0.0
                and not (
                    offer.capacity_type is spot
                    and (listed := offer.on_demand_price) is not None
                    and alone > listed
                )
            ):
                cost += offer.inbound_price_per_gib * fetched
                cost += offer.outbound_price_per_gib * returned
                key = price if by_price else cost
                order += 1
                found.append((key, cost, order, offer))
                if len(found) >= full:
                    found.sort()
                    del found[keep:]
                    worst = found[-1][0]
        return sorted(found)[:keep]

    @cached_property
    def _all(self) -> list[_Score]:
        return self._score()

    def top(self, count: int) -> tuple[Candidate, ...]:
        """Return the first candidates without sorting the rest."""
        scores = self._first if count <= _FIRST else self._all
        return tuple(self._candidate(score) for score in scores[:count])

    @property
    def best(self) -> Candidate | None:
        """Return the first candidate; None when nothing may be bought."""
        return next(iter(self.top(1)), None)

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """Return all candidates in order."""
        return tuple(self._candidate(score) for score in self._all)

    @cached_property
    def rejected(self) -> tuple[Rejection, ...]:
        """Return all other offers with the first constraint that rules each out."""
        taken = {id(offer) for *_, offer in self._all}
        return tuple(
            next(rejections(offer, self._terms)) for offer in self._offers if id(offer) not in taken
        )

    @property
    def nearest(self) -> Rejection | None:
        """Return the rejection that is closest to being taken, to say so when nothing fits.

        Of the offers that meet the requirements and have a price: the one that comes back
        soonest, else the cheapest.
        """
        fitting = [r for r in self.rejected if r.constraint not in NEVER]
        return min(
            fitting,
            key=lambda r: (
                r.retry_at is None,
                r.retry_at or self._terms.situation.now,
                r.offer.price,
            ),
            default=None,
        )

    @property
    def last_out(self) -> tuple[Rejection, ...]:
        """Return the rejections that came last by precedence: those that left nothing to buy.

        Of those that a requirement rules out, the last of the requirements.
        """
        turns = {name: turn for turn, name in enumerate(PRECEDENCE)}
        last = max((turns.get(r.constraint, 0) for r in self.rejected), default=0)
        return tuple(r for r in self.rejected if turns.get(r.constraint, 0) == last)

    def why_none(self) -> Reason:
        """Return what left nothing to buy; the list must be empty."""
        if not self._offers:
            return Reason(ReasonCode.NOTHING_ON_SALE)
        last = self.last_out
        numbers: About = {
            "constraint": last[0].constraint,
            "last": len(last),
            "offers": len(self._offers),
        }
        return Reason(ReasonCode.LAST_RULED_OUT, numbers)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        return self.candidates[index]

    def __iter__(self) -> Iterator[Candidate]:
        """Build each candidate when it is reached, since the end of the list is seldom reached."""
        return map(self._candidate, self._all)

    def _candidate(self, score: _Score) -> Candidate:
        _, cost, _, offer = score
        terms = self._terms
        kind = terms.type_of(offer.instance_type).kind
        rate = terms.rate_of(offer)
        hours = terms.hours_of(kind.load, rate)
        usd = offer.price / kind.load.items
        parts = CostParts(
            work=usd * hours.work,
            boot=usd * hours.boot,
            redo=usd * hours.redo,
            idle=usd * hours.idle,
            refund=usd * hours.refund,
            transfer=terms.transfer(offer),
        )
        return Candidate(
            offer=offer,
            cost_per_item=cost,
            parts=parts,
            items_per_hour=kind.throughput.items_per_hour,
            measured=kind.throughput.measured,
            interruption_rate=rate,
            workers=kind.load.workers,
            items=kind.load.items,
            charged_hours=hours.charged,
        )

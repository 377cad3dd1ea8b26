"""Plan the requests of a launch: one band of nearly equal offers each, until the need is met.

The plan foresees the requests as if EC2 gave all that it is asked for. The executor makes them one
by one by the same rule and what EC2 has answered meanwhile: until EC2 refuses something, both name
the same requests.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby, islice

from spindown.contract.row import CALLS_PER_MINUTE
from spindown.control.plan.action import Action, ActionKind, PlanDraft
from spindown.control.plan.breaker import is_on_test, traits_asked_last
from spindown.control.plan.launch_allowance import (
    LaunchAllowance,
    affordable,
    why_short,
)
from spindown.control.plan.offers import LaunchChoice, silent_regions
from spindown.domain.machine_count import count_instead
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.policy import Policy
from spindown.domain.pool_cooldown import PoolCooldown
from spindown.domain.ranking import Candidate, CandidateList, bands
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode
from spindown.domain.useless_trait import traits_of
from spindown.port import Refusal, RefusalKind

#: Candidates that one tick can reach; the tick after it sees the next ones.
_LISTED = 400
#: Pools in one request; EC2 takes more, a person reads no more.
_POOLS_AT_MOST = 60
#: A missing share that is a rounding error.
_NOTHING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One launch request: a band of nearly equal offers of a region, and how many workers."""

    band: tuple[Candidate, ...]
    count: int
    #: What it sets aside of the month's budget.
    reserved_usd: float

    @property
    def region(self) -> str:
        """Return where it is made."""
        return self.band[0].offer.region

    @property
    def capacity_type(self) -> CapacityType:
        """Return what is asked for: spot or on demand."""
        return self.band[0].offer.capacity_type

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Return the pools in order of preference."""
        return tuple(each.offer.pool for each in self.band)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchWorkers(Action):
    """Launch workers: try the offers of a list until the need is met."""

    choice: LaunchChoice
    #: Its share of the tick's requests.
    requests_at_most: int = 0
    #: Regions in which a single launch tests the launch version.
    regions_on_test: frozenset[str] = frozenset()
    #: Regions that are asked after all others, since they have not answered a launch.
    regions_asked_last: frozenset[str] = frozenset()
    #: Pools that are asked later than others -> how much later (``domain.useless_trait``).
    pools_asked_later: Mapping[Pool, int] = field(default_factory=dict)
    #: The requests that it makes if EC2 gives all that it is asked for. The executor goes by
    #: ``choice`` once EC2 has refused something.
    requests: tuple[PlannedRequest, ...] = ()
    #: Why these do not meet the whole need; NO_REASON: nothing ends it early.
    ends_early: Reason = NO_REASON

    @property
    def count(self) -> int:
        """Return how many workers it asks for if EC2 refuses nothing."""
        return sum(request.count for request in self.requests)

    @property
    def first(self) -> Candidate | None:
        """Return the offer that is asked for first; None: there is none."""
        return self.requests[0].band[0] if self.requests else None


@dataclass(slots=True, kw_only=True)
class LaunchProgress:
    """How far a launch has come: its next request, and why it ends before its need is met."""

    action: LaunchWorkers
    policy: Policy
    now: datetime
    #: Where something may be launched at all.
    regions: Collection[str]
    #: Pools that have refused, and quota classes that are full, as far as is known by now.
    pool_cooldowns: Mapping[Pool, PoolCooldown]
    quotas_met: Collection[str]

    #: Share of the need that is still missing.
    missing_share: float = 1.0
    requests: int = 0
    #: Workers that it has got, and those of them on demand.
    given: int = 0
    on_demand: int = 0
    #: Zones whose subnet has no address left, and regions in which it goes no further.
    full_zones: set[str] = field(default_factory=set)
    closed_regions: set[str] = field(default_factory=set)
    #: Region -> refusals of pools that the account may not have, in the order of asking.
    forbidden: dict[str, list[Refusal]] = field(default_factory=dict)
    #: Regions in which something was given, or refused for another reason.
    regions_not_forbidden: set[str] = field(default_factory=set)
    #: Why it ended early; NO_REASON: it has not.
    ended: Reason = NO_REASON
    _bands: Iterator[Sequence[Candidate]] = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the first band of the list."""
        candidates = self.choice.candidates
        self._bands = (
            iter(()) if candidates is None else _bands(candidates, self.policy, self.action)
        )

    @property
    def choice(self) -> LaunchChoice:
        """Return what is launched for."""
        return self.action.choice

    def next_request(self, allowance: LaunchAllowance) -> PlannedRequest | None:
        """Return the next request within an allowance; None: there is none any more."""
        if not self.requests and allowance.workers <= 0:
            about: About = {"max_workers": self.policy.max_workers}
            self.ended = self.ended or Reason(ReasonCode.MAX_WORKERS, about)
        too_dear = False
        for band in self._bands:
            if self._end_if_over(allowance):
                return None
            usable = [x for x in band if self._is_usable(x, allowance)][:_POOLS_AT_MOST]
            paid, most = affordable(usable, allowance)
            if paid:
                count = self._count(paid, allowance, most)
                if count > 0 and not self._end_without_calls(paid[0].offer.region, allowance):
                    self.requests += 1
                    reserved = allowance.reserved(paid, count)
                    return PlannedRequest(band=tuple(paid), count=count, reserved_usd=reserved)
            elif usable and (short := why_short(usable, allowance.budget)):
                self.ended = self.ended or short
            elif usable and not self.requests and not self.ended:
                too_dear = True
        if too_dear:
            self.ended = self.ended or self._at_ceiling(allowance)
        return None

    def answered(self, request: PlannedRequest, given: int) -> None:
        """Count what a request has given."""
        self.missing_share -= given / self._planned(request.band[0])
        self.given += given
        self.on_demand += given if request.capacity_type is CapacityType.ON_DEMAND else 0
        if request.region in self.action.regions_on_test:
            self.closed_regions.add(request.region)

    def heard(self, region: str, given: int, refusals: Sequence[Refusal]) -> None:
        """Remember whether anything but forbidden pools was the answer."""
        if given or any(refusal.kind is not RefusalKind.ACCOUNT for refusal in refusals):
            self.regions_not_forbidden.add(region)
        else:
            self.forbidden.setdefault(region, []).extend(refusals)

    def withdraw(self, request: PlannedRequest, reason: Reason) -> None:
        """Take a request back that was not made, since its region is gone."""
        self.requests -= 1
        self.close(request.region, reason)

    def close(self, region: str, reason: Reason) -> None:
        """Go on without a region; end if it was the last."""
        self.closed_regions.add(region)
        if self.closed_regions >= set(self.regions):
            self.ended = reason

    def _end_if_over(self, allowance: LaunchAllowance) -> bool:
        """End if nothing is left to ask for; tell whether it has ended."""
        if self.ended or self._left(allowance) <= 0 or self.missing_share <= _NOTHING:
            return True
        if self.requests >= self.action.requests_at_most:
            self.ended = Reason(ReasonCode.TRIES_USED_UP, {"requests": self.requests})
        return bool(self.ended)

    def _at_ceiling(self, allowance: LaunchAllowance) -> Reason:
        """Return that no offer fits below ``max_dollars_per_hour`` any more."""
        most, left = self.policy.max_dollars_per_hour, allowance.per_hour
        if most is None or left is None:
            return NO_REASON
        about: About = {"dollars_per_hour": most - left, "max_dollars_per_hour": most}
        return Reason(ReasonCode.FLEET_AT_CEILING, about)

    def _left(self, allowance: LaunchAllowance) -> int:
        """Return how many workers all bounds but the price allow.

        What bounds the number by the best offer holds for the others too; ``max_workers`` is in
        the allowance.
        """
        sizing = self.choice.sizing
        if sizing.bound in {"", "max_workers"}:
            return allowance.workers
        return min(sizing.allowed - self.given, allowance.workers)

    def _is_usable(self, candidate: Candidate, allowance: LaunchAllowance) -> bool:
        """Tell whether nothing learned or taken in this tick rules a candidate out."""
        offer = candidate.offer
        if allowance.is_paid_taken and offer.paid_left:
            return False
        if offer.region in self.action.regions_on_test & allowance.regions_used:
            return False
        cooldown = self.pool_cooldowns.get(offer.pool)
        cools_down = cooldown is not None and cooldown.is_active(self.now)
        is_closed = offer.region in self.closed_regions or offer.quota_class in self.quotas_met
        return not cools_down and not is_closed and offer.zone not in self.full_zones

    def _count(self, band: Sequence[Candidate], allowance: LaunchAllowance, most: float) -> int:
        if band[0].offer.region in self.action.regions_on_test:
            count = 1
        else:
            wanted = math.ceil(self.missing_share * self._planned(band[0]) - _NOTHING)
            count = int(min(self._left(allowance), wanted, most))
        # A machine more would cost the full price.
        count = min([count, *(each.offer.paid_left for each in band if each.offer.paid_left)])
        at_most = self.choice.need.on_demand_at_most
        if band[0].offer.capacity_type is CapacityType.ON_DEMAND and at_most is not None:
            return min(count, at_most - self.on_demand)
        return count

    def _planned(self, candidate: Candidate) -> int:
        """Return how many workers of a candidate meet the whole need."""
        best = self.choice.candidates.best if self.choice.candidates else None
        return count_instead(candidate, best, self.choice.sizing)

    def _end_without_calls(self, region: str, allowance: LaunchAllowance) -> bool:
        """End if EC2 may not be asked there now; tell whether it has ended."""
        if not allowance.has_calls(region):
            self.ended = calls_used_up(region)
        return bool(self.ended)


def plan_requests(
    draft: PlanDraft, choices: Sequence[LaunchChoice], allowance: LaunchAllowance
) -> Iterator[LaunchWorkers]:
    """Yield launches with the requests that they make if EC2 gives all that it is asked for.

    Each has what the launches before it leave, and an equal share of the tick's requests: what is
    sold out for one shape keeps no other from asking. A launch for which nothing is left stays in
    the plan: the executor makes its requests if EC2 refuses those of another.
    """
    quotas_met = {name for choice in choices for name in choice.quotas_short}
    due = [launch for choice in choices if (launch := _launch_action(draft, choice)) is not None]
    most = draft.facts.policy.max_requests_per_tick
    shares = [(most + len(due) - 1 - place) // len(due) for place in range(len(due))]
    for launch in (replace(x, requests_at_most=n) for x, n in zip(due, shares, strict=True)):
        progress = LaunchProgress(
            action=launch,
            policy=draft.facts.policy,
            now=draft.now,
            regions=draft.facts.settings.regions.keys(),
            pool_cooldowns=draft.fleet.pool_cooldowns,
            quotas_met=quotas_met,
        )
        requests = []
        while (request := progress.next_request(allowance)) is not None:
            requests.append(request)
            progress.answered(request, request.count)
            allowance = allowance.after(request.band, request.count)
        yield replace(launch, requests=tuple(requests), ends_early=progress.ended)


def _launch_action(draft: PlanDraft, choice: LaunchChoice) -> LaunchWorkers | None:
    """Return the launch that a choice asks for; None if it asks for none."""
    candidates, facts, fleet = choice.candidates, draft.facts, draft.fleet
    if choice.blocked_by or candidates is None or choice.sizing.allowed <= 0:
        return None
    return LaunchWorkers(
        kind=ActionKind.LAUNCH,
        subject=facts.workload,
        reason=choice.sizing.reason,
        choice=choice,
        regions_on_test=frozenset(r for r in facts.settings.regions if is_on_test(facts, fleet, r)),
        regions_asked_last=silent_regions(fleet),
        pools_asked_later=_pools_asked_later(draft, candidates),
    )


def _pools_asked_later(draft: PlanDraft, candidates: CandidateList) -> Mapping[Pool, int]:
    traits = traits_asked_last(draft.facts, draft.fleet)
    # The whole list is made only then.
    offers = [candidate.offer for candidate in candidates] if traits else []
    counts = {
        offer.pool: sum(traits.get(offer.region, {}).get(t, 0) for t in traits_of(offer.pool))
        for offer in offers
    }
    return {pool: count for pool, count in counts.items() if count}


def calls_used_up(region: str) -> Reason:
    """Return that EC2 may be asked no more in this minute."""
    return Reason(ReasonCode.CALLS_USED_UP, {"calls": CALLS_PER_MINUTE, "region": region})


def _bands(
    candidates: CandidateList, policy: Policy, action: LaunchWorkers
) -> Iterator[Sequence[Candidate]]:
    """Yield the bands of the list in the order of asking."""
    if not action.regions_asked_last and not action.pools_asked_later:
        # The list is made as far as it is tried.
        yield from bands(islice(candidates, _LISTED), policy.band, policy.rank_by)
        return

    def turn(candidate: Candidate) -> tuple[bool, int]:
        offer = candidate.offer
        return offer.region in action.regions_asked_last, action.pools_asked_later.get(
            offer.pool, 0
        )

    # What is asked first may be far down.
    for _, asked in groupby(islice(sorted(candidates, key=turn), _LISTED), key=turn):
        yield from bands(asked, policy.band, policy.rank_by)

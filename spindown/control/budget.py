"""What launches may still take: workers, dollars an hour, dollars of the month, calls of EC2.

A plan and its executor go by the same ``LaunchAllowance``. Each request takes what it may cost at
most, whichever of its offers EC2 chooses, so that the next one fits beside it. Rows that other
workloads change are guarded again by the conditions of the writes themselves.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from spindown.contract import row as rows
from spindown.contract.row import CALLS_PER_MINUTE
from spindown.control.observation import TickFacts
from spindown.domain.fleet import Launch, Worker
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.past_cost import dollars_per_hour
from spindown.domain.policy import Policy
from spindown.domain.ranking import Candidate
from spindown.domain.schedule import unanswered_dollars
from spindown.ledger import AccountView, account_key
from spindown.port import Key, When, Write

#: So that 0.3 USD are room for three of 0.1, whatever binary fractions make of it.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One launch request: a band of nearly equal offers of a region, and how many workers."""

    band: tuple[Candidate, ...]
    count: int

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

    @property
    def reserved_usd(self) -> float:
        """Return what it sets aside of the month's budget."""
        return max(each.expected_dollars for each in self.band) * self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAllowance:
    """What launches may still take in this tick; None: there is no such limit."""

    #: Places that ``max_workers`` leaves.
    workers: int
    #: USD an hour that the fleet may grow by.
    per_hour: float | None
    #: USD that may still be reserved in the month's budget.
    budget: float | None
    #: Region -> launch requests already made in this minute, by all workloads.
    calls: Mapping[str, int]

    def has_calls(self, region: str) -> bool:
        """Tell whether EC2 may be asked in a region in this minute."""
        return self.calls.get(region, 0) < CALLS_PER_MINUTE

    def after(self, request: PlannedRequest, given: int) -> "LaunchAllowance":
        """Return what is left once a request has been given so many workers.

        They count as the most expensive of its offers.
        """
        price = max(each.offer.price for each in request.band)
        dollars = max(each.expected_dollars for each in request.band)
        made = self.calls.get(request.region, 0) + 1
        return LaunchAllowance(
            workers=self.workers - given,
            per_hour=None if self.per_hour is None else self.per_hour - given * price,
            budget=None if self.budget is None else self.budget - given * dollars,
            calls={**self.calls, request.region: made},
        )

    def with_alive(self, seen: Worker, planned: Worker) -> "LaunchAllowance":
        """Return what is left if a worker lives on that the plan took to be gone."""
        more = dollars_per_hour([seen]) - dollars_per_hour([planned])
        return replace(
            self,
            workers=self.workers - 1,
            per_hour=None if self.per_hour is None else self.per_hour - more,
        )

    def with_account(self, budget: float | None, calls: Mapping[str, int]) -> "LaunchAllowance":
        """Return what is left by the rows of the account as they are now."""
        return replace(self, budget=budget, calls=calls)


def affordable(
    band: Sequence[Candidate], allowance: LaunchAllowance
) -> tuple[list[Candidate], float]:
    """Return the offers of a band that both ceilings allow, and how many workers are affordable.

    So many are affordable even if EC2 picks the most expensive of these offers.
    """
    cheap, some = _within(band, allowance.per_hour, lambda each: each.offer.price)
    fitting, few = _within(cheap, allowance.budget, lambda each: each.expected_dollars)
    return fitting, min(some, few)


def _within(
    band: Sequence[Candidate], left: float | None, cost: Callable[[Candidate], float]
) -> tuple[list[Candidate], float]:
    if left is None:
        return list(band), math.inf
    fitting = [candidate for candidate in band if cost(candidate) <= left]
    highest = max(map(cost, fitting), default=math.inf)
    most = math.floor(left / highest)
    return fitting, most - (most * highest > left)


def headroom(
    policy: Policy, workers: Mapping[str, Worker], launches: Mapping[str, Launch], now: datetime
) -> float | None:
    """Return the USD an hour by which the fleet may still grow; None: there is no such ceiling."""
    most = policy.max_dollars_per_hour
    if most is None:
        return None
    present = dollars_per_hour(list(workers.values()))
    present += unanswered_dollars(list(launches.values()), now)
    return max(0.0, most * (1.0 + _ROUNDING) - present)


def month_budget(facts: TickFacts, launches: Mapping[str, Launch]) -> float | None:
    """Return the month's USD less what launches of earlier months have still to spend of it.

    Those of this workload; None: there is no budget.
    """
    whole, month = facts.deployment.budget_per_month, rows.budget_sort(facts.now)
    if whole is None:
        return None
    earlier = (x for x in launches.values() if rows.budget_sort(x.intended_at) != month)
    return whole - sum(launch.reserved_usd for launch in earlier)


def budget_left(
    facts: TickFacts,
    launches: Mapping[str, Launch],
    account: AccountView | None,
    planned: Iterable[Write] = (),
) -> float | None:
    """Return the USD that launches may still reserve this month; None: there is no budget.

    Args:
        facts: of the tick.
        launches: as they are once the planned writes are made.
        account: the month as it was read.
        planned: writes of this tick that the month does not hold yet, such as charges.
    """
    budget = month_budget(facts, launches)
    if budget is None or account is None:
        return None
    key = _month(facts.now)
    coming = sum(write.add.get("committed", 0.0) for write in planned if write.key == key)
    month = account.budget_at(facts.now)
    # Whatever launches gave back of what they had set aside, what is spent is spent.
    return max(0.0, budget - max(month.committed, month.dollars) - coming)


def calls_made(facts: TickFacts, account: AccountView | None) -> Mapping[str, int]:
    """Return region -> launch requests made there in this minute."""
    if account is None:
        return {}
    return {region: account.calls_at(region, facts.now) for region in facts.settings.outposts}


def reserve(facts: TickFacts, launches: Mapping[str, Launch], intent: Launch) -> Write:
    """Return the write that sets the money of a launch aside, if the month has it."""
    budget = month_budget(facts, launches)
    limit = {} if budget is None else {"committed": budget - intent.reserved_usd}
    return Write(
        key=_month(intent.intended_at),
        when=When(at_most=limit),
        add={"committed": intent.reserved_usd},
    )


def add_to_budget(at: datetime, sums: Mapping[str, float]) -> Write:
    """Return an addition to the deployment's month that ``at`` lies in."""
    return Write(key=_month(at), add={name: value for name, value in sums.items() if value})


def take_call(region: str, account: AccountView | None, now: datetime) -> Write:
    """Return the write that takes one call out of EC2's bucket, which all workloads share."""
    key, minute = account_key(rows.calls_sort(region)), rows.minute_of(now)
    if account is not None and account.calls_at(region, now):
        when = When(equals={"minute": minute}, at_most={"count": CALLS_PER_MINUTE - 1})
        return Write(key=key, when=when, add={"count": 1})
    return Write(key=key, when=When(differs={"minute": minute}), set={"minute": minute, "count": 1})


def _month(at: datetime) -> Key:
    return account_key(rows.budget_sort(at))

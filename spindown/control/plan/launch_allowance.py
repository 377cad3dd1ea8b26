"""What launches may still take: workers, dollars an hour, dollars of the month, calls of EC2.

A plan and its executor go by the same ``LaunchAllowance``. Each request takes what it may cost at
most, whichever of its offers EC2 chooses, so that the next one fits beside it. Two workloads that
launch at once do not overspend the month: ``reserve`` writes on the condition that the month's row
still has room. How much of the month is left is decided in ``domain.budget``, and worked out each
tick in ``wind_down.divide_budget``, with the workers that it still pays for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from spindown.contract import row as rows
from spindown.contract.row import CALLS_PER_MINUTE
from spindown.control.observe.observation import TickFacts
from spindown.domain.budget import LaunchBudget
from spindown.domain.fleet import Launch, Worker
from spindown.domain.past_cost import dollars_per_hour
from spindown.domain.ranking import Candidate
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode
from spindown.ledger import AccountView, account_key, month_key
from spindown.port import When, Write


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAllowance:
    """What launches may still take in this tick; None: there is no such limit."""

    #: Places that ``max_workers`` leaves.
    workers: int
    #: USD an hour that the fleet may grow by.
    per_hour: float | None
    #: What the month's budget leaves.
    budget: LaunchBudget | None
    #: Region -> launch requests already made in this minute, by all workloads.
    calls: Mapping[str, int]
    #: Whether this tick has taken machines that are paid for; the next one sees how many are left.
    is_paid_taken: bool = False
    #: Regions in which this tick has launched something.
    regions_used: frozenset[str] = frozenset()

    def has_calls(self, region: str) -> bool:
        """Tell whether EC2 may be asked in a region in this minute."""
        return self.calls.get(region, 0) < CALLS_PER_MINUTE

    def reserved(self, band: Sequence[Candidate], count: int) -> float:
        """Return the USD of the month that a request for so many workers sets aside."""
        if self.budget is None:
            return count * max(each.expected_dollars for each in band)
        return self.budget.reserved(band, count)

    def after(self, band: Sequence[Candidate], given: int) -> "LaunchAllowance":
        """Return what is left once a request for a band has been given so many workers.

        They count as the most expensive of its offers.
        """
        price = max(each.offer.price for each in band)
        region = band[0].offer.region
        made = self.calls.get(region, 0) + 1
        budget = self.budget
        if budget is not None and given:
            budget = budget.after(budget.reserved(band, given), given)
        return replace(
            self,
            workers=self.workers - given,
            per_hour=None if self.per_hour is None else self.per_hour - given * price,
            budget=budget,
            calls={**self.calls, region: made},
            is_paid_taken=self.is_paid_taken
            or (given > 0 and any(each.offer.paid_left for each in band)),
            regions_used=self.regions_used | ({region} if given else set()),
        )

    def with_alive(self, seen: Worker, planned: Worker) -> "LaunchAllowance":
        """Return what is left if a worker lives on that the plan took to be gone."""
        more = dollars_per_hour([seen]) - dollars_per_hour([planned])
        return replace(
            self,
            workers=self.workers - 1,
            per_hour=None if self.per_hour is None else self.per_hour - more,
        )

    def with_account(self, used_usd: float, calls: Mapping[str, int]) -> "LaunchAllowance":
        """Return what is left by the rows of the account as they are now."""
        budget = self.budget
        if budget is not None and budget.committed_at_most_usd is not None:
            budget = replace(budget, left_usd=budget.committed_at_most_usd - used_usd)
        return replace(self, budget=budget, calls=calls)


def affordable(
    band: Sequence[Candidate], allowance: LaunchAllowance
) -> tuple[list[Candidate], float]:
    """Return the offers of a band that both ceilings allow, and how many workers are affordable.

    So many are affordable even if EC2 picks the most expensive of these offers.
    """
    cheap, some = _below(band, allowance.per_hour)
    if allowance.budget is None:
        return cheap, some
    fitting, few = allowance.budget.workers(cheap)
    return fitting, min(some, few)


def why_short(band: Sequence[Candidate], budget: LaunchBudget | None) -> Reason:
    """Return why the budget pays for no worker of these offers; NO_REASON: it does."""
    if not band or budget is None or budget.workers(band)[0]:
        return NO_REASON
    least = min(map(budget.least, band))
    about: About = {
        "budget_per_month": budget.month_usd,
        "left": max(budget.left_usd, 0.0),
        "least": least,
        "when_spent": budget.lifetimes.when_spent.value,
    }
    if least > budget.month_usd:
        return Reason(ReasonCode.BUDGET_BELOW_LAUNCH, about)
    return Reason(
        ReasonCode.BUDGET_TOO_LOW if budget.left_usd > 0 else ReasonCode.BUDGET_USED_UP, about
    )


def _below(band: Sequence[Candidate], left: float | None) -> tuple[list[Candidate], float]:
    if left is None:
        return list(band), math.inf
    fitting = [candidate for candidate in band if candidate.offer.price <= left]
    highest = max((candidate.offer.price for candidate in fitting), default=math.inf)
    most = math.floor(left / highest)
    return fitting, most - (most * highest > left)


def used(account: AccountView, at: datetime) -> float:
    """Return the USD of a month that are spent or set aside by all workloads."""
    month = account.budget_at(at)
    # Whatever launches gave back of what they had set aside, what is spent is spent.
    return max(month.committed, month.dollars)


def calls_made(facts: TickFacts, account: AccountView | None) -> Mapping[str, int]:
    """Return region -> launch requests made there in this minute."""
    if account is None:
        return {}
    return {region: account.calls_at(region, facts.now) for region in facts.settings.regions}


def reserve(intent: Launch, budget: LaunchBudget | None) -> Write:
    """Return the write that sets the money of a launch aside, if the month has it."""
    most = None if budget is None else budget.committed_at_most_usd
    limit = {} if most is None else {"committed": most - intent.reserved_usd}
    return Write(
        key=month_key(intent.intended_at),
        when=When(at_most=limit),
        add={"committed": intent.reserved_usd},
    )


def add_to_budget(at: datetime, sums: Mapping[str, float]) -> Write:
    """Return an addition to the deployment's month that ``at`` lies in."""
    return Write(key=month_key(at), add={name: value for name, value in sums.items() if value})


def take_call(region: str, account: AccountView | None, now: datetime) -> Write:
    """Return the write that takes one call out of EC2's bucket, which all workloads share."""
    key, minute = account_key(rows.calls_sort_key(region)), rows.minute_of(now)
    if account is not None and account.calls_at(region, now):
        when = When(equals={"minute": minute}, at_most={"count": CALLS_PER_MINUTE - 1})
        return Write(key=key, when=when, add={"count": 1})
    return Write(key=key, when=When(differs={"minute": minute}), set={"minute": minute, "count": 1})

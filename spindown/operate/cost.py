"""What an item has cost over the last days and weeks, and the acceptance of a new cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from spindown.contract import row as rows
from spindown.contract.row import SpendRow
from spindown.control.alert.cost_rise import rise_of
from spindown.control.spend import window_of
from spindown.domain.cost_rise import WEEKS, AcceptedCost, RiseFound, add_windows
from spindown.domain.past_cost import CostWindow, Saving
from spindown.domain.policy import Policy
from spindown.error import BadInput
from spindown.ledger import Ledger
from spindown.operate.spent import spent_of

_WEEK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSpan:
    """What some days of UTC have cost, USD, and done."""

    #: The first and the last of them, as ``2026-11-20``.
    first: str
    last: str
    window: CostWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class CostTrend:
    """How the cost of an item has moved. Spans without cost are left out."""

    workload: str
    at: datetime
    #: Oldest first; the last may be the present one.
    days: tuple[CostSpan, ...]
    #: The last seven days and the weeks before them, oldest first; as many as a rise looks at.
    weeks: tuple[CostSpan, ...]
    #: The rise that stands; None: an item costs what is usual, or too little is known.
    rise: RiseFound | None
    #: Costs that people have accepted, oldest first.
    accepted: tuple[AcceptedCost, ...]
    #: Over the last seven days.
    saving: Saving


def read_cost(
    workload: str, *, ledger: Ledger, policy: Policy, now: datetime, days: int
) -> CostTrend:
    """Read the trend of what an item costs: so many days, and nine weeks with work."""
    view, today = ledger.read(), now.date()
    past = ledger.read_past_days() if days > len(view.spend) else {}
    spent = spent_of(ledger, view, now, past=past)
    known = spent.days
    oldest = date.fromisoformat(min(known, default=today.isoformat()))
    weeks = [
        found
        for ago in reversed(range((today - oldest).days // _WEEK + 1))
        for found in _span(known, today - timedelta(days=_WEEK * ago), _WEEK)
    ]
    return CostTrend(
        workload=workload,
        at=now,
        days=tuple(
            found
            for ago in reversed(range(days))
            for found in _span(known, today - timedelta(days=ago), 1)
        ),
        weeks=tuple(weeks[-1 - WEEKS :]),
        rise=rise_of(view, policy, now),
        accepted=view.accepted,
        saving=spent.saving,
    )


def _span(days: Mapping[str, SpendRow], last: date, count: int) -> Iterator[CostSpan]:
    """Yield what so many days up to one have cost, if anything."""
    dates = [(last - timedelta(days=ago)).isoformat() for ago in reversed(range(count))]
    window = add_windows([window_of(days[day]) for day in dates if day in days])
    if window.dollars:
        yield CostSpan(first=dates[0], last=dates[-1], window=window)


def accept_cost(
    workload: str,
    *,
    ledger: Ledger,
    policy: Policy,
    by: str,
    now: datetime,
    dollars: float | None = None,
) -> AcceptedCost:
    """Accept what an item costs: from now on it is the usual cost, and no alarm.

    Args:
        workload: whose.
        ledger: where it is kept.
        policy: the one in force.
        by: who accepts it.
        now: the time.
        dollars: USD of an item; None: what it costs by the alarm that stands.

    Raises:
        BadInput: nothing stands that could be accepted.
    """
    if dollars is None:
        found = rise_of(ledger.read(), policy, now)
        if found is None:
            remedy = "an item costs what is usual; give --cost to accept another cost beforehand"
            raise BadInput("cost of an item", workload, remedy)
        dollars = found.now.cost_per_item
    accepted = AcceptedCost(at=now, dollars=dollars, by=by)
    ledger.write(ledger.put(rows.accepted_sort_key(now), accepted))
    return accepted

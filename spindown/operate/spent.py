"""What a workload has spent up to this moment: the one source of whatever is told of money.

The books have what ticks have charged; what runs is added as the next tick will charge it. So all
commands tell the same dollars, cost of an item and saving of the same span.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from spindown.contract.row import SpendRow
from spindown.control.spend import books_up_to, days_to_tell, last_days, last_saving, saving_of
from spindown.domain.past_cost import CostWindow, Saving
from spindown.ledger import Ledger, LedgerView


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The books of a workload up to a moment."""

    now: datetime
    #: UTC day, as ``2026-11-20`` -> what was spent and done in it.
    days: Mapping[str, SpendRow]
    #: Since when there was work: the first launch, or the first day's midnight if that day is
    #: before yesterday.
    begun: datetime

    @property
    def today(self) -> SpendRow:
        """Return what the present day of UTC has cost and done."""
        return self.days.get(f"{self.now:%Y-%m-%d}", SpendRow())

    @property
    def saving(self) -> Saving:
        """Return what the last seven days have cost beside other ways to buy."""
        return last_saving(self.days, self.begun, self.now)

    def last(self, days: int = 1) -> CostWindow:
        """Return what the last so many times 24 hours have cost and done."""
        return last_days(self.days, self.now, days, begun=self.begun)

    @property
    def cost_days(self) -> int:
        """Return over how many days it is told what an item costs."""
        return days_to_tell(self.days, self.now, begun=self.begun)

    def between(self, start: datetime, end: datetime) -> Mapping[str, SpendRow]:
        """Return the days of UTC between two instants, the last not included."""
        return {
            day: row
            for day, row in self.days.items()
            if start.date() <= _midnight(day).date() and _midnight(day) < end
        }

    def saving_between(self, start: datetime, end: datetime) -> Saving:
        """Return what the days between two instants have cost beside other ways to buy."""
        return saving_of(self.between(start, end).values(), end - max(start, self.begun))


def spent_of(
    ledger: Ledger, view: LedgerView, now: datetime, *, past: Mapping[str, SpendRow] | None = None
) -> Spent:
    """Return what a workload has spent.

    Args:
        ledger: whose history knows the launches of a first day.
        view: what was just read of it.
        now: the time.
        past: days that are not live any more, if they are wanted.
    """
    days = books_up_to({**(past or {}), **view.spend}, view.workers.values(), now)
    begun = min(map(_midnight, days), default=now)
    if now.date() - begun.date() <= timedelta(days=1):
        # What began within it is not told as 24 hours, nor compared with a machine that was kept
        # since midnight.
        workers = {**ledger.read_ended(), **view.workers}
        begun = min((one.launched_at for one in workers.values()), default=begun)
    return Spent(now=now, days=days, begun=begun)


def _midnight(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)

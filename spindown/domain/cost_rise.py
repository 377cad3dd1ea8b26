"""Whether an item costs more than it used to: the last seven days beside the weeks before.

These are the last in which items were done, however long ago, so that work of once a quarter has a
usual cost too. A week holds each weekday once and counts by what was spent and done in it. So a
small Saturday says nothing and a dear one every week is usual, while a cost that grows by 1 % a day
is found as one that triples on a day. The usual week is the median of those before, each weighed
by its items.

A rise that was found stands, against what was usual then, until the cost is down or a person
accepts the new cost. An accepted cost is taken as that of all days before, so that it is the usual
one until later weeks are known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from statistics import median

from spindown.domain.cost_rise_cause import CostFactors, factors_of
from spindown.domain.past_cost import CostWindow
from spindown.domain.value_range import NotZero

_WEEK = 7
#: The weeks with work before the last seven days, and the days of them that must be known.
WEEKS, _DAYS_ENOUGH = 8, 2
#: Share of the usual dollars that a week must have cost to be judged, and a day of a mean day's.
_TELLING_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRise:
    """A rise of the cost of an item that has not gone back yet."""

    since: datetime
    #: What was usual before it.
    usual: CostFactors


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedCost:
    """The cost of an item that a person has accepted."""

    at: datetime
    #: USD per item, all in.
    dollars: NotZero
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RiseFound:
    """A rise that stands now, and what an item costs now."""

    rise: CostRise
    now: CostFactors


def find_rise(
    days: Mapping[date, CostWindow],
    at: datetime,
    *,
    limit: float,
    standing: CostRise | None = None,
    accepted: AcceptedCost | None = None,
) -> RiseFound | None:
    """Return the rise that stands now; None: an item costs what is usual, or nothing is known.

    Worked, a limit of 1.25 and as many items each day: an item that costs three times as much rings
    on the first day, (6 + 3) / 7 = 1.29; twice as much on the second, 1.5 times on the fourth.

    Args:
        days: what each day of UTC has cost, the present one as far as it has come.
        at: the time.
        limit: from how many times the usual cost on a cost is a rise.
        standing: the rise that stood at the last look.
        accepted: the cost that was accepted last.
    """
    last = _by_week(days, at.date()).get(0, [])
    now = _cost_now(last)
    if now is None:
        return None
    if standing is None or (accepted is not None and accepted.at >= standing.since):
        before = days if accepted is None else _rebased(days, accepted)
        weeks = _weeks_before(before, at.date())
        usual = middle_window(weeks)
        factors = None if usual is None else factors_of(usual)
        if factors is None:
            return None
        if add_windows(last).dollars < _TELLING_SHARE * median(week.dollars for week in weeks):
            return None
        standing = CostRise(since=at, usual=factors)
    is_above = now.cost_per_item > limit * standing.usual.cost_per_item
    return RiseFound(rise=standing, now=now) if is_above else None


def _cost_now(last: Sequence[CostWindow]) -> CostFactors | None:
    """Return the cost of the last days, or of the newest that tells something, if that is less.

    So a cost that is down again is no rise any more, and the first boot of a morning, which makes
    its few items expensive, is none yet.
    """
    enough = _TELLING_SHARE * sum(day.dollars for day in last)
    newest = next((day for day in last if day.dollars * len(last) >= enough), None)
    found = (factors_of(window) for window in (add_windows(last), newest) if window is not None)
    known = (factors for factors in found if factors is not None)
    return min(known, key=lambda factors: factors.cost_per_item, default=None)


def _weeks_before(days: Mapping[date, CostWindow], today: date) -> Sequence[CostWindow]:
    """Return the weeks before the last on which items were done; none: too few days are known."""
    known = [week for ago, week in _by_week(days, today).items() if ago > 0][:WEEKS]
    enough = sum(map(len, known)) >= _DAYS_ENOUGH
    return [add_windows(week) for week in known] if enough else []


def _by_week(days: Mapping[date, CostWindow], today: date) -> Mapping[int, Sequence[CostWindow]]:
    """Return the days by how many weeks ago they were, both newest first; 0: the last seven.

    Days are left out on which no item was done and paid, and with them weeks without any.
    """
    weeks: dict[int, list[CostWindow]] = {}
    for day, window in sorted(days.items(), reverse=True):
        if day <= today and factors_of(window) is not None:
            weeks.setdefault((today - day).days // _WEEK, []).append(window)
    return weeks


def middle_window(windows: Sequence[CostWindow]) -> CostWindow | None:
    """Return the window in the middle of the items, so that small or odd weeks change nothing.

    Half of the items are of windows where one cost no more. A window counts for twice the items of
    a usual one at the most, so that a single one says little. None: no item was done.
    """
    known = [window for window in windows if window.items > 0]
    most = 2 * median(window.items for window in known) if known else 0
    left = sum(min(window.items, most) for window in known) / 2
    for window in sorted(known, key=lambda each: each.dollars / each.items):
        left -= min(window.items, most)
        if left <= 0:
            return window
    return None


def add_windows(windows: Sequence[CostWindow]) -> CostWindow:
    """Return what several windows cost together."""
    return CostWindow(
        **{f.name: sum(getattr(w, f.name) for w in windows) for f in fields(CostWindow)}
    )


def _rebased(days: Mapping[date, CostWindow], accepted: AcceptedCost) -> Mapping[date, CostWindow]:
    """Return the days as if each item up to the acceptance had cost what was accepted."""
    return {
        day: replace(window, dollars=accepted.dollars * window.items)
        if day <= accepted.at.date()
        else window
        for day, window in days.items()
    }

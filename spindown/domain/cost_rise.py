"""Whether an item costs more than it used to: on one day, or slowly, over weeks.

A day is compared with the same weekdays before it, a week with the weeks before it. Of several days
the usual one is that in the middle of their items, and a day or a week that has cost little is not
judged. So a small Saturday says nothing, and an odd day nothing about its week.

A rise that was found stands, against what was usual then, until the cost is down or a person
accepts the new cost. An accepted cost is taken as that of all days before, so that it is the usual
one until later days are known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from statistics import median

from spindown.domain.bound import NotZero
from spindown.domain.diagnosis import CostShape, CostWindow, shape_of

#: The days before a day: at least so many must be known, or so many of the same weekday.
_WEEK = 7
_DAYS_ENOUGH = 3
_WEEKDAYS, _WEEKDAYS_ENOUGH = 4, 2
#: The weeks before the last one; at least so many must be known.
WEEKS = 8
_WEEKS_ENOUGH = 2
#: Share of the usual dollars that a day or a week must have cost to be judged.
_TELLING_SHARE = 0.5


class RiseSpan(StrEnum):
    """What costs more than it used to."""

    DAY = "day"
    WEEK = "week"


@dataclass(frozen=True, slots=True, kw_only=True)
class RiseLimits:
    """From how many times the usual cost of an item a person is told."""

    day: float
    week: float

    def of(self, span: RiseSpan) -> float:
        """Return the limit of a day or of a week."""
        return self.day if span is RiseSpan.DAY else self.week


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRise:
    """A rise that stands."""

    since: datetime
    span: RiseSpan
    #: What was usual before it.
    usual: CostShape


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedCost:
    """The cost of an item that a person has accepted."""

    at: datetime
    #: Of an item, all in.
    dollars: NotZero
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RiseFound:
    """A rise that stands now, and what an item costs now."""

    rise: CostRise
    now: CostShape


def find_rise(
    days: Mapping[date, CostWindow],
    at: datetime,
    *,
    limits: RiseLimits,
    standing: CostRise | None = None,
    accepted: AcceptedCost | None = None,
) -> RiseFound | None:
    """Return the rise that stands now; None: an item costs what is usual, or nothing is known.

    Args:
        days: what each day of UTC has cost, the present one as far as it has come.
        at: the time.
        limits: from where a cost is a rise.
        standing: the rise that stood at the last look.
        accepted: the cost that was accepted last.
    """
    today = at.date()
    if standing is not None and (accepted is None or accepted.at < standing.since):
        is_week = standing.span is RiseSpan.WEEK
        now = usual_shape(_week(days, today, 0)) if is_week else _last_day(days, today)
        return _above(standing, now, limits)
    before = days if accepted is None else _rebased(days, accepted)
    for span, now, usual in (
        (RiseSpan.DAY, *_compare_day(days, before, today)),
        (RiseSpan.WEEK, *_compare_week(days, before, today)),
    ):
        if now is not None and usual is not None:
            found = _above(CostRise(since=at, span=span, usual=usual), now, limits)
            if found is not None:
                return found
    return None


def _above(rise: CostRise, now: CostShape | None, limits: RiseLimits) -> RiseFound | None:
    is_above = (
        now is not None and now.cost_per_item > limits.of(rise.span) * rise.usual.cost_per_item
    )
    return RiseFound(rise=rise, now=now) if now is not None and is_above else None


def _compare_day(
    days: Mapping[date, CostWindow], before: Mapping[date, CostWindow], today: date
) -> tuple[CostShape | None, CostShape | None]:
    """Return the cost of the last day that can be judged, and the usual one before it.

    Today can be judged once it has cost half of a usual day, since the first boot of a morning
    makes its few items expensive. Until then yesterday is judged.
    """
    for day in (today, today - timedelta(days=1)):
        now, like = _judged(days, day), _like(before, day)
        if now is not None and like:
            return now, usual_shape(like)
    return None, None


def _compare_week(
    days: Mapping[date, CostWindow], before: Mapping[date, CostWindow], today: date
) -> tuple[CostShape | None, CostShape | None]:
    """Return the cost of the last seven whole days, and the usual one of the weeks before them.

    Of a week that is dear and a last day that is dearer the less is taken: a cost that is down
    again is no rise.
    """
    weeks = [_week(before, today, ago) for ago in range(1, WEEKS + 1)]
    known = [week for week in weeks if week]
    week, day = _week(days, today, 0), _last_day(days, today)
    usual = median(add_windows(each).dollars for each in known) if known else 0.0
    if len(known) < _WEEKS_ENOUGH or add_windows(week).dollars < _TELLING_SHARE * usual:
        return None, None
    shapes = [shape for shape in (usual_shape(week), day) if shape is not None]
    now = min(shapes, key=lambda shape: shape.cost_per_item, default=None)
    return now, usual_shape([window for each in known for window in each])


def _last_day(days: Mapping[date, CostWindow], today: date) -> CostShape | None:
    """Return the cost of the newest day that can be judged; None: of a week there is none."""
    shapes = (_judged(days, today - timedelta(days=ago)) for ago in range(_WEEK + 1))
    return next((shape for shape in shapes if shape is not None), None)


def _judged(days: Mapping[date, CostWindow], day: date) -> CostShape | None:
    """Return the cost of a day; None if it has cost little beside the days before."""
    before = _known(days, day, range(1, _WEEK + 1))
    shape = shape_of(days[day]) if day in days else None
    usual = median(window.dollars for window in before) if before else 0.0
    is_telling = shape is not None and days[day].dollars >= _TELLING_SHARE * usual
    return shape if is_telling else None


def _like(days: Mapping[date, CostWindow], day: date) -> Sequence[CostWindow]:
    """Return the same weekdays before a day, else the days before it; none: too few are known."""
    weekdays = _known(days, day, range(_WEEK, _WEEK * _WEEKDAYS + 1, _WEEK))
    if len(weekdays) >= _WEEKDAYS_ENOUGH:
        return weekdays
    before = _known(days, day, range(1, _WEEK + 1))
    return before if len(before) >= _DAYS_ENOUGH else ()


def _known(days: Mapping[date, CostWindow], day: date, ago: range) -> Sequence[CostWindow]:
    """Return what so many days before a day have cost, where an item was done and paid."""
    found = (days.get(day - timedelta(days=each)) for each in ago)
    return [window for window in found if window is not None and shape_of(window) is not None]


def _week(days: Mapping[date, CostWindow], today: date, ago: int) -> Sequence[CostWindow]:
    """Return the known days of the last seven whole ones, or of so many weeks before them."""
    return _known(days, today, range(_WEEK * ago + 1, _WEEK * (ago + 1) + 1))


def usual_shape(windows: Sequence[CostWindow]) -> CostShape | None:
    """Return the cost in the middle of the items, so that small or odd days change nothing.

    Half of the items are of windows where one cost no more. None: no item was done and paid.
    """
    shapes = ((window.items, shape_of(window)) for window in windows)
    ordered = sorted(
        ((shape.cost_per_item, items, shape) for items, shape in shapes if shape is not None),
        key=lambda each: each[0],
    )
    left = sum(items for _, items, _ in ordered) / 2
    for _, items, shape in ordered:
        left -= items
        if left <= 0:
            return shape
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

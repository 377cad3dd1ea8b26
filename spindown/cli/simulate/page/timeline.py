"""The queue and the fleets over time: the whole span, and the busiest day side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spindown.cli.render.canvas import CAUSE_COLOURS, INK, OURS, drawing, to_svg
from spindown.cli.simulate.alternative import AlternativeResult, Role
from spindown.simulator import Arrival, Sample
from spindown.simulator.scenario import DAY

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Equal bins of a span; all tuples are one value a bin."""

    #: Begin of each bin, seconds since the start of the scenario, and the end of the last.
    edges: tuple[float, ...]
    #: Most jobs that waited.
    backlog: tuple[float, ...]
    #: Mean number of instances.
    busy: tuple[float, ...]
    idle: tuple[float, ...]
    booting: tuple[float, ...]


def bin_samples(
    samples: Sequence[Sample], *, begin: float, end: float, bins: int, over: float
) -> Bins:
    """Return samples in bins; what was seen holds until it was looked at again.

    Args:
        samples: in order of time.
        begin: seconds since the start.
        end: likewise, after ``begin``.
        bins: how many.
        over: when the simulation was, seconds since the start; from then on there is nothing.
    """
    width = (end - begin) / bins
    backlog = [0.0] * bins
    sums: dict[str, list[float]] = {name: [0.0] * bins for name in ("busy", "idle", "booting")}
    for number, sample in enumerate(samples):
        until = samples[number + 1].seconds if number + 1 < len(samples) else over
        since, until = max(sample.seconds, begin), min(until, end)
        if until <= since:
            continue
        first = int((since - begin) / width)
        last = min(int((until - begin) / width), bins - 1)
        for index in range(min(first, bins - 1), last + 1):
            left = begin + index * width
            share = (min(until, left + width) - max(since, left)) / width
            if share <= 0.0:
                continue
            backlog[index] = max(backlog[index], float(sample.visible))
            sums["busy"][index] += sample.busy * share
            sums["idle"][index] += sample.idle * share
            sums["booting"][index] += sample.booting * share
    return Bins(
        edges=tuple(begin + index * width for index in range(bins + 1)),
        backlog=tuple(backlog),
        busy=tuple(sums["busy"]),
        idle=tuple(sums["idle"]),
        booting=tuple(sums["booting"]),
    )


def busiest_day(arrivals: Sequence[Arrival], length: float) -> tuple[float, float]:
    """Return (begin, end) of the day, counted from the start, that brings most work."""
    if length <= DAY:
        return 0.0, length
    work: dict[int, float] = {}
    for arrival in arrivals:
        day = int(arrival.at // DAY)
        work[day] = work.get(day, 0.0) + arrival.work_seconds
    best = max(sorted(work), key=work.__getitem__, default=0)
    return best * DAY, (best + 1) * DAY


_BINS = 360
_HOUR = 3600.0
_DAY_HOURS = 24
#: Hours from tick to tick, and how many ticks there is room for.
_TICK_HOURS = (1, 2, 3, 6, 12, 24, 48, 72, 168, 336, 672)
_TICKS_AT_MOST = 10
#: State of a worker -> (the cause that it is paid for, words).
_STATES = {"busy": "work", "booting": "boot", "idle": "idle"}


def plot_span(outcome: AlternativeResult, *, start: datetime, end: float) -> str:
    """Return backlog and workers of one outcome over ``end`` seconds, as SVG."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - heavy, and only for the page

    series = _bin(outcome, 0.0, end)
    hours = _hours(series)
    with drawing(9.2, 4.4, rows=2, sharex=True, height_ratios=(1, 1)) as (figure, (queue, fleet)):
        queue.stairs(series.backlog, hours, fill=True, color=OURS, alpha=0.85)
        queue.set_title("jobs waiting, the most at a time")
        _stack(fleet, series)
        fleet.set_title("instances, mean")
        handles, labels = fleet.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=3, fontsize=10)
        for axes in (queue, fleet):
            axes.set_ylim(0, max(axes.get_ylim()[1], 1.0))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
            axes.grid(visible=False, axis="x")
        _tell_time(fleet, start, 0.0, end)
        return to_svg(
            figure, name="span", label="Jobs waiting and instances over the whole simulated span"
        )


def plot_day(
    outcomes: Sequence[AlternativeResult], *, start: datetime, begin: float, end: float
) -> str:
    """Return the workers of every outcome between two seconds, one row each, as SVG."""
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - heavy, and only for the page

    shown = [one for one in outcomes if one.alternative.role is not Role.FRONTIER]
    tallest = 1.0
    height = 0.9 + 0.86 * len(shown)
    with drawing(9.2, height, rows=len(shown), sharex=True, sharey=True) as (figure, rows):
        for axes, one in zip(rows, shown, strict=True):
            series = _bin(one, begin, end)
            tallest = max(
                tallest, *map(sum, zip(series.busy, series.idle, series.booting, strict=True))
            )
            _stack(axes, series)
            is_ours = one.alternative.role is Role.OURS
            axes.set_title(one.alternative.name, color=OURS if is_ours else INK, pad=3)
            axes.grid(visible=False, axis="x")
            axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
        rows[0].set_ylim(0, tallest * 1.05)
        handles, labels = rows[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper right", ncols=3, fontsize=10)
        figure.supylabel("instances", fontsize=10)
        _tell_time(rows[-1], start, begin, end)
        return to_svg(figure, name="day", label="Instances of every way on the busiest day")


def _bin(outcome: AlternativeResult, begin: float, end: float) -> Bins:
    result = outcome.result
    return bin_samples(result.samples, begin=begin, end=end, bins=_BINS, over=result.seconds)


def _hours(series: Bins) -> list[float]:
    return [edge / _HOUR for edge in series.edges]


def _stack(axes: "Axes", series: Bins) -> None:
    below = [0.0] * len(series.busy)
    for state, cause in _STATES.items():
        values = getattr(series, state)
        above = [low + value for low, value in zip(below, values, strict=True)]
        axes.stairs(
            above,
            _hours(series),
            baseline=below,
            fill=True,
            color=CAUSE_COLOURS[cause],
            label=state,
            linewidth=0,
        )
        below = above


def _tell_time(axes: "Axes", start: datetime, begin: float, end: float) -> None:
    """Write days or hours below an axis, at whole ones of the calendar."""
    fitting = [step for step in _TICK_HOURS if (end - begin) / _HOUR / step <= _TICKS_AT_MOST]
    every = fitting[0] if fitting else _TICK_HOURS[-1]
    first = start + timedelta(seconds=begin)
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = [
        midnight + timedelta(hours=every * number)
        for number in range(int((end - begin) / _HOUR / every) + 2 * _DAY_HOURS)
    ]
    last = start + timedelta(seconds=end)
    ticks = [tick for tick in ticks if first <= tick <= last]
    axes.set_xticks(
        [(tick - start).total_seconds() / _HOUR for tick in ticks],
        [_words(tick, every, is_long=end - begin > _DAY_HOURS * _HOUR) for tick in ticks],
    )
    axes.set_xlim(begin / _HOUR, end / _HOUR)
    is_day = end - begin <= _DAY_HOURS * _HOUR
    axes.set_xlabel(f"{first:%A, %-d %B %Y}, UTC" if is_day else f"{_months(first, last)}, UTC")


def _months(first: datetime, last: datetime) -> str:
    """Return the first and the last month of a span; one that ends at its midnight is not left."""
    last -= timedelta(seconds=1)
    if (first.year, first.month) == (last.year, last.month):
        return f"{first:%B %Y}"
    begin = f"{first:%B}" if first.year == last.year else f"{first:%B %Y}"
    return f"{begin} to {last:%B %Y}"


def _words(tick: datetime, every: int, *, is_long: bool) -> str:
    """Return the hour of a tick; its day, if the span has several and it is their midnight."""
    if every >= _DAY_HOURS or (is_long and tick.hour == 0):
        return f"{tick:%-d %b}"
    return f"{tick:%H:%M}"

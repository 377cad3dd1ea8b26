"""Cost against delay: every way to do the work as a point."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from spindown.cli.simulate.contest import ContestOutcome, Role
from spindown.cli.simulate.page.canvas import OTHERS, OURS, drawing, to_svg
from spindown.cli.simulate.page.label import Label, write_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Waits and costs below are drawn here: a logarithm has no zero.
_LEAST_MINUTES = 0.1
_LEAST_DOLLARS = 1e-3
_STEPS = 12
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def plot_frontier(outcomes: Sequence[ContestOutcome]) -> str:
    """Return the plot as SVG; who left work undone is not in it.

    Args:
        outcomes: ours first; one of them did all of the work.
    """
    with drawing(9.2, 5.4) as (figure, (axes,)):
        outcomes = [one for one in outcomes if one.is_whole]
        line = sorted(_point(one) for one in outcomes if one.contestant.role is not Role.BASELINE)
        axes.set_xscale("log")
        axes.set_yscale("log")
        across, up = [x for x, _ in line], [y for _, y in line]
        axes.plot(across, up, ".-", color=OURS, linewidth=2, markersize=7, zorder=3)
        points = [one for one in outcomes if one.contestant.role is not Role.FRONTIER]
        for one in points:
            is_ours = one.contestant.role is Role.OURS
            axes.plot(
                *_point(one),
                "o",
                markersize=10 if is_ours else 7,
                color=OURS if is_ours else OTHERS,
                zorder=4,
            )
        _scale(axes, list(map(_point, outcomes)))
        axes.set_xlabel("95 % of jobs start within so many minutes")
        axes.set_ylabel("USD per 1,000 items")
        figure.canvas.draw()
        write_labels(axes, [*map(_name, points), *_ends(outcomes)], _along(line))
        return to_svg(
            figure,
            name="frontier",
            label="Cost per thousand items against the time within which 95 % of jobs start",
        )


def _point(outcome: ContestOutcome) -> tuple[float, float]:
    result = outcome.result
    minutes = max(result.wait.p95 / 60.0, _LEAST_MINUTES)
    dollars = result.dollars / max(result.items_done, 1) * 1000
    return minutes, max(dollars, _LEAST_DOLLARS)


def _name(outcome: ContestOutcome) -> Label:
    is_ours = outcome.contestant.role is Role.OURS
    return Label(
        text=outcome.contestant.name,
        point=_point(outcome),
        colour=OURS if is_ours else OTHERS,
        size=11.5 if is_ours else 10.5,
        is_bold=is_ours,
    )


def _along(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points of a line, and more between them, so close that no name fits there."""
    between = [
        (x0 * (x1 / x0) ** (step / _STEPS), y0 * (y1 / y0) ** (step / _STEPS))
        for (x0, y0), (x1, y1) in pairwise(curve)
        for step in range(_STEPS)
    ]
    return [*between, *curve[-1:]]


def _ends(outcomes: Sequence[ContestOutcome]) -> list[Label]:
    """Return what the first and the last of the other promises say."""
    others = [one for one in outcomes if one.contestant.role is Role.FRONTIER]
    others.sort(key=_point)
    return [
        Label(text=one.contestant.name, point=_point(one), colour=OURS, size=9)
        for one in (others[:1] + others[-1:] if len(others) > 1 else others)
    ]


def _scale(axes: "Axes", points: Sequence[tuple[float, float]]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415 - heavy, and only for the page

    across = [x for x, _ in points]
    up = [y for _, y in points]
    axes.set_xlim(min(across) * 0.6, max(across) * 1.9)
    axes.set_ylim(min(up) * 0.6, max(up) * 1.6)
    axes.xaxis.set_major_locator(FixedLocator(_TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"${y:,.3g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())

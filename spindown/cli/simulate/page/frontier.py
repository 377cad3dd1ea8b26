"""Cost against delay: every way to do the work as a point, with its name beside it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from spindown.cli.render.canvas import OTHERS, OURS, drawing, to_svg
from spindown.cli.simulate.alternative import AlternativeResult, Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation


#: left, low, right, high, in pixels.
Box = tuple[float, ...]

#: (dx, dy, horizontal, vertical alignment) of a name from its point, in points, best first.
_PLACES = (
    (8, 0, "left", "center"),
    (-8, 0, "right", "center"),
    (0, 9, "center", "bottom"),
    (0, -9, "center", "top"),
    (7, 9, "left", "bottom"),
    (7, -9, "left", "top"),
    (-7, 9, "right", "bottom"),
    (-7, -9, "right", "top"),
    (0, 22, "center", "bottom"),
    (0, -22, "center", "top"),
    (22, 20, "left", "bottom"),
    (-22, 20, "right", "bottom"),
)
_POINT_PIXELS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A name at a point, in the units of the axes."""

    text: str
    point: tuple[float, float]
    colour: str
    size: float = 10.0
    is_bold: bool = False


def write_labels(
    axes: "Axes", labels: Sequence[Label], obstacles: Sequence[tuple[float, float]]
) -> None:
    """Write labels, the first first; one without a free place takes where it covers least.

    A name on a name is worst: neither can be read.

    Args:
        axes: drawn already, so that texts have sizes.
        labels: what to write.
        obstacles: other points that no name may cover.
    """
    points = [_around(axes, point) for point in (*obstacles, *(label.point for label in labels))]
    words = [_box(text) for text in axes.texts]
    frame = tuple(axes.bbox.extents)
    for label in labels:
        tried = [_write(axes, label, place) for place in range(len(_PLACES))]
        kept = min(tried, key=lambda text: _covered(_box(text), words, points, frame))
        for text in tried:
            if text is not kept:
                text.remove()
        words.append(_box(kept))


def _write(axes: "Axes", label: Label, place: int) -> "Annotation":
    dx, dy, across, up = _PLACES[place]
    return axes.annotate(
        label.text,
        label.point,
        xytext=(dx, dy),
        textcoords="offset points",
        ha=across,
        va=up,
        fontsize=label.size,
        fontweight="bold" if label.is_bold else "normal",
        color=label.colour,
        zorder=5,
    )


def _around(axes: "Axes", point: tuple[float, float]) -> Box:
    x, y = axes.transData.transform(point)
    return (x - _POINT_PIXELS, y - _POINT_PIXELS, x + _POINT_PIXELS, y + _POINT_PIXELS)


def _box(text: object) -> Box:
    return tuple(text.get_window_extent().extents)  # type: ignore[attr-defined]


def _covered(
    box: Box, words: Sequence[Box], points: Sequence[Box], frame: Box
) -> tuple[int, int, int]:
    """Return what a name would have outside the frame, on names and on points: square pixels."""
    # To whole pixels: what is left of rounding is no reason.
    return (
        round(_area(box) - _common(box, frame)),
        round(math.fsum(_common(box, other) for other in words)),
        round(math.fsum(_common(box, other) for other in points)),
    )


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _common(one: Box, other: Box) -> float:
    """Return the area that two boxes share."""
    across = min(one[2], other[2]) - max(one[0], other[0])
    up = min(one[3], other[3]) - max(one[1], other[1])
    return max(across, 0.0) * max(up, 0.0)


#: Waits and costs below are drawn here: a logarithm has no zero.
_LEAST_MINUTES = 0.1
_LEAST_DOLLARS = 1e-3
_STEPS = 12
_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def plot_frontier(outcomes: Sequence[AlternativeResult]) -> str:
    """Return the plot as SVG; who left work undone is not in it.

    Args:
        outcomes: ours first; one of them did all of the work.
    """
    with drawing(9.2, 5.4) as (figure, (axes,)):
        outcomes = [one for one in outcomes if one.is_whole]
        line = sorted(_point(one) for one in outcomes if one.alternative.role is not Role.BASELINE)
        axes.set_xscale("log")
        axes.set_yscale("log")
        across, up = [x for x, _ in line], [y for _, y in line]
        axes.plot(across, up, ".-", color=OURS, linewidth=2, markersize=7, zorder=3)
        points = [one for one in outcomes if one.alternative.role is not Role.FRONTIER]
        for one in points:
            is_ours = one.alternative.role is Role.OURS
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


def _point(outcome: AlternativeResult) -> tuple[float, float]:
    result = outcome.result
    minutes = max(result.wait.p95 / 60.0, _LEAST_MINUTES)
    dollars = result.dollars / max(result.items_done, 1) * 1000
    return minutes, max(dollars, _LEAST_DOLLARS)


def _name(outcome: AlternativeResult) -> Label:
    is_ours = outcome.alternative.role is Role.OURS
    return Label(
        text=outcome.alternative.name,
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


def _ends(outcomes: Sequence[AlternativeResult]) -> list[Label]:
    """Return what the first and the last of the other promises say."""
    others = [one for one in outcomes if one.alternative.role is Role.FRONTIER]
    others.sort(key=_point)
    return [
        Label(text=one.alternative.name, point=_point(one), colour=OURS, size=9)
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

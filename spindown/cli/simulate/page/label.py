"""Write names beside their points, where they cover neither each other nor a point."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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

"""Write names beside their points, where they cover neither each other nor a point."""

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
    """Write labels, the first first; one that has no free place takes its usual one.

    Args:
        axes: drawn already, so that texts have sizes.
        labels: what to write.
        obstacles: other points that no name may cover.
    """
    taken = [_around(axes, point) for point in (*obstacles, *(label.point for label in labels))]
    taken += [_box(text) for text in axes.texts]
    frame = tuple(axes.bbox.extents)
    for label in labels:
        tried = [_write(axes, label, place) for place in range(len(_PLACES))]
        free = [text for text in tried if _is_free(_box(text), taken, frame)]
        kept = free[0] if free else tried[0]
        for text in tried:
            if text is not kept:
                text.remove()
        taken.append(_box(kept))


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


def _is_free(box: Box, taken: Sequence[Box], frame: Box) -> bool:
    left, low, right, high = box
    is_inside = left >= frame[0] and low >= frame[1] and right <= frame[2] and high <= frame[3]
    return is_inside and all(
        right <= other[0] or left >= other[2] or high <= other[1] or low >= other[3]
        for other in taken
    )

"""One graph of a dashboard: an SVG of lines and axes, and beside it a legend of HTML.

What metrics are called may be anybody's text. So no name is part of the drawing: titles and names
stand in the HTML, escaped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

from spindown.cli.render.canvas import FAINT, drawing, to_svg
from spindown.contract.dashboard import MetricQuery, Widget
from spindown.error import printable
from spindown.port import MetricSeries
from spindown.reason_text import say_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Okabe and Ito's, and shades that differ from them in lightness.
_COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#8C6D1F",
    "#444c56",
    "#7A4FA3",
    "#B6BEC7",
)
#: Lines that one graph shows, the largest; the names of more nobody can tell apart.
LINES_SHOWN = len(_COLOURS)
_NAME_SHOWN = 80
_INCHES_A_COLUMN = 0.52
_HEIGHT = 2.0
_TICK_POINTS = 8
#: Beside an axis: a number of eight characters; beside none: half of a time's label.
_LABEL_POINTS, _BARE_POINTS = 40.0, 14.0
#: From one time on the axis to the next.
_TIME_POINTS = 48.0
#: On an axis of values: at most so many steps, each of so much times a power of ten.
_STEPS_AT_MOST = 5
_STEPS, _WHOLE_STEPS = (1, 2, 2.5, 5, 10), (1, 2, 5, 10)
_MARK = "#cf222e"


@dataclass(frozen=True, slots=True)
class _Curve:
    name: str
    colour: str
    is_right: bool
    points: Sequence[tuple[datetime, float]]


def draw_graph(
    widget: Widget, series: Sequence[MetricSeries], *, since: datetime, until: datetime, name: str
) -> str:
    """Return a graph as HTML: title, drawing, legend. ``name`` is unique on the page."""
    lines = _lines(widget, series)
    with drawing(widget.width * _INCHES_A_COLUMN, _HEIGHT, layout=None) as (figure, (axes,)):
        right = axes.twinx() if any(line.is_right for line in lines) else None
        points = 72.0 * widget.width * _INCHES_A_COLUMN
        beside = _BARE_POINTS if right is None else _LABEL_POINTS
        left_edge, right_edge = _LABEL_POINTS / points, 1.0 - beside / points
        figure.subplots_adjust(left=left_edge, right=right_edge, top=0.95, bottom=0.14)
        _plot(axes, [line for line in lines if not line.is_right], is_stacked=widget.is_stacked)
        for mark in widget.marks:
            axes.axhline(mark.value, color=_MARK, linewidth=1.0, linestyle="--")
        _from_zero(axes)
        _number(axes, [line for line in lines if not line.is_right])
        if right is not None:
            _plot(right, [line for line in lines if line.is_right], is_stacked=False)
            right.grid(visible=False)
            right.spines["right"].set_visible(True)
            right.tick_params(labelsize=_TICK_POINTS, color=FAINT)
            if widget.right_from_zero:
                _from_zero(right)
            _number(right, [line for line in lines if line.is_right])
        _set_time(axes, since, until, at_most=int((points - _LABEL_POINTS - beside) / _TIME_POINTS))
        label = printable(widget.title)
        svg = to_svg(figure, name=name, label=label)
    more = len(series) - len(lines)
    return (
        f"<h3>{escape(label)}</h3>{_units(widget)}{svg}<ul>"
        + ("".join(_legend(widget, lines)) or "<li>no data yet</li>")
        + (f"<li>and {more} smaller ones</li>" if more > 0 else "")
        + "</ul>"
    )


def _lines(widget: Widget, series: Sequence[MetricSeries]) -> Sequence[_Curve]:
    queries: Mapping[str, MetricQuery] = {one.query_id: one for one in widget.queries}
    shown = list(series)
    if len(shown) > LINES_SHOWN:
        shown.sort(key=lambda one: -max((value for _, value in one.points), default=0.0))
    return [
        _Curve(
            name=printable(one.label or one.query_id)[:_NAME_SHOWN],
            colour=colour,
            is_right=one.query_id in queries and queries[one.query_id].is_right,
            points=one.points,
        )
        for one, colour in zip(shown, _COLOURS, strict=False)
    ]


def _plot(axes: "Axes", lines: Sequence[_Curve], *, is_stacked: bool) -> None:
    known = [line for line in lines if line.points]
    if is_stacked and known:
        times = sorted({at for line in known for at, _ in line.points})
        heights = [[dict(line.points).get(at, 0.0) for at in times] for line in known]
        colours = [line.colour for line in known]
        if len(times) > 1:
            axes.stackplot(times, heights, colors=colours, step="post", alpha=0.85)  # type: ignore[arg-type] # instants are taken
            return
    for line in known:
        marker = "o" if len(line.points) == 1 else ""
        # matplotlib takes instants; its annotations do not say so.
        moments: Any = [at for at, _ in line.points]
        values = [value for _, value in line.points]
        axes.plot(moments, values, color=line.colour, linewidth=1.4, marker=marker, markersize=4)


def _from_zero(axes: "Axes") -> None:
    """Let an axis begin at zero, also where nothing but zero is on it."""
    axes.set_ylim(bottom=0, top=None if axes.dataLim.y1 > 0.0 else 1.0)


def _number(axes: "Axes", lines: Sequence[_Curve]) -> None:
    """Number an axis as what is on it: a count in whole numbers, nothing not at all."""
    from matplotlib import ticker  # noqa: PLC0415 - heavy, and only for the page

    values = [value for line in lines for _, value in line.points]
    if not values and not axes.lines:
        axes.set_yticks([])
        return
    is_count = all(value.is_integer() for value in values)
    steps = _WHOLE_STEPS if is_count else _STEPS
    places = ticker.MaxNLocator(_STEPS_AT_MOST, integer=is_count, steps=steps)
    axes.yaxis.set_major_locator(places)
    # Else small numbers share a factor, which is written where the unit stands.
    whole = ticker.ScalarFormatter(useOffset=False)
    whole.set_scientific(False)
    axes.yaxis.set_major_formatter(whole)


def _set_time(axes: "Axes", since: datetime, until: datetime, *, at_most: int) -> None:
    from matplotlib import dates  # noqa: PLC0415 - heavy, and only for the page

    axes.set_xlim(since, until)  # type: ignore[arg-type] # likewise
    module: Any = dates
    places = module.AutoDateLocator(tz=UTC, minticks=2, maxticks=max(min(at_most, 7), 3))
    axes.xaxis.set_major_locator(places)
    axes.xaxis.set_major_formatter(module.ConciseDateFormatter(places, tz=UTC, show_offset=False))
    axes.tick_params(labelsize=_TICK_POINTS, color=FAINT)


def _units(widget: Widget) -> str:
    left, right = escape(widget.left_label), escape(widget.right_label)
    return f'<p class="units"><span>{left}</span><span>{right}</span></p>' if left or right else ""


def _legend(widget: Widget, lines: Sequence[_Curve]) -> Iterator[str]:
    for line in lines:
        last = " no data yet"
        if line.points:
            at, value = line.points[-1]
            last = f" <b>{say_number(value, 3)}</b> from {at:%H:%M}"
        axis = " (right)" if line.is_right else ""
        yield f'<li><i style="background:{line.colour}"></i>{escape(line.name)}{axis}{last}</li>'
    for mark in widget.marks:
        text = escape(printable(mark.label)[:_NAME_SHOWN])
        yield (
            f'<li><i style="background:{_MARK}"></i>{text} <b>{say_number(mark.value, 3)}</b></li>'
        )

"""The body of a CloudWatch dashboard as our template has it, read into values.

As the CloudWatch API Reference says ("Dashboard Body Structure and Syntax"), as far as our own
dashboards use it: text, alarms, and time series of metrics, metric math and searches.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from spindown.contract.metric import say_metric
from spindown.error import ContractError

_MINUTE = 60
#: Lengths that a dashboard of ours begins with (ISO 8601).
_STARTS = {"-PT12H": timedelta(hours=12), "-P1D": timedelta(days=1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricQuery:
    """One metric or expression of a graph, as GetMetricData takes it."""

    query_id: str
    #: "": CloudWatch names it.
    label: str = ""
    #: Seconds.
    period: int = _MINUTE
    #: Metric math or a search; "": the metric below.
    expression: str = ""
    namespace: str = ""
    name: str = ""
    dimensions: Mapping[str, str] | None = None
    statistic: str = ""
    #: Whether it is shown, and not only used by an expression.
    is_shown: bool = True
    is_right: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A line across a graph: a threshold."""

    value: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Widget:
    """One widget: a text, alarms by name, or a graph; columns of 24, rows from the top."""

    kind: str
    x: int
    y: int
    width: int
    height: int
    title: str = ""
    markdown: str = ""
    alarms: tuple[str, ...] = ()
    queries: tuple[MetricQuery, ...] = ()
    is_stacked: bool = False
    marks: tuple[Mark, ...] = ()
    left_label: str = ""
    right_label: str = ""
    #: Whether the right axis begins at zero.
    right_from_zero: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardBody:
    """A whole dashboard."""

    #: How far back it looks unless somebody says otherwise.
    span: timedelta
    widgets: tuple[Widget, ...]


def read_dashboard(text: str) -> DashboardBody:
    """Return what a body holds (raises ContractError)."""
    try:
        given = json.loads(text)
        return DashboardBody(
            span=_STARTS.get(given.get("start", ""), timedelta(hours=3)),
            widgets=tuple(_widget(one) for one in given["widgets"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError) as exc:
        remedy = "deploy this version's insight stack again"
        raise ContractError("dashboard", text[:60], remedy) from exc


def _widget(given: Mapping[str, Any]) -> Widget:
    properties = given["properties"]
    axes = properties.get("yAxis", {})
    right = axes.get("right", {})
    return Widget(
        kind=str(given["type"]),
        x=int(given["x"]),
        y=int(given["y"]),
        width=int(given["width"]),
        height=int(given["height"]),
        title=str(properties.get("title", "")),
        markdown=str(properties.get("markdown", "")),
        alarms=tuple(str(arn).rpartition(":alarm:")[2] for arn in properties.get("alarms", ())),
        queries=tuple(_queries(properties.get("metrics", ()))),
        is_stacked=bool(properties.get("stacked")),
        marks=tuple(
            Mark(value=float(one["value"]), label=str(one.get("label", "")))
            for one in properties.get("annotations", {}).get("horizontal", ())
        ),
        left_label=str(axes.get("left", {}).get("label", "")),
        right_label=str(right.get("label", "")),
        right_from_zero=right.get("min") is not None,
    )


def _queries(rows: Sequence[Sequence[Any]]) -> Iterator[MetricQuery]:
    for number, row in enumerate(rows):
        options: Mapping[str, Any] = row[-1] if isinstance(row[-1], Mapping) else {}
        path = [str(part) for part in row if not isinstance(part, Mapping)]
        expression = str(options.get("expression", ""))
        yield MetricQuery(
            # An id that a graph's expression uses is given; each of the others needs one.
            query_id=str(options.get("id", f"q{number}")),
            # A template has no room to name each line in words.
            label=str(options.get("label", "" if expression else say_metric(path[1]))),
            period=int(options.get("period", _MINUTE)),
            expression=expression,
            namespace="" if expression else path[0],
            name="" if expression else path[1],
            dimensions=dict(zip(path[2::2], path[3::2], strict=True)),
            statistic=str(options.get("stat", "Average")),
            is_shown=options.get("visible", True) is not False,
            is_right=options.get("yAxis") == "right",
        )

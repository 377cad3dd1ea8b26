"""GetMetricData with metric math and searches, which the emulator leaves out.

As the CloudWatch User Guide says ("Using math expressions with CloudWatch metrics", "Using search
expressions in graphs"), as far as dashboards and alarms of ours use them. One data point of each
metric is calculated at a time.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SEARCH = re.compile(r"SEARCH\('\{([^}]*)\} ([^']*)', '([^']*)', (\d+)\)")
_TERM = re.compile(r'(\w+)="([^"]*)"')
_PROPERTY = re.compile(r"\$\{PROP\('Dim\.(\w+)'\)\}")
#: No graph has more points.
_POINTS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric that something was stored of."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]


#: Metric, statistic and period in seconds -> begin of a period -> value.
ReadMetric = Callable[[MetricName, str, int], Mapping[int, float]]


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One line of an answer."""

    query_id: str
    label: str
    points: Mapping[int, float]


def evaluate_queries(
    queries: Sequence[Mapping[str, Any]],
    *,
    since: float,
    until: float,
    stored: Sequence[MetricName],
    read: ReadMetric,
) -> Iterator[MetricLine]:
    """Yield the lines that queries of GetMetricData show.

    Args:
        queries: as the call has them.
        since: begin, seconds since 1970.
        until: end, not included.
        stored: every metric that there is.
        read: what gives one's values.
    """
    given: dict[str, Mapping[int, float]] = {}
    for query in queries:
        if "MetricStat" in query:
            stat = query["MetricStat"]
            metric = stat["Metric"]
            dimensions = {one["Name"]: one["Value"] for one in metric.get("Dimensions") or ()}
            name = MetricName(metric["Namespace"], metric["MetricName"], dimensions)
            given[query["Id"]] = read(name, stat["Stat"], int(stat["Period"]))
    for query in queries:
        if query.get("ReturnData") is False:
            continue
        label = str(query.get("Label") or "")
        if "MetricStat" in query:
            name_shown = label or query["MetricStat"]["Metric"]["MetricName"]
            yield MetricLine(query["Id"], name_shown, given[query["Id"]])
            continue
        text = str(query["Expression"])
        if (search := _SEARCH.search(text)) is not None:
            found = list(_search(search, stored, read))
            if text == search[0]:
                for name, points in found:
                    yield MetricLine(query["Id"], _label(label, name), points)
            else:
                yield MetricLine(query["Id"], label, _sum([points for _, points in found]))
            continue
        period = int(query.get("Period") or 60)
        points = _calculate(text, given, period, since, until)
        yield MetricLine(query["Id"], label or query["Id"], points)


def _search(
    search: "re.Match[str]", stored: Sequence[MetricName], read: ReadMetric
) -> Iterator[tuple[MetricName, Mapping[int, float]]]:
    namespace, *names = search[1].split(",")
    terms = dict(_TERM.findall(search[2]))
    wanted = terms.pop("MetricName", "")
    for one in stored:
        if (one.namespace, one.name) != (namespace, wanted) or set(one.dimensions) != set(names):
            continue
        if all(one.dimensions.get(key) == value for key, value in terms.items()):
            yield one, read(one, search[3], int(search[4]))


def _label(label: str, metric: MetricName) -> str:
    return _PROPERTY.sub(lambda found: metric.dimensions.get(found[1], ""), label) or metric.name


def _sum(every: Sequence[Mapping[int, float]]) -> Mapping[int, float]:
    sums: dict[int, float] = {}
    for points in every:
        for at, value in points.items():
            sums[at] = sums.get(at, 0.0) + value
    return sums


def _calculate(
    expression: str,
    given: Mapping[str, Mapping[int, float]],
    period: int,
    since: float,
    until: float,
) -> Mapping[int, float]:
    first = int(since // period) * period
    times = range(first, int(until) + 1, period)[:_POINTS_MAX]
    node = _parse(expression)
    found = {
        at: _value_of(node, {name: points.get(at) for name, points in given.items()})
        for at in times
    }
    return {at: value for at, value in found.items() if value is not None}


def calculate(expression: str, values: Mapping[str, float | None]) -> float | None:
    """Return what metric math makes of one data point of each metric; None: no data point.

    Raises:
        ValueError: it is none that we write.
    """
    return _value_of(_parse(expression), values)


def _parse(expression: str) -> ast.expr:
    python = expression.replace(" AND ", " and ").replace(" OR ", " or ").replace("IF(", "when(")
    return ast.parse(python.strip(), mode="eval").body


def _value_of(node: ast.expr, given: Mapping[str, float | None]) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return given[name]
        case ast.Call(func=ast.Name(id="FILL"), args=[value, default]):
            found = _value_of(value, given)
            return _value_of(default, given) if found is None else found
        case ast.Call(func=ast.Name(id="when"), args=[condition, yes, *rest]):
            holds = _value_of(condition, given)
            chosen = [yes] if holds else [] if holds is None else rest
            return _value_of(chosen[0], given) if chosen else None
        case (
            ast.Compare(left=left, ops=[operator], comparators=[right])
            | ast.BinOp(left=left, op=operator, right=right)
        ):
            return _operate(type(operator), _value_of(left, given), _value_of(right, given))
    raise ValueError(f"no metric math that is known here: {ast.unparse(node)}")


_OPERATIONS: Mapping[type, Callable[[float, float], float | None]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    # A division by zero is no data point.
    ast.Div: lambda a, b: a / b if b else None,
    ast.GtE: lambda a, b: a >= b,
    ast.Gt: lambda a, b: a > b,
    ast.LtE: lambda a, b: a <= b,
    ast.Lt: lambda a, b: a < b,
}


def _operate(kind: type, left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else _OPERATIONS[kind](left, right)

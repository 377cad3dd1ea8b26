"""GetMetricData of the local system calculates what our dashboards ask."""

from collections.abc import Mapping
from typing import Any

import pytest

from spindown.local.metric_math import MetricLine, MetricName, calculate, evaluate_queries

DATA = {
    ("Backlog", "a"): {0: 3.0, 120: 1.0},
    ("Backlog", "b"): {60: 5.0},
    ("Spend", "a"): {0: 2.0},
}
STORED = [MetricName("Spindown", name, {"D": "demo", "Workload": w}) for name, w in DATA]


def read(metric: MetricName, statistic: str, period: int) -> Mapping[int, float]:
    assert (statistic, period) in {("Maximum", 60), ("Sum", 300)}
    return DATA.get((metric.name, metric.dimensions["Workload"]), {})


def lines(*queries: Mapping[str, Any]) -> list[MetricLine]:
    return list(evaluate_queries(queries, since=0.0, until=180.0, stored=STORED, read=read))


def a_metric(name: str = "Backlog", workload: str = "a", **more: Any) -> Mapping[str, Any]:
    dimensions = [{"Name": "D", "Value": "demo"}, {"Name": "Workload", "Value": workload}]
    metric = {"Namespace": "Spindown", "MetricName": name, "Dimensions": dimensions}
    return {"Id": "m", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Maximum"}, **more}


def a_search(**more: Any) -> Mapping[str, Any]:
    text = "SEARCH('{Spindown,D,Workload} MetricName=\"Backlog\" D=\"demo\"', 'Sum', 300)"
    return {"Id": "s", "Expression": text, "Label": "${PROP('Dim.Workload')}", **more}


def test_a_metric_is_what_was_stored() -> None:
    (line,) = lines(a_metric())

    assert (line.label, line.points) == ("Backlog", {0: 3.0, 120: 1.0})


def test_what_only_serves_an_expression_is_not_shown() -> None:
    filled = {"Id": "q", "Expression": "FILL(m, 0)", "Label": "waiting", "Period": 60}

    (line,) = lines(a_metric(ReturnData=False), filled)

    assert line.label == "waiting"
    assert line.points == {0: 3.0, 60: 0.0, 120: 1.0, 180: 0.0}


def test_a_search_gives_a_line_for_each_metric() -> None:
    found = {line.label: line.points for line in lines(a_search())}

    assert found == {"a": {0: 3.0, 120: 1.0}, "b": {60: 5.0}}


def test_a_sum_of_a_search_is_one_line() -> None:
    (line,) = lines(a_search(Expression=f"SUM({a_search()['Expression']})", Label="all"))

    assert (line.label, line.points) == ("all", {0: 3.0, 60: 5.0, 120: 1.0})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("IF(a > 0, b / a)", 2.0),
        ("IF(z > 0, b / z)", None),
        ("IF(z > 0, 1, 7)", 7.0),
        ("100 * (1 - FILL(none, 0) / a)", 100.0),
        ("none + 1", None),
        ("b / z", None),
    ],
)
def test_metric_math_of_ours_is_known(expression: str, value: float | None) -> None:
    assert calculate(expression, {"a": 2.0, "b": 4.0, "z": 0.0, "none": None}) == value


@pytest.mark.parametrize("expression", ["__import__('os')", "a.b", "[1]", "a if b else c"])
def test_other_expressions_are_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="metric math"):
        calculate(expression, {"a": 1.0, "b": 1.0, "c": 1.0})

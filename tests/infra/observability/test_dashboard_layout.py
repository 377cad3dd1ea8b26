"""Dashboards show what is emitted, in the order a person asks, within what is free."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.dashboard import read_dashboard
from spindown.contract.metric import METRICS, STATE, WORKLOAD
from spindown.contract.settings import NAMESPACE
from spindown.control.plan.charge import CHARGED_EVERY
from spindown.error import ContractError
from spindown.infra.observability.metric import MINUTE, MetricScope
from tests.infra.observability.assembly import (
    a_config,
    alarm_metrics,
    all_of,
    body,
    graph_metrics,
    graphs,
    synthesise,
    titles,
)

HOUR = timedelta(hours=1)
#: Charges and idle time come in lumps: a worker is charged every five minutes.
IN_LUMPS = frozenset({"Spend", "SpendOnDemand", "SpendOfAll", "IdleSeconds"})
QUESTIONS = [
    "Is work flowing?",
    "What does it cost?",
    "Who works?",
    "What went wrong?",
    "Is it idle?",
    "Is Spindown itself well?",
]

#: What CloudWatch shows in a dashboard for nothing (CloudWatch pricing, free tier).
FREE_METRICS = 50

#: Metrics of AWS's own that we show, by namespace, and their dimensions.
FOREIGN = {"AWS/SQS": frozenset({"QueueName"}), "AWS/Lambda": frozenset({"FunctionName"})}


def test_there_is_one_for_each_workload_and_an_overview(resources: Mapping[str, Any]) -> None:
    names = {one["DashboardName"] for one in all_of(resources, "AWS::CloudWatch::Dashboard")}

    assert names == {"lab", "lab--ocr", "lab--embed"}


def test_each_answers_the_questions_in_the_order_they_are_asked(
    resources: Mapping[str, Any],
) -> None:
    for dashboard in all_of(resources, "AWS::CloudWatch::Dashboard"):
        assert titles(dashboard) == QUESTIONS


def test_every_own_metric_on_dashboards_and_alarms_is_emitted(
    resources: Mapping[str, Any],
) -> None:
    used = {*_shown(resources), *_watched(resources)}
    ours = {(name, dimensions) for space, name, dimensions in used if space == NAMESPACE}

    assert ours <= {(one.name, frozenset(one.dimensions)) for one in METRICS.values()}


def test_every_other_metric_is_one_that_aws_emits_by_itself(resources: Mapping[str, Any]) -> None:
    used = {*_shown(resources), *_watched(resources)}
    foreign = {(space, dimensions) for space, _, dimensions in used if space != NAMESPACE}

    assert foreign <= set(FOREIGN.items())


def test_every_metric_that_is_emitted_is_seen_somewhere(resources: Mapping[str, Any]) -> None:
    used = {name for _, name, _ in {*_shown(resources), *_watched(resources)}}

    assert set(METRICS) <= used


def test_a_dashboard_shows_no_more_metrics_than_a_free_one_may(
    resources: Mapping[str, Any],
) -> None:
    for dashboard in all_of(resources, "AWS::CloudWatch::Dashboard"):
        shown = [metric for graph in graphs(dashboard) for metric in graph_metrics(graph)]
        assert len(shown) <= FREE_METRICS


def test_every_axis_says_what_it_counts(resources: Mapping[str, Any]) -> None:
    for dashboard in all_of(resources, "AWS::CloudWatch::Dashboard"):
        for graph in graphs(dashboard):
            rows = [row[-1] for row in graph["metrics"] if isinstance(row[-1], dict)]
            is_right = any(row.get("yAxis") == "right" for row in rows)
            for side in ("left", "right") if is_right else ("left",):
                assert graph["yAxis"][side].get("label"), (graph["title"], side)


def test_no_legend_calls_a_line_by_the_name_of_a_metric(resources: Mapping[str, Any]) -> None:
    for dashboard in all_of(resources, "AWS::CloudWatch::Dashboard"):
        for widget in read_dashboard(json.dumps(body(dashboard))).widgets:
            labels = [one.label for one in widget.queries if one.is_shown]
            assert all(labels), widget.title
            said = [one for one in labels if not one.startswith("${PROP(")]
            assert [one for one in said if re.search(r"[a-z][A-Z]", one)] == []


def test_what_comes_in_lumps_is_summed_over_an_hour_or_more(
    resources: Mapping[str, Any],
) -> None:
    assert HOUR > 2 * CHARGED_EVERY
    periods: dict[str, set[float]] = defaultdict(set)
    for dashboard in all_of(resources, "AWS::CloudWatch::Dashboard"):
        for graph in graphs(dashboard):
            for name, seconds in _periods(graph):
                periods[name].add(seconds)
    for alarm in all_of(resources, "AWS::CloudWatch::Alarm"):
        periods[alarm.get("MetricName", "")].add(alarm.get("Period", 0))
        for query in alarm.get("Metrics", []):
            stat = query.get("MetricStat")
            if stat is not None:
                periods[stat["Metric"]["MetricName"]].add(stat["Period"])

    assert periods.keys() >= IN_LUMPS
    shortest = {name: min(periods[name]) for name in IN_LUMPS}
    assert {name: least for name, least in shortest.items() if least < HOUR.total_seconds()} == {}


def _periods(graph: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield what a graph shows and over how many seconds a point is taken."""
    for row in graph["metrics"]:
        if isinstance(row[0], dict):
            searched = re.findall(
                r"MetricName=\"(\w+)\"[^']*', '\w+', (\d+)\)", row[0].get("expression", "")
            )
            yield from ((name, float(seconds)) for name, seconds in searched)
        else:
            # A metric takes five minutes unless it says otherwise.
            said = row[-1] if isinstance(row[-1], dict) else {}
            yield row[1], float(said.get("period", 300))


def test_the_overview_does_not_grow_with_the_workloads(
    resources: Mapping[str, Any], tmp_path: Path
) -> None:
    many = synthesise(a_config(*(f"w{number}" for number in range(3))), tmp_path)

    assert _overview_metrics(many) == _overview_metrics(resources)


def test_deadline_slack_is_shown_where_a_workload_has_deadlines(
    tmp_path: Path,
) -> None:
    config = a_config("ocr", "render")
    swift, long = config.workload["ocr"], config.workload["render"]
    policy = long.policy.model_copy(update={"finish_within": timedelta(hours=12)})
    both = {"ocr": swift, "render": long.model_copy(update={"policy": policy})}

    made = synthesise(config.model_copy(update={"workload": both}), tmp_path)

    shows = {
        one["DashboardName"]: any(
            name == "DeadlineSlack" for graph in graphs(one) for _, name, _ in graph_metrics(graph)
        )
        for one in all_of(made, "AWS::CloudWatch::Dashboard")
    }
    assert shows == {"lab": True, "lab--ocr": False, "lab--render": True}


def test_the_overview_says_how_many_workers_bill_in_one_line(
    resources: Mapping[str, Any],
) -> None:
    (overview,) = (
        one
        for one in all_of(resources, "AWS::CloudWatch::Dashboard")
        if one["DashboardName"] == "lab"
    )
    found = [
        metric[0]["expression"]
        for graph in graphs(overview)
        for metric in graph["metrics"]
        if isinstance(metric[0], dict) and "LiveWorkers" in metric[0]["expression"]
    ]

    assert [text.startswith("SUM(SEARCH(") for text in found] == [True]


@pytest.mark.parametrize(
    ("name", "of", "wrong"),
    [
        pytest.param("QueueDepth", {}, "metric", id="a name that nothing emits"),
        pytest.param("backlog", {}, "metric", id="a name in the wrong case"),
        pytest.param("Workers", {}, "dimensions of Workers", id="a dimension left out"),
        pytest.param(
            "Backlog", {STATE: "busy"}, "dimensions of Backlog", id="a dimension it has not"
        ),
    ],
)
def test_refuses_a_metric_that_nothing_emits(name: str, of: Mapping[str, str], wrong: str) -> None:
    series = MetricScope(deployment="lab", workload="ocr")

    with pytest.raises(ContractError) as caught:
        series.metric(name, "Sum", of=of)

    assert caught.value.field == wrong


def test_refuses_a_search_of_an_unknown_metric_or_dimension() -> None:
    series = MetricScope(deployment="lab")

    with pytest.raises(ContractError, match="QueueDepth"):
        series.search("QueueDepth", "Sum", by=WORKLOAD)
    with pytest.raises(ContractError, match="dimensions of Backlog"):
        series.search("Backlog", "Sum", by=STATE)


def test_refuses_a_workloads_metric_where_no_workload_is_named() -> None:
    with pytest.raises(ContractError, match="dimensions of Backlog"):
        MetricScope(deployment="lab").metric("Backlog", "Maximum")


def test_refuses_a_metric_that_aws_does_not_emit() -> None:
    series = MetricScope(deployment="lab", workload="ocr")

    with pytest.raises(ContractError, match="OldestMessage"):
        series.queue("OldestMessage")
    with pytest.raises(ContractError, match="Cost"):
        series.function("scaler", "Cost", MINUTE)


def _shown(resources: Mapping[str, Any]) -> set[tuple[str, str, frozenset[str]]]:
    return {
        metric
        for dashboard in all_of(resources, "AWS::CloudWatch::Dashboard")
        for graph in graphs(dashboard)
        for metric in graph_metrics(graph)
    }


def _watched(resources: Mapping[str, Any]) -> set[tuple[str, str, frozenset[str]]]:
    return {
        metric
        for alarm in all_of(resources, "AWS::CloudWatch::Alarm")
        for metric in alarm_metrics(alarm)
    }


def _overview_metrics(resources: Mapping[str, Any]) -> list[str]:
    (overview,) = (
        one
        for one in all_of(resources, "AWS::CloudWatch::Dashboard")
        if one["DashboardName"] == "lab"
    )
    return [name for graph in graphs(overview) for _, name, _ in graph_metrics(graph)]

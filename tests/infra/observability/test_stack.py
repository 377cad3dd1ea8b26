"""The insight stack by others' rules, and beside the core stack."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from spindown.contract import log
from spindown.contract.decision import Outcome
from spindown.infra.shared.worker_kit import PACKAGE
from tests.infra.assembly import Assembly, words
from tests.infra.observability.assembly import alarm_metrics, all_of

Resources = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def insight(assembly: Assembly) -> Resources:
    path = assembly.directory / "lab-insight.template.json"
    resources: Resources = json.loads(path.read_text())["Resources"]
    return resources


def test_what_insight_names_is_there_in_core(assembly: Assembly, insight: Resources) -> None:
    there = {
        "QueueName": {words(one["QueueName"]) for one in _named(assembly, "AWS::SQS::Queue")},
        "FunctionName": {one["FunctionName"] for one in assembly.all_of("AWS::Lambda::Function")},
    }
    named = set(_dimensions(insight))

    assert {kind for kind, _ in named} == set(there)
    assert all(value in there[kind] for kind, value in named)


def test_saved_queries_read_logs_that_core_keeps(assembly: Assembly, insight: Resources) -> None:
    kept = {one["LogGroupName"] for one in assembly.all_of("AWS::Logs::LogGroup")}
    read = {
        name
        for query in all_of(insight, "AWS::Logs::QueryDefinition")
        for name in query["LogGroupNames"]
    }

    assert read == kept


def test_logs_that_alarms_point_at_are_kept(assembly: Assembly, insight: Resources) -> None:
    kept = {one["LogGroupName"] for one in assembly.all_of("AWS::Logs::LogGroup")}
    texts = [one["AlarmDescription"] for one in all_of(insight, "AWS::CloudWatch::Alarm")]
    named = {name for text in texts for name in re.findall(r"(/spindown/[\w/-]*\w)", text)}

    assert named
    assert named <= kept


def test_the_schedule_that_an_alarm_names_is_there(assembly: Assembly, insight: Resources) -> None:
    ticks = {one["Name"] for one in assembly.all_of("AWS::Scheduler::Schedule")}
    named = {
        re.findall(r"schedule (\S+) is", one["AlarmDescription"])[0]
        for one in all_of(insight, "AWS::CloudWatch::Alarm")
        if one["AlarmName"].endswith("-tick-missing")
    }

    assert len(named) == 2
    assert named <= ticks


def test_saved_queries_ask_for_outcomes_of_decisions(insight: Resources) -> None:
    asked = {
        word
        for query in all_of(insight, "AWS::Logs::QueryDefinition")
        for group in re.findall(r"outcome not in \[([^\]]*)\]", query["QueryString"])
        for word in re.findall(r'"([^"]+)"', group)
    }

    assert asked == {"idle", "enough", "launched"}
    assert asked <= {outcome.value for outcome in Outcome}


def test_saved_queries_of_workers_ask_for_what_they_log(insight: Resources) -> None:
    queries = [
        query["QueryString"]
        for query in all_of(insight, "AWS::Logs::QueryDefinition")
        if any("/worker/" in name for name in query["LogGroupNames"])
    ]
    asked = {
        field
        for query in queries
        for fields in re.findall(r"fields ([^\n|]*)", query)
        for field in re.findall(r"[\w@]+", fields)
    }
    events = {
        event
        for query in queries
        for names in re.findall(r"event in \[([^\]]*)\]", query)
        for event in re.findall(r'"([^"]+)"', names)
    }
    nodes = [
        node
        for path in (PACKAGE / "worker").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
    ]
    calls = [
        node
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in {"bind", "info", "warning", "exception"}
    ]
    written = {keyword.arg for call in calls for keyword in call.keywords}
    by_every_line = {"@timestamp", "level", "event", "traceback"}

    assert len(queries) == 2
    assert asked <= written | by_every_line
    assert events
    literal = {arg.value for c in calls for arg in c.args if isinstance(arg, ast.Constant)}
    # What is read elsewhere, too, has its name in the contract.
    named = {vars(log).get(node.id) for node in nodes if isinstance(node, ast.Name)}
    assert events <= literal | named


def test_saved_queries_of_functions_ask_for_what_they_log(insight: Resources) -> None:
    queries = [
        query["QueryString"]
        for query in all_of(insight, "AWS::Logs::QueryDefinition")
        if not any("/worker/" in name for name in query["LogGroupNames"])
    ]
    asked = {
        field
        for query in queries
        for fields in re.findall(r"fields ([^\n|]*)", query)
        for field in re.findall(r"[\w@]+", fields)
    }
    actions = {action for query in queries for action in re.findall(r'action = "(\w+)"', query)}
    nodes = [
        node
        for path in (PACKAGE / "functions").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Dict)
    ]
    written = {key.value for node in nodes for key in node.keys if isinstance(key, ast.Constant)}
    values = {value.value for n in nodes for value in n.values if isinstance(value, ast.Constant)}
    # AWS Lambda Powertools for Python, "Logger": keys of every line, and of one with an exception.
    by_every_line = {"@timestamp", "service", "message", "exception", "exception_name"}

    assert len(queries) == 5
    assert asked <= written | by_every_line
    assert actions
    assert actions <= values


def test_nothing_that_runs_waits_for_insight(assembly: Assembly) -> None:
    manifest = json.loads((assembly.directory / "manifest.json").read_text())

    assert "lab-insight" not in manifest["artifacts"]["lab-core"]["dependencies"]


def _named(assembly: Assembly, kind: str) -> list[Mapping[str, Any]]:
    return [one for one in assembly.all_of(kind) if "QueueName" in one]


def _dimensions(insight: Resources) -> Iterator[tuple[str, str]]:
    for alarm in all_of(insight, "AWS::CloudWatch::Alarm"):
        assert list(alarm_metrics(alarm))
        metrics = [alarm, *(q.get("MetricStat", {}).get("Metric", {}) for q in _math(alarm))]
        for metric in metrics:
            for dimension in metric.get("Dimensions", []):
                if dimension["Name"] in {"QueueName", "FunctionName"}:
                    yield dimension["Name"], dimension["Value"]


def _math(alarm: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    queries: list[Mapping[str, Any]] = alarm.get("Metrics", [])
    return queries

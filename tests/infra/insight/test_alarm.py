"""Alarms tell a person what happened and what to do, when it happens and only then."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from spindown.app.port import RefusalKind
from spindown.cli.app import app as cli
from spindown.config import DeploymentConfig
from spindown.config.run import RunConfig
from spindown.config.schema import PolicyConfig, RequirementsConfig, WorkloadConfig
from tests.infra.insight.insight import a_config, alarm_metrics, all_of, synthesise

#: Longest AlarmDescription (Amazon CloudWatch API, "PutMetricAlarm").
TEXT_MAX = 1024

#: Tables of spindown.toml that an alarm may name a key of.
TABLES: tuple[type[BaseModel], ...] = (
    DeploymentConfig,
    PolicyConfig,
    RequirementsConfig,
    RunConfig,
    WorkloadConfig,
)

Alarms = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    config = a_config("ocr", budget_per_month=50.0, alarm_email="ops@example.com")
    return synthesise(config, tmp_path_factory.mktemp("assembly"))


@pytest.fixture(scope="module")
def alarms(resources: Mapping[str, Any]) -> Alarms:
    return {one["AlarmName"]: one for one in all_of(resources, "AWS::CloudWatch::Alarm")}


@pytest.mark.parametrize(
    ("name", "metric", "calm", "grave", "minutes"),
    [
        pytest.param("lab-ocr-policy-invalid", "PolicyInvalid", 0, 1, 3, id="policy refused"),
        pytest.param("lab-ocr-reaping-held-back", "ReapingHeldBack", 0, 1, 15, id="all stale"),
        pytest.param("lab-ocr-bad-rows", "BadRows", 0, 1, 15, id="a row that cannot be read"),
        pytest.param("lab-ocr-idle", "IdleBeyondExpectation", 0, 1, 5, id="idle too long"),
        pytest.param("lab-ocr-late", "BacklogAge", 400, 420, 3, id="later than promised"),
        pytest.param(
            "lab-ocr-oldest-message",
            "ApproximateAgeOfOldestMessage",
            3800,
            3900,
            15,
            id="older than start and drain together",
        ),
        pytest.param(
            "lab-ocr-message-of-a-week",
            "ApproximateAgeOfOldestMessage",
            604_799,
            604_800,
            5,
            id="a week old",
        ),
        pytest.param(
            "lab-ocr-dead-letters",
            "ApproximateNumberOfMessagesVisible",
            0,
            1,
            5,
            id="a dead letter",
        ),
        pytest.param("lab-ocr-no-offer", "NothingFits", 0, 1, 15, id="no offer fits"),
        pytest.param("lab-ocr-account", "LaunchAttempts", 0, 1, 5, id="refused by the account"),
        pytest.param("lab-ocr-unknown-refusal", "LaunchAttempts", 2, 3, 60, id="unknown code"),
        pytest.param("lab-ocr-breaker", "BreakerOpen", 0, 1, 1, id="breaker open"),
        pytest.param("lab-budget-80", "BudgetUsed", 79.9, 80, 5, id="most of the budget"),
        pytest.param("lab-budget-100", "BudgetUsed", 99.9, 100, 5, id="all of the budget"),
        pytest.param("lab-quota", "QuotaBlocked", 0, 1, 10, id="a full quota"),
        pytest.param("lab-interruption-errors", "Errors", 0, 1, 5, id="a failing function"),
    ],
)
def test_rings_at_its_threshold_and_is_calm_below_and_in_silence(
    alarms: Alarms, name: str, metric: str, calm: float, grave: float, minutes: int
) -> None:
    alarm = alarms[name]

    assert alarm["MetricName"] == metric
    assert alarm["ComparisonOperator"] == "GreaterThanOrEqualToThreshold"
    assert calm < alarm["Threshold"] <= grave
    assert alarm["TreatMissingData"] == "notBreaching"
    assert alarm["Period"] * alarm["EvaluationPeriods"] == minutes * 60


@pytest.mark.parametrize(
    ("name", "metric", "minutes"),
    [
        pytest.param("lab-ocr-tick-missing", "Ticks", 5, id="no tick"),
        pytest.param("lab-catalogue-missing", "CatalogueTypes", 240, id="no catalogue"),
    ],
)
def test_rings_in_silence_where_silence_is_the_fault(
    alarms: Alarms, name: str, metric: str, minutes: int
) -> None:
    alarm = alarms[name]

    assert alarm["MetricName"] == metric
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 1)
    assert alarm["TreatMissingData"] == "breaching"
    assert alarm["Period"] * alarm["EvaluationPeriods"] == minutes * 60


def test_rings_when_an_item_costs_more_than_usual_by_its_own_history(alarms: Alarms) -> None:
    alarm = alarms["lab-ocr-cost-per-item"]
    queries = {query["Id"]: query for query in alarm["Metrics"]}

    assert alarm["ComparisonOperator"] == "GreaterThanUpperThreshold"
    assert "ANOMALY_DETECTION_BAND" in queries[alarm["ThresholdMetricId"]]["Expression"]
    assert [name for _, name, _ in alarm_metrics(alarm)] == ["CostPerItem"]


@pytest.mark.parametrize(
    ("name", "values", "rings"),
    [
        pytest.param("lab-ocr-capacity", {"dry": 6, "launched": 0}, True, id="all is dry"),
        pytest.param("lab-ocr-capacity", {"dry": 6, "launched": 1}, False, id="one had some"),
        pytest.param("lab-ocr-capacity", {"dry": 0, "launched": 0}, False, id="nothing tried"),
        pytest.param(
            "lab-control-share",
            {"milliseconds": 18_000_000, "invocations": 60_000, "spend0": 1.2},
            True,
            id="functions cost a tenth",
        ),
        pytest.param(
            "lab-control-share",
            {"milliseconds": 432_000, "invocations": 1440, "spend0": 1.2},
            False,
            id="a tick a minute costs a cent",
        ),
        pytest.param(
            "lab-control-share",
            {"milliseconds": 432_000, "invocations": 1440, "spend0": 0.0},
            False,
            id="nothing is spent on workers",
        ),
    ],
)
def test_rings_by_metric_math(
    alarms: Alarms, name: str, values: Mapping[str, float], rings: bool
) -> None:
    alarm = alarms[name]
    (expression,) = (query["Expression"] for query in alarm["Metrics"] if "Expression" in query)

    assert (calculate(expression, values) >= alarm["Threshold"]) is rings


def test_a_quota_that_any_workload_sees_rings(tmp_path: Path) -> None:
    resources = synthesise(a_config("a", "b"), tmp_path)
    (alarm,) = (
        one
        for one in all_of(resources, "AWS::CloudWatch::Alarm")
        if one["AlarmName"] == "lab-quota"
    )
    (expression,) = (query["Expression"] for query in alarm["Metrics"] if "Expression" in query)

    assert calculate(expression, {"workload0": 0.0, "workload1": 2.0}) == 2.0


def test_an_alarm_reads_at_most_ten_metrics_however_many_workloads(tmp_path: Path) -> None:
    names = [f"w{number:02}" for number in range(23)]

    resources = synthesise(a_config(*names), tmp_path)

    read = {
        alarm["AlarmName"]: len(list(alarm_metrics(alarm)))
        for alarm in all_of(resources, "AWS::CloudWatch::Alarm")
    }
    assert max(read.values()) <= 10
    assert sum(read[name] for name in read if name.startswith("lab-quota")) == len(names)


def test_without_a_budget_no_alarm_speaks_of_one(tmp_path: Path) -> None:
    resources = synthesise(a_config("ocr"), tmp_path)

    texts = [one["AlarmDescription"] for one in all_of(resources, "AWS::CloudWatch::Alarm")]

    assert not any("budget" in text for text in texts)


def test_every_alarm_tells_the_topic_and_says_what_to_do(alarms: Alarms) -> None:
    for alarm in alarms.values():
        (action,) = alarm["AlarmActions"]
        assert action["Ref"].startswith("AlarmsTopic")
        assert re.search(r"\. To do: [a-z].*\.$", alarm["AlarmDescription"])
        assert len(alarm["AlarmDescription"]) <= TEXT_MAX


def test_every_setting_that_an_alarm_names_exists(alarms: Alarms) -> None:
    known = {key for table in TABLES for key in table.model_fields}
    named = {word for word in _quoted(alarms) if " " not in word}

    assert named
    assert named <= known


def test_every_command_that_an_alarm_names_exists(alarms: Alarms) -> None:
    commands = {command.name for command in cli.registered_commands}
    groups = {
        f"{group.name} {command.name}"
        for group in cli.registered_groups
        if group.typer_instance is not None
        for command in group.typer_instance.registered_commands
    }
    for words in (text.split() for text in _quoted(alarms) if " " in text):
        assert words[0] == "spindown"
        assert words[1] in commands or " ".join(words[1:3]) in groups


def test_the_refusals_that_alarms_look_for_are_those_that_are_told(alarms: Alarms) -> None:
    told = {kind.value for kind in RefusalKind}
    watched = {
        dimension["Value"]
        for alarm in alarms.values()
        for metric in (alarm, *(q.get("MetricStat", {}).get("Metric", {}) for q in _math(alarm)))
        for dimension in metric.get("Dimensions", [])
        if dimension["Name"] == "Outcome"
    }

    assert watched == {"account", "capacity", "unknown"}
    assert watched <= told


def test_the_topic_takes_alarms_of_this_account_over_tls_only(
    resources: Mapping[str, Any],
) -> None:
    (policy,) = all_of(resources, "AWS::SNS::TopicPolicy")
    statements = {one["Sid"]: one for one in policy["PolicyDocument"]["Statement"]}

    assert statements["TakeAlarms"]["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert statements["TakeAlarms"]["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    }
    refusal = statements["AllowPublishThroughSSLOnly"]
    assert (refusal["Effect"], refusal["Condition"]) == (
        "Deny",
        {"Bool": {"aws:SecureTransport": "false"}},
    )


def test_alarms_go_to_the_address_in_the_configuration(
    resources: Mapping[str, Any], tmp_path: Path
) -> None:
    (subscription,) = all_of(resources, "AWS::SNS::Subscription")
    nobody = synthesise(a_config("ocr"), tmp_path)

    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", "ops@example.com")
    assert all_of(nobody, "AWS::SNS::Subscription") == []


def calculate(expression: str, values: Mapping[str, float]) -> float:
    """Return what an expression of metric math gives for one point of each metric."""
    words = {
        "IF": lambda condition, yes, no: yes if condition else no,
        "FILL": lambda value, _: value,
        "MAX": max,
    }
    # A division that IF leaves out must not fail: as in CloudWatch, it gives no number.
    python = re.sub(r"\bAND\b", "and", expression).replace(") / (", ") / nonzero(")
    given = {**words, **values, "nonzero": lambda value: value or float("inf")}
    return float(eval(python, {"__builtins__": {}}, given))  # noqa: S307 - our own template


def _math(alarm: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    queries: list[Mapping[str, Any]] = alarm.get("Metrics", [])
    return queries


def _quoted(alarms: Alarms) -> Iterator[str]:
    for alarm in alarms.values():
        yield from re.findall(r"`([^`]+)`", alarm["AlarmDescription"])

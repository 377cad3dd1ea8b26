"""Alarms tell a person what happened and what to do, when it happens and only then."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spindown.local.metric_math import calculate
from tests.infra.observability.assembly import TOPIC, a_config, all_of, synthesise
from tests.wording import strangers

#: Longest AlarmDescription (Amazon CloudWatch API, "PutMetricAlarm").
TEXT_MAX = 1024

Alarms = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def alarms(resources: Mapping[str, Any]) -> Alarms:
    return {one["AlarmName"]: one for one in all_of(resources, "AWS::CloudWatch::Alarm")}


@pytest.mark.parametrize(
    ("name", "metric", "calm", "grave", "minutes"),
    [
        pytest.param("lab--ocr--idle", "IdleBeyondExpectation", 0, 1, 5, id="idle too long"),
        pytest.param(
            "lab--ocr--oldest-message",
            "WaitingAge",
            3800,
            3900,
            15,
            id="waits longer than start and drain together",
        ),
        pytest.param(
            "lab--ocr--message-of-a-week",
            "ApproximateAgeOfOldestMessage",
            604_799,
            604_800,
            5,
            id="a week old",
        ),
        pytest.param(
            "lab--ocr--dead-letters",
            "ApproximateNumberOfMessagesVisible",
            0,
            1,
            5,
            id="a dead letter",
        ),
        pytest.param("lab--budget-80", "BudgetUsed", 79.9, 80, 5, id="most of the budget"),
        pytest.param("lab--budget-100", "BudgetUsed", 99.9, 100, 5, id="all of the budget"),
        pytest.param("lab--untold", "Untold", 0, 1, 15, id="nobody could be told"),
        pytest.param("lab--interruption-errors", "Errors", 0, 1, 5, id="a failing function"),
    ],
)
def test_rings_at_its_threshold_not_below_nor_without_data(
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
        pytest.param("lab--ocr--tick-missing", "Ticks", 5, id="no tick"),
        pytest.param("lab--catalogue-missing", "CatalogueTypes", 240, id="no catalogue"),
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


#: A refresh each hour, and no interruption.
_OTHERS = {"offers": 24 * 30_000, "interruption": 0}


@pytest.mark.parametrize(
    ("name", "values", "rings"),
    [
        pytest.param(
            "lab--control-share",
            {**_OTHERS, "milliseconds": 18_000_000, "invocations": 60_000, "spend": 1.2},
            True,
            id="functions cost a tenth",
        ),
        pytest.param(
            "lab--control-share",
            {"milliseconds": 432_000, "invocations": 1440, "spend": 1.2}
            | {"offers": 24 * 290_000, "interruption": 3_600_000},
            True,
            id="the function of each hour runs for five minutes",
        ),
        pytest.param(
            "lab--control-share",
            {**_OTHERS, "milliseconds": 432_000, "invocations": 1440, "spend": 1.2},
            False,
            id="a tick a minute costs a cent",
        ),
        pytest.param(
            "lab--control-share",
            {**_OTHERS, "milliseconds": 432_000, "invocations": 1440, "spend": 0.0},
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

    found = calculate(expression, values)
    assert found is not None
    assert (found >= alarm["Threshold"]) is rings


def test_without_a_budget_no_alarm_speaks_of_one(tmp_path: Path) -> None:
    resources = synthesise(a_config("ocr"), tmp_path)

    texts = [one["AlarmDescription"] for one in all_of(resources, "AWS::CloudWatch::Alarm")]

    assert not any("budget" in text for text in texts)


def test_every_alarm_tells_the_topic_and_says_what_to_do(alarms: Alarms) -> None:
    for alarm in alarms.values():
        assert alarm["AlarmActions"] == [TOPIC]
        assert re.search(r"\. To do: [a-z].*\.$", alarm["AlarmDescription"])
        assert len(alarm["AlarmDescription"]) <= TEXT_MAX


def test_every_setting_and_command_that_an_alarm_names_exists(alarms: Alarms) -> None:
    texts = [alarm["AlarmDescription"] for alarm in alarms.values()]

    assert any("`" in text for text in texts)
    assert [word for text in texts for word in strangers(text)] == []

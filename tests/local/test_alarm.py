import json
from datetime import UTC, datetime
from typing import Any

import pytest

from spindown.local.alarm import action_payload, evaluate, reason, reason_data

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def alarm(**changes: Any) -> dict[str, Any]:
    return {
        "AlarmName": "demo--classify--backlog",
        "AlarmArn": "arn:aws:cloudwatch:us-east-1:000000000000:alarm:demo--classify--backlog",
        "AlarmDescription": "work waits",
        "Namespace": "AWS/SQS",
        "MetricName": "ApproximateNumberOfMessagesVisible",
        "Dimensions": [{"Name": "QueueName", "Value": "demo--classify"}],
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 3,
        "Threshold": 1.0,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "missing",
        "StateValue": "kept",
        "StateReason": "",
        "StateUpdatedTimestamp": int(NOW.timestamp()),
    } | changes


def points(drawn: str) -> list[float | None]:
    """Read AWS's drawing, oldest first: X breaches, 0 does not, - is missing."""
    return [{"X": 5.0, "0": 0.0, "-": None}[one] for one in reversed(drawn)]


# The worked tables of AWS, "Configuring how CloudWatch alarms treat missing data": 3 of 3 and 2
# of 3 data points, and for each the state under missing, ignore, breaching and notBreaching.
@pytest.mark.parametrize(
    ("needed", "drawn", "missing", "ignore", "breaching", "not_breaching"),
    [
        pytest.param(3, "0-X-X", "OK", "OK", "OK", "OK", id="3 of 3: 0-X-X"),
        pytest.param(3, "0----", "OK", "OK", "OK", "OK", id="3 of 3: 0----"),
        pytest.param(3, "-----", "INSUFFICIENT_DATA", "kept", "ALARM", "OK", id="3 of 3: -----"),
        pytest.param(3, "0XX-X", "ALARM", "ALARM", "ALARM", "ALARM", id="3 of 3: 0XX-X"),
        pytest.param(3, "--X--", "ALARM", "kept", "ALARM", "OK", id="3 of 3: --X--"),
        pytest.param(2, "0-X-X", "ALARM", "ALARM", "ALARM", "ALARM", id="2 of 3: 0-X-X"),
        pytest.param(2, "00X-X", "ALARM", "ALARM", "ALARM", "ALARM", id="2 of 3: 00X-X"),
        pytest.param(2, "0----", "OK", "OK", "ALARM", "OK", id="2 of 3: 0----"),
        pytest.param(2, "-----", "INSUFFICIENT_DATA", "kept", "ALARM", "OK", id="2 of 3: -----"),
        pytest.param(2, "--X--", "ALARM", "kept", "ALARM", "OK", id="2 of 3: --X--"),
    ],
)
def test_treats_missing_data_as_cloudwatch_does(
    needed: int, drawn: str, missing: str, ignore: str, breaching: str, not_breaching: str
) -> None:
    expected = {
        "missing": missing,
        "ignore": ignore,
        "breaching": breaching,
        "notBreaching": not_breaching,
    }
    told = {
        treat: evaluate(alarm(TreatMissingData=treat, DatapointsToAlarm=needed), points(drawn))
        for treat in expected
    }
    assert told == expected


@pytest.mark.parametrize(
    ("operator", "value", "state"),
    [
        pytest.param("GreaterThanOrEqualToThreshold", 1.0, "ALARM", id="at least: equal"),
        pytest.param("GreaterThanThreshold", 1.0, "OK", id="more: equal"),
        pytest.param("GreaterThanThreshold", 1.1, "ALARM", id="more: more"),
        pytest.param("LessThanOrEqualToThreshold", 1.0, "ALARM", id="at most: equal"),
        pytest.param("LessThanThreshold", 1.0, "OK", id="less: equal"),
        pytest.param("LessThanThreshold", 0.9, "ALARM", id="less: less"),
    ],
)
def test_compares_with_the_threshold(operator: str, value: float, state: str) -> None:
    compared = alarm(ComparisonOperator=operator, EvaluationPeriods=1)
    assert evaluate(compared, [value]) == state


def test_judges_by_the_newest_points_only() -> None:
    assert evaluate(alarm(EvaluationPeriods=1), [0.0, 5.0, 5.0]) == "OK"


def test_says_why_in_words_with_the_values() -> None:
    crossed = reason(alarm(EvaluationPeriods=1), "ALARM", [2.0])
    assert "[2.0] crossed the threshold (1.0)" in crossed
    silent = reason(alarm(TreatMissingData="notBreaching"), "OK", [None, None])
    assert "treated as [NonBreaching]" in silent


def test_a_function_gets_the_payload_that_cloudwatch_documents() -> None:
    before = alarm(StateValue="OK", StateReason="calm")
    data = reason_data(before, [2.0, None], NOW)
    after = alarm(StateValue="ALARM", StateReason="crossed", StateReasonData=data)
    payload = action_payload(before, after, region="us-east-1", now=NOW)
    assert payload == {
        "source": "aws.cloudwatch",
        "alarmArn": before["AlarmArn"],
        "accountId": "000000000000",
        "time": "2026-01-02T03:04:05.678+0000",
        "region": "us-east-1",
        "alarmData": {
            "alarmName": "demo--classify--backlog",
            "state": {
                "value": "ALARM",
                "reason": "crossed",
                "reasonData": data,
                "timestamp": "2026-01-02T03:04:05.000+0000",
            },
            "previousState": {
                "value": "OK",
                "reason": "calm",
                "timestamp": "2026-01-02T03:04:05.000+0000",
            },
            "configuration": {
                "description": "work waits",
                "metrics": [
                    {
                        "id": "m1",
                        "metricStat": {
                            "metric": {
                                "namespace": "AWS/SQS",
                                "name": "ApproximateNumberOfMessagesVisible",
                                "dimensions": {"QueueName": "demo--classify"},
                            },
                            "period": 60,
                            "stat": "Maximum",
                        },
                        "returnData": True,
                    }
                ],
            },
        },
    }
    assert json.loads(data)["recentDatapoints"] == [2.0]

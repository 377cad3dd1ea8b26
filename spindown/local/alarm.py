"""How CloudWatch finds metrics in a log line, decides an alarm's state, and tells a function.

Sources: AWS, "Configuring how CloudWatch alarms treat missing data" (the evaluation and the
worked table that the tests repeat) and "Invoke a Lambda function from an alarm" (the payload).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

OK, ALARM, INSUFFICIENT_DATA = "OK", "ALARM", "INSUFFICIENT_DATA"

#: Which list of actions a new state runs.
ACTIONS = {
    OK: "OKActions",
    ALARM: "AlarmActions",
    INSUFFICIENT_DATA: "InsufficientDataActions",
}

#: CloudWatch looks at more periods than it evaluates; its example takes 5 for 3.
EXTRA_PERIODS = 2

#: The comparisons with a fixed threshold; the others are of anomaly detection.
COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
    "LessThanOrEqualToThreshold": lambda value, threshold: value <= threshold,
}


def evaluate(alarm: Mapping[str, Any], newest_first: Sequence[float | None]) -> str:
    """Return an alarm's state by its statistic in the last periods; None is a missing one."""
    periods = int(alarm["EvaluationPeriods"])
    needed = int(alarm.get("DatapointsToAlarm") or periods)
    treat, compare = alarm["TreatMissingData"], COMPARISONS[alarm["ComparisonOperator"]]
    found = [value for value in newest_first if value is not None][:periods]
    breaching = sum(compare(value, alarm["Threshold"]) for value in found)
    if treat == "breaching":
        breaching += periods - len(found)
    if breaching >= needed:
        return ALARM
    if treat in {"breaching", "notBreaching"} or breaching < len(found):
        return OK
    # All that is there breaches, but it is too little to tell; or nothing is there.
    if treat == "ignore":
        return str(alarm["StateValue"])
    return ALARM if found else INSUFFICIENT_DATA


def reason(alarm: Mapping[str, Any], state: str, newest_first: Sequence[float | None]) -> str:
    """Say why an alarm goes to `state`, in CloudWatch's words."""
    periods = int(alarm["EvaluationPeriods"])
    found = [value for value in newest_first if value is not None][:periods]
    if not found:
        return (
            f"no datapoints were received for {periods} period(s) and "
            f"{periods} missing datapoint(s) were treated as [{_treated(alarm, state)}]."
        )
    values = ", ".join(str(value) for value in found)
    relation = "crossed" if state == ALARM else "did not cross"
    return (
        f"Threshold Crossed: {len(found)} out of the last {periods} datapoints [{values}] "
        f"{relation} the threshold ({alarm['Threshold']}) by {alarm['ComparisonOperator']}."
    )


def _treated(alarm: Mapping[str, Any], state: str) -> str:
    if alarm["TreatMissingData"] == "missing" or state == INSUFFICIENT_DATA:
        return "Missing"
    return "Breaching" if state == ALARM else "NonBreaching"


def reason_data(
    alarm: Mapping[str, Any], newest_first: Sequence[float | None], now: datetime
) -> str:
    """Return StateReasonData: JSON text, as everywhere in CloudWatch."""
    found = [value for value in reversed(newest_first) if value is not None]
    return json.dumps(
        {
            "version": "1.0",
            "queryDate": stamp(now),
            "statistic": alarm["Statistic"],
            "period": alarm["Period"],
            "recentDatapoints": found,
            "threshold": alarm["Threshold"],
        }
    )


def stamp(moment: datetime) -> str:
    """Return a moment as alarm payloads write it: milliseconds, and an offset without a colon."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}+0000"


def action_payload(
    before: Mapping[str, Any], after: Mapping[str, Any], *, region: str, now: datetime
) -> dict[str, Any]:
    """Return what CloudWatch sends to a function for a change of state."""
    metric = {
        "namespace": after["Namespace"],
        "name": after["MetricName"],
        "dimensions": {one["Name"]: one["Value"] for one in after["Dimensions"]},
    }
    statistic = {"metric": metric, "period": after["Period"], "stat": after["Statistic"]}
    return {
        "source": "aws.cloudwatch",
        "alarmArn": after["AlarmArn"],
        "accountId": after["AlarmArn"].split(":")[4],
        "time": stamp(now),
        "region": region,
        "alarmData": {
            "alarmName": after["AlarmName"],
            "state": _state(after, now),
            "previousState": _state(before, now),
            "configuration": {
                "description": after.get("AlarmDescription") or "",
                "metrics": [{"id": "m1", "metricStat": statistic, "returnData": True}],
            },
        },
    }


def _state(alarm: Mapping[str, Any], now: datetime) -> dict[str, str]:
    state = {
        "value": alarm["StateValue"],
        "reason": alarm["StateReason"],
        "timestamp": stamp(datetime.fromtimestamp(alarm["StateUpdatedTimestamp"], now.tzinfo)),
    }
    data = alarm.get("StateReasonData")
    return state | ({"reasonData": data} if data else {})


def embedded_metrics(
    message: str,
) -> Iterator[tuple[str, str, dict[str, str], float | list[float], float]]:
    """Yield (namespace, name, dimensions, value or values, epoch seconds) of an EMF log line.

    Embedded Metric Format: AWS, "Specification: Embedded metric format". What is not well-formed
    is a plain log line, as in CloudWatch.
    """
    start = message.find("{")
    try:
        line: Any = json.loads(message[start:]) if start >= 0 else None
        directives = line["_aws"]["CloudWatchMetrics"]
        at = line["_aws"].get("Timestamp", datetime.now(UTC).timestamp() * 1000) / 1000
        found = [
            (directive["Namespace"], metric["Name"], names)
            for directive in directives
            for metric in directive["Metrics"]
            for names in directive.get("Dimensions") or [[]]
        ]
        rows = [
            (space, name, {one: str(line[one]) for one in names}, line[name], at)
            for space, name, names in found
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    yield from rows

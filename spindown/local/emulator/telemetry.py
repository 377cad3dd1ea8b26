"""CloudWatch as MiniStack stores it: data points, alarms, log lines and the metrics within."""

# ruff: noqa: PLC0415, SLF001 - as in `ministack`

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from spindown.local.alarm import embedded_metrics
from spindown.local.emulator.scope import in_region

#: The metric of SQS that tells the traffic of a queue.
SENT = "NumberOfMessagesSent"


def put_metric(
    region: str, namespace: str, name: str, value: float, dimensions: Mapping[str, str]
) -> None:
    """Store one data point as of now, AWS's own namespaces included."""
    from ministack.services import cloudwatch

    with in_region(region):
        cloudwatch.record_metric(namespace, name, value, dimensions=dict(dimensions))


def alarms(region: str) -> tuple[Mapping[str, Any], ...]:
    """Return every metric alarm as PutMetricAlarm made it, with its state."""
    from ministack.services import cloudwatch

    with in_region(region):
        return tuple(dict(alarm) for alarm in cloudwatch._alarms.values())


def statistic(region: str, alarm: Mapping[str, Any], *, after: float, until: float) -> float | None:
    """Return the alarm's statistic over (after, until], by its dimensions; None without data.

    The bounds are seconds since the epoch.
    """
    from ministack.services import cloudwatch

    dimensions = {one["Name"]: one["Value"] for one in alarm["Dimensions"]}
    key = (alarm["Namespace"], alarm["MetricName"], cloudwatch._dims_key(dimensions))
    with in_region(region):
        stored = cloudwatch._metrics.get(key) or []
    points = [one for one in reversed(stored) if after < one["Timestamp"] <= until]
    if not points:
        return None
    name = alarm.get("ExtendedStatistic") or alarm["Statistic"]
    value = cloudwatch._stat_value(cloudwatch._calc_stats(points), name, points)
    return None if value is None else float(value)


def set_alarm_state(region: str, name: str, state: str, reason: str, data: str) -> None:
    """Move an alarm to a state with its history and SNS actions, as SetAlarmState does."""
    from ministack.services import cloudwatch

    wanted = {
        "AlarmName": name,
        "StateValue": state,
        "StateReason": reason,
        "StateReasonData": data,
    }
    with in_region(region):
        cloudwatch._set_alarm_state({}, wanted, is_cbor=False, is_json=True)


def forget_before(region: str, at: datetime) -> None:
    """Drop a region's data points and log streams from before; MiniStack keeps both for good.

    What was sent to a queue stays, one point for each call: `simulate` asks for weeks of it.
    """
    from ministack.services import cloudwatch, cloudwatch_logs

    first, gone = at.timestamp(), set()
    with in_region(region):
        for key, points in list(cloudwatch._metrics.items()):
            if key[1] != SENT:
                cloudwatch._metrics[key] = [each for each in points if each["Timestamp"] >= first]
        for group, logs in cloudwatch_logs._log_groups.items():
            for name, stream in list(logs["streams"].items()):
                if (stream["lastEventTimestamp"] or stream["creationTime"]) < 1000 * first:
                    gone.add((group, name))
                    del logs["streams"][name]
        for pointer, record in list(cloudwatch_logs._log_records.items()):
            if (record.get("@log"), record.get("@logStream")) in gone:
                del cloudwatch_logs._log_records[pointer]


def recording(append: Any) -> Any:
    """Return the log store's append that also extracts embedded metrics, as CloudWatch does."""

    def append_and_extract(stream: Any, events: Sequence[Mapping[str, Any]]) -> None:
        append(stream, events)
        for event in events:
            if '"_aws"' in event["message"]:
                _extract(event["message"])

    append_and_extract.original = append  # type: ignore[attr-defined]
    return append_and_extract


def _extract(message: str) -> None:
    from ministack.services import cloudwatch

    for namespace, name, dimensions, value, at in embedded_metrics(message):
        values = value if isinstance(value, list) else None
        cloudwatch._store_datum(namespace, name, dimensions, at, "None", value, values, None, None)

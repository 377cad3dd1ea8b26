"""Metrics as CloudWatch's embedded metric format: a line to stdout, or an event to Logs.

On Lambda a printed line is enough; a worker has no log agent and calls PutLogEvents itself. No
work may fail for a metric, so what cannot be sent is logged and dropped.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from botocore.exceptions import BotoCoreError, ClientError

from spindown.app.port import Clock, Datum
from spindown.aws.error import code_of
from spindown.contract.metric import METRICS
from spindown.contract.settings import NAMESPACE

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient

#: Quota of the format: metrics of one event, and values of one metric.
METRICS_MAX = 100
VALUES_MAX = 100

_log = logging.getLogger(__name__)


class PrintedMetricSink:
    """MetricSink for Lambda: one JSON line for each set of dimensions."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock

    def emit(self, data: Sequence[Datum]) -> None:
        """Print metrics."""
        for event in metric_events(data, self._clock.now()):
            print(event, file=self._stream, flush=True)


class LoggedMetricSink:
    """MetricSink for a worker: events in a stream of its own in CloudWatch Logs."""

    def __init__(
        self, client: "CloudWatchLogsClient", group: str, stream: str, clock: Clock
    ) -> None:
        self._client = client
        self._group = group
        self._stream = stream
        self._clock = clock

    def emit(self, data: Sequence[Datum]) -> None:
        """Send metrics; the stream is made when it is missing."""
        now = self._clock.now()
        events = metric_events(data, now)
        if not events:
            return
        try:
            self._send(events, now)
        except ClientError as error:
            if code_of(error) != "ResourceNotFoundException":
                _log.warning("metrics dropped: %s", error)
                return
            self._send_to_new_stream(events, now)
        except BotoCoreError as error:
            _log.warning("metrics dropped: %s", error)

    def _send_to_new_stream(self, events: Sequence[str], now: datetime) -> None:
        try:
            self._client.create_log_stream(logGroupName=self._group, logStreamName=self._stream)
        except ClientError as error:
            if code_of(error) != "ResourceAlreadyExistsException":
                _log.warning("metrics dropped: %s", error)
                return
        except BotoCoreError as error:
            _log.warning("metrics dropped: %s", error)
            return
        try:
            self._send(events, now)
        except (BotoCoreError, ClientError) as error:
            _log.warning("metrics dropped: %s", error)

    def _send(self, events: Sequence[str], now: datetime) -> None:
        self._client.put_log_events(
            logGroupName=self._group,
            logStreamName=self._stream,
            logEvents=[{"timestamp": _milliseconds(now), "message": event} for event in events],
        )


def metric_events(data: Sequence[Datum], at: datetime) -> Sequence[str]:
    """Return metrics as events in the embedded metric format, one for each set of dimensions."""
    sets: dict[tuple[tuple[str, str], ...], dict[str, list[float]]] = {}
    for datum in data:
        if datum.name not in METRICS:
            _log.warning("metric dropped, since it is not in the table: %s", datum.name)
            continue
        values = sets.setdefault(tuple(sorted(datum.dimensions.items())), {})
        values.setdefault(datum.name, []).append(datum.value)
    return [
        json.dumps(_event(dict(dimensions), part, at), separators=(",", ":"))
        for dimensions, values in sets.items()
        for part in _parts(values)
    ]


def _parts(values: Mapping[str, Sequence[float]]) -> Iterator[Mapping[str, Sequence[float]]]:
    """Split metrics so that each part keeps within the format's quotas."""
    part: dict[str, Sequence[float]] = {}
    for name, many in values.items():
        for start in range(0, len(many), VALUES_MAX):
            if name in part or len(part) == METRICS_MAX:
                yield part
                part = {}
            part[name] = many[start : start + VALUES_MAX]
    yield part


def _event(
    dimensions: Mapping[str, str], values: Mapping[str, Sequence[float]], at: datetime
) -> Mapping[str, Any]:
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": name, "Unit": METRICS[name].unit.value} for name in values],
    }
    return {
        "_aws": {"Timestamp": _milliseconds(at), "CloudWatchMetrics": [directive]},
        **dimensions,
        **{name: many[0] if len(many) == 1 else many for name, many in values.items()},
    }


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)

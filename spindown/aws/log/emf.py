"""Metrics as CloudWatch's embedded metric format: a line to stdout, or an event to Logs.

On Lambda a printed line is enough; a worker has no log agent and sends its lines itself.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from spindown.app.port import Clock, Datum
from spindown.aws.log.stream import LogStream
from spindown.contract.metric import METRICS
from spindown.contract.settings import NAMESPACE

#: Quota of the format: metrics of one event, and values of one metric.
METRICS_MAX = 100
VALUES_MAX = 100

_log = logging.getLogger(__name__)


class PrintedMetricSink:
    """MetricSink for Lambda: one JSON line for each set of dimensions."""

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock

    def emit(self, data: Iterable[Datum]) -> None:
        """Print metrics."""
        for event in metric_events(data, self._clock.now()):
            print(event, file=self._stream, flush=True)


class LoggedMetricSink:
    """MetricSink for a worker: events among the lines of its log, sent when those are."""

    def __init__(self, stream: LogStream, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock

    def emit(self, data: Iterable[Datum]) -> None:
        """Let metrics wait for the next flush of the log."""
        now = self._clock.now()
        for event in metric_events(data, now):
            self._stream.add(event, now)


def metric_events(data: Iterable[Datum], at: datetime) -> Sequence[str]:
    """Return metrics as events in the embedded metric format, one for each set of dimensions.

    A reason goes along as a member that is neither metric nor dimension.
    """
    sets: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, list[float]]] = {}
    for datum in data:
        if datum.name not in METRICS:
            _log.warning("metric dropped, since it is not in the table: %s", datum.name)
            continue
        about = (datum.reason, tuple(sorted(datum.dimensions.items())))
        values = sets.setdefault(about, {})
        values.setdefault(datum.name, []).append(datum.value)
    return [
        json.dumps(_event(dict(dimensions), part, at, reason), separators=(",", ":"))
        for (reason, dimensions), values in sets.items()
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
    dimensions: Mapping[str, str], values: Mapping[str, Sequence[float]], at: datetime, reason: str
) -> Mapping[str, Any]:
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": name, "Unit": METRICS[name].unit.value} for name in values],
    }
    return {
        "_aws": {"Timestamp": _milliseconds(at), "CloudWatchMetrics": [directive]},
        **({"reason": reason} if reason else {}),
        **dimensions,
        **{name: many[0] if len(many) == 1 else many for name, many in values.items()},
    }


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)

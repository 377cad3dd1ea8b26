"""CloudWatch: a worker's log lines, everybody's metrics, and the past traffic of a queue.

A log stream is written in batches. Whoever adds a line never waits for AWS: lines wait in memory
until the next flush. Lines that cannot be sent wait for the flush after it. When too many wait, the
oldest are dropped and counted. A log stream raises nothing.

Metrics are lines in the embedded metric format. On Lambda a printed line is enough. A worker has no
log agent and sends the lines itself.
"""

import json
import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TextIO

from botocore.exceptions import BotoCoreError, ClientError

from spindown.aws.error import code_of, translated
from spindown.contract.metric import METRICS
from spindown.contract.settings import NAMESPACE
from spindown.port import Clock, Datum, Sent

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_logs import CloudWatchLogsClient


#: Quotas of PutLogEvents (API reference): events and bytes of a batch, what each event adds to
#: its bytes, and the time between a batch's first event and its last.
BATCH_EVENTS = 10_000
BATCH_BYTES = 1_048_576
EVENT_BYTES = 26
BATCH_MILLISECONDS = 24 * 3600 * 1000
#: The quota of one event, and that of one in the embedded metric format.
MESSAGE_BYTES = 262_144 - EVENT_BYTES
#: What may wait: some minutes of a talkative program on each of eight slots.
WAITING_BYTES = 16 * 1_048_576

_NO_STREAM = "ResourceNotFoundException"
_IS_THERE = "ResourceAlreadyExistsException"
#: The same batch would be refused again.
_REFUSED = {"InvalidParameterException", "DataAlreadyAcceptedException"}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Line:
    #: Milliseconds since 1970.
    at: int
    message: str
    #: As PutLogEvents counts.
    size: int


class LogStream:
    """One stream of one group; made when it is missing. Threads may share it."""

    def __init__(
        self,
        client: "CloudWatchLogsClient",
        group: str,
        stream: str,
        *,
        waiting_bytes: int = WAITING_BYTES,
    ) -> None:
        self._client = client
        self._group = group
        self._stream = stream
        self._waiting_bytes = waiting_bytes
        self._waiting: deque[_Line] = deque()
        self._size = 0
        self._dropped = 0
        #: Held for as long as it takes to touch what waits, and never while AWS is asked.
        self._lock = threading.Lock()
        self._sending = threading.Lock()

    def add(self, message: str, at: datetime) -> None:
        """Let a line wait for the next flush; one that is too long is cut."""
        data = message.encode(errors="replace")
        if len(data) > MESSAGE_BYTES:
            data = data[:MESSAGE_BYTES]
            message = data.decode(errors="ignore")
        line = _Line(int(at.timestamp() * 1000), message, len(data) + EVENT_BYTES)
        with self._lock:
            self._waiting.append(line)
            self._size += line.size
            self._drop_oldest()

    def flush(self) -> None:
        """Send what waits, oldest first, until all is sent or a batch cannot be."""
        with self._sending:
            while batch := self._take_batch():
                if not self._send(batch):
                    self._keep_for_later(batch)
                    return

    def take_dropped(self) -> int:
        """Return how many lines were dropped since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def _take_batch(self) -> Sequence[_Line]:
        batch: list[_Line] = []
        size = 0
        with self._lock:
            while self._waiting and len(batch) < BATCH_EVENTS:
                line = self._waiting[0]
                if size + line.size > BATCH_BYTES:
                    break
                # Either way from the first, since threads add as they come.
                if batch and abs(line.at - batch[0].at) > BATCH_MILLISECONDS // 2:
                    break
                batch.append(self._waiting.popleft())
                size += line.size
            self._size -= size
        return batch

    def _keep_for_later(self, batch: Sequence[_Line]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(batch))
            self._size += sum(line.size for line in batch)
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        while self._size > self._waiting_bytes:
            self._size -= self._waiting.popleft().size
            self._dropped += 1

    def _send(self, batch: Sequence[_Line]) -> bool:
        """Send a batch; tell whether it is done with, for better or worse."""
        try:
            try:
                self._put(batch)
            except ClientError as error:
                if code_of(error) != _NO_STREAM:
                    raise
                self._make_stream()
                self._put(batch)
        except ClientError as error:
            _log.warning("log lines not sent: %s", error)
            if code_of(error) not in _REFUSED:
                return False
            with self._lock:
                self._dropped += len(batch)
        except BotoCoreError as error:
            _log.warning("log lines not sent: %s", error)
            return False
        return True

    def _make_stream(self) -> None:
        try:
            self._client.create_log_stream(logGroupName=self._group, logStreamName=self._stream)
        except ClientError as error:
            if code_of(error) != _IS_THERE:
                raise

    def _put(self, batch: Sequence[_Line]) -> None:
        # A batch must be in order of time.
        self._client.put_log_events(
            logGroupName=self._group,
            logStreamName=self._stream,
            logEvents=[
                {"timestamp": line.at, "message": line.message}
                for line in sorted(batch, key=lambda line: line.at)
            ],
        )


#: Quota of the format: metrics of one event, and values of one metric.
METRICS_MAX = 100
VALUES_MAX = 100


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


#: (age, period) of what CloudWatch keeps: minutes for 15 days, five minutes for 63, hours for 455
#: (CloudWatch User Guide, "Metrics retention").
_KEPT = (
    (timedelta(days=15), timedelta(minutes=1)),
    (timedelta(days=63), timedelta(minutes=5)),
    (timedelta(days=455), timedelta(hours=1)),
)
#: A point on the edge of an age may be gone when the call is answered.
_EDGE = timedelta(hours=1)


class CloudWatchTrafficHistory:
    """TrafficHistory on CloudWatch, as fine as it still is at each age."""

    def __init__(self, client: "CloudWatchClient", clock: Clock) -> None:
        self._client = client
        self._clock = clock

    def sent(self, queue: str, *, since: datetime, until: datetime) -> Sequence[Sent]:
        """Return the periods in which messages came, oldest first."""
        found: list[Sent] = []
        for begin, end, period in _spans(since, until, self._clock.now()):
            found.extend(self._read(queue, begin, end, period))
        return sorted(found, key=lambda sent: sent.at)

    def _read(
        self, queue: str, begin: datetime, end: datetime, period: timedelta
    ) -> Iterator[Sent]:
        seconds = int(period.total_seconds())
        pages = self._client.get_paginator("get_metric_data").paginate(
            MetricDataQueries=[
                {
                    "Id": "sent",
                    "MetricStat": {
                        "Metric": {
                            "Namespace": "AWS/SQS",
                            "MetricName": "NumberOfMessagesSent",
                            "Dimensions": [{"Name": "QueueName", "Value": queue}],
                        },
                        "Period": seconds,
                        "Stat": "Sum",
                    },
                }
            ],
            StartTime=begin,
            EndTime=end,
        )
        with translated():
            for page in pages:
                for series in page["MetricDataResults"]:
                    for at, value in zip(series["Timestamps"], series["Values"], strict=True):
                        if value >= 1.0:
                            yield Sent(at=at, period=float(seconds), messages=round(value))


def _spans(
    since: datetime, until: datetime, now: datetime
) -> Iterator[tuple[datetime, datetime, timedelta]]:
    """Yield (begin, end, period), newest first: each age at the finest period that is kept."""
    end = until
    coarser = [period for _, period in _KEPT[1:]] + [_KEPT[-1][1]]
    for (age, period), next_period in zip(_KEPT, coarser, strict=True):
        # Where two periods meet a whole one of the coarser ends: half of it would be read twice.
        begin = max(_ceil(now - age + _EDGE, next_period), _floor(since, period))
        if begin < end:
            yield begin, end, period
            end = begin


def _floor(at: datetime, period: timedelta) -> datetime:
    """Return the begin of the period that an instant falls into."""
    past = timedelta(seconds=at.timestamp() % period.total_seconds())
    return at - past


def _ceil(at: datetime, period: timedelta) -> datetime:
    """Return the end of the period that an instant falls into; a begin of one is itself."""
    begin = _floor(at, period)
    return at if begin == at else begin + period

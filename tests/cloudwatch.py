"""CloudWatch in memory: it keeps metrics by time, and evaluates alarms of a template on them.

As the Amazon CloudWatch User Guide says ("Using Amazon CloudWatch alarms", "Using math expressions
with CloudWatch metrics"); the state of an alarm is decided as in the local system.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from spindown.contract.settings import NAMESPACE
from spindown.local.alarm import ALARM, EXTRA_PERIODS, evaluate
from spindown.local.metric_math import calculate
from spindown.memory import MemoryJobQueue
from spindown.port import Clock, Datum

#: A message that was received so often goes to the back of the queue, and no longer counts for the
#: age of the oldest (Amazon SQS Developer Guide, "Available CloudWatch metrics for Amazon SQS").
_RECEIVES_UNCOUNTED = 3

_STATISTICS: Mapping[str, Callable[[list[float]], float]] = {
    "Sum": math.fsum,
    "Maximum": max,
    "Minimum": min,
    "Average": lambda values: math.fsum(values) / len(values),
    "SampleCount": len,
}

_Series = tuple[str, str, frozenset[tuple[str, str]]]


@dataclass
class CloudWatch:
    """Takes metrics as a MetricSink does, and says whether an alarm of a template rings."""

    clock: Clock
    _data: dict[_Series, list[tuple[datetime, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def emit(self, data: Iterable[Datum]) -> None:
        """Take metrics of our own."""
        for datum in data:
            self.put(NAMESPACE, datum.name, datum.value, datum.dimensions)

    def put(self, namespace: str, name: str, value: float, dimensions: Mapping[str, str]) -> None:
        """Take one value as of now."""
        series = (namespace, name, frozenset(dimensions.items()))
        self._data[series].append((self.clock.now(), value))

    def watch_queue(self, name: str, queue: MemoryJobQueue) -> None:
        """Take what SQS says of a queue."""
        visible = queue.backlog().visible
        present = [entry for _, turn, entry in queue._expiries if entry.turn >= turn >= 0]
        counted = [e for e in present if e.receives < _RECEIVES_UNCOUNTED and e.turn >= 0]
        oldest = min((e.sent_at for e in counted), default=self.clock.now())
        age = (self.clock.now() - oldest).total_seconds()
        for metric, value in (
            ("ApproximateNumberOfMessagesVisible", visible),
            ("ApproximateAgeOfOldestMessage", age),
        ):
            self.put("AWS/SQS", metric, value, {"QueueName": name})

    def invoke(self, function: str, call: Callable[[], object], *, seconds: float = 0.3) -> None:
        """Call a function, and take what Lambda says of it."""
        errors = 0
        try:
            call()
        except Exception:  # noqa: BLE001 - as Lambda counts them
            errors = 1
        self.count_calls(function, 1, seconds=seconds, errors=errors)

    def count_calls(self, function: str, calls: int, *, seconds: float, errors: int = 0) -> None:
        """Take what Lambda says of some calls that take so long each."""
        values = {"Invocations": calls, "Errors": errors, "Duration": 1000 * calls * seconds}
        for metric, value in values.items():
            self.put("AWS/Lambda", metric, value, {"FunctionName": function})

    def rings(self, alarm: Mapping[str, Any]) -> bool:
        """Tell whether an alarm of a template is in the state ALARM now."""
        points = self._points(alarm, alarm["EvaluationPeriods"] + EXTRA_PERIODS)
        return evaluate(alarm, points[::-1]) == ALARM

    def _points(self, alarm: Mapping[str, Any], count: int) -> list[float | None]:
        """Return the last whole periods of what an alarm looks at, the oldest first."""
        if "MetricName" in alarm:
            return self._read(alarm, alarm["Period"], alarm["Statistic"], count)
        given: dict[str, list[float | None]] = {}
        for query in alarm["Metrics"]:
            if "MetricStat" in query:
                stat = query["MetricStat"]
                given[query["Id"]] = self._read(stat["Metric"], stat["Period"], stat["Stat"], count)
        (expression,) = (query["Expression"] for query in alarm["Metrics"] if "Expression" in query)
        return [
            calculate(expression, {name: values[n] for name, values in given.items()})
            for n in range(count)
        ]

    def _read(
        self, metric: Mapping[str, Any], period: int, statistic: str, count: int
    ) -> list[float | None]:
        dimensions = frozenset((one["Name"], one["Value"]) for one in metric["Dimensions"])
        series = self._data.get((metric["Namespace"], metric["MetricName"], dimensions), [])
        seconds, length = self.clock.now().timestamp(), timedelta(seconds=period)
        end = datetime.fromtimestamp(seconds - seconds % period, self.clock.now().tzinfo)
        found = []
        for n in range(count, 0, -1):
            since = end - n * length
            values = [value for at, value in series if since <= at < since + length]
            found.append(_STATISTICS[statistic](values) if values else None)
        return found

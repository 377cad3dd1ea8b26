"""Metrics in memory: they are kept to be looked at."""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from spindown.port import Datum, Sent

_MINUTE_SECONDS = 60.0


class MemoryMetricSink:
    """MetricSink that records."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data: list[Datum] = []

    def emit(self, data: Iterable[Datum]) -> None:
        """Record metrics."""
        with self._lock:
            self._data.extend(data)

    @property
    def data(self) -> Sequence[Datum]:
        """Return everything recorded, oldest first."""
        with self._lock:
            return tuple(self._data)

    def values(self, name: str) -> Sequence[float]:
        """Return the values of one metric, oldest first."""
        return [datum.value for datum in self.data if datum.name == name]


class MemoryTrafficHistory:
    """TrafficHistory in memory, by the minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: Queue -> minute -> messages.
        self._sent: dict[str, Counter[datetime]] = {}

    def record(self, queue: str, at: datetime, messages: int = 1) -> None:
        """Let messages have come to a queue."""
        with self._lock:
            minutes = self._sent.setdefault(queue, Counter())
            minutes[at.replace(second=0, microsecond=0)] += messages

    def sent(self, queue: str, *, since: datetime, until: datetime) -> Sequence[Sent]:
        """Return the minutes in which messages came, oldest first."""
        with self._lock:
            minutes = sorted(self._sent.get(queue, Counter()).items())
        return [
            Sent(at=at, period=_MINUTE_SECONDS, messages=messages)
            for at, messages in minutes
            if since <= at < until and messages
        ]

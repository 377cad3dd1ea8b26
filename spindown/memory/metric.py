"""Metrics in memory: they are kept to be looked at."""

import threading
from collections.abc import Sequence

from spindown.app.port import Datum


class MemoryMetricSink:
    """MetricSink that records."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data: list[Datum] = []

    def emit(self, data: Sequence[Datum]) -> None:
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

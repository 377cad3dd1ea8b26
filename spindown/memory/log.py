"""A log group in memory."""

import threading
from collections.abc import Collection, Iterator
from datetime import datetime

from spindown.contract.log import is_of
from spindown.port import LogEvent


class MemoryLog:
    """LogSource whose events are put there by hand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[LogEvent] = []

    def put(self, stream: str, at: datetime, message: str) -> None:
        """Let an event arrive, in whatever order; its time is cut to a millisecond."""
        cut = at.replace(microsecond=at.microsecond // 1000 * 1000)
        with self._lock:
            self._events.append(LogEvent(stream=stream, at=cut, message=message))

    def read(
        self, *, since: datetime, jobs: Collection[str] = (), stream: str = ""
    ) -> Iterator[LogEvent]:
        """Yield the events from ``since`` on, oldest first."""
        with self._lock:
            found = sorted(self._events, key=lambda event: event.at)
        for event in found:
            if event.at < since or stream not in {"", event.stream}:
                continue
            if not jobs or is_of(event.message, jobs):
                yield event

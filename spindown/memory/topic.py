"""A topic and a bus in memory: what was said is kept to be looked at."""

import threading
from collections.abc import Sequence

from spindown.contract.job.event import JobEvent
from spindown.error import Unreachable

#: Amazon SNS API, "Publish".
_SUBJECT_AT_MOST = 100


class MemoryTopic:
    """Topic that records; as strict as SNS about subjects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: list[tuple[str, str]] = []

    def publish(self, subject: str, text: str) -> None:
        """Record subject and text (raises ValueError on what SNS would refuse)."""
        if not text or not 0 < len(subject) <= _SUBJECT_AT_MOST:
            raise ValueError(subject)
        if not (subject.isascii() and subject.isprintable()):
            raise ValueError(subject)
        with self._lock:
            self._said.append((subject, text))

    @property
    def said(self) -> Sequence[tuple[str, str]]:
        """Return (subject, text) of all that was said, oldest first."""
        with self._lock:
            return tuple(self._said)


class MemoryJobEvents:
    """JobEvents that records, and gives no answer while it is told so."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: list[JobEvent] = []
        self.is_reachable = True

    def send(self, events: Sequence[JobEvent]) -> None:
        """Record events (raises Unreachable)."""
        if not self.is_reachable:
            raise Unreachable("no bus")
        with self._lock:
            self._sent.extend(events)

    @property
    def sent(self) -> Sequence[JobEvent]:
        """Return all that was sent, oldest first."""
        with self._lock:
            return tuple(self._sent)

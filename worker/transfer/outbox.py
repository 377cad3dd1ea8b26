"""Events of jobs on their way: sent at once, kept for a while when nobody takes them."""

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

from spindown.contract.job.event import JobEvent
from spindown.error import SpindownError
from spindown.port import JobEvents
from spindown.worker.log import EventLog

#: Beyond them the oldest are dropped: they are for convenience, the manifest is the truth.
_EVENTS_AT_MOST = 1000


class Outbox:
    """Events that wait to be sent. Threads may share it; no failure leaves it."""

    def __init__(self, events: JobEvents, log: EventLog) -> None:
        self._events = events
        self._log = log
        self._waiting: deque[JobEvent] = deque(maxlen=_EVENTS_AT_MOST)
        self._sending = threading.Lock()
        # A thread of its own: a bus that gives no answer must not hold up inputs and commits.
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="outbox")
        self._submitting = threading.Lock()
        self._next: Future[None] | None = None

    def send(self, event: JobEvent) -> None:
        """Send an event beside the caller; while one is being sent, all others go together."""
        self._waiting.append(event)
        with self._submitting:
            # One that has not begun takes this event too; of one that runs nobody knows.
            if self._next is None or self._next.running() or self._next.done():
                self._next = self._sender.submit(self.flush)

    def flush(self) -> None:
        """Send what waits; what cannot be sent waits for the next time."""
        with self._sending:
            batch = []
            while self._waiting:
                batch.append(self._waiting.popleft())
            if not batch:
                return
            try:
                self._events.send(batch)
            except SpindownError as exc:
                self._log.warning("events_not_sent", reason=str(exc), events=len(batch))
                self._waiting.extendleft(reversed(batch))

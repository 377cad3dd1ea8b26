"""The usage records of one worker, written to S3 many at a time.

A record a job would be a request a job. Those of some minutes go into one object instead, named
by the first of them; what a crash takes along is missing from questions about usage, and from
no account of money.
"""

import threading
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

from spindown.contract.usage import UsageRecord, encode_usage, usage_key
from spindown.error import SpindownError
from spindown.port import Clock, ObjectStore
from worker.log import EventLog

#: How long a record waits for others.
_PATIENCE = timedelta(minutes=5)
#: So many do not wait.
_RECORDS_ENOUGH = 1000
#: Beyond them the oldest are dropped, while S3 takes none.
_RECORDS_AT_MOST = 10_000


class UsageJournal:
    """Records that wait to be written. Threads may share it."""

    def __init__(self, objects: ObjectStore, clock: Clock, log: EventLog) -> None:
        self._objects = objects
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._waiting: deque[UsageRecord] = deque(maxlen=_RECORDS_AT_MOST)
        self._since: datetime | None = None

    def add(self, record: UsageRecord) -> None:
        """Let a record wait."""
        with self._lock:
            self._since = self._since or self._clock.now()
            self._waiting.append(record)

    def write_if_due(self) -> None:
        """Write what waits if it has waited for long enough or has become many."""
        since = self._since
        if since is None:
            return
        if self._clock.now() - since >= _PATIENCE or len(self._waiting) >= _RECORDS_ENOUGH:
            self.write()

    def write(self) -> None:
        """Write what waits, an object a day; what cannot be written waits for the next time."""
        with self._lock:
            records = sorted(self._waiting, key=lambda record: record.started_at)
            self._waiting.clear()
            self._since = None
        for _, day in groupby(records, key=lambda record: record.started_at.date()):
            self._put(list(day))

    def _put(self, records: Sequence[UsageRecord]) -> None:
        try:
            self._objects.put(usage_key(records[0]), encode_usage(records))
        except SpindownError as exc:
            self._log.warning("usage_not_written", reason=str(exc))
            for record in records:
                self.add(record)

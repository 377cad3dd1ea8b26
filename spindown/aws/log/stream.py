"""A stream of CloudWatch Logs, written in batches: whoever adds a line never waits for AWS.

The lines wait in memory until somebody flushes. What cannot be sent waits for the next flush;
when too much waits, the oldest lines are dropped and counted. No failure leaves this module.
"""

import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from spindown.aws.error import code_of

if TYPE_CHECKING:
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
                    self._put_back(batch)
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

    def _put_back(self, batch: Sequence[_Line]) -> None:
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

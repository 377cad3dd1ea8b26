"""What the user's code prints: events of the log, and what is kept of it for the job.

Each line is an event of the log, within bounds of a second and of a day, since CloudWatch bills
what it takes in. For the job the beginning and the end are kept, never all of a flood.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import IO, Any

from spindown.contract.codec import encode
from spindown.contract.log import (
    USER_OUTPUT,
    USER_OUTPUT_LEFT_OUT,
    USER_OUTPUT_LIMIT,
    USER_PROGRESS,
)
from spindown.contract.run_spec import LOG_BYTES_A_DAY
from spindown.domain.fleet import CodeProgress
from spindown.worker.child.progress import split_progress
from spindown.worker.log import EventLog, write_json

#: What is kept of the beginning and of the end, bytes.
HEAD_BYTES = 256 * 1024
TAIL_BYTES = 768 * 1024


class OutputLog:
    """Keeps what is printed, within bounds. The output's thread writes, the slot's reads."""

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._lock = threading.Lock()
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._left_out = 0
        #: What the code has last said of its progress.
        self.progress: CodeProgress | None = None

    def add(self, line: str) -> None:
        """Keep a line."""
        data = f"{line}\n".encode(errors="replace")
        with self._lock:
            if not self._tail and len(self._head) + len(data) <= self._head_bytes:
                self._head += data
                return
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail_size > self._tail_bytes:
                gone = self._tail.popleft()
                self._tail_size -= len(gone)
                self._left_out += len(gone)

    def read(self) -> bytes:
        """Return what was kept; a gap says how long it is."""
        with self._lock:
            gap = f"[{self._left_out} bytes left out]\n".encode() if self._left_out else b""
            return bytes(self._head) + gap + b"".join(self._tail)


#: A longer line is told in pieces.
LINE_BYTES = 8192
#: Beyond them the lines of a second are only counted, for each slot.
LINES_A_SECOND = 100
_LAST_LINES = 5
#: What an event has beside its text: names, instant, instance, job, and CloudWatch's 26 bytes.
EVENT_BYTES = 300
_DAY_SECONDS = 86_400.0


class Room(Enum):
    """Whether the log of a day has room for a line."""

    ROOM = auto()
    #: No longer, and nobody has been told yet.
    JUST_FULL = auto()
    FULL = auto()


class LogAllowance:
    """What one slot may still print to the log; it outlives the processes of the slot."""

    def __init__(
        self, bytes_a_day: int = LOG_BYTES_A_DAY, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin a day; ``clock`` counts seconds."""
        self.bytes_a_day = bytes_a_day
        self._clock = clock
        # The thread of a process that ends may still read beside that of the next.
        self._lock = threading.Lock()
        self._day_began = clock()
        self._used = 0
        self._is_full = False

    @property
    def is_full(self) -> bool:
        """Return whether the day's room is used up, as far as the last line has shown."""
        return self._is_full

    def take(self, size: int) -> Room:
        """Take room for a line whose text is so many bytes of its event, if there is any."""
        with self._lock:
            if self._clock() - self._day_began >= _DAY_SECONDS:
                self._day_began, self._used, self._is_full = self._clock(), 0, False
            if self._is_full:
                return Room.FULL
            self._used += EVENT_BYTES + size
            self._is_full = self._used > self.bytes_a_day
            return Room.JUST_FULL if self._is_full else Room.ROOM


class Output:
    """The output of one child process, read line by line to its end."""

    def __init__(
        self,
        log: EventLog,
        allowance: LogAllowance,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tell a log what is read, within the slot's allowance; ``clock`` counts seconds."""
        self._log = log
        self._allowance = allowance
        self._clock = clock
        #: The job and the attempt that the lines belong to, and what keeps them for it.
        self.job_id = ""
        self.epoch = 0
        self.output_log: OutputLog | None = None
        #: What was printed before the first job, as by ``setup``: the last lines, each with whether
        #: the log has it, and how many more there were.
        self._before: deque[tuple[str, bool]] = deque(maxlen=LINES_A_SECOND)
        self._before_left_out = 0
        # One thread reads, another says whose it is.
        self._lock = threading.Lock()
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._second_began = clock()
        self._lines = 0
        self._left_out = 0
        self._progress: CodeProgress | None = None
        self._progress_sent = -math.inf

    def belong_to(self, job_id: str, epoch: int, output_log: OutputLog | None) -> None:
        """Let what is read from now on belong to an attempt at a job.

        What was read before the first one belongs to that: nothing else of the code would tell
        what its ``setup`` printed. Most of it the log has already, as of the instance alone.
        """
        with self._lock:
            self.job_id, self.epoch, self.output_log = job_id, epoch, output_log
            if self._before_left_out:
                # The log has these lines, or its own count of those that it lacks.
                self._tell_of_job(f"[{self._before_left_out} lines left out]", is_known=True)
            for text, is_known in self._before:
                self._tell_of_job(text, is_known=is_known)
            self._before.clear()
            self._before_left_out = 0

    def _tell_of_job(self, text: str, *, is_known: bool) -> None:
        if self.output_log is not None:
            self.output_log.add(text)
        self._tell(USER_OUTPUT, text=text, **({"again": True} if is_known else {}))

    @property
    def last_line(self) -> str:
        """Return the last line that says something, "" if there is none."""
        return next((line for line in reversed(self._last_lines) if line.strip()), "")

    @property
    def last_lines(self) -> Sequence[str]:
        """Return the last few lines, oldest first."""
        return tuple(self._last_lines)

    def read(self, stream: IO[bytes]) -> None:
        """Tell every line until the stream ends."""
        while line := stream.readline(LINE_BYTES):
            with self._lock:
                self._take(line.decode(errors="replace").rstrip("\n"))
        with self._lock:
            self._tell_left_out()

    def _take(self, line: str) -> None:
        text, progress = split_progress(line)
        if progress is not None and self.output_log is not None:
            self.output_log.progress = progress
        now = self._clock()
        if now - self._second_began >= 1.0:
            self._tell_left_out()
            self._second_began, self._lines = now, 0
        if progress is not None:
            self._tell_progress(progress, now)
        if text or progress is None:
            self._lines += 1
            is_within = self._lines <= LINES_A_SECOND
            self._left_out += not is_within
            self._keep(text, is_told=is_within and self._tell(USER_OUTPUT, text=text))

    def _keep(self, text: str, *, is_told: bool) -> None:
        self._last_lines.append(text)
        if not self.job_id:
            self._before_left_out += len(self._before) == LINES_A_SECOND
            self._before.append((text, is_told))
        if self.output_log is not None:
            self.output_log.add(text)

    def _tell_progress(self, progress: CodeProgress, now: float) -> None:
        """Tell the first of a second, and the one that says that all is done."""
        is_end = progress.done >= progress.of and progress != self._progress
        if now - self._progress_sent < 1.0 and not is_end:
            return
        self._progress, self._progress_sent = progress, now
        self._lines += 1
        if self._lines <= LINES_A_SECOND:
            self._tell(USER_PROGRESS, **encode(progress))

    def _tell(self, event: str, *, text: str, **fields: Any) -> bool:
        """Tell an event if the day has room for it; tell whether it has."""
        # As the event writes it: a byte may become six, such as a control character.
        room = self._allowance.take(len(write_json(text)) - len('""'))
        if room is Room.ROOM:
            self._log.info(event, **self._whose, text=text, **fields)
        elif room is Room.JUST_FULL:
            bytes_a_day = self._allowance.bytes_a_day
            self._log.warning(USER_OUTPUT_LIMIT, **self._whose, bytes_a_day=bytes_a_day)
        return room is Room.ROOM

    def _tell_left_out(self) -> None:
        if self._left_out and not self._allowance.is_full:
            self._log.warning(USER_OUTPUT_LEFT_OUT, **self._whose, lines=self._left_out)
        self._left_out = 0

    @property
    def _whose(self) -> Mapping[str, Any]:
        return {"job_id": self.job_id, "epoch": self.epoch}

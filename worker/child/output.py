"""What the user's code prints: each line an event of the log, but never so many as to drown it."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO

from worker.child.output_log import OutputLog
from worker.log import EventLog

#: A longer line is told in pieces.
LINE_BYTES = 8192
#: Beyond them the lines of a second are only counted, for each slot.
LINES_A_SECOND = 100
_LAST_LINES = 5


class Output:
    """The output of one child process, read line by line to its end."""

    def __init__(self, log: EventLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Tell a log what is read; ``clock`` counts seconds."""
        self._log = log
        self._clock = clock
        #: The job that the lines belong to, and what keeps them for it.
        self.job_id = ""
        self.output_log: OutputLog | None = None
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._second_began = clock()
        self._lines = 0
        self._left_out = 0

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
            self._take(line.decode(errors="replace").rstrip("\n"))
        self._tell_left_out()

    def _take(self, text: str) -> None:
        self._last_lines.append(text)
        if self.output_log is not None:
            self.output_log.add(text)
        now = self._clock()
        if now - self._second_began >= 1.0:
            self._tell_left_out()
            self._second_began, self._lines = now, 0
        self._lines += 1
        if self._lines > LINES_A_SECOND:
            self._left_out += 1
        else:
            self._log.info("user_output", job_id=self.job_id, text=text)

    def _tell_left_out(self) -> None:
        if self._left_out:
            self._log.warning("user_output_left_out", job_id=self.job_id, lines=self._left_out)
            self._left_out = 0

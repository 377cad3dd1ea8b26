"""One run of any program: its process, in a session of its own, and its output."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from worker.child.ending import reap
from worker.child.output import Output

#: What a process that ended may have left in the pipe is read for so long.
_AFTER_END_SECONDS = 2.0


class Program:
    """A program that was started. Raises OSError if it cannot be."""

    def __init__(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Output
    ) -> None:
        self.output = output
        self._process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # A signal to the worker's group is not the program's, and its own children end with it.
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read_output, name="output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return its process id, which is that of its session too."""
        return self._process.pid

    def status(self, seconds: float) -> int | None:
        """Return its exit status, None if it has not ended within ``seconds``."""
        try:
            return self._process.wait(timeout=max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            return None

    def ask_to_stop(self) -> None:
        """Send SIGTERM to it and to what it has started."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it with all that it has started, and read its output to the end (raises Wedged)."""
        self._signal(signal.SIGKILL)
        reap(self._process)
        self._reader.join(timeout=_AFTER_END_SECONDS)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _read_output(self) -> None:
        stream = self._process.stdout
        if stream is not None:
            with stream:
                self.output.read(stream)

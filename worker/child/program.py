"""One run of any program, with all that it starts, and its output."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from worker.child.output import Output
from worker.family.family import Family

#: What a process that ended may have left in the pipe is read for so long.
_AFTER_END_SECONDS = 2.0


class Program:
    """A program that was started. Raises OSError if it cannot be."""

    def __init__(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Output
    ) -> None:
        self.output = output
        self._family = Family(argv, cwd=cwd, env=env)
        self._reader = threading.Thread(target=self._read_output, name="output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return the process from which all of its processes descend."""
        return self._family.pid

    def status(self, seconds: float) -> int | None:
        """Return its exit status, None if it has not ended within ``seconds``."""
        return self._family.status(seconds)

    def ask_to_stop(self) -> None:
        """Send SIGTERM to it and to what it has started in its group."""
        self._family.ask_to_stop()

    def kill(self) -> None:
        """End it with all that it has started, and read its output to the end (raises Wedged)."""
        self._family.end()
        self._reader.join(timeout=_AFTER_END_SECONDS)

    def _read_output(self) -> None:
        with self._family.output as stream:
            self.output.read(stream)

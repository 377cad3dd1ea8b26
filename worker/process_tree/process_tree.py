"""The worker's side of a process tree: start it, ask it to stop, end all that descends from it."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_SUBREAPER = str(Path(__file__).with_name("subreaper.py"))
_ERRNO_BYTES = 32
#: To free the memory of a large model takes seconds; for a driver that hangs nobody waits.
_REAP_SECONDS = 30.0


class Wedged(Exception):
    """A process that was killed does not end: it waits in the kernel, as for a GPU that is gone."""


def reap(process: subprocess.Popen[bytes], seconds: float = _REAP_SECONDS) -> None:
    """Wait for the end of a process that was killed (raises Wedged)."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired as exc:
        raise Wedged(
            f"process {process.pid} was killed and has not ended in {seconds:g} s"
        ) from exc


class ProcessTree:
    """A program that was started below a subreaper of its own. Raises OSError if it cannot be.

    With ``group`` all of them are in that control group, so also what the program starts.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        pass_fds: Sequence[int] = (),
        group: Path | None = None,
    ) -> None:
        status, report = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", _SUBREAPER, str(report), str(group or ""), *command],
                cwd=cwd,
                env=dict(env),
                # While the worker lives and wants it, this line is open.
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(*pass_fds, report),
                # A signal to the worker's group is not the tree's.
                start_new_session=True,
            )
        except BaseException:
            os.close(status)
            raise
        finally:
            os.close(report)
        with os.fdopen(status, "rb") as stream:
            number = stream.read(_ERRNO_BYTES)
        if number:
            self.end()
            self.output.close()
            raise OSError(int(number), os.strerror(int(number)), command[0])

    @property
    def pid(self) -> int:
        """Return the process id of the subreaper, from whom all others descend."""
        return self._process.pid

    @property
    def output(self) -> IO[bytes]:
        """Return what the program, and whoever it shares its output with, prints."""
        stream = self._process.stdout
        assert stream is not None  # noqa: S101 - it was asked for above
        return stream

    def status(self, seconds: float) -> int | None:
        """Return how the program ended, None if not all of the tree have within ``seconds``."""
        try:
            return self._process.wait(timeout=max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            return None

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the program and its group."""
        self._process.send_signal(signal.SIGTERM)

    def kill_soon(self) -> None:
        """Let all of the tree be killed, without waiting for it."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    def end(self) -> None:
        """Kill all of the tree and wait for their end (raises Wedged)."""
        self.kill_soon()
        reap(self._process)

"""Processes of the user's code: a program, and a child that also has pipes for frames.

``worker.process_tree`` starts and kills them; ``runner`` and ``command`` decide when one hangs.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from spindown.worker.child.failure_cause import Broken, FailureCause, describe_end
from spindown.worker.child.frame import Frame, FrameReader, encode_frame, write_within
from spindown.worker.child.output import Output
from spindown.worker.process_tree.process_tree import ProcessTree

#: Of all code: Python then passes each line on as it prints it, and `logs --follow` shows it. The
#: user's own `env` comes after it.
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
#: A child that stands ready reads at once; more means that it hangs.
_WRITE_SECONDS = 60.0
#: What a process that ended may have left in the pipe is read for so long. The line to a child
#: closes an instant before it is reaped.
_AFTER_END_SECONDS = 2.0


class Program:
    """A program that was started, with all that descends from it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        output: Output,
        pass_fds: tuple[int, ...] = (),
        group: Path | None = None,
    ) -> None:
        """Start it, in a control group if one is given (raises OSError if it cannot be started)."""
        self.output = output
        self._tree = ProcessTree(argv, cwd=cwd, env=env, pass_fds=pass_fds, group=group)
        self._reader = threading.Thread(target=self._read_output, name="output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return the process from which all of its processes descend."""
        return self._tree.pid

    def status(self, seconds: float) -> int | None:
        """Return its exit status, None if it has not ended within ``seconds``."""
        return self._tree.status(seconds)

    def ask_to_stop(self) -> None:
        """Send SIGTERM to it and to what it has started in its group."""
        self._tree.ask_to_stop()

    def kill(self) -> None:
        """End it with all that it has started, and read its output to the end (raises Wedged)."""
        self._tree.end()
        self._reader.join(timeout=_AFTER_END_SECONDS)

    def _read_output(self) -> None:
        with self._tree.output as stream:
            self.output.read(stream)


class Child(Program):
    """A program with two more pipes: frames down, frames up."""

    def __init__(
        self,
        command: Callable[[int, int], list[str]],
        cwd: Path,
        env: Mapping[str, str],
        output: Output,
        group: Path | None = None,
    ) -> None:
        self.is_ready = False
        self._is_closed = False
        down_read, self._down = os.pipe()
        self._up, up_write = os.pipe()
        try:
            super().__init__(
                command(down_read, up_write),
                cwd=cwd,
                env={**UNBUFFERED, **env},
                output=output,
                pass_fds=(down_read, up_write),
                group=group,
            )
        except BaseException:
            os.close(self._down)
            os.close(self._up)
            raise
        finally:
            os.close(down_read)
            os.close(up_write)
        os.set_blocking(self._down, False)
        self._frames = FrameReader(self._up)

    @property
    def frame_bytes(self) -> int:
        """Return the bytes of memory that the last frame takes."""
        return self._frames.frame_bytes

    def send(self, frame: Frame) -> None:
        """Send a frame; a child that does not read it is killed, which ends the line."""
        if not write_within(self._down, encode_frame(frame), _WRITE_SECONDS):
            self._tree.kill_soon()

    def next_frame(self, seconds: float) -> Frame | None:
        """Return the next frame, ``{"type": "end"}`` at the end of the line, None in time."""
        try:
            return self._frames.next(seconds)
        except EOFError:
            return {"type": "end"}

    def describe_end(self, *, out_of_memory: bool) -> Broken:
        """Return why the process is gone, with the last thing that it said."""
        status = self.status(_AFTER_END_SECONDS)
        self.kill()
        if status is None:
            reason = "the process has closed its line to the worker, or garbled it"
            return Broken(FailureCause.SILENT, reason)
        return describe_end(status, self.output.last_line, out_of_memory=out_of_memory)

    def kill(self) -> None:
        """End it as a program ends, and close its pipes (raises Wedged)."""
        super().kill()
        if not self._is_closed:
            os.close(self._down)
            os.close(self._up)
            self._is_closed = True

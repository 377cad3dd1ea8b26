"""A child process and the three pipes to it: frames down, frames up, and its output."""

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from worker.child.ending import Broken, FailureCause, describe_end
from worker.child.frame import Frame, FrameReader, encode_frame, write_within
from worker.child.output import Output
from worker.family.family import Family

#: A child that stands ready reads at once; more means that it hangs.
_WRITE_SECONDS = 60.0
#: The line closes an instant before the process is reaped.
_AFTER_END_SECONDS = 2.0


class Child:
    """One process, with all that descends from it."""

    def __init__(
        self,
        command: Callable[[int, int], list[str]],
        cwd: Path,
        env: Mapping[str, str],
        output: Output,
    ) -> None:
        self.output = output
        self.is_ready = False
        self._is_closed = False
        down_read, self._down = os.pipe()
        self._up, up_write = os.pipe()
        try:
            self._family = Family(
                command(down_read, up_write),
                cwd=cwd,
                env={**env, "PYTHONUNBUFFERED": "1"},
                pass_fds=(down_read, up_write),
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
        self._reader = threading.Thread(target=self._read_output, name="output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Return the process from which all of its processes descend."""
        return self._family.pid

    @property
    def frame_bytes(self) -> int:
        """Return the length of the last frame that it has sent."""
        return self._frames.frame_bytes

    def send(self, frame: Frame) -> None:
        """Send a frame; a child that does not read it is killed, which ends the line."""
        if not write_within(self._down, encode_frame(frame), _WRITE_SECONDS):
            self._family.disown()

    def next_frame(self, seconds: float) -> Frame | None:
        """Return the next frame, ``{"type": "end"}`` at the end of the line, None in time."""
        try:
            return self._frames.next(seconds)
        except EOFError:
            return {"type": "end"}

    def describe_end(self, *, out_of_memory: bool) -> Broken:
        """Return why the process is gone, with the last thing that it said."""
        status = self._family.status(_AFTER_END_SECONDS)
        self.kill()
        if status is None:
            reason = "the process has closed its line to the worker, or garbled it"
            return Broken(FailureCause.SILENT, reason)
        return describe_end(status, self.output.last_line, out_of_memory=out_of_memory)

    def kill(self) -> None:
        """End the process and all that it has started; reap it and close the pipes (Wedged)."""
        self._family.end()
        self._reader.join(timeout=_AFTER_END_SECONDS)
        if not self._is_closed:
            os.close(self._down)
            os.close(self._up)
            self._is_closed = True

    def _read_output(self) -> None:
        with self._family.output as stream:
            self.output.read(stream)

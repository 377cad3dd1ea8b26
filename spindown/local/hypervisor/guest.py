"""One guest: the processes that play what runs on an instance."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from spindown.local.hypervisor.throttle import Allowance

#: A pause is at most about this long divided by the speed, so heartbeats are never starved.
_SAVED_CPU_SECONDS = 0.05


class Guest:
    """A program in a process group of its own, with what it has started since."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        directory: Path,
        environment: Mapping[str, str],
        speed: float,
        free_seconds: float,
    ) -> None:
        """Start `command` in a private `directory`, where it finds its home and writes its log.

        It may use `speed` CPU seconds a second, after the first `free_seconds` of CPU time.
        """
        self.directory = directory
        for name in ("home", "tmp"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        private = {"HOME": str(directory / "home"), "TMPDIR": str(directory / "tmp")}
        with self.console_path.open("ab") as console:
            self._process = subprocess.Popen(
                command,
                cwd=directory,
                env={**environment, **private},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._tree: tuple[psutil.Process, ...] = ()
        self._allowance = Allowance(
            speed, free_seconds=free_seconds, saved_seconds=_SAVED_CPU_SECONDS
        )
        self._is_stopped = False
        self.look()

    @property
    def console_path(self) -> Path:
        """The file with everything the guest has printed."""
        return self.directory / "console.log"

    @property
    def poweroff_path(self) -> Path:
        """The file whose appearance is the guest's own power-off."""
        return self.directory / "poweroff"

    @property
    def has_powered_off(self) -> bool:
        """Tell whether the guest has asked to be switched off."""
        return self.poweroff_path.exists()

    @property
    def is_running(self) -> bool:
        """Tell whether the program itself still runs."""
        return self._process.poll() is None

    def look(self) -> None:
        """Find the processes that the program has started; they are slowed and ended with it."""
        with suppress(psutil.Error):
            itself = psutil.Process(self._process.pid)
            self._tree = (itself, *itself.children(recursive=True))

    def throttle(self, now: float) -> None:
        """Stop or continue the guest's processes by the CPU time they have used."""
        if self._allowance.lets_run(self._cpu_seconds(), now):
            self._continue()
        elif not self._is_stopped:
            self._is_stopped = True
            for process in self._tree:
                with suppress(psutil.Error):
                    process.suspend()

    def shut_down(self) -> None:
        """Ask the guest's programs to end, as the power button does."""
        self._continue()
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Take the guest away at once, with everything it has started."""
        self.look()
        self._send(signal.SIGKILL)
        for process in self._tree:
            with suppress(psutil.Error):
                process.kill()
        self._process.wait()

    def _continue(self) -> None:
        if self._is_stopped:
            self._is_stopped = False
            for process in self._tree:
                with suppress(psutil.Error):
                    process.resume()

    def _send(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                # The program leads its group (start_new_session), so its id is the group's.
                os.killpg(self._process.pid, number)

    def _cpu_seconds(self) -> float:
        """Return the CPU time of all processes, with that of children which have ended."""
        total = 0.0
        for process in self._tree:
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
                total += getattr(times, "children_user", 0.0)
                total += getattr(times, "children_system", 0.0)
        return total

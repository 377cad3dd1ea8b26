"""Instances as processes of this machine: the market decides what runs, the hypervisor runs it.

The market calls `start` and `stop` from any thread; all work is done by `step`, which one thread
calls every few hundredths of a second. A type's speed is a share of one core, measured in CPU
time: the processes of a guest run until their share is used up, and are stopped until it has
grown again.
"""

import logging
import os
import queue
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

import psutil

_LOGGER = logging.getLogger(__name__)

#: How often the processes that guests have started are looked for.
_LOOK_SECONDS = 0.5
#: How often it is looked whether those that shut down have ended.
_WAIT_SECONDS = 0.05
#: What a guest may write to its console that a caller gets to see: EC2 keeps 64 KB.
_CONSOLE_BYTES = 64 * 1024
#: A pause is at most about this long divided by the speed, so heartbeats are never starved.
_SAVED_CPU_SECONDS = 0.05


class Allowance:
    """The CPU time that a guest may still use, growing at its speed; never much is saved up.

    The guest's first CPU seconds are free: they start its programs, and the time of a boot was
    already spent by the market.
    """

    def __init__(self, speed: float, *, free_seconds: float, saved_seconds: float) -> None:
        """Grow by `speed` CPU seconds a second, save at most `saved_seconds`."""
        self._speed = speed
        self._free = free_seconds
        self._saved = saved_seconds
        self._balance = saved_seconds
        self._used = 0.0
        self._at: float | None = None

    def lets_run(self, used: float, now: float) -> bool:
        """Tell whether the guest may run, having used so much CPU time by now (both in seconds)."""
        spent = max(used - max(self._used, self._free), 0.0)
        elapsed = 0.0 if self._at is None else now - self._at
        self._balance = min(self._balance + elapsed * self._speed - spent, self._saved)
        self._used, self._at = max(used, self._used), now
        return self._balance > 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestSetup:
    """What every guest is started with."""

    command: Sequence[str]
    #: Holds one directory for each instance.
    directory: Path
    #: Environment of every guest; those of its instance come on top.
    environment: Mapping[str, str]
    #: Base address of the metadata service; the instance's id is appended.
    metadata: str
    #: CPU time that starting a worker takes, about: not slowed, the market played the boot.
    free_cpu_seconds: float = 2.0
    #: Between the power button and the end. 0: the end comes without a word, the worst case.
    grace_seconds: float = 0.0
    #: The instance's own timer powers it off this long after its worker has gone.
    dead_man_seconds: float = 10.0
    #: Returns what ends those that are no children of guests, once ids of instances follow.
    clear: Callable[[], Sequence[str]] = tuple


@dataclass(slots=True)
class _Life:
    """A guest and the moments that end it, by the monotonic clock."""

    guest: Guest
    kill_at: float | None = None
    gone_at: float | None = None
    is_reported: bool = False


class Hypervisor:
    """The market's `InstanceDriver` over processes."""

    def __init__(self, setup: GuestSetup, *, powered_off: Callable[[str], None]) -> None:
        """Start guests on `setup`; `powered_off` hears of those that switch themselves off.

        What a hypervisor before this one, which was killed, has left in the directory is removed.
        """
        self._setup = setup
        self._clear(*(path.name for path in setup.directory.glob("*")))
        shutil.rmtree(setup.directory, ignore_errors=True)
        self._powered_off = powered_off
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lives: dict[str, _Life] = {}
        self._looked_at = 0.0

    def start(self, instance_id: str, *, speed: float) -> None:
        """Boot the guest of an instance, which computes at a speed relative to 1.0."""
        self._orders.put(partial(self._start, instance_id, speed))

    def stop(self, instance_id: str) -> None:
        """Switch an instance off; harmless when its guest has already ended."""
        self._orders.put(partial(self._stop, instance_id))

    def shut_down(self, instance_ids: Collection[str], *, within: float) -> None:
        """Have guests end by themselves, as the power button does; return once they have.

        They may take `within` seconds. Another thread must call `step` meanwhile.
        """
        self._orders.put(partial(self._press, instance_ids))
        waiting, ends_at = Event(), time.monotonic() + within
        while time.monotonic() < ends_at and self._runs_any(instance_ids):
            waiting.wait(_WAIT_SECONDS)

    def console(self, instance_id: str) -> str:
        """Return the last that the guest has printed."""
        path = self._directory(instance_id) / "console.log"
        try:
            return path.read_bytes()[-_CONSOLE_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def console_path(self, instance_id: str) -> Path:
        """Return where the guest's output is kept, also after its end."""
        return self._directory(instance_id) / "console.log"

    def step(self) -> None:
        """Carry out what was ordered, see who has ended, and slow every guest to its speed."""
        while not self._orders.empty():
            self._orders.get()()
        now = time.monotonic()
        is_time_to_look = now - self._looked_at >= _LOOK_SECONDS
        if is_time_to_look:
            self._looked_at = now
        for instance_id, life in list(self._lives.items()):
            if life.kill_at is not None:
                self._end(instance_id, life, now)
                continue
            if is_time_to_look:
                life.guest.look()
            self._listen(instance_id, life, now)
            life.guest.throttle(now)

    def close(self) -> None:
        """Kill every guest."""
        while not self._orders.empty():
            self._orders.get()
        for life in self._lives.values():
            life.guest.kill()
        self._clear(*self._lives)
        self._lives.clear()

    def _start(self, instance_id: str, speed: float) -> None:
        directory = self._directory(instance_id)
        directory.mkdir(parents=True)
        poweroff = shlex.join(["touch", str(directory / "poweroff")])
        environment = {
            **self._setup.environment,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"{self._setup.metadata}/{instance_id}",
            "SPINDOWN_POWEROFF": poweroff,
        }
        guest = Guest(
            self._setup.command,
            directory=directory,
            environment=environment,
            speed=speed,
            free_seconds=self._setup.free_cpu_seconds,
        )
        self._lives[instance_id] = _Life(guest)
        _LOGGER.info("guest started: %s", instance_id)

    def _press(self, instance_ids: Collection[str]) -> None:
        for instance_id in instance_ids:
            if (life := self._lives.get(instance_id)) is not None:
                life.guest.shut_down()

    def _runs_any(self, instance_ids: Collection[str]) -> bool:
        lives = [life for name in instance_ids if (life := self._lives.get(name)) is not None]
        return any(each.guest.is_running for each in lives)

    def _stop(self, instance_id: str) -> None:
        life = self._lives.get(instance_id)
        if life is not None and life.kill_at is None:
            life.kill_at = time.monotonic() + self._setup.grace_seconds
            if self._setup.grace_seconds > 0:
                life.guest.shut_down()

    def _end(self, instance_id: str, life: _Life, now: float) -> None:
        if now < (life.kill_at or 0.0) and life.guest.is_running:
            return
        life.guest.kill()
        self._clear(instance_id)
        del self._lives[instance_id]
        shutil.rmtree(life.guest.directory / "tmp", ignore_errors=True)
        _LOGGER.info("guest ended: %s", instance_id)

    def _clear(self, *instance_ids: str) -> None:
        """End the containers of guests that are gone: on EC2 they go with their instance."""
        command = self._setup.clear()
        if command and instance_ids:
            environment = dict(self._setup.environment)
            subprocess.run([*command, *instance_ids], check=False, env=environment)

    def _listen(self, instance_id: str, life: _Life, now: float) -> None:
        """Hear a guest's power-off: its own, or that of its timer once its program is gone."""
        if life.is_reported:
            return
        if not life.guest.is_running and life.gone_at is None:
            life.gone_at = now
        is_overdue = life.gone_at is not None and now - life.gone_at >= self._setup.dead_man_seconds
        if life.guest.has_powered_off or is_overdue:
            life.is_reported = True
            if is_overdue:
                _LOGGER.warning("powered off, its worker is gone: %s", instance_id)
            self._powered_off(instance_id)

    def _directory(self, instance_id: str) -> Path:
        return self._setup.directory / instance_id

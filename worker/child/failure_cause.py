"""Why an attempt at a job fails, as a cause and in words for a person; and whether memory ran out.

What then becomes of the job is decided in ``domain.out_of_memory`` and
``domain.retry_or_dead_letter``.
"""

import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

#: What shells and container runtimes make of a death by a signal.
_SHELL_OFFSET = 128
_SAID_CHARACTERS = 300
_CGROUPS = Path("/sys/fs/cgroup")


class FailureCause(StrEnum):
    """Why an attempt fails."""

    #: The process ended itself before its work was done.
    ENDED = "ended"
    #: A signal killed it.
    KILLED = "killed"
    #: Memory ran out: the code or the kernel says so.
    OUT_OF_MEMORY = "out-of-memory"
    #: Memory of a GPU ran out: the code says so.
    OUT_OF_GPU_MEMORY = "out-of-gpu-memory"
    #: A setup, a batch, a call or a job took longer than its timeout.
    TIMEOUT = "timeout"
    #: The process lives, and does not speak with the worker any more.
    SILENT = "silent"
    #: The code cannot be loaded.
    NOT_LOADED = "not-loaded"
    #: The program or its container cannot be started.
    NOT_STARTED = "not-started"
    #: The image cannot be pulled.
    NOT_PULLED = "not-pulled"
    #: What the program wrote is no result.
    BAD_RESULT = "bad-result"
    #: The code said that it was done before it had answered for every item.
    UNANSWERED = "unanswered"
    #: What it has left is more than may be taken: too many files, too deep, larger than the disk;
    #: or results of a gigabyte wait for that of an item before them.
    TOO_MUCH = "too-much"
    #: The disk is full, so that the worker could not go on.
    DISK_FULL = "disk-full"
    #: The job was held for as long as one may be, and is no further.
    NO_PROGRESS = "no-progress"


@dataclass(frozen=True, slots=True)
class Broken:
    """The code cannot go on; the rest of the batch has no answer. ``reason`` is for a person."""

    cause: FailureCause
    reason: str
    #: The most memory that its processes have used, GiB; None: the code has not told it.
    peak_gib: float | None = None


def describe_end(status: int, last_line: str, *, out_of_memory: bool) -> Broken:
    """Return why a process is gone, with the last thing that it said.

    Args:
        status: as ``subprocess`` gives it, negative for a signal, or as a shell does.
        last_line: of its output.
        out_of_memory: the kernel is known to have killed for want of memory meanwhile. Without
            that a SIGKILL is a signal like another: anybody may send it.
    """
    said = f'; its last output was "{last_line[:_SAID_CHARACTERS]}"' if last_line else ""
    number = -status if status < 0 else status - _SHELL_OFFSET
    if number == signal.SIGKILL and out_of_memory:
        reason = f"the process was killed by the kernel for want of memory{said}"
        return Broken(FailureCause.OUT_OF_MEMORY, reason)
    if status < 0:
        return Broken(FailureCause.KILLED, f"the process was killed by {_name(number)}{said}")
    return Broken(FailureCause.ENDED, f"the process ended with status {status}{said}")


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class MemoryKills:
    """Counts what the kernel has killed for want of memory.

    In the worker's own control group (Linux, Documentation/admin-guide/cgroup-v2.rst,
    ``memory.events``: ``oom_kill`` is the number of processes of the group killed by any kind of
    OOM killer), or on the whole machine (``oom_kill`` of /proc/vmstat, mm/oom_kill.c): where
    there are no groups of that version, and for what runs in a container, in a group of its own.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        cgroups: Path = _CGROUPS,
        *,
        group: Path | None = None,
        is_anywhere: bool = False,
    ) -> None:
        """Count from here on; ``group``: in this control group, which is the slot's own."""
        own = None if is_anywhere else _find_events(proc, cgroups)
        own = own if group is None else group / "memory.events"
        self._events = own or proc / "vmstat"
        self._before = self._count()

    def mark(self) -> None:
        """Count from here on."""
        self._before = self._count()

    @property
    def has_killed(self) -> bool:
        """Tell whether anything was killed since the mark; False where that is not told."""
        return self._count() > self._before

    def _count(self) -> int:
        try:
            lines = self._events.read_text().splitlines()
        except OSError:
            return 0
        found = (line.partition(" ") for line in lines)
        return sum(int(count) for name, _, count in found if name == "oom_kill" and count.isdigit())


def _find_events(proc: Path, cgroups: Path) -> Path | None:
    """Return the file that counts for our own group; None: there is none."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return None
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    if own is None:
        return None
    events = cgroups / own.lstrip("/") / "memory.events"
    return events if events.exists() else None

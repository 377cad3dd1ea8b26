"""Why a process is gone, in words for a person; and whether memory was the cause."""

import signal
from pathlib import Path

#: What shells and container runtimes make of a death by a signal.
_SHELL_OFFSET = 128
_SAID_CHARACTERS = 300
_CGROUPS = Path("/sys/fs/cgroup")


def describe_end(status: int, last_line: str, *, out_of_memory: bool) -> str:
    """Return why a process is gone, with the last thing that it said.

    Args:
        status: as ``subprocess`` gives it, negative for a signal, or as a shell does.
        last_line: of its output.
        out_of_memory: the kernel is known to have killed for want of memory meanwhile.
    """
    said = f'; its last output was "{last_line[:_SAID_CHARACTERS]}"' if last_line else ""
    number = -status if status < 0 else status - _SHELL_OFFSET
    if number == signal.SIGKILL:
        if out_of_memory:
            return f"the process was killed by the kernel for want of memory{said}"
        return f"the process was killed (SIGKILL), most likely for want of memory{said}"
    if status < 0:
        return f"the process was killed by {_name(number)}{said}"
    return f"the process ended with status {status}{said}"


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
        self, proc: Path = Path("/proc"), cgroups: Path = _CGROUPS, *, is_anywhere: bool = False
    ) -> None:
        own = None if is_anywhere else _find_events(proc, cgroups)
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

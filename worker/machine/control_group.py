"""A control group (version 2) for each slot, below the group that systemd has given the worker.

Sources: Linux, Documentation/admin-guide/cgroup-v2.rst; systemd, "Control Group APIs and
Delegation". Only a group without processes of its own may hand controllers down to groups below it,
so the worker moves to one of its own first. Every slot's processes are then counted apart, and the
CPU is shared out evenly among slots that want more than there is: ``cpu.weight``, since a bound
(``cpu.max``) would leave idle what no other wants.

All slots together have a bound of memory. It runs out there, where the worker is no candidate of
the kernel, whatever code has written to its ``oom_score_adj``.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from spindown.error import SpindownError
from spindown.worker.usage.reading import find_group, read_memory_total

#: What is needed for a group of use, and what is taken if it is there.
_NEEDED, _WELCOME = ("cpu", "memory"), ("io", "pids")
#: Of the worker, and of all slots together: heartbeats must not wait for user code, and whoever
#: returns large results takes no more than half of the CPU from others.
_WEIGHT = 1000
#: What system and worker keep of a machine's memory, bytes.
KEPT_BYTES = 512 * 1024**2


class NoGroups(SpindownError):
    """No control groups may be made here; one sentence says why."""


@dataclass(frozen=True, slots=True)
class ControlGroups:
    """The place where slots get their groups."""

    #: The directory of the group in which the slots' are.
    slots: Path

    def of_slot(
        self, slot: int, memory_bytes: int | None = None, processes: int | None = None
    ) -> Path:
        """Make the group of a slot and return its directory (raises NoGroups).

        Args:
            slot: its number.
            memory_bytes: the most that it may use. What exceeds that is killed as a whole, and
                nothing else. None: no bound of its own.
            processes: the most that it may run, threads included, where the kernel counts them.
                None: no bound of its own.
        """
        group = self.slots / f"slot-{slot}"
        try:
            group.mkdir(exist_ok=True)
            _write(group / "memory.oom.group", int(memory_bytes is not None))
            _write(group / "memory.max", "max" if memory_bytes is None else memory_bytes)
            swap = group / "memory.swap.max"
            if swap.exists():
                _write(swap, "max" if memory_bytes is None else 0)
            tasks = group / "pids.max"
            if tasks.exists():
                _write(tasks, "max" if processes is None else processes)
        except OSError as exc:
            raise NoGroups(f"the control group {group} cannot be made: {exc.strerror}") from exc
        return group


def open_groups(proc: Path, cgroups: Path) -> ControlGroups:
    """Move this process to a group of its own, and return where slots get theirs.

    Args:
        proc: where the kernel tells of processes.
        cgroups: where control groups of version 2 are mounted.

    Raises:
        NoGroups: there are none, or this process may not make any.
    """
    found = find_group(proc, cgroups, "self")
    if found is None:
        raise NoGroups("this machine has no control groups of version 2")
    own = Path(found)
    try:
        known = (own / "cgroup.controllers").read_text().split()
        missing = [name for name in _NEEDED if name not in known]
        if missing:
            raise NoGroups(f"the control group {own} has no controller {missing[0]}")
        worker = own / "worker"
        worker.mkdir(exist_ok=True)
        for process in _own_processes(own):
            _write(worker / "cgroup.procs", process)
        handed = [name for name in (*_NEEDED, *_WELCOME) if name in known]
        _hand_down(own, handed)
        slots = own / "slots"
        slots.mkdir(exist_ok=True)
        _hand_down(slots, handed)
        for group in (worker, slots):
            _write(group / "cpu.weight", _WEIGHT)
        _write(slots / "memory.max", share_of_memory(proc, 1))
    except OSError as exc:
        raise NoGroups(f"no control group can be made below {own}: {exc.strerror}") from exc
    return ControlGroups(slots)


def share_of_memory(proc: Path, slots: int) -> int:
    """Return the bytes that each of so many slots may use of this machine.

    Worked: 16 GiB, of which 0.5 stay with the system, are 1.94 GiB for each of 8 slots.
    """
    return max(read_memory_total(proc) - KEPT_BYTES, 0) // slots


#: What the code of all slots may run, and how much more for each core: ``run-code.sh``, by whose
#: bound alone one slot could leave none to its neighbours.
_PROCESSES, _PROCESSES_OF_CORE = 4096, 1024


def share_of_processes(slots: int, cores: int) -> int | None:
    """Return the processes and threads that each of so many slots may run; None: one has all."""
    return None if slots == 1 else (_PROCESSES + _PROCESSES_OF_CORE * cores) // slots


def _hand_down(group: Path, controllers: Iterable[str]) -> None:
    _write(group / "cgroup.subtree_control", " ".join(f"+{name}" for name in controllers))


def _own_processes(own: Path) -> Iterator[int]:
    """Yield the processes of the worker's group; in the root group others' stay where they are."""
    if not (own / "cgroup.type").exists():
        # Only the root group has no type; it is free of the rule.
        yield os.getpid()
        return
    yield from map(int, (own / "cgroup.procs").read_text().split())


def _write(file: Path, value: str | int) -> None:
    file.write_text(f"{value}\n")

"""What the machine says of itself: processes and memory by /proc, GPUs by nvidia-smi.

Fields are those of proc(5); the queries are those of ``nvidia-smi --help-query-gpu``.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Fields of /proc/PID/stat from the state on, which follows the name.
_PARENT, _SESSION, _CPU, _RESIDENT = 1, 3, slice(11, 15), 21
_KIB = 1024
_MIB = 1024 * 1024
_QUERY = "index,utilization.gpu,memory.used,memory.total"
_QUERY_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Process:
    """One process as it stands."""

    parent: int
    session: int
    #: Its own since its start, and that of its children which it has waited for.
    cpu_seconds: float
    #: Resident; pages that processes share are counted for each of them.
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as it stands; None is what its driver does not tell."""

    #: Percent of the time since the driver's last look in which any kernel ran.
    busy: float | None
    memory_bytes: float | None
    memory_total: float | None


def read_processes(proc: Path) -> Mapping[int, Process]:
    """Return all processes by id; one that ends meanwhile is left out."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found: dict[int, Process] = {}
    for entry in os.listdir(proc):  # noqa: PTH208 - a Path for each would cost more than the rest
        if not entry.isdecimal():
            continue
        try:
            text = (proc / entry / "stat").read_text(errors="replace")
        except OSError:
            continue
        # The name stands in parentheses and may hold any character, so look from the end.
        fields = text.rpartition(")")[2].split()
        found[int(entry)] = Process(
            parent=int(fields[_PARENT]),
            session=int(fields[_SESSION]),
            cpu_seconds=sum(map(int, fields[_CPU])) / ticks,
            memory_bytes=int(fields[_RESIDENT]) * page,
        )
    return found


def tree_of(processes: Mapping[int, Process], root: int) -> Sequence[Process]:
    """Return a process with all that it has started, also what its own parent has left behind.

    ``root`` leads a session; a descendant that began a session of its own is found by its parents.
    """
    children: dict[int, list[int]] = {}
    for number, process in processes.items():
        children.setdefault(process.parent, []).append(number)
    left = [n for n, process in processes.items() if root in (n, process.session)]
    found: set[int] = set()
    while left:
        number = left.pop()
        if number not in found:
            found.add(number)
            left += children.get(number, [])
    return [processes[number] for number in found]


def read_memory_total(proc: Path) -> int:
    """Return the bytes of memory of this machine."""
    for line in (proc / "meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * _KIB
    raise ValueError(f"{proc}/meminfo does not tell MemTotal")


def read_gpus(nvidia_smi: str) -> Mapping[int, Gpu]:
    """Return the GPUs by index, as nvidia-smi numbers them; none if it cannot tell."""
    command = [nvidia_smi, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_QUERY_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    found: dict[int, Gpu] = {}
    for line in done.stdout.splitlines():
        values = [_number(value) for value in line.split(",")]
        if len(values) == len(_QUERY.split(",")) and values[0] is not None:
            index, busy, used, total = values
            found[int(index or 0)] = Gpu(busy, _bytes(used), _bytes(total))
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        # "[N/A]" or "[Not Supported]".
        return None


def _bytes(mebibytes: float | None) -> float | None:
    return None if mebibytes is None else mebibytes * _MIB

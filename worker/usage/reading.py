"""What the kernel says of a machine: processes, control groups, cores, network and disks.

Fields are those of proc(5) and of Linux, Documentation/admin-guide/cgroup-v2.rst. Much of it is
written by the kernel about processes of the user's code: names are never kept, a file that is gone,
too long or no number counts as not told, and nothing is followed out of the control groups.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Fields of /proc/PID/stat from the state on, which follows the name.
_PARENT, _SESSION, _CPU, _RESIDENT = 1, 3, slice(11, 15), 21
_KIB = 1024
_MICROSECOND = 1e-6
#: Of a sector in /proc/diskstats, whatever the disk's own.
_SECTOR_BYTES = 512
#: No file that is read here is longer; of /proc/stat only the first lines are wanted.
_READ_BYTES = 65536
#: Whole disks: a partition's bytes are its disk's too.
_DISK = re.compile(r"(nvme\d+n\d+|(xv|s|v|h)d[a-z]+)")
#: Numbers of more digits are none of the kernel's.
_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Process:
    """One process as it stands."""

    parent: int
    session: int
    #: Its own since its start, and that of its children which it has waited for.
    cpu_seconds: float
    #: Resident; pages that processes share are counted for each of them.
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUse:
    """What a slot's processes use, counted since they are there. None: it is not told."""

    #: What counts: another source counts from nothing again.
    source: str
    cpu_seconds: float
    memory_bytes: int
    #: File cache beside that, which the kernel would take back first.
    cache_bytes: int = 0
    #: Time in which processes waited since their group had used up its CPU.
    throttled_seconds: float | None = None
    #: The kernel's own peak since the group is there, file cache included.
    memory_peak: int | None = None
    #: Bytes read from and written to disks.
    disk: tuple[int, int] | None = None


class Processes:
    """The processes of a machine; a process that belongs to no slot is read only once."""

    def __init__(self, proc: Path) -> None:
        self._proc = str(proc)
        self._ticks, self._page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        self._of_no_slot: set[int] = set()
        self._roots: frozenset[int] = frozenset()

    def trees(self, roots: Collection[int]) -> Mapping[int, Sequence[Process]]:
        """Return each root with all that it has started; one that ends meanwhile is left out."""
        wanted = frozenset(roots)
        if wanted != self._roots:
            # What was seen before may belong to a root that was not known then.
            self._roots, self._of_no_slot = wanted, set()
        names = os.listdir(self._proc)  # noqa: PTH208 - a Path for each would cost more than all
        numbers = {int(name) for name in names if name.isdecimal()}
        self._of_no_slot &= numbers
        found = {
            number: process
            for number in numbers - self._of_no_slot
            if (process := self._read(number)) is not None
        }
        trees = {root: tree_of(found, root) for root in wanted}
        self._of_no_slot |= found.keys() - {n for tree in trees.values() for n in tree}
        return {root: [found[n] for n in tree] for root, tree in trees.items() if tree}

    def _read(self, number: int) -> Process | None:
        # The name stands in parentheses and may hold any character, so look from the end.
        fields = read_text(f"{self._proc}/{number}/stat").rpartition(")")[2].split()
        try:
            return Process(
                parent=int(fields[_PARENT]),
                session=int(fields[_SESSION]),
                cpu_seconds=sum(map(int, fields[_CPU])) / self._ticks,
                memory_bytes=int(fields[_RESIDENT]) * self._page,
            )
        except (ValueError, IndexError):
            return None


def tree_of(processes: Mapping[int, Process], root: int) -> Collection[int]:
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
    return found


def use_of(root: int, tree: Sequence[Process]) -> SlotUse:
    """Return what the processes of a tree use together."""
    return SlotUse(
        source=str(root),
        cpu_seconds=sum(process.cpu_seconds for process in tree),
        memory_bytes=sum(process.memory_bytes for process in tree),
    )


class Groups:
    """The control groups (version 2) that are not the worker's own: one for each container."""

    def __init__(self, proc: Path, cgroups: Path) -> None:
        self._proc, self._cgroups = proc, cgroups
        self._own = find_group(proc, cgroups, "self")
        self._known: dict[int, str | None] = {}

    def use_of(self, root: int) -> SlotUse | None:
        """Return what the group of a process uses; None: it has none of its own."""
        if root not in self._known:
            self._known = {root: self._find(root), **dict(list(self._known.items())[-64:])}
        group = self._known[root]
        return None if group is None else read_group(group, self._proc)

    def _find(self, root: int) -> str | None:
        group = find_group(self._proc, self._cgroups, str(root))
        if self._own is None or group in (None, self._own) or self._own.startswith(f"{group}/"):
            return None
        return group


def find_group(proc: Path, cgroups: Path, process: str) -> str | None:
    """Return the directory of a process's control group; None: it has none that can be seen."""
    lines = read_text(f"{proc}/{process}/cgroup").splitlines()
    own = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), None)
    # "/../x": it lies outside of what this machine's root shows us.
    if own is None or ".." in own.split("/"):
        return None
    return f"{cgroups}/{own.strip('/')}"


def read_group(group: str, proc: Path) -> SlotUse | None:
    """Return what a control group uses; None: no controller counts its CPU and memory."""
    cpu, stat = _read_table(f"{group}/cpu.stat"), _read_table(f"{group}/memory.stat")
    current = _number(read_text(f"{group}/memory.current"))
    spent, cache = cpu.get("usage_usec"), stat.get("inactive_file", 0)
    if spent is None or current is None:
        return None
    throttled = cpu.get("throttled_usec")
    return SlotUse(
        source=group,
        cpu_seconds=spent * _MICROSECOND,
        # What the kernel would take back first is no need of the job's.
        memory_bytes=max(current - cache, 0),
        cache_bytes=cache,
        throttled_seconds=None if throttled is None else throttled * _MICROSECOND,
        memory_peak=_number(read_text(f"{group}/memory.peak")),
        disk=_read_group_disk(f"{group}/io.stat", proc),
    )


def _read_group_disk(path: str, proc: Path) -> tuple[int, int] | None:
    if not Path(path).exists():
        return None
    disks = {f"{major}:{minor}" for major, minor, *_ in _read_disk_rows(proc)}
    known = [
        (name, number)
        for device, *fields in map(str.split, filter(str.strip, read_text(path).splitlines()))
        # What a volume of LVM writes is its disks' too, and counts once.
        if device in disks
        for name, _, text in (field.partition("=") for field in fields)
        if (number := _number(text)) is not None
    ]
    read, written = (sum(n for name, n in known if name == key) for key in ("rbytes", "wbytes"))
    return read, written


def read_memory_total(proc: Path) -> int:
    """Return the bytes of memory of this machine (ValueError: they are not told)."""
    for line in read_text(f"{proc}/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemTotal":
            return int(rest.split()[0]) * _KIB
    raise ValueError(f"{proc}/meminfo does not tell MemTotal")


def read_cores(proc: Path) -> Sequence[tuple[int, int]]:
    """Return of each core the ticks that it was busy, and all, since the machine's start."""
    found = []
    for line in read_text(f"{proc}/stat").splitlines()[1:]:
        name, *fields = line.split()
        numbers = [_number(field) or 0 for field in fields[:8]]
        if not name.startswith("cpu") or len(numbers) < len(_TICKS):
            break
        idle = sum(numbers[_TICKS.index(name)] for name in ("idle", "iowait"))
        found.append((sum(numbers) - idle, sum(numbers)))
    return found


#: Columns of a core in /proc/stat whose sum is its time.
_TICKS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


def read_network(proc: Path) -> tuple[int, int]:
    """Return the bytes that came in and went out of this machine since its start."""
    rows = (line.partition(":") for line in read_text(f"{proc}/net/dev").splitlines()[2:])
    # What containers send goes by the bridge, and by the machine's own interface once more.
    known = [rest.split() for name, _, rest in rows if _INTERFACE.fullmatch(name.strip())]
    return _sum_column(known, 0), _sum_column(known, 8)


#: Interfaces of a machine itself: the kernel's names, systemd's, and those of Elastic Fabric.
_INTERFACE = re.compile(r"(eth|en[ospx]|efa|wl)\w+")


def read_disks(proc: Path) -> tuple[int, int]:
    """Return the bytes read from and written to this machine's disks since its start."""
    known = _read_disk_rows(proc)
    return _sum_column(known, _READ) * _SECTOR_BYTES, _sum_column(known, _WRITTEN) * _SECTOR_BYTES


def _read_disk_rows(proc: Path) -> Sequence[Sequence[str]]:
    rows = (line.split() for line in read_text(f"{proc}/diskstats").splitlines())
    return [row for row in rows if len(row) > _WRITTEN and _DISK.fullmatch(row[2])]


#: Columns of /proc/diskstats: sectors.
_READ, _WRITTEN = 5, 9


def _sum_column(rows: Sequence[Sequence[str]], column: int) -> int:
    return sum(_number(row[column]) or 0 for row in rows if len(row) > column)


def _read_table(path: str) -> Mapping[str, int]:
    return dict(_pairs(read_text(path)))


def _pairs(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        number = _number(rest)
        if number is not None:
            yield name, number


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def read_text(path: str) -> str:
    """Return the beginning of a file of the kernel's; "": it is gone or cannot be read."""
    try:
        # Not by pathlib, which takes twice as long; a link is nothing of the kernel's.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        parts, left = [], _READ_BYTES
        while left > 0 and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)

"""How one slot uses its share of the machine while it holds a job."""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spindown.domain.fleet import GpuUse, Worker
from worker.usage.reading import Gpu, Process, tree_of

_GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredMachine:
    """The whole machine at one moment."""

    #: Seconds of a clock that only goes forward.
    at: float
    processes: Mapping[int, Process]
    cpus: int
    memory_bytes: int
    #: By index; empty: there are none, or they could not be read.
    gpus: Mapping[int, Gpu] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Means and maxima over one job, percent of the slot's share; None: never seen."""

    cpu_mean: float | None
    cpu_max: float | None
    memory_mean: float | None
    memory_max: float | None
    gpu_mean: float | None
    gpu_max: float | None
    vram_mean: float | None
    vram_max: float | None


class _Tally:
    """Sum and maximum of what was seen of one thing."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0.0
        self._max = 0.0

    def add(self, value: float) -> None:
        self._count += 1
        self._sum += value
        self._max = max(self._max, value)

    @property
    def mean(self) -> float | None:
        return round(self._sum / self._count, 2) if self._count else None

    @property
    def max(self) -> float | None:
        return round(self._max, 2) if self._count else None


class Meter:
    """Adds up what is seen of one slot. Its own thread begins and ends, the sampler's takes."""

    def __init__(self, *, slots: int, gpus: Sequence[int] | None) -> None:
        """Measure one of ``slots``; ``gpus`` are the indexes of its own, None: it has all."""
        self._slots = slots
        self._gpus = gpus
        self._lock = threading.Lock()
        self._root: int | None = None
        #: When the processes were last looked at, and the CPU seconds that they had used.
        self._before: tuple[float, float] | None = None
        self._begin()

    def begin(self) -> None:
        """Forget what was seen: a job begins."""
        with self._lock:
            self._begin()

    def end(self) -> Use:
        """Return what was seen since the job began."""
        with self._lock:
            return Use(
                cpu_mean=self._cpu.mean,
                cpu_max=self._cpu.max,
                memory_mean=self._memory.mean,
                memory_max=self._memory.max,
                gpu_mean=self._gpu.mean,
                gpu_max=self._gpu.max,
                vram_mean=self._vram.mean,
                vram_max=self._vram.max,
            )

    def take(self, machine: MeteredMachine, root: int) -> None:
        """Add the machine as it stands; ``root`` is the process that the slot's code runs in."""
        tree = tree_of(machine.processes, root)
        if not tree:
            return
        gpus = [gpu for n, gpu in machine.gpus.items() if self._gpus is None or n in self._gpus]
        spent = sum(process.cpu_seconds for process in tree)
        memory = sum(process.memory_bytes for process in tree)
        with self._lock:
            if self._before is not None and self._root == root and machine.at > self._before[0]:
                at, spent_before = self._before
                # What ended unwaited for takes its seconds along.
                cores = max(spent - spent_before, 0.0) / (machine.at - at)
                self._cpu.add(100.0 * cores * self._slots / machine.cpus)
            self._before, self._root = (machine.at, spent), root
            self._memory.add(100.0 * memory * self._slots / machine.memory_bytes)
            self._take_gpus(gpus)

    def _take_gpus(self, gpus: Sequence[Gpu]) -> None:
        busy = [gpu.busy for gpu in gpus if gpu.busy is not None]
        if busy:
            self._gpu.add(sum(busy) / len(busy))
        total = sum(gpu.memory_total or 0.0 for gpu in gpus)
        if total:
            self._vram.add(100.0 * sum(gpu.memory_bytes or 0.0 for gpu in gpus) / total)

    def _begin(self) -> None:
        self._cpu, self._memory, self._gpu, self._vram = _Tally(), _Tally(), _Tally(), _Tally()
        self._before = None


class Gauge:
    """Adds up what is seen of all GPUs of the machine. One thread takes, another reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy, self._share, self._bytes = _Tally(), _Tally(), _Tally()

    def take(self, gpus: Collection[Gpu]) -> None:
        """Add the GPUs as they stand."""
        known = [(gpu.busy, gpu.memory_bytes, gpu.memory_total) for gpu in gpus]
        with self._lock:
            for busy, used, total in known:
                if busy is not None and used is not None and total:
                    self._busy.add(busy)
                    self._share.add(100.0 * used / total)
                    self._bytes.add(used)

    def read(self) -> GpuUse | None:
        """Return what was seen since the last reading; None: no GPU at all."""
        with self._lock:
            busy, share, used = self._busy.mean, self._share.max, self._bytes.max
            self._busy, self._share, self._bytes = _Tally(), _Tally(), _Tally()
        if busy is None or share is None or used is None:
            return None
        return GpuUse(percent=busy, vram_percent=share, vram_gib=round(used / _GIB, 3))


def slot_gpus(worker: Worker, slot: int) -> Sequence[int] | None:
    """Return the indexes of a slot's own GPUs; None: it sees all that there are."""
    gpus = int(worker.gpu_count)
    if gpus == 0 or worker.slots == 1:
        return None
    return [gpu for gpu in range(gpus) if gpu % worker.slots == slot % min(worker.slots, gpus)]

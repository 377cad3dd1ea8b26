"""How one slot uses its share of the machine while it holds a job."""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from spindown.contract.usage import DeviceUse, UsageRecord, UsageSeries
from spindown.domain.fleet import GpuUse, Worker
from spindown.worker.usage.gpu import Gpu
from spindown.worker.usage.reading import SlotUse
from spindown.worker.usage.tally import SeriesMaker, Tally

_GIB = 1024**3
_MIB = 1024**2
#: CPU time is counted in ticks of 10 ms, so that less than this tells no number of cores.
_SECONDS_LEAST = 0.2
#: Fewer looks than this, at a job of some seconds, may miss its peak, which the kernel knows.
_LOOKS_ENOUGH = 6
#: Of a number in a record.
_DIGITS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MeteredMachine:
    """The whole machine at one moment."""

    #: Seconds of a clock that only goes forward.
    at: float
    cpus: int
    memory_bytes: int
    #: By index; empty: there are none, or they could not be read.
    gpus: Mapping[int, Gpu] = field(default_factory=dict)
    #: Bytes since its start, in and out, read and written; None: not told.
    network: tuple[int, int] | None = None
    disks: tuple[int, int] | None = None
    #: Ticks of each core, busy and all; empty: nobody asked.
    cores: Sequence[tuple[int, int]] = ()


class _Counter:
    """How much a counter has grown since a begin, over sources that each begin at nothing."""

    def __init__(self) -> None:
        self._source: str | None = None
        self._last: float | None = None
        self._before = 0.0
        #: None: there was nothing to compare with yet.
        self.grown: float | None = None

    def take(self, value: float | None, source: str, *, is_new: bool) -> float | None:
        """Take a reading; return by how much it has grown since the last, None: nobody knows.

        ``is_new``: the source was not there at the begin, so that all of it is the job's.
        """
        if value is None:
            return None
        base = self._last
        if source != self._source:
            base = 0.0 if is_new else None
        self._source, self._last = source, value
        if base is None:
            return None
        # What ended unwaited for takes its seconds along.
        more = max(value - base, 0.0)
        self.grown = (self.grown or 0.0) + more
        return more


class _Device:
    """What is seen of one GPU, or of all of a slot's."""

    def __init__(self) -> None:
        self.gpu, self.vram, self.power = Tally(), Tally(), Tally()


_FLOWS = ("disk_read", "disk_written", "net_in", "net_out")


class _Job:
    """What is seen of one job."""

    def __init__(self, slots: int, gpus: Sequence[int] | None) -> None:
        self._slots, self._gpus = slots, gpus
        self._is_seen = False
        self._began_at = self._seen_at = 0.0
        self._cpu, self._memory, self._all_gpus = Tally(), Tally(), _Device()
        self._spent, self._throttled = _Counter(), _Counter()
        self._flows = {name: _Counter() for name in _FLOWS}
        self._peak: float | None = None
        self._peak_before: Mapping[str, int] = {}
        self._looks = 0
        #: No more than this was in use at once, GiB; None: the kernel does not tell.
        self._at_most: float | None = None
        self._cache_before: Mapping[str, int] = {}
        self._devices: dict[int, _Device] = {}
        self._vram_total: float | None = None
        self._first_cores: Sequence[tuple[int, int]] = ()
        self._last_cores: Sequence[tuple[int, int]] = ()
        #: CPU seconds that no tally has yet, and since when.
        self._open_cpu = self._open_since = 0.0
        self._series = SeriesMaker(largest=("memory", "vram"))

    @property
    def seen_for(self) -> float:
        """Return for how long it has been looked at, seconds."""
        return self._seen_at - self._began_at

    @property
    def memory_peak(self) -> float | None:
        """Return the most memory that was seen in use, GiB; None: nobody has looked."""
        peaks = [peak for peak in (self._peak, self._memory.max) if peak is not None]
        return max(peaks, default=None)

    @property
    def vram_peak(self) -> float | None:
        """Return the most memory of one GPU that was seen in use, GiB; None: nobody has looked."""
        peaks = [peak for each in self._devices.values() if (peak := each.vram.max) is not None]
        return max(peaks, default=None)

    @property
    def _memory_max(self) -> float | None:
        """Return the most memory in use, GiB: of looks, or of few looks what the kernel bounds."""
        if self._at_most is None or self._looks >= _LOOKS_ENOUGH:
            return self._memory.max
        return max(self._memory.max or 0.0, self._at_most)

    def take(self, machine: MeteredMachine, use: SlotUse | None) -> None:
        """Add the machine as it stands; ``use`` is None while no process of the slot runs."""
        is_new = self._is_seen
        if not self._is_seen:
            self._is_seen = True
            self._began_at = self._seen_at = self._open_since = machine.at
        passed, self._seen_at = machine.at - self._seen_at, machine.at
        values = self._take_gpus(machine.gpus, passed)
        values |= self._take_flows(machine, use, passed, is_new=is_new)
        if use is not None:
            values |= self._take_use(use, passed, is_new=is_new)
        if machine.cores:
            self._first_cores = self._first_cores or machine.cores
            self._last_cores = machine.cores
        self._series.add(self.seen_for, values)

    def fill(self, record: UsageRecord) -> UsageRecord:
        """Return a record with what was seen."""
        spent, cpu = self._spent.grown, self._cpu
        mean = None if spent is None or self.seen_for <= 0.0 else spent / self.seen_for
        figures: dict[str, Any] = {name: _whole(self._flows[name].grown) for name in _FLOWS}
        for name, tally in (("memory", self._memory), *vars(self._all_gpus).items()):
            figures |= {
                f"{name}_mean": _round(tally.mean),
                f"{name}_p95": _round(tally.p95),
                f"{name}_max": _round(tally.max),
            }
        figures["memory_max"] = _round(self._memory_max)
        return replace(
            record,
            vram_gib=_round(self._vram_total),
            cpu_seconds=_round(spent),
            cpu_mean=_round(mean),
            # Of a job that was over at once the mean is all that is known.
            cpu_p95=_round(mean if cpu.p95 is None else cpu.p95),
            cpu_max=_round(mean if cpu.max is None else cpu.max),
            throttled_seconds=_round(self._throttled.grown),
            memory_peak=_round(self.memory_peak),
            cores=_busy(self._first_cores, self._last_cores),
            devices=tuple(_device_use(n, seen) for n, seen in sorted(self._devices.items())),
            series=_series(self._series),
            **figures,
        )

    def _take_use(self, use: SlotUse, passed: float, *, is_new: bool) -> dict[str, float]:
        values = {}
        more = self._spent.take(use.cpu_seconds, use.source, is_new=is_new)
        self._throttled.take(use.throttled_seconds, use.source, is_new=is_new)
        if more is not None:
            self._open_cpu += more
            length = self._seen_at - self._open_since
            if length >= _SECONDS_LEAST:
                values["cpu"] = self._open_cpu / length
                self._cpu.add(values["cpu"], length)
                self._open_cpu, self._open_since = 0.0, self._seen_at
        else:
            self._open_since = self._seen_at
        values["memory"] = use.memory_bytes / _GIB
        self._memory.add(values["memory"], passed)
        self._looks += 1
        if use.memory_peak is not None:
            if not is_new:
                self._peak_before = {use.source: use.memory_peak}
                self._cache_before = {use.source: use.cache_bytes}
            # An earlier job of the group may have made the peak, but the cache was there already.
            bound = use.memory_peak - self._cache_before.get(use.source, 0)
            self._at_most = max(self._at_most or 0.0, bound / _GIB)
            if use.memory_peak > self._peak_before.get(use.source, 0):
                self._peak = max(self._peak or 0.0, use.memory_peak / _GIB)
        return values

    def _take_gpus(self, gpus: Mapping[int, Gpu], passed: float) -> dict[str, float]:
        own = {n: gpu for n, gpu in gpus.items() if self._gpus is None or n in self._gpus}
        seen: dict[str, list[float]] = {}
        for index, gpu in own.items():
            device = self._devices.setdefault(index, _Device())
            used = None if gpu.memory_bytes is None else gpu.memory_bytes / _GIB
            for name, value in (("gpu", gpu.busy), ("vram", used), ("power", gpu.power_watts)):
                if value is not None:
                    vars(device)[name].add(value, passed)
                    seen.setdefault(name, []).append(value)
        total = sum(gpu.memory_total or 0.0 for gpu in own.values()) / _GIB
        self._vram_total = total or self._vram_total
        values = {name: sum(of_each) for name, of_each in seen.items()}
        if "gpu" in values:
            values["gpu"] /= len(seen["gpu"])
        for name, value in values.items():
            vars(self._all_gpus)[name].add(value, passed)
        return values

    def _take_flows(
        self, machine: MeteredMachine, use: SlotUse | None, passed: float, *, is_new: bool
    ) -> dict[str, float]:
        disk, source = machine.disks, ""
        if use is not None and use.disk is not None:
            disk, source = use.disk, use.source
        elif self._slots > 1:
            # Whose bytes they are nobody can tell.
            disk = None
        network = None if self._slots > 1 else machine.network
        values = {}
        for name, value, of in (
            ("disk_read", disk and disk[0], source),
            ("disk_written", disk and disk[1], source),
            ("net_in", network and network[0], ""),
            ("net_out", network and network[1], ""),
        ):
            # The machine's own counters were there before the job.
            more = self._flows[name].take(value, of, is_new=is_new and bool(of))
            if more is not None and passed > 0.0:
                values[name] = more / _MIB / passed
        return values


class Meter:
    """Adds up what is seen of one slot. Its own thread begins and ends, the sampler's takes."""

    def __init__(self, *, slots: int, gpus: Sequence[int] | None) -> None:
        """Measure one of ``slots``; ``gpus`` are the indexes of its own, None: it has all."""
        self._slots = slots
        self._gpus = gpus
        self._lock = threading.Lock()
        self._job = _Job(slots, gpus)
        #: Of the machine: vCPUs and GiB.
        self._share = (0.0, 0.0)
        #: Of the smallest GPU of the slot, GiB; 0: not known.
        self.vram_gib = 0.0
        #: Whether the slot holds a job.
        self.is_open = False

    def begin(self) -> None:
        """Forget what was seen: a job begins."""
        with self._lock:
            self._job = _Job(self._slots, self._gpus)
            self.is_open = True

    @property
    def seen_for(self) -> float:
        """Return for how long the job has been looked at, seconds."""
        return self._job.seen_for

    @property
    def memory_peak(self) -> float | None:
        """Return the most memory that the job was seen to use, GiB; None: nobody has looked."""
        with self._lock:
            return self._job.memory_peak

    @property
    def vram_peak(self) -> float | None:
        """Return the most memory of one GPU that was seen in use, GiB; None: nobody has looked."""
        with self._lock:
            return self._job.vram_peak

    def note_gpus(self, gpus: Mapping[int, Gpu]) -> None:
        """Note the GPUs of the machine, which are the same from job to job."""
        own = (gpu for n, gpu in gpus.items() if self._gpus is None or n in self._gpus)
        told = [gpu.memory_total for gpu in own if gpu.memory_total]
        self.vram_gib = min(told, default=0.0) / _GIB

    def take(self, machine: MeteredMachine, use: SlotUse | None) -> None:
        """Add the machine as it stands; ``use`` is None while no process of the slot runs."""
        with self._lock:
            self._share = machine.cpus / self._slots, machine.memory_bytes / self._slots / _GIB
            self._job.take(machine, use)

    def end(self, record: UsageRecord) -> UsageRecord:
        """Return the job's record with what was seen since it began; it is over."""
        with self._lock:
            self.is_open = False
            vcpus, memory_gib = self._share
            record = replace(record, vcpus=vcpus, memory_gib=round(memory_gib, _DIGITS))
            return self._job.fill(record)


def _device_use(index: int, seen: _Device) -> DeviceUse:
    return DeviceUse(
        index=index,
        gpu_mean=_round(seen.gpu.mean),
        gpu_max=_round(seen.gpu.max),
        vram_max=_round(seen.vram.max),
        power_mean=_round(seen.power.mean),
    )


def _series(made: SeriesMaker) -> UsageSeries:
    def column(name: str) -> tuple[float | None, ...] | None:
        values = made.column(name)
        return None if values is None else tuple(_round(value, 3) for value in values)

    names = [each.name for each in fields(UsageSeries) if each.name != "at"]
    columns: dict[str, Any] = {name: column(name) for name in names}
    return UsageSeries(at=tuple(round(at, 1) for at in made.times), **columns)


def _busy(first: Sequence[tuple[int, int]], last: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """Return how busy each core was between two looks, percent; empty: nobody looked twice."""
    if len(first) != len(last) or first == last:
        return ()
    pairs = zip(first, last, strict=True)
    return tuple(
        round(100.0 * min(max((b - a) / max(all_b - all_a, 1), 0.0), 1.0), 1)
        for (a, all_a), (b, all_b) in pairs
    )


def _round(value: float | None, digits: int = _DIGITS) -> float | None:
    return None if value is None else round(value, digits)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


class Gauge:
    """Adds up what is seen of all GPUs of the machine. One thread takes, another reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy, self._share, self._bytes = Tally(), Tally(), Tally()

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
            self._busy, self._share, self._bytes = Tally(), Tally(), Tally()
        if busy is None or share is None or used is None:
            return None
        return GpuUse(
            percent=round(busy, 2), vram_percent=round(share, 2), vram_gib=round(used / _GIB, 3)
        )


def slot_gpus(worker: Worker, slot: int) -> Sequence[int] | None:
    """Return the indexes of a slot's own GPUs; None: it sees all that there are."""
    gpus = int(worker.gpu_count)
    if gpus == 0 or worker.slots == 1:
        return None
    return [gpu for gpu in range(gpus) if gpu % worker.slots == slot % min(worker.slots, gpus)]

"""How one slot uses its share of the machine while it holds a job."""

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spindown.contract.usage import DeviceUse, UsageSeries
from spindown.domain.fleet import GpuUse, Worker
from spindown.worker.usage.gpu import Gpu
from spindown.worker.usage.reading import SlotUse
from spindown.worker.usage.tally import SeriesMaker, Tally

_GIB = 1024**3
_MIB = 1024**2
#: CPU time is counted in ticks of 10 ms, so that less than this tells no number of cores.
_SECONDS_LEAST = 0.2


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What was seen of one job, as ``UsageRecord`` has it."""

    vcpus: float
    memory_gib: float
    vram_gib: float | None
    cpu_seconds: float | None
    cpu_mean: float | None
    cpu_p95: float | None
    cpu_max: float | None
    throttled_seconds: float | None
    memory_mean: float | None
    memory_p95: float | None
    memory_max: float | None
    memory_peak: float | None
    gpu_mean: float | None
    gpu_p95: float | None
    gpu_max: float | None
    vram_mean: float | None
    vram_p95: float | None
    vram_max: float | None
    power_mean: float | None
    power_p95: float | None
    power_max: float | None
    disk_read: int | None
    disk_written: int | None
    net_in: int | None
    net_out: int | None
    cores: tuple[float, ...]
    devices: tuple[DeviceUse, ...]
    series: UsageSeries


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


class _Job:
    """What is seen of one job."""

    def __init__(self) -> None:
        self.began_at: float | None = None
        self.seen_at: float | None = None
        self.cpu, self.memory = Tally(), Tally()
        self.gpu, self.vram, self.power = Tally(), Tally(), Tally()
        self.spent, self.throttled = _Counter(), _Counter()
        self.flows = {name: _Counter() for name in _FLOWS}
        self.peak: float | None = None
        self.peak_before: Mapping[str, int] = {}
        self.devices: dict[int, _Device] = {}
        self.vram_total: float | None = None
        self.first_cores: Sequence[tuple[int, int]] = ()
        self.last_cores: Sequence[tuple[int, int]] = ()
        #: CPU seconds that no tally has yet, and since when.
        self.open_cpu = 0.0
        self.open_since = 0.0
        self.series = SeriesMaker(largest=("memory", "vram"))


class _Device:
    """What is seen of one GPU."""

    def __init__(self) -> None:
        self.gpu, self.vram, self.power = Tally(), Tally(), Tally()


_FLOWS = ("disk_read", "disk_written", "net_in", "net_out")


class Meter:
    """Adds up what is seen of one slot. Its own thread begins and ends, the sampler's takes."""

    def __init__(self, *, slots: int, gpus: Sequence[int] | None) -> None:
        """Measure one of ``slots``; ``gpus`` are the indexes of its own, None: it has all."""
        self._slots = slots
        self._gpus = gpus
        self._lock = threading.Lock()
        self._job = _Job()
        self._share = (0.0, 0.0)
        #: Whether the slot holds a job.
        self.is_open = False

    def begin(self) -> None:
        """Forget what was seen: a job begins."""
        with self._lock:
            self._job = _Job()
            self.is_open = True

    @property
    def seen_for(self) -> float:
        """Return for how long the job has been looked at, seconds."""
        job = self._job
        if job.began_at is None or job.seen_at is None:
            return 0.0
        return job.seen_at - job.began_at

    def take(self, machine: MeteredMachine, use: SlotUse | None) -> None:
        """Add the machine as it stands; ``use`` is None while no process of the slot runs."""
        with self._lock:
            job = self._job
            is_first = job.began_at is None
            began_at = machine.at if job.began_at is None else job.began_at
            passed = machine.at - (machine.at if job.seen_at is None else job.seen_at)
            job.began_at, job.seen_at = began_at, machine.at
            self._share = (
                machine.cpus / self._slots,
                machine.memory_bytes / self._slots / _GIB,
            )
            if is_first:
                job.open_since = machine.at
            values: dict[str, float] = {}
            if use is not None:
                self._take_use(job, machine.at, use, passed, values, is_first=is_first)
            self._take_gpus(job, machine.gpus, passed, values)
            self._take_flows(job, machine, use, passed, values, is_first=is_first)
            if machine.cores:
                job.first_cores = job.first_cores or machine.cores
                job.last_cores = machine.cores
            job.series.add(machine.at - began_at, values)

    def end(self) -> Use:
        """Return what was seen since the job began; it is over."""
        with self._lock:
            job = self._job
            self.is_open = False
            seen = (job.seen_at or 0.0) - (job.began_at or 0.0)
            spent = job.spent.grown
            mean = None if spent is None or seen <= 0.0 else spent / seen
            flows = {name: _whole(job.flows[name].grown) for name in _FLOWS}
            peak = max((p for p in (job.peak, job.memory.max) if p is not None), default=None)
            return Use(
                vcpus=self._share[0],
                memory_gib=_round(self._share[1]) or 0.0,
                vram_gib=_round(job.vram_total),
                cpu_seconds=_round(spent),
                cpu_mean=_round(mean),
                # Of a job that was over at once the mean is all that is known.
                cpu_p95=_round(mean if job.cpu.p95 is None else job.cpu.p95),
                cpu_max=_round(mean if job.cpu.max is None else job.cpu.max),
                throttled_seconds=_round(job.throttled.grown),
                **_told("memory", job.memory),
                memory_peak=_round(peak),
                **_told("gpu", job.gpu),
                **_told("vram", job.vram),
                **_told("power", job.power),
                disk_read=flows["disk_read"],
                disk_written=flows["disk_written"],
                net_in=flows["net_in"],
                net_out=flows["net_out"],
                cores=_busy(job.first_cores, job.last_cores),
                devices=tuple(_device_use(n, seen) for n, seen in sorted(job.devices.items())),
                series=_series(job.series),
            )

    def _take_use(
        self,
        job: _Job,
        at: float,
        use: SlotUse,
        passed: float,
        values: dict[str, float],
        *,
        is_first: bool,
    ) -> None:
        is_new = not is_first
        more = job.spent.take(use.cpu_seconds, use.source, is_new=is_new)
        job.throttled.take(use.throttled_seconds, use.source, is_new=is_new)
        if more is not None:
            job.open_cpu += more
            length = at - job.open_since
            if length >= _SECONDS_LEAST:
                cores = job.open_cpu / length
                job.cpu.add(cores, length)
                values["cpu"] = cores
                job.open_cpu, job.open_since = 0.0, at
        else:
            job.open_since = at
        memory = use.memory_bytes / _GIB
        job.memory.add(memory, passed)
        values["memory"] = memory
        if use.memory_peak is not None:
            if is_first:
                job.peak_before = {use.source: use.memory_peak}
            if use.memory_peak > job.peak_before.get(use.source, 0):
                job.peak = max(job.peak or 0.0, use.memory_peak / _GIB)

    def _take_gpus(
        self, job: _Job, gpus: Mapping[int, Gpu], passed: float, values: dict[str, float]
    ) -> None:
        own = {n: gpu for n, gpu in gpus.items() if self._gpus is None or n in self._gpus}
        for index, gpu in own.items():
            device = job.devices.setdefault(index, _Device())
            _add(device.gpu, gpu.busy, passed)
            _add(device.vram, _gib(gpu.memory_bytes), passed)
            _add(device.power, gpu.power_watts, passed)
        busy = [gpu.busy for gpu in own.values() if gpu.busy is not None]
        used = [gpu.memory_bytes / _GIB for gpu in own.values() if gpu.memory_bytes is not None]
        drawn = [gpu.power_watts for gpu in own.values() if gpu.power_watts is not None]
        total = sum(gpu.memory_total or 0.0 for gpu in own.values()) / _GIB
        job.vram_total = total or job.vram_total
        for name, tally, value in (
            ("gpu", job.gpu, sum(busy) / len(busy) if busy else None),
            ("vram", job.vram, sum(used) if used else None),
            ("power", job.power, sum(drawn) if drawn else None),
        ):
            if value is not None:
                tally.add(value, passed)
                values[name] = value

    def _take_flows(
        self,
        job: _Job,
        machine: MeteredMachine,
        use: SlotUse | None,
        passed: float,
        values: dict[str, float],
        *,
        is_first: bool,
    ) -> None:
        disk, source, is_new = machine.disks, "", False
        if use is not None and use.disk is not None:
            disk, source, is_new = use.disk, use.source, not is_first
        elif self._slots > 1:
            # Whose bytes they are nobody can tell.
            disk = None
        network = None if self._slots > 1 else machine.network
        for name, value, of, fresh in (
            ("disk_read", disk and disk[0], source, is_new),
            ("disk_written", disk and disk[1], source, is_new),
            ("net_in", network and network[0], "", False),
            ("net_out", network and network[1], "", False),
        ):
            more = job.flows[name].take(value, of, is_new=fresh)
            if more is not None and passed > 0.0:
                values[name] = more / _MIB / passed


def _add(tally: Tally, value: float | None, passed: float) -> None:
    if value is not None:
        tally.add(value, passed)


def _told(name: str, tally: Tally) -> dict[str, float | None]:
    return {
        f"{name}_mean": _round(tally.mean),
        f"{name}_p95": _round(tally.p95),
        f"{name}_max": _round(tally.max),
    }


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

    return UsageSeries(
        at=tuple(round(at, 1) for at in made.times),
        cpu=column("cpu"),
        memory=column("memory"),
        gpu=column("gpu"),
        vram=column("vram"),
        power=column("power"),
        disk_read=column("disk_read"),
        disk_written=column("disk_written"),
        net_in=column("net_in"),
        net_out=column("net_out"),
    )


def _busy(first: Sequence[tuple[int, int]], last: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """Return how busy each core was between two looks, percent; empty: nobody looked twice."""
    if len(first) != len(last) or first == last:
        return ()
    pairs = zip(first, last, strict=True)
    return tuple(
        round(100.0 * min(max((b - a) / max(all_b - all_a, 1), 0.0), 1.0), 1)
        for (a, all_a), (b, all_b) in pairs
    )


def _gib(value: float | None) -> float | None:
    return None if value is None else value / _GIB


def _round(value: float | None, digits: int = 4) -> float | None:
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

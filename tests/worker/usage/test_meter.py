"""Readings become what one slot used, and what the GPUs of the machine did."""

from typing import Any

import pytest

from spindown.contract.usage import DeviceUse
from spindown.domain.fleet import GpuUse
from spindown.worker.usage.gpu import Gpu
from spindown.worker.usage.meter import Gauge, Meter, MeteredMachine, slot_gpus
from spindown.worker.usage.reading import SlotUse
from tests.builders import a_usage_record
from tests.work import a_worker
from tests.worker.usage.machine import GIB, told

MIB = 1024**2


def a_machine(at: float, **changes: Any) -> MeteredMachine:
    return MeteredMachine(**{"at": at, "cpus": 8, "memory_bytes": 16 * GIB, **changes})


def a_use(cpu_seconds: float, *, gib: float = 1.0, **changes: Any) -> SlotUse:
    base = {"source": "40", "cpu_seconds": cpu_seconds, "memory_bytes": int(gib * GIB)}
    return SlotUse(**{**base, **changes})


def a_meter(*, slots: int = 1, gpus: list[int] | None = None) -> Meter:
    meter = Meter(slots=slots, gpus=gpus)
    meter.begin()
    return meter


def test_a_meter_tells_what_the_slot_used_of_its_share() -> None:
    meter = a_meter(slots=2, gpus=[1])
    busy = {0: Gpu(100.0, 8 * GIB, 8 * GIB, 70.0), 1: Gpu(20.0, 2 * GIB, 8 * GIB, 30.0)}
    meter.take(a_machine(0.0, gpus=busy), a_use(100.0, gib=2.0))
    meter.take(a_machine(5.0, gpus=busy), a_use(110.0, gib=4.0))
    last = {1: Gpu(60.0, 4 * GIB, 8 * GIB, 50.0)}
    meter.take(a_machine(10.0, gpus=last), a_use(130.0, gib=3.0))

    found = meter.end(a_usage_record())

    assert (found.vcpus, found.memory_gib, found.vram_gib) == (4.0, 8.0, 8.0)
    assert (meter.vram_peak, meter.vram_gib) == (4.0, 0.0)
    meter.note_gpus({**busy, 0: Gpu(None, None, 2 * GIB)})
    assert meter.vram_gib == 8.0
    assert (found.cpu_seconds, found.cpu_mean, found.cpu_max) == (30.0, 3.0, 4.0)
    assert found.cpu_p95 == pytest.approx(4.0, rel=0.01)
    assert found.memory_mean == pytest.approx(3.5, abs=0.001)
    assert (found.memory_max, found.memory_peak) == (4.0, 4.0)
    assert found.gpu_mean == pytest.approx(40.0, abs=0.01)
    assert (found.gpu_max, found.vram_max, found.power_max) == (60.0, 4.0, 50.0)
    assert found.devices == (
        DeviceUse(
            index=1,
            gpu_mean=found.gpu_mean,
            gpu_max=60.0,
            vram_max=4.0,
            power_mean=found.power_mean,
        ),
    )
    assert found.series.at == (0.0, 5.0, 10.0)
    assert found.series.cpu == (None, 2.0, 4.0)
    assert found.series.memory == (2.0, 4.0, 3.0)


def test_without_a_gpu_nothing_of_one_is_zero() -> None:
    meter = a_meter()
    meter.take(a_machine(0.0), a_use(0.0))
    found = meter.end(a_usage_record())

    names = [f"{what}_{how}" for what in ("gpu", "vram", "power") for how in ("mean", "p95", "max")]
    assert set(told(found, "vram_gib", *names).values()) == {None}
    assert found.devices == ()
    assert (found.series.gpu, found.series.vram, found.series.power) == (None, None, None)


def test_a_meter_that_saw_nothing_says_so() -> None:
    meter = a_meter()
    meter.take(a_machine(0.0), None)
    names = ("cpu_seconds", "cpu_mean", "cpu_p95", "memory_mean", "memory_peak", "disk_read")
    assert set(told(meter.end(a_usage_record()), *names).values()) == {None}
    meter.take(a_machine(5.0), a_use(100.0))
    meter.begin()
    assert set(told(meter.end(a_usage_record()), *names).values()) == {None}


def test_cpu_time_before_the_job_is_not_counted() -> None:
    meter = a_meter()
    meter.take(a_machine(0.0), a_use(500.0))
    assert meter.end(a_usage_record()).cpu_seconds is None
    # A child that ended unwaited for has taken time along.
    meter.take(a_machine(5.0), a_use(490.0))
    assert meter.end(a_usage_record()).cpu_seconds == 0.0


def test_a_process_that_began_within_the_job_is_counted_whole() -> None:
    meter = a_meter()
    meter.take(a_machine(0.0), None)
    meter.take(a_machine(1.0), a_use(0.5, source="41"))
    meter.take(a_machine(2.0), a_use(1.25, source="42"))
    meter.take(a_machine(3.0), a_use(2.25, source="42"))

    found = meter.end(a_usage_record())
    assert found.cpu_seconds == 0.5 + 1.25 + 1.0
    assert found.cpu_max == pytest.approx(1.25)


def test_two_looks_at_once_make_no_peak() -> None:
    meter = a_meter()
    meter.take(a_machine(0.0), a_use(1.0))
    meter.take(a_machine(1.0), a_use(1.5))
    # One tick of the clock, a millisecond later.
    meter.take(a_machine(1.001), a_use(1.51))

    found = meter.end(a_usage_record())
    assert (found.cpu_seconds, found.cpu_max) == (0.51, 0.5)


def test_a_job_of_a_tenth_of_a_second_has_a_summary() -> None:
    meter = a_meter()
    meter.take(a_machine(0.0), a_use(1.0))
    meter.take(a_machine(0.1), a_use(1.1))

    found = meter.end(a_usage_record())
    assert told(found, "cpu_seconds", "cpu_mean", "cpu_p95", "cpu_max") == {
        "cpu_seconds": 0.1,
        "cpu_mean": 1.0,
        "cpu_p95": 1.0,
        "cpu_max": 1.0,
    }


def test_the_kernel_s_peak_counts_if_it_rose_within_the_job() -> None:
    before = a_use(0.0, memory_peak=9 * GIB)
    meter = a_meter()
    meter.take(a_machine(0.0), before)
    meter.take(a_machine(1.0), before)
    assert meter.end(a_usage_record()).memory_peak == 1.0
    meter.begin()
    meter.take(a_machine(2.0), before)
    meter.take(a_machine(3.0), a_use(0.0, memory_peak=10 * GIB))
    assert meter.end(a_usage_record()).memory_peak == 10.0
    # A group that began within the job.
    meter.begin()
    meter.take(a_machine(4.0), None)
    meter.take(a_machine(5.0), a_use(0.0, source="new", memory_peak=3 * GIB))
    assert meter.end(a_usage_record()).memory_peak == 3.0


def test_the_kernel_s_peak_bounds_what_a_short_job_used() -> None:
    meter = a_meter()
    meter.take(a_machine(0.0), a_use(0.0, gib=0.1, memory_peak=int(0.1 * GIB)))
    meter.take(a_machine(0.8), a_use(0.7, gib=0.1, memory_peak=3 * GIB))
    found = meter.end(a_usage_record())
    assert (found.memory_max, found.memory_p95) == (3.0, 0.1)
    # The next job of the slot, beside two GiB of files that those before it have read.
    meter.begin()
    for at in (10.0, 10.8):
        use = a_use(1.0, gib=0.1, memory_peak=4 * GIB, cache_bytes=2 * GIB)
        meter.take(a_machine(at), use)
    assert meter.end(a_usage_record()).memory_max == 2.0


def test_of_a_longer_job_looks_tell_more_than_the_kernel() -> None:
    meter = a_meter()
    for at in range(8):
        meter.take(a_machine(float(at)), a_use(float(at), gib=1.0 + at, memory_peak=15 * GIB))

    found = meter.end(a_usage_record())
    assert (found.memory_max, found.memory_peak) == (8.0, 8.0)


def test_bytes_and_throttling_are_those_of_the_job() -> None:
    meter = a_meter()
    first = a_machine(0.0, network=(100, 200), disks=(10 * MIB, 0))
    meter.take(first, a_use(0.0, throttled_seconds=1.0))
    last = a_machine(2.0, network=(150, 300), disks=(12 * MIB, 5 * MIB))
    meter.take(last, a_use(0.0, throttled_seconds=1.5))

    found = meter.end(a_usage_record())
    assert (found.net_in, found.net_out) == (50, 100)
    assert (found.disk_read, found.disk_written) == (2 * MIB, 5 * MIB)
    assert found.throttled_seconds == 0.5
    assert found.series.disk_written == (None, 2.5)


def test_slots_share_a_machine_and_no_bytes_but_a_group_s() -> None:
    meter = a_meter(slots=2)
    for at, read in ((0.0, 5), (1.0, 9)):
        machine = a_machine(at, network=(int(at), 0), disks=(int(at), 0))
        meter.take(machine, a_use(at, disk=(read, 1)))

    found = meter.end(a_usage_record())
    assert (found.net_in, found.disk_read, found.disk_written) == (None, 4, 0)


def test_cores_are_told_one_by_one() -> None:
    meter = a_meter()
    meter.take(a_machine(0.0, cores=[(0, 0), (50, 100)]), None)
    meter.take(a_machine(1.0), None)
    meter.take(a_machine(2.0, cores=[(150, 200), (50, 300)]), None)

    assert meter.end(a_usage_record()).cores == (75.0, 0.0)


def test_a_slot_is_young_by_what_was_seen() -> None:
    meter = a_meter()
    assert (meter.is_open, meter.seen_for) == (True, 0.0)
    meter.take(a_machine(10.0), None)
    meter.take(a_machine(75.0), None)
    assert meter.seen_for == 65.0
    meter.end(a_usage_record())
    assert not meter.is_open


@pytest.mark.parametrize(
    ("gpus", "slots", "own"),
    [
        (0.0, 2, [None, None]),
        (0.25, 1, [None]),
        (4.0, 1, [None]),
        (4.0, 2, [[0, 2], [1, 3]]),
        (1.0, 2, [[0], [0]]),
    ],
)
def test_gpus_are_shared_out_over_slots(
    gpus: float, slots: int, own: list[list[int] | None]
) -> None:
    worker = a_worker(gpu_count=gpus, slots=slots)
    assert [slot_gpus(worker, slot) for slot in range(slots)] == own


def test_a_gauge_tells_the_gpus_since_it_was_last_read() -> None:
    gauge = Gauge()
    gauge.take([Gpu(20.0, 2 * GIB, 16 * GIB), Gpu(40.0, 4 * GIB, 16 * GIB)])
    gauge.take([Gpu(60.0, 8 * GIB, 16 * GIB), Gpu(None, 1.0, None)])

    assert gauge.read() == GpuUse(percent=40.0, vram_percent=50.0, vram_gib=8.0)
    assert gauge.read() is None


def test_without_a_gpu_a_gauge_tells_nothing() -> None:
    gauge = Gauge()
    gauge.take([])

    assert gauge.read() is None

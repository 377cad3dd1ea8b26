"""Readings become means and maxima of what one slot used, and of the GPUs of the machine."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from spindown.domain.fleet import GpuUse
from tests.work import a_worker
from tests.worker.usage.machine import GIB
from worker.usage.meter import Gauge, Meter, MeteredMachine, Use, slot_gpus
from worker.usage.reading import Gpu, Process


def a_machine(at: float, cpu_seconds: float, *, gib: float = 1.0, **gpus: Gpu) -> MeteredMachine:
    return MeteredMachine(
        at=at,
        processes={40: Process(1, 40, cpu_seconds, int(gib * GIB))},
        cpus=8,
        memory_bytes=16 * GIB,
        gpus={int(name[1:]): gpu for name, gpu in gpus.items()},
    )


def test_a_meter_tells_means_and_maxima_of_the_slots_share() -> None:
    meter = Meter(slots=2, gpus=[1])
    meter.begin()
    busy = {"g0": Gpu(100.0, 8 * GIB, 8 * GIB), "g1": Gpu(20.0, 2 * GIB, 8 * GIB)}
    meter.take(a_machine(0.0, 100.0, gib=2.0, **busy), 40)
    # Two cores of the four that are the slot's, then all four.
    meter.take(a_machine(5.0, 110.0, gib=4.0, **busy), 40)
    meter.take(a_machine(10.0, 130.0, gib=3.0, g1=Gpu(60.0, 4 * GIB, 8 * GIB)), 40)

    assert meter.end() == Use(
        cpu_mean=75.0,
        cpu_max=100.0,
        memory_mean=37.5,
        memory_max=50.0,
        gpu_mean=33.33,
        gpu_max=60.0,
        vram_mean=33.33,
        vram_max=50.0,
    )


def test_a_meter_that_saw_nothing_says_so() -> None:
    meter = Meter(slots=1, gpus=None)
    meter.take(a_machine(0.0, 100.0), 41)
    assert set(vars_of(meter.end()).values()) == {None}
    meter.take(a_machine(5.0, 100.0), 40)
    meter.begin()
    assert set(vars_of(meter.end()).values()) == {None}


def test_cpu_time_before_the_job_or_its_process_is_not_counted() -> None:
    meter = Meter(slots=1, gpus=None)
    meter.take(a_machine(0.0, 100.0), 40)
    meter.begin()
    meter.take(a_machine(5.0, 500.0), 40)
    assert meter.end().cpu_max is None
    # A new process began at nothing; a child that ended unwaited for has taken time along.
    meter.take(replace(a_machine(10.0, 0.0), processes={41: Process(1, 41, 1.0, 0)}), 41)
    assert meter.end().cpu_max is None
    meter.take(replace(a_machine(15.0, 0.0), processes={41: Process(1, 41, 0.5, 0)}), 41)
    assert meter.end().cpu_max == 0.0


def vars_of(use: Use) -> Mapping[str, float | None]:
    return {name: getattr(use, name) for name in Use.__slots__}


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

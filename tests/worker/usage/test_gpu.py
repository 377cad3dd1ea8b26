"""What NVIDIA's library tells, on tables of machines that were seen."""

import sys

import pytest

from spindown.worker.usage.gpu import Gpu, Gpus, open_gpus
from tests.worker.usage.machine import GIB, H100_MIG, L4_FRACTION, T4, TableNvml, gpus_of


def test_each_device_tells_what_it_can() -> None:
    assert gpus_of(T4, H100_MIG, L4_FRACTION).read() == {
        0: Gpu(35.0, 1 * GIB, 15 * GIB, 27.345),
        1: Gpu(None, 3_145_728.0, 85_520_809_984.0, 118.202),
        2: Gpu(12.0, 2 * GIB, 3 * GIB, None),
    }


def test_a_gpu_that_falls_off_its_bus_hides_no_other() -> None:
    nvml = TableNvml([T4, T4, None])
    gpus = Gpus(nvml)
    nvml.devices[0] = None

    assert gpus.read() == {0: Gpu(None, None, None, None), 1: Gpu(35.0, GIB, 15 * GIB, 27.345)}


def test_without_a_driver_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", TableNvml([]))

    assert open_gpus() is None


def test_the_real_library_says_whether_there_is_a_gpu() -> None:
    gpus = open_gpus()

    assert gpus is None or all(gpu.memory_total for gpu in gpus.read().values())

"""A machine of files: its processes, its groups, its GPUs, the records it has left."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from spindown.contract.usage import UsageRecord, decode_usage, measured_prefix
from spindown.memory.store import MemoryObjectStore
from spindown.worker.usage.gpu import Gpus
from tests.work import WORKLOAD

TICKS = os.sysconf("SC_CLK_TCK")
GIB = 1024**3


def write_process(
    proc: Path, number: int, *, parent: int, session: int, seconds: float = 0.0, pages: int = 0
) -> None:
    """Write what proc(5) says of a process, with a name made to mislead."""
    ticks = int(seconds * TICKS / 2)
    fields = ["S", parent, session, session, *[0] * 7, ticks, 0, ticks, 0, *[0] * 6, pages, 0]
    (proc / str(number)).mkdir(exist_ok=True)
    text = f"{number} ((a) b () {' '.join(map(str, fields))}\n"
    (proc / str(number) / "stat").write_text(text)


def write_group(group: Path, **files: str) -> None:
    group.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (group / name.replace("_", ".", 1)).write_text(text)


class NVMLError(Exception):
    """As the library's own."""


NO = NVMLError("Not Supported")


@dataclass(frozen=True)
class Device:
    """What one GPU answers; an error is raised. Bytes, percent, milliwatts."""

    gpu: int | NVMLError
    used: int
    total: int
    power: int | NVMLError


#: Made up: a T4 at work, an H100 that is partitioned (MIG), and a fraction of an L4 (vGPU).
T4 = Device(gpu=35, used=1 * GIB, total=15 * GIB, power=27_345)
H100_MIG = Device(gpu=NO, used=3_145_728, total=85_520_809_984, power=118_202)
L4_FRACTION = Device(gpu=12, used=2 * GIB, total=3 * GIB, power=NO)


class TableNvml(SimpleNamespace):
    """The calls of NVIDIA's library that are made, over a table of devices; None: a lost one."""

    NVMLError = NVMLError

    def __init__(self, devices: Sequence[Device | None], **more: Any) -> None:
        super().__init__(**more)
        self.devices = list(devices)

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name
        if not self.devices:
            raise NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self._answer(self.devices[index])
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=self._answer(self._found(handle).gpu))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        found = self._found(handle)
        return SimpleNamespace(used=found.used, total=found.total)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> Any:  # noqa: N802
        return self._answer(self._found(handle).power)

    def _found(self, handle: int) -> Device:
        found = self._answer(self.devices[handle])
        assert isinstance(found, Device)
        return found

    def _answer(self, value: object) -> object:
        if value is None:
            raise NVMLError("GPU is lost")
        if isinstance(value, NVMLError):
            raise value
        return value


def gpus_of(*devices: Device) -> Gpus:
    return Gpus(TableNvml(devices))


def read_all(objects: MemoryObjectStore) -> list[UsageRecord]:
    return [
        record
        for found in objects.list(measured_prefix(WORKLOAD))
        for record in decode_usage(objects.get(found.key).data, workload=WORKLOAD)
    ]


def told(found: object, *names: str) -> Mapping[str, Any]:
    return {name: getattr(found, name) for name in names}

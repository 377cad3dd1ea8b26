"""What the GPUs of a machine do, asked of NVIDIA's management library (NVML) in this process.

nvidia-smi says the same, and each call starts a program that loads that library anew: tens of
milliseconds of CPU, where a call of the library takes a fraction of one.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_WATTS_PER_MILLIWATT = 1e-3


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as it stands; None is what its driver does not tell."""

    #: Percent of the time since the driver's last look in which any kernel ran.
    busy: float | None
    memory_bytes: float | None
    memory_total: float | None
    #: Of the whole board.
    power_watts: float | None = None


class Gpus:
    """The GPUs of this machine. An answer may take as long as a driver whose GPU is gone."""

    def __init__(self, nvml: Any) -> None:
        """Take the handles once; ``nvml`` is the module ``pynvml``, initialised."""
        self._nvml = nvml
        self._handles = {
            index: handle
            for index in range(nvml.nvmlDeviceGetCount())
            if (handle := self._ask(nvml.nvmlDeviceGetHandleByIndex, index)) is not None
        }

    def read(self) -> Mapping[int, Gpu]:
        """Return the GPUs by index, as nvidia-smi numbers them."""
        return {index: self._read(handle) for index, handle in self._handles.items()}

    def _read(self, handle: Any) -> Gpu:
        nvml = self._nvml
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        power = self._ask(nvml.nvmlDeviceGetPowerUsage, handle)
        return Gpu(
            None if rates is None else float(rates.gpu),
            None if memory is None else float(memory.used),
            None if memory is None else float(memory.total),
            None if power is None else power * _WATTS_PER_MILLIWATT,
        )

    def _ask(self, call: Callable[[Any], Any], argument: Any) -> Any:
        try:
            return call(argument)
        except self._nvml.NVMLError:
            # A partitioned GPU does not tell how busy it is, a small one not what it draws.
            return None


def open_gpus() -> Gpus | None:
    """Return the GPUs of this machine; None: it has no driver that tells of any."""
    nvml = importlib.import_module("pynvml")
    try:
        nvml.nvmlInit()
        return Gpus(nvml)
    except nvml.NVMLError:
        return None

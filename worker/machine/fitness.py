"""Is this machine fit for work? Asked once, before the worker checks in.

A GPU that is missing, broken or too small would fail one job after the other; a machine that
cannot start containers would fail all of them. Such an instance says why in its row and ends, and
the scaler counts it as a launch that came to nothing.

The queries are those of ``nvidia-smi --help-query-gpu``.
"""

import math
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: What every driver answers.
_QUERY = "index,name,memory.total"
#: What tells of broken memory; not every driver and GPU knows all of it.
_HEALTH = {
    "ecc.errors.uncorrected.volatile.total": "uncorrected memory errors",
    "remapped_rows.failure": "a row of memory that could not be remapped",
    "retired_pages.pending": "pages of memory that wait to be retired",
}
#: What stands for a value of a GPU that has fallen off its bus, or that only a reset brings back
#: (NVML API Reference, ``nvmlReturn_t``).
_GONE = ("gpu is lost", "requires reset", "requires a reset")
_QUERY_SECONDS = 60.0
#: nvidia-smi tells less than EC2 does, which counts what the driver keeps: T4 15,360 of 16,384 MiB.
_MEMORY_SHARE = 0.85
#: NVIDIA's number as a vendor of PCI devices.
_NVIDIA = "0x10de"
_DEVICES = Path("/sys/bus/pci/devices")

#: Returns what ``nvidia-smi`` prints, or raises OSError or SubprocessError.
Ask = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equipment:
    """What the instance was bought for."""

    #: GPUs of the type, a part of one counting as one; 0: none.
    gpus: float
    #: MiB of one GPU, at least.
    gpu_memory_mib: int = 0


def find_fault(bought: Equipment, ask: Ask, *, is_there: bool, is_installed: bool) -> str | None:
    """Return what makes a machine unfit for its work, in one sentence; None: it is fit.

    Args:
        bought: what the instance was bought for.
        ask: runs nvidia-smi with some arguments.
        is_there: a device of NVIDIA is on the bus.
        is_installed: nvidia-smi is there.
    """
    if bought.gpus <= 0 or not (is_there or is_installed):
        # Of another maker; its driver is the image's business.
        return None
    if not is_installed:
        return "the GPU has no driver: nvidia-smi is not installed"
    try:
        lines, health = _read(ask)
    except subprocess.CalledProcessError as exc:
        said = " ".join(f"{exc.stdout or ''} {exc.stderr or ''}".split())
        return f"nvidia-smi failed ({exc.returncode}): {said[:300]}"
    except (OSError, subprocess.SubprocessError) as exc:
        return f"nvidia-smi gives no answer: {exc}"
    return _find_shortage(bought, lines) or _find_broken_memory(health)


def _find_shortage(bought: Equipment, lines: Sequence[Sequence[str]]) -> str | None:
    wanted = math.ceil(bought.gpus)
    if len(lines) < wanted:
        return f"{wanted} GPUs were bought and the driver sees {len(lines)}"
    for index, name, memory in (line[:3] for line in lines):
        if _is_gone(memory):
            return f"GPU {index} answers only {memory}"
        if _number(memory) < _MEMORY_SHARE * bought.gpu_memory_mib:
            return (
                f"GPU {index} ({name}) has {memory} MiB of memory, "
                f"and {bought.gpu_memory_mib} are required"
            )
    return None


def _read(ask: Ask) -> tuple[list[list[str]], list[tuple[str, str, str]]]:
    """Return index, name and memory of each GPU, and (field, index, value) of its health.

    By one question if the driver knows all fields: where it does not stay awake, each start of
    nvidia-smi wakes all GPUs (NVIDIA, "Driver Persistence").
    """
    try:
        lines = _rows(ask(_question(_QUERY, *_HEALTH)))
    except subprocess.CalledProcessError:
        lines, told = _rows(ask(_question(_QUERY))), []
        for field in _HEALTH:
            # A driver that does not know the question says nothing of its GPU.
            with suppress(OSError, subprocess.SubprocessError):
                rows = _rows(ask(_question("index", field)))
                told += [(field, line[0], line[1]) for line in rows]
        return lines, told
    return lines, [
        (field, line[0], value)
        for line in lines
        for field, value in zip(_HEALTH, line[3:], strict=False)
    ]


def _question(*fields: str) -> Sequence[str]:
    return [f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]


def _find_broken_memory(health: Sequence[tuple[str, str, str]]) -> str | None:
    for field, index, value in health:
        if _is_gone(value):
            return f"GPU {index} answers only {value}"
        if value.lower() in {"yes", "pending"} or _number(value) > 0:
            return f"GPU {index} has {_HEALTH[field]} ({field} is {value})"
    return None


def _is_gone(text: str) -> bool:
    """Tell whether an answer is that of a GPU which gives none; others mean that it is not told."""
    return any(state in text.lower() for state in _GONE)


def _rows(text: str) -> list[list[str]]:
    rows = [[value.strip() for value in line.split(",")] for line in text.splitlines()]
    return [row for row in rows if len(row) > 1]


def _number(text: str) -> float:
    """Return a number; 0 for what a driver does not tell, such as ``[N/A]``."""
    try:
        return float(text)
    except ValueError:
        return 0.0


def ask_nvidia_smi(program: str) -> Ask:
    """Return what runs nvidia-smi."""

    def ask(arguments: Sequence[str]) -> str:
        return subprocess.run(
            [program, *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=_QUERY_SECONDS,
        ).stdout

    return ask


def examine_gpus(bought: Equipment, program: str, devices: Path = _DEVICES) -> str | None:
    """Test the GPUs of this machine; return what is wrong with them, None if nothing is.

    Args:
        bought: what the instance was bought for.
        program: nvidia-smi; "": this machine's GPUs are not tested.
        devices: where the kernel tells of the devices on the PCI bus.
    """
    if not program:
        return None
    vendors = (path.read_text().strip() for path in devices.glob("*/vendor"))
    return find_fault(
        bought,
        ask_nvidia_smi(program),
        is_there=_NVIDIA in vendors,
        is_installed=shutil.which(program) is not None,
    )

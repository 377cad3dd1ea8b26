"""What one attempt has used, in one line for a person who reads the worker's log."""

from collections.abc import Iterator

from spindown.contract.usage import UsageRecord


def summarise(record: UsageRecord) -> str:
    """Return the line: time, money, and what was used of what there is and what was asked for."""
    held = f"{record.end.value} after {record.seconds:.1f} s for ${record.dollars:.6f}"
    return "; ".join((f"{held}, items: {record.items}", *_uses(record)))


def _uses(record: UsageRecord) -> Iterator[str]:
    if record.cpu_mean is None and record.memory_max is None:
        yield "CPU and memory were not seen"
    if record.cpu_mean is not None:
        spread = f" (p95 {record.cpu_p95 or 0.0:.2f}, most {record.cpu_max or 0.0:.2f})"
        yield (
            f"CPU {record.cpu_mean:.2f} of {record.vcpus:g} cores"
            f"{spread}{_asked(record.asked_vcpus, '')}"
        )
    if record.throttled_seconds:
        yield f"throttled for {record.throttled_seconds:.1f} s"
    if record.memory_max is not None:
        yield (
            f"memory {record.memory_max:.2f} of {record.memory_gib:.1f} GiB"
            f"{_asked(record.asked_memory_gib, ' GiB')}"
        )
    if record.gpu_mean is not None:
        yield f"GPU {record.gpu_mean:.0f} % (p95 {record.gpu_p95 or 0.0:.0f} %)"
    if record.vram_max is not None and record.vram_gib is not None:
        yield (
            f"VRAM {record.vram_max:.2f} of {record.vram_gib:.1f} GiB"
            f"{_asked(record.asked_vram_gib, ' GiB')}"
        )
    if record.power_mean is not None:
        yield f"{record.power_mean:.0f} W"


def _asked(value: float | None, unit: str) -> str:
    return "" if value is None else f", asked {value:g}{unit}"

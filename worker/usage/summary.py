"""What one attempt has used, in one line for a person who reads the worker's log."""

from collections.abc import Iterator

from spindown.contract.usage import UsageEnd, UsageRecord
from spindown.domain.batch import end_of_job
from spindown.error import printable
from spindown.reason_text import say_dollars

#: Characters of an error that are told.
_ERROR_AT_MOST = 200


def summarise(record: UsageRecord, error: str = "", *, items_failed: int = 0) -> str:
    """Return the line: end, time, money, and what was used of what there is and was asked for.

    Args:
        record: the attempt.
        error: of the first item that failed in it.
        items_failed: of the whole job, also in earlier attempts.
    """
    at_work = f"{record.seconds:.1f} s for ${say_dollars(record.dollars)}"
    word = record.end.value
    if record.end is UsageEnd.COMPLETED:
        word = end_of_job(word, items_failed=max(items_failed, record.items_failed)).value
    held = f"{word}{_say_failed(record, error)} after {at_work}"
    return "; ".join((f"{held}, items: {record.items}", *_uses(record)))


def _say_failed(record: UsageRecord, error: str) -> str:
    """Return what failed in the attempt, in brackets; "": nothing did."""
    if not record.items_failed:
        return ""
    shown = printable(" ".join(error.split())[:_ERROR_AT_MOST])
    if record.items_failed == record.items:
        return f" ({shown})"
    return f" ({record.items_failed:,} of {record.items:,} items failed, the first: {shown})"


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

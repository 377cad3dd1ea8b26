"""How well a worker was used by one job: a record each time a slot leaves a job.

``usage/workload={workload}/day={YYYY-MM-DD}/{job_id}-{epoch}.jsonl``: the layout by which Athena
finds a workload and a span of days without listing the rest. A worker writes the records of some
minutes into one object, named by the first. A job that was interrupted has one record an epoch,
so that sums over records are sums over all paid work.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from spindown.contract.codec import decode, encode, from_json
from spindown.domain.bound import (
    Amount,
    GpuCount,
    ItemCount,
    Percent,
    Price,
    SlotCount,
    Tally,
)
from spindown.error import ContractError

PREFIX = "usage/"
#: Partitions of the table, in the order of the key.
WORKLOAD = "workload"
DAY = "day"


class UsageEnd(StrEnum):
    """How the slot and the job parted."""

    COMPLETED = "completed"
    FAILED = "failed"
    #: Given back at a drain or at the hard cap of a lease.
    RELEASED = "released"
    #: Given back because EC2 takes the instance.
    INTERRUPTED = "interrupted"
    #: Fenced off: another epoch owned the job.
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """What one GPU of a slot did; None: its driver does not tell."""

    index: int
    #: Percent of the time in which it computed at all.
    gpu_mean: Percent | None = None
    gpu_max: Percent | None = None
    #: GiB.
    vram_max: Amount | None = None
    #: Watts, of the whole board.
    power_mean: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSeries:
    """The course of one attempt: columns of one length, each value at the time of its row.

    None for a column: nothing was seen of it; for a value: not at that time. There are few rows,
    however long it was; each stands for the time since the one before, by its mean (memory and
    VRAM: its maximum).
    """

    #: Seconds since the attempt's begin.
    at: tuple[Amount, ...] = ()
    cpu: tuple[Amount | None, ...] | None = None
    memory: tuple[Amount | None, ...] | None = None
    gpu: tuple[Percent | None, ...] | None = None
    vram: tuple[Amount | None, ...] | None = None
    power: tuple[Amount | None, ...] | None = None
    #: MiB/s.
    disk_read: tuple[Amount | None, ...] | None = None
    disk_written: tuple[Amount | None, ...] | None = None
    net_in: tuple[Amount | None, ...] | None = None
    net_out: tuple[Amount | None, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """One epoch of one job on one slot.

    CPU is in cores, memory and VRAM in GiB, power in watts; a mean, a 95th percentile and a maximum
    are over time. None: it was not seen, since the job was too short, the machine does not tell, or
    there is no GPU.
    """

    job_id: str
    #: "": the job belongs to no batch.
    batch_id: str = ""
    epoch: Tally
    workload: str
    #: The type of its job; "": it has none, and counts as the one type of its workload.
    type: str = ""
    instance_id: str
    instance_type: str
    #: Where it ran; "": written before there was more than one.
    region: str = ""
    zone: str
    #: ``spot`` or ``on-demand``.
    capacity_type: str
    #: Name of the GPU; "": none.
    gpu: str
    #: GPUs of the slot.
    gpu_count: GpuCount
    #: Slots of the instance, which share its price.
    slots: SlotCount
    #: USD, of the whole instance.
    price_per_hour: Price
    started_at: datetime
    end: UsageEnd
    #: Time that the slot was held.
    seconds: Amount
    #: Committed by this epoch, with either status.
    items: ItemCount
    #: Of these: computed before, by an epoch that could not commit them.
    items_redone: ItemCount = 0
    items_failed: ItemCount = 0
    #: The slot's even share of the machine; it may have used more of CPU and memory.
    vcpus: Amount = 0.0
    memory_gib: Amount = 0.0
    vram_gib: Amount | None = None
    #: What the workload requires of an instance, VRAM of each of its GPUs; None: nothing.
    asked_vcpus: Amount | None = None
    asked_memory_gib: Amount | None = None
    asked_vram_gib: Amount | None = None
    cpu_seconds: Amount | None = None
    cpu_mean: Amount | None = None
    cpu_p95: Amount | None = None
    cpu_max: Amount | None = None
    #: Time in which processes waited since their control group had used up its CPU.
    throttled_seconds: Amount | None = None
    memory_mean: Amount | None = None
    memory_p95: Amount | None = None
    memory_max: Amount | None = None
    #: That the kernel saw, file cache included, where the job has a control group of its own; else
    #: the same as ``memory_max``.
    memory_peak: Amount | None = None
    #: Percent of the time in which the GPUs computed at all.
    gpu_mean: Percent | None = None
    gpu_p95: Percent | None = None
    gpu_max: Percent | None = None
    vram_mean: Amount | None = None
    vram_p95: Amount | None = None
    vram_max: Amount | None = None
    power_mean: Amount | None = None
    power_p95: Amount | None = None
    power_max: Amount | None = None
    #: Bytes. Of the whole machine where slots share nothing; else of the job's control group, or
    #: None.
    disk_read: Tally | None = None
    disk_written: Tally | None = None
    net_in: Tally | None = None
    net_out: Tally | None = None
    #: How busy each core of the machine was, percent.
    cores: tuple[Percent, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    series: UsageSeries = UsageSeries()

    @property
    def dollars(self) -> float:
        """Return the slot's share of the instance's price over the time it was held."""
        return self.price_per_hour / self.slots * self.seconds / 3600.0


def usage_prefix(workload: str) -> str:
    """Return where all records of a workload lie."""
    return f"{PREFIX}{WORKLOAD}={workload}/"


def usage_key(record: UsageRecord) -> str:
    """Return the key of an object by its first record, which no other object has."""
    day = f"{record.started_at:%Y-%m-%d}"
    return f"{usage_prefix(record.workload)}{DAY}={day}/{record.job_id}-{record.epoch:08d}.jsonl"


def encode_usage(records: Iterable[UsageRecord]) -> bytes:
    """Return records as JSON lines, dollars included, without what the key says already."""
    rows = ({**encode(record), "dollars": record.dollars} for record in records)
    return "".join(_line(row) for row in rows).encode()


def _line(row: dict[str, object]) -> str:
    # A column that is also a partition would stand in the table twice.
    kept = {name: value for name, value in row.items() if name != WORKLOAD}
    return json.dumps(kept, separators=(",", ":")) + "\n"


def decode_usage(data: bytes, *, workload: str) -> tuple[UsageRecord, ...]:
    """Return the records of an object of a workload (raises ContractError)."""
    rows = [
        from_json("usage", line, "it is not JSON lines")
        for line in data.splitlines()
        if line.strip()
    ]
    if not all(isinstance(row, dict) for row in rows):
        raise ContractError("usage", data[:100], "write one object a line")
    return tuple(decode(UsageRecord, {**row, WORKLOAD: workload}) for row in rows)

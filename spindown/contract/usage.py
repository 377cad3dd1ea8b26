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
class UsageRecord:
    """One epoch of one job on one slot.

    CPU, memory and VRAM are percent of the slot's even share of the machine; of CPU and memory it
    may have used more. None: it was not seen, since the job was too short or there is no GPU.
    """

    job_id: str
    #: "": the job belongs to no batch.
    batch_id: str = ""
    epoch: int
    workload: str
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
    gpu_count: float
    #: Slots of the instance, which share its price.
    slots: int
    #: USD, of the whole instance.
    price_per_hour: float
    started_at: datetime
    end: UsageEnd
    #: Time that the slot was held.
    seconds: float
    #: Committed by this epoch, with either status.
    items: int
    #: Of these: computed before, by an epoch that could not commit them.
    items_redone: int = 0
    items_failed: int = 0
    cpu_mean: float | None = None
    cpu_max: float | None = None
    memory_mean: float | None = None
    memory_max: float | None = None
    #: Percent of the time in which the GPUs computed at all.
    gpu_mean: float | None = None
    gpu_max: float | None = None
    vram_mean: float | None = None
    vram_max: float | None = None

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

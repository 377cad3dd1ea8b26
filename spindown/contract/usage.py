"""How well a worker was used by one job: a record each time a slot leaves a job.

A worker writes the records of some minutes as JSON lines into one object, named by the first:
``measured/{workload}/{YYYY-MM-DD}/{job_id}-{epoch}.jsonl``. The day is the UTC day of the write.
When a day is over the hourly function makes one Parquet file of each type of job,
``usage/workload={workload}/day={YYYY-MM-DD}/type={type}/usage.parquet``: the table of Athena. Many
objects take several files, and several runs, each of which leaves a mark how far it is. Last it
writes the day's ``_SUCCESS``; from then on the day's table holds, and what was measured is not read
again. So every record is read once, whatever failed in between. No worker writes the table.

A job that was interrupted has one record an epoch, so that sums over records are sums over all
paid work.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum

from spindown.contract.codec import count_values, decode, encode, from_json
from spindown.domain.shape import parse_shape
from spindown.domain.value_range import (
    ATTEMPT_SECONDS_MOST,
    Amount,
    AttemptSeconds,
    GpuCount,
    ItemCount,
    PaidPrice,
    Percent,
    SlotCount,
    Tally,
)
from spindown.error import ContractError

PREFIX = "usage/"
#: Partitions of the table, in the order of the key.
WORKLOAD = "workload"
DAY = "day"
TYPE = "type"
#: Where workers write; what lies there for longer than this is in the table, or was too much.
MEASURED = "measured/"
MEASURED_DAYS = 30
#: That a day's table is whole; readers of tables pass over a name that begins so.
_DONE = "_SUCCESS"
#: How far a table is that takes several runs.
_BEGUN = re.compile("_BEGUN-([0-9]{1,9})-([0-9]{1,9})")
#: Of one object, and of one record in it: more is not what a worker writes.
OBJECT_BYTES_MAX = 8 * 1024 * 1024
_LINE_BYTES_MAX = 64 * 1024
_LINES_MAX = 1000
#: As many have 400 records with the longest of series on a machine of 896 cores: 902,000.
_VALUES_MAX = 1_000_000
#: No instance has more than 16.
_DEVICES_MAX = 32
#: Of a value as workers write it, with its comma.
_VALUE_BYTES = 10
#: By how much the clock of a machine may be wrong.
_CLOCK_OFF = timedelta(days=1)
#: Files of a type, several where it has many records.
_FILE_NAME = re.compile(r"usage(-[1-9][0-9]{0,5})?\.parquet")
#: The type of records whose own type is beyond those that a day's table tells apart.
OTHER_TYPES = "other-types"
#: What a type may be called: it is part of a key, and of a path where files are read.
_TYPE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class UsageEnd(StrEnum):
    """How the slot and the job parted."""

    COMPLETED = "completed"
    FAILED = "failed"
    #: Sent to a larger machine, since it ran out of memory, or of that of a GPU.
    OUTGROWN = "outgrown"
    OUTGROWN_GPU = "outgrown-gpu"
    #: Given back at a drain or at the hard cap of a lease.
    RELEASED = "released"
    #: Given back because EC2 takes the instance.
    INTERRUPTED = "interrupted"
    #: Somebody has cancelled the job meanwhile.
    CANCELLED = "cancelled"
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
    price_per_hour: PaidPrice
    started_at: datetime
    end: UsageEnd
    #: When its job was first routed; None: its workload has no types.
    routed_at: datetime | None = None
    #: Of the queue that the instance serves (``domain.shape``); "": the workload's own.
    shape: str = ""
    #: Time that the slot was held.
    seconds: AttemptSeconds
    #: Committed by this epoch, with either status: an item is in the row of one epoch alone.
    items: ItemCount
    #: Of these: computed before, by an epoch that could not commit them.
    items_redone: ItemCount = 0
    items_failed: ItemCount = 0
    #: The slot's even share of the machine; it may have used more of CPU and memory.
    vcpus: Amount = 0.0
    memory_gib: Amount = 0.0
    vram_gib: Amount | None = None
    #: What the job asks for by its message and type, else the workload; VRAM of each GPU. None:
    #: nothing.
    asked_vcpus: Amount | None = None
    asked_memory_gib: Amount | None = None
    asked_vram_gib: Amount | None = None
    #: Which needs its message stated itself when it was sent, with a space between.
    stated: str = ""
    cpu_seconds: Amount | None = None
    cpu_mean: Amount | None = None
    cpu_p95: Amount | None = None
    cpu_max: Amount | None = None
    #: Time in which processes waited since their control group had used up its CPU.
    throttled_seconds: Amount | None = None
    memory_mean: Amount | None = None
    memory_p95: Amount | None = None
    #: Of looks; of an attempt of some seconds what its control group had at most, less the file
    #: cache that was there before.
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

    def may_be_of(self, day: date) -> bool:
        """Tell whether an attempt that began then may have been written down on a day."""
        midnight = datetime.combine(day, time(), UTC)
        earliest = midnight - timedelta(seconds=ATTEMPT_SECONDS_MOST) - _CLOCK_OFF
        return earliest <= self.started_at < midnight + timedelta(days=1) + _CLOCK_OFF


def measured_prefix(workload: str, day: date | None = None) -> str:
    """Return where workers write the records of a workload, all or those of a day."""
    return f"{MEASURED}{workload}/" + ("" if day is None else f"{day.isoformat()}/")


def measured_key(first: UsageRecord, day: date) -> str:
    """Return the key of an object by its first record, which no other object has."""
    name = f"{first.job_id}-{first.epoch:08d}.jsonl"
    return measured_prefix(first.workload, day) + name


def table_prefix(workload: str, day: date) -> str:
    """Return where the table of a day lies."""
    return f"{PREFIX}{WORKLOAD}={workload}/{DAY}={day.isoformat()}/"


def table_key(workload: str, day: date, type_: str, part: int = 1) -> str:
    """Return the key of a file of one type in a day's table.

    ``part`` is the place of its first object in the day, from 1: many objects take several parts.
    """
    name = "usage" if part == 1 else f"usage-{part}"
    return f"{table_prefix(workload, day)}{TYPE}={type_}/{name}.parquet"


def done_key(workload: str, day: date) -> str:
    """Return the key of the mark that a day's table is whole."""
    return table_prefix(workload, day) + _DONE


@dataclass(frozen=True, slots=True, order=True)
class Begun:
    """How far a day's table is: how many objects, in the order of their keys, are in it."""

    objects: int = 0
    #: That these objects held.
    records: int = 0
    #: Of the last of them; the mark holds it.
    key: str = ""


def begun_key(workload: str, day: date, begun: Begun) -> str:
    """Return the key of the mark how far a day's table is."""
    return f"{table_prefix(workload, day)}_BEGUN-{begun.objects}-{begun.records}"


def begun_of_key(key: str) -> Begun | None:
    """Return how far the mark of a key says that a table is; None: it is no such mark."""
    found = _BEGUN.fullmatch(key.rpartition("/")[2])
    return Begun(int(found[1]), int(found[2])) if found else None


def type_of_key(key: str) -> str | None:
    """Return the type of which a key of the table holds records; None: it holds none."""
    *_, folder, name = key.split("/")
    type_ = folder.removeprefix(f"{TYPE}=")
    is_table = _FILE_NAME.fullmatch(name) and type_ != folder and _TYPE_NAME.fullmatch(type_)
    return type_ if is_table else None


def encode_usage(records: Iterable[UsageRecord]) -> bytes:
    """Return records as JSON lines, without what the key says already."""
    rows = (encode(record) for record in records)
    return "".join(_line(row) for row in rows).encode()


def _line(row: dict[str, object]) -> str:
    kept = {name: value for name, value in row.items() if name != WORKLOAD}
    return json.dumps(kept, separators=(",", ":")) + "\n"


def decode_usage(data: bytes, *, workload: str) -> Iterator[UsageRecord]:
    """Yield the records of an object of a workload, a line at a time (raises ContractError).

    Fields that this version does not know, however much they hold, are gone with their line.
    """
    if data.count(b"\n") > _LINES_MAX:
        raise ContractError("usage", data[:100], f"write at most {_LINES_MAX} lines an object")
    if count_values(data) > _VALUES_MAX:
        raise ContractError("usage", data[:100], f"write at most {_VALUES_MAX} values an object")
    lines = data.split(b"\n")
    if max(map(len, lines)) > _LINE_BYTES_MAX:
        raise ContractError("usage", data[:100], f"write at most {_LINE_BYTES_MAX} bytes a line")
    for line in filter(bytes.strip, lines):
        row = from_json("usage", line, "it is not JSON lines")
        if not isinstance(row, dict):
            raise ContractError("usage", data[:100], "write one object a line")
        yield _decode_row({**row, WORKLOAD: workload})


def weigh_usage(data: bytes) -> int:
    """Return how many bytes a worker writes for as many values as an object has, or its own."""
    return max(len(data), _VALUE_BYTES * count_values(data))


def _decode_row(row: Mapping[str, object]) -> UsageRecord:
    record = decode(UsageRecord, row)
    if record.type and not _TYPE_NAME.fullmatch(record.type):
        raise ContractError("UsageRecord.type", record.type, "write letters, digits, . _ -")
    if record.shape and parse_shape(record.shape) is None:
        raise ContractError("UsageRecord.shape", record.shape, "write the name of a shape")
    if len(record.devices) > _DEVICES_MAX:
        raise ContractError("UsageRecord.devices", len(record.devices), "write one for each GPU")
    return record

"""What the work use cases are given, and the job that one slot holds between them."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random
from typing import Any

from spindown.contract.codec import decode
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import JobMessage
from spindown.contract.job.result import Record
from spindown.contract.row import lease_sort_key, worker_partition
from spindown.contract.run import OnNewCode
from spindown.domain.fleet import Lease
from spindown.domain.lease import is_claimable
from spindown.domain.wasted_work import SpotTerms
from spindown.error import ContractError, SpindownError
from spindown.port import (
    Clock,
    InputSource,
    JobQueue,
    Key,
    Message,
    MetricSink,
    ObjectStore,
    Table,
    When,
    Write,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPorts:
    """The ports of a worker. Shared by its threads, so each must be safe to share."""

    clock: Clock
    random: Random
    #: Waits between tries of a conditional write.
    pause: Callable[[timedelta], None]
    queue: JobQueue
    dead_letters: JobQueue
    objects: ObjectStore
    inputs: InputSource
    table: Table
    metrics: MetricSink
    #: For whoever looks through all messages: by shape the queues beside ``queue``.
    shapes: Mapping[str, JobQueue] = field(default_factory=dict)
    #: Opens the queue of a shape; "": that which people know. None: ``queue`` is the only one.
    queue_of: Callable[[str], JobQueue] | None = None


@dataclass(frozen=True, kw_only=True)
class SlotId:
    """Who works: one slot of one instance, for one workload."""

    workload: str
    instance_id: str
    slot: int
    #: ``RunSpec.version`` of the code that it runs; "": not known.
    code_version: str = ""
    #: What becomes of a job that another version has begun.
    on_new_code: OnNewCode = OnNewCode.RESTART
    #: USD per hour of the whole instance, over its slots.
    price_per_hour: float = 0.0
    #: Of the instance, as ``contract.row.processor_kind`` names it.
    gpu: str = ""
    #: What the machine costs, and how surely it stays; None: it is not spot.
    spot: SpotTerms | None = None
    #: Hours that it took to boot.
    boot: float = 0.0
    #: Where a person finds what happened; goes with a dead letter.
    log_pointer: str = ""
    #: Name of the machine's shape (``domain.job_type``); "": it has none.
    shape: str = ""

    @cached_property
    def owner(self) -> str:
        """Return the name under which a manifest knows this slot."""
        return f"{self.instance_id}/{self.slot}"

    @cached_property
    def lease_key(self) -> Key:
        """Return where the slot's lease row lies; every heartbeat writes it."""
        return lease_key(self.workload, self.owner)


@dataclass(frozen=True, kw_only=True)
class ClaimedJob:
    """A job under a lease of ours."""

    message: Message
    job: JobMessage
    manifest: Manifest
    etag: str
    lease: Lease

    @property
    def job_id(self) -> str:
        """Return the job's id."""
        return self.manifest.job_id

    def with_items(self, count: int) -> "ClaimedJob":
        """Return it knowing how many items there are; the next commit writes it down."""
        if self.manifest.items == count:
            return self
        return replace(self, manifest=replace(self.manifest, items=count))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A file on this machine that goes with a commit."""

    #: Relative name, with forward slashes.
    path: str
    local: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An item that is done: its record, and the files that it produced."""

    record: Record
    files: tuple[LocalFile, ...] = ()


@lru_cache(maxsize=1024)
def lease_key(workload: str, owner: str) -> Key:
    """Return where the lease row of a manifest's owner lies."""
    instance_id, _, slot = owner.rpartition("/")
    number = int(slot) if slot.isdecimal() else 0
    return Key(partition=worker_partition(workload), sort=lease_sort_key(instance_id, number))


def current_handle(held: ClaimedJob, slot_id: SlotId, ports: WorkPorts) -> str:
    """Return the receipt handle of the lease row, where a newer one may have been left.

    Whoever receives the message of a job that is held leaves there what it got.
    """
    lease = read_lease(ports.table, slot_id.lease_key)
    if lease is None or lease_identity(lease) != lease_identity(held.lease):
        return held.lease.receipt_handle
    return lease.receipt_handle


def read_lease(table: Table, key: Key) -> Lease | None:
    """Return what a slot holds; None: nothing, also if its row cannot be read."""
    row = table.get(key)
    if not row or not row.get("job_id"):
        return None
    try:
        return decode(Lease, row)
    except ContractError:
        return None


def is_held(manifest: Manifest, workload: str, table: Table, now: datetime) -> bool:
    """Tell whether a worker holds a job; a write of another would make its next commit fail."""
    if manifest.state is not JobState.RUNNING or not manifest.owner:
        return False
    lease = read_lease(table, lease_key(workload, manifest.owner))
    return not is_claimable(manifest, lease, now)


def clear_lapsed(lease: Lease | None, before: Manifest, workload: str, ports: WorkPorts) -> None:
    """Clear the lapsed lease of a job's last epoch, now that the job is another's, or over.

    Whoever frees what its instance has held would else take the job for one that waits. A row that
    cannot be cleared is no reason to give the job up.
    """
    if lease is None or lease.deadline > ports.clock.now():
        return
    if (lease.job_id, lease.epoch) != (before.job_id, before.epoch):
        return
    when = When(equals=lease_identity(lease))
    with suppress(SpindownError):
        ports.table.write(Write(key=lease_key(workload, before.owner), when=when, delete=True))


def lease_identity(lease: Lease) -> dict[str, Any]:
    """Return the attributes that tell a lease row from any later one of the same slot."""
    return {"job_id": lease.job_id, "epoch": lease.epoch}

"""A claimed job, for code that works on it: its slot (``SlotId``), its lease, and its commit."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from spindown.contract.job.manifest import Manifest
from spindown.contract.job.message import JobMessage
from spindown.contract.job.result import Record
from spindown.contract.run_spec import OnNewCode
from spindown.domain.fleet import Lease
from spindown.domain.wasted_work import SpotTerms
from spindown.job.lease_row import lease_identity, lease_key, read_lease
from spindown.port import Key, Message, WorkPorts


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
    #: Name of the machine's shape (``domain.shape``); "": it has none.
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


def current_handle(held: ClaimedJob, slot_id: SlotId, ports: WorkPorts) -> str:
    """Return the receipt handle of the lease row, where a newer one may have been left.

    Whoever receives the message of a job that is held leaves there what it got.
    """
    lease = read_lease(ports.table, slot_id.lease_key)
    if lease is None or lease_identity(lease) != lease_identity(held.lease):
        return held.lease.receipt_handle
    return lease.receipt_handle

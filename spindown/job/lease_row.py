"""The lease row of a slot: where it lies, whose job it holds, and clearing one that has lapsed.

Whether a job may be claimed beside a lease is decided in ``domain.lease``.
"""

from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

from spindown.contract.codec import decode
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.row import lease_sort_key, worker_partition
from spindown.domain.fleet import Lease
from spindown.domain.lease import is_claimable
from spindown.error import ContractError, SpindownError
from spindown.port import Key, Table, When, Write

#: Of the largest index of a slot (``domain.value_range``).
_SLOT_DIGITS = 4


@lru_cache(maxsize=1024)
def lease_key(workload: str, owner: str) -> Key:
    """Return where the lease row of a manifest's owner lies."""
    instance_id, _, slot = owner.rpartition("/")
    number = int(slot) if slot.isdecimal() and len(slot) <= _SLOT_DIGITS else 0
    return Key(partition=worker_partition(workload), sort=lease_sort_key(instance_id, number))


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


def clear_lapsed(
    lease: Lease | None, before: Manifest, workload: str, table: Table, now: datetime
) -> None:
    """Clear the lapsed lease of a job's last epoch, now that the job is another's, or over.

    Whoever frees what its instance has held would else take the job for one that waits. A row that
    cannot be cleared is no reason to give the job up.
    """
    if lease is None or lease.deadline > now:
        return
    if (lease.job_id, lease.epoch) != (before.job_id, before.epoch):
        return
    when = When(equals=lease_identity(lease))
    with suppress(SpindownError):
        table.write(Write(key=lease_key(workload, before.owner), when=when, delete=True))


def lease_identity(lease: Lease) -> dict[str, Any]:
    """Return the attributes that tell a lease row from any later one of the same slot."""
    return {"job_id": lease.job_id, "epoch": lease.epoch}

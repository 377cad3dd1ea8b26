"""Requeue the jobs of machines that are gone: free their leases, then show their messages.

For whom this is due is planned in ``control.plan.requeue``. A worker that lives gives its jobs back
itself (``job.release``).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from spindown.contract import row as rows
from spindown.domain.fleet import Lease
from spindown.ledger import Ledger
from spindown.port import JobQueue, When, Write

#: Each takes three writes, of the hundred that one transaction takes.
LEASES_FREED_AT_ONCE = 30


def bound_leases(bounds: Iterable[tuple[Lease, datetime]], ledger: Ledger) -> None:
    """End each lease by the time beside it, at which EC2 takes its instance away."""
    units = []
    for lease, deadline in bounds:
        bound = min(lease.not_after, deadline)
        if bound >= lease.not_after:
            continue
        changes = {"not_after": bound, "deadline": min(lease.deadline, bound)}
        sort = rows.lease_sort_key(lease.instance_id, lease.slot)
        units.append([ledger.change(sort, changes, when=_still(lease))])
    ledger.carry_out_each(units)


def free_leases(
    leases: Sequence[Lease], ledger: Ledger, queue: JobQueue, *, now: datetime
) -> tuple[Lease, ...]:
    """Clear the leases of instances that are gone and requeue their messages; return which.

    A lease whose receipt handle has just changed is left to the next tick. If another worker
    already has the job, the lease row is gone and nothing is done. History
    keeps how far the work was, so that the next owner can tell how much of it is done again; until
    then the ledger remembers the job.
    """
    # A job has two leases only if one is out of date: the other one is left to the next tick.
    of_jobs = {lease.job_id: lease for lease in leases}.values()
    done = ledger.carry_out_each([_free(lease, ledger, now) for lease in of_jobs])
    freed = [lease for lease, is_done in zip(of_jobs, done, strict=True) if is_done]
    # The rows are gone: nobody comes back for a message that stays hidden now.
    queue.show([lease.receipt_handle for lease in freed])
    return tuple(freed)


def _free(lease: Lease, ledger: Ledger, now: datetime) -> list[Write]:
    """Return what frees a lease, all or none: who takes the job up clears what is remembered."""
    sort = rows.lease_sort_key(lease.instance_id, lease.slot)
    clear, past = ledger.move_to_history(sort, lease, now=now)
    put = ledger.put(rows.requeued_sort_key(lease.job_id), lease.left_behind(now))
    return [replace(clear, when=_still_held_by(lease)), put, past]


def _still(lease: Lease) -> When:
    return When(exists=True, equals={"job_id": lease.job_id, "epoch": lease.epoch})


def _still_held_by(lease: Lease) -> When:
    """Return the condition that nobody has received the message again since."""
    still = _still(lease)
    return replace(still, equals={**still.equals, "receipt_handle": lease.receipt_handle})

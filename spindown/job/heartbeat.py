"""Keep a lease alive: first the row, on condition that it is still ours, then the message."""

from datetime import timedelta
from typing import Any

from spindown.contract.codec import decode, encode, encode_instant
from spindown.domain.fleet import CodeProgress, Lease
from spindown.domain.lease import extended_until
from spindown.domain.policy import Policy
from spindown.error import LeaseLost, PreconditionFailed, StaleHandle
from spindown.job.claimed_job import SlotId
from spindown.job.lease_row import lease_identity
from spindown.port import When, WorkPorts, Write


def extend_lease(
    lease: Lease,
    *,
    items_done: int,
    slot_id: SlotId,
    ports: WorkPorts,
    policy: Policy,
    items: int = 0,
    progress: CodeProgress | None = None,
) -> Lease:
    """Extend a lease by the policy's duration, never past its bound; return it as it stands.

    ``items`` is how many there are, once the input is read: a claim often does not know (0).
    ``progress`` is what the code says of itself; None: nothing.

    A stale handle is no loss: the message was received again, and its receiver leaves the new
    handle in the row.

    Raises:
        LeaseLost: the row is no longer this lease's; every other error proves nothing.
    """
    now = ports.clock.now()
    deadline = extended_until(now, lease.not_after, policy)
    news: dict[str, Any] = {"items": items} if items and not lease.items else {}
    if progress is not None:
        news["progress"] = encode(progress)
    try:
        row = ports.table.write(
            Write(
                key=slot_id.lease_key,
                when=When(equals=lease_identity(lease)),
                set={"deadline": encode_instant(deadline), "items_done": items_done, **news},
            )
        )
    except PreconditionFailed as exc:
        raise LeaseLost(f"{lease.job_id}: epoch {lease.epoch} has no lease any more") from exc
    standing = decode(Lease, row or {})
    if standing.not_after < deadline:
        # An interruption has bounded the lease since we last saw it.
        return extend_lease(
            standing, items_done=items_done, slot_id=slot_id, ports=ports, policy=policy
        )
    if deadline > now:
        _hide(standing.receipt_handle, deadline - now, ports)
    return standing


def _hide(receipt_handle: str, length: timedelta, ports: WorkPorts) -> None:
    try:
        ports.queue.extend(receipt_handle, length)
    except StaleHandle:
        return

"""Note that a machine is gone, or that EC2 takes it: count that, end and charge its row.

Its jobs are put back in ``control.free_lease``. Which machines Spindown itself ends is decided in
``domain.termination``. Ticks and events both come here. Whichever comes first acts; the writes are
conditional, so the later ones change nothing.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from spindown.contract import row as rows
from spindown.contract.codec import encode, replace_fields
from spindown.control.spend import Charge, charge, mark_charged
from spindown.domain.fleet import Launch, Worker, WorkerState
from spindown.domain.policy import Policy
from spindown.domain.pool_cooldown import PoolCooldown, cool_down
from spindown.domain.reason import Reason, ReasonCode
from spindown.ledger import RowWrites
from spindown.port import When, Write

RECLAIMED = Reason(ReasonCode.EC2_RECLAIMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A worker that has ended: the writes of its row, and its final charge."""

    worker: Worker
    charge: Charge
    writes: tuple[Write, ...]


def end_worker(
    worker: Worker,
    *,
    at: datetime,
    reason: Reason,
    reclaimed: bool,
    launch: Launch | None,
    cooldown: PoolCooldown | None,
    policy: Policy,
    ledger: RowWrites,
) -> End:
    """Return the writes that end a worker's row, charge the rest and count a reclaim once.

    Args:
        worker: as it has been charged.
        at: when it ended, as far as is known.
        reason: why, unless the row says it.
        reclaimed: EC2 took it back.
        launch: the launch that it came from, for its reservation.
        cooldown: of its pool; None: it has none.
        policy: how long a pool is remembered.
        ledger: makes the writes.
    """
    changes = {
        "state": WorkerState.ENDED,
        "ended_at": at,
        "reason": worker.reason or reason,
        "interrupted_at": worker.interrupted_at or (at if reclaimed else None),
        "busy_slots": 0,
        "version": worker.version + 1,
    }
    reported = {
        "noticed_at": worker.noticed_at or (at if reclaimed else None),
        "gone_at": worker.gone_at,
        "interruption_counted": worker.interruption_counted or reclaimed,
    }
    ended = replace_fields(worker, {**changes, **reported})
    due = charge(ended, launch, until=at, ledger=ledger, reclaimed=reclaimed)
    ended = replace(ended, refunded_usd=due.refunded_usd)
    row = Write(
        key=ledger.key(rows.worker_sort_key(worker.instance_id)),
        when=When(exists=True, equals={"version": worker.version}),
        set=encode({**changes, "refunded_usd": due.refunded_usd}),
    )
    charged = mark_charged(ended, due, ledger)
    writes = [row, replace(charged, set={**charged.set, **encode(reported)}), *due.writes]
    if reclaimed and not worker.interruption_counted:
        writes += _count_interruption(worker, cooldown, at, policy, ledger)
    return End(worker=ended, charge=due, writes=tuple(writes))


def note_interruption(
    worker: Worker,
    deadline: datetime,
    *,
    noticed_at: datetime,
    cooldown: PoolCooldown | None,
    now: datetime,
    policy: Policy,
    ledger: RowWrites,
) -> tuple[Write, ...]:
    """Return the writes that mark a worker as being taken away and count it once.

    The worker itself may have written the deadline first; the pool is still counted here, by what
    no worker can write.
    """
    # Who has ended is not taken away any more: whether it was, its end has said.
    once = When(exists=True, differs={"interruption_counted": True}, absent=_NOT_ENDED)
    changes = {"noticed_at": noticed_at, "interruption_counted": True}
    writes = [ledger.change(rows.machine_sort_key(worker.instance_id), changes, when=once)]
    if worker.interrupted_at is None:
        live, bound = When(exists=True, absent=_NOT_ENDED), {"interrupted_at": deadline}
        writes.append(ledger.change(rows.worker_sort_key(worker.instance_id), bound, when=live))
    return (*writes, *_count_interruption(worker, cooldown, now, policy, ledger))


_NOT_ENDED = frozenset({"ended_at"})


def cool_down_after_interruption(
    worker: Worker, cooldown: PoolCooldown | None, now: datetime, policy: Policy
) -> PoolCooldown:
    """Return the cooldown of a pool that has just taken an instance back."""
    return cool_down(
        worker.pool, cooldown, reason=Reason(ReasonCode.POOL_INTERRUPTED), now=now, policy=policy
    )


def _count_interruption(
    worker: Worker,
    cooldown: PoolCooldown | None,
    now: datetime,
    policy: Policy,
    ledger: RowWrites,
) -> list[Write]:
    begun = cool_down_after_interruption(worker, cooldown, now, policy)
    return [
        ledger.add(rows.pool_sort_key(worker.pool), {"count": 1}),
        ledger.add(rows.spend_sort_key(now), {"interruptions": 1}),
        ledger.put(rows.pool_cooldown_sort_key(worker.pool), begun),
    ]

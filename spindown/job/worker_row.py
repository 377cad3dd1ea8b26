"""The worker's own row: checking in, how many slots are busy, and the orderly end.

Every change is conditional on the row not being condemned, so that the scaler's decision to
terminate and the worker's decision to work can never both go through.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from spindown.contract.codec import decode, encode_instant
from spindown.contract.codec import encode as encode_row
from spindown.contract.row import (
    CLAIMS,
    LEASE,
    NewerMessage,
    newer_message_sort_key,
    requeued_sort_key,
    worker_partition,
    worker_sort_key,
)
from spindown.domain.boot import BootPhase
from spindown.domain.fleet import GpuUse, Lease, RequeuedJob, Worker, WorkerState
from spindown.domain.reason import Reason
from spindown.error import (
    ContractError,
    NewerSchema,
    NotFound,
    PreconditionFailed,
    SpindownError,
    StaleHandle,
)
from spindown.job.claimed_job import SlotId
from spindown.job.lease_row import lease_identity, read_lease
from spindown.port import Key, Message, When, WorkPorts, Write

#: Waits for the scaler to write the row of an instance that was quicker than its launch.
_CHECK_IN_PAUSE = timedelta(seconds=1)
#: Others that a check-in gives way to. Who raises the version of a row that boots ends it too, so
#: one would do; but who loses for ever must not ask for ever.
_CHECK_IN_TRIES = 5

#: Messages of a later version that one worker notes: every tick reads their rows.
_NEWER_AT_MOST = 100
#: A sender may write any number.
_SCHEMA_AT_MOST = 10**9

#: Nor ended: whoever is taken for gone is neither counted nor paid for, so must not go on.
_NOT_CONDEMNED = When(
    exists=True,
    differs={"state": WorkerState.CONDEMNED.value},
    absent=frozenset({"ended_at"}),
)


class Condemned(SpindownError):
    """The scaler has decided that this instance ends: take no work, keep nothing."""


def _signs_of(use: GpuUse | None) -> Mapping[str, float]:
    if use is None:
        return {}
    return {
        "gpu_percent": use.percent,
        "vram_percent": use.vram_percent,
        "vram_gib": use.vram_gib,
    }


class WorkerRow:
    """One worker's row in the ledger. Threads may share it; its own writes are in turn."""

    def __init__(
        self, *, workload: str, instance_id: str, ports: WorkPorts, shape: str = ""
    ) -> None:
        self.workload = workload
        self.shape = shape
        self._partition = worker_partition(workload)
        self._instance_id = instance_id
        self._key = Key(partition=self._partition, sort=worker_sort_key(instance_id))
        self._ports = ports
        self._lock = threading.Lock()
        self._busy: set[int] = set()
        #: A write of the busy slots has failed; the next heartbeat makes up for it.
        self._is_behind = False
        #: Messages that it has noted for a later version.
        self._newer: set[str] = set()
        self._noted: set[str] = set()
        #: Since when no new job is taken, for the row.
        self._draining: dict[str, str] = {}

    def await_row(self, *, patience: timedelta) -> Worker:
        """Return the row that the scaler writes after a launch.

        Raises:
            NotFound: no row within ``patience``: nobody has launched this instance for us.
        """
        give_up_at = self._ports.clock.now() + patience
        while (row := self._ports.table.get(self._key)) is None:
            if self._ports.clock.now() >= give_up_at:
                raise NotFound(f"no worker row of {self._instance_id} within {patience}")
            self._ports.pause(_CHECK_IN_PAUSE)
        return decode(Worker, row)

    def mark_unfit(self, reason: Reason) -> None:
        """Say that this machine is no good, and that it takes no job, now or any more."""
        now = encode_instant(self._ports.clock.now())
        signs = dict.fromkeys(("unfit_at", "draining_at", "heartbeat_at"), now)
        marks = {**signs, "reason": encode_row(reason)}
        self._change(marks, _NOT_CONDEMNED, add={"version": 1})

    def check_in(self, *, patience: timedelta) -> Worker:
        """Say that the instance is up; return its row.

        Leases that an earlier process of this instance has left are let go.

        Raises:
            Condemned: it was given up on, or has ended already.
            NotFound: no row within ``patience``: nobody has launched this instance for us.
            PreconditionFailed: whatever was read of the row was out of date when it was written.
        """
        for _ in range(_CHECK_IN_TRIES):
            worker = self.await_row(patience=patience)
            if not worker.is_live:
                raise Condemned(f"{self._instance_id} is {worker.state}: {worker.reason.code}")
            with suppress(PreconditionFailed):
                return self._check_in_over(worker)
        raise PreconditionFailed(
            f"the row of {self._instance_id} was not as it had just been read, {_CHECK_IN_TRIES} "
            f"times in a row: see who else writes it, or whether its version is a number"
        )

    def _check_in_over(self, worker: Worker) -> Worker:
        now = self._ports.clock.now()
        row = self._ports.table.write(
            Write(
                key=self._key,
                when=When(equals={"version": worker.version}),
                set={
                    "state": WorkerState.IDLE.value,
                    "checked_in_at": encode_instant(worker.checked_in_at or now),
                    "heartbeat_at": encode_instant(now),
                    "idle_since": encode_instant(now),
                    "busy_slots": 0,
                },
                add={"version": 1},
            )
        )
        self._let_go_of_old_leases()
        return decode(Worker, row or {})

    def _let_go_of_old_leases(self) -> None:
        leases = self._ports.table.query(self._partition, f"{LEASE}{self._instance_id}#")
        for sort, row in leases.items():
            clear = Write(key=Key(partition=self._partition, sort=sort), delete=True)
            try:
                lease = decode(Lease, row)
            except ContractError:
                # The message of a row that is damaged comes by itself.
                self._ports.table.write(clear)
                continue
            requeued = lease.left_behind(self._ports.clock.now())
            clear = replace(clear, when=When(equals=lease_identity(lease)))
            # Another may have taken the job up, or received its message, meanwhile.
            with suppress(PreconditionFailed, StaleHandle):
                self._ports.table.transact([clear, *self._remember(requeued)])
                self._ports.queue.extend(lease.receipt_handle, timedelta(0))

    def _remember(self, requeued: RequeuedJob | None) -> list[Write]:
        return (
            []
            if requeued is None
            else [Write(key=self._requeued_key(requeued.job_id), set=encode_row(requeued))]
        )

    def occupy(self, slot_id: SlotId, lease: Lease, *, is_late: bool, was_requeued: bool) -> None:
        """Write the lease row, and the worker as busy, both or neither.

        Args:
            slot_id: which slot.
            lease: what it holds.
            is_late: the job has waited for longer than ``start_within``; it is counted.
            was_requeued: the ledger may remember it as waiting.

        Raises:
            Condemned: the job must be given back.
        """
        with self._lock:
            busy = self._busy | {slot_id.slot}
            writes = [Write(key=slot_id.lease_key, set=encode_row(lease)), self._count_write(busy)]
            if was_requeued:
                writes.append(Write(key=self._requeued_key(lease.job_id), delete=True))
            try:
                self._transact(writes)
            except PreconditionFailed as exc:
                raise Condemned(self._instance_id) from exc
            except SpindownError:
                # Only the answer may be lost, and then the job is ours.
                if not self._holds(slot_id, lease):
                    raise
            self._busy = busy
        # Apart from the transaction: workers that claim at once would cancel each other's. The
        # job is ours already, so a count that cannot be raised must not raise.
        with suppress(SpindownError):
            self._ports.table.write(
                Write(
                    key=Key(partition=self._partition, sort=CLAIMS),
                    add={"claims": 1, "late": 1} if is_late else {"claims": 1},
                )
            )

    def _holds(self, slot_id: SlotId, lease: Lease) -> bool:
        """Tell whether a lease row is there as we would have written it; False: nobody can say."""
        try:
            found = read_lease(self._ports.table, slot_id.lease_key)
        except SpindownError:
            return False
        return found is not None and lease_identity(found) == lease_identity(lease)

    def vacate(self, slot_id: SlotId, lease: Lease, *, requeued: RequeuedJob | None = None) -> None:
        """Clear the lease row if it is still of this lease; idle when no slot is busy.

        ``requeued`` is what the ledger remembers of the job until its next claim; None: nothing.
        """
        with self._lock:
            self._busy = self._busy - {slot_id.slot}
            when = When(equals=lease_identity(lease))
            clear = Write(key=slot_id.lease_key, when=when, delete=True)
            count = self._count_write(self._busy)
            try:
                self._transact([clear, count, *self._remember(requeued)])
            except PreconditionFailed:
                self._try(clear)
                self._try(count)

    def forget(self, job_id: str) -> None:
        """Forget a requeued job that is over."""
        self._try(Write(key=self._requeued_key(job_id), delete=True))

    def _requeued_key(self, job_id: str) -> Key:
        return Key(partition=self._partition, sort=requeued_sort_key(job_id))

    def note_declined(self) -> None:
        """Note, once, that a message was no work: a machine that finds no other was of no use."""
        self._note_once("declined_at")

    def note_unanswered(self) -> None:
        """Note, once, that a claim got no answer: a machine that never gets one is of no use."""
        self._note_once("unanswered_at")

    def note_answered(self) -> None:
        """Forget that a claim got no answer, since one did."""
        if "unanswered_at" in self._noted:
            with suppress(SpindownError):
                self._try(Write(key=self._key, when=_NOT_CONDEMNED, set={"unanswered_at": None}))
                self._noted.discard("unanswered_at")

    def note_first_item(self, phases: Mapping[BootPhase, float]) -> None:
        """Note that the code has its first item, and the seconds of each phase of the boot."""
        texts = {str(phase): seconds for phase, seconds in phases.items()}
        self._note_once("first_item_at", boot_phases=texts)

    def _note_once(self, name: str, **fields: Any) -> None:
        if name in self._noted:
            return
        now = encode_instant(self._ports.clock.now())
        with suppress(SpindownError):
            self._try(Write(key=self._key, when=_NOT_CONDEMNED, set={name: now, **fields}))
            self._noted.add(name)

    def note_newer_message(self, message: Message, error: NewerSchema, until: datetime) -> bool:
        """Note a message that only a later version reads, hidden until then.

        Return whether the tick can show it sooner; False: nothing is noted.
        """
        if len(self._newer | {message.message_id}) > _NEWER_AT_MOST:
            return False
        schema = error.value if isinstance(error.value, int) else 0
        row = NewerMessage(
            message_id=message.message_id,
            field=error.field,
            schema=min(max(schema, 0), _SCHEMA_AT_MOST),
            receipt_handle=message.receipt_handle,
            receives=message.receive_count,
            sent_at=message.sent_at,
            shape=self.shape,
            until=until,
        )
        key = Key(partition=self._partition, sort=newer_message_sort_key(message.message_id))
        try:
            self._ports.table.write(Write(key=key, set=encode_row(row)))
        except SpindownError:
            return False
        self._newer.add(message.message_id)
        return True

    def free(self, slot_id: SlotId) -> None:
        """Count a slot as free whose row could not be cleared; the next heartbeat says so."""
        with self._lock:
            self._busy = self._busy - {slot_id.slot}
            self._is_behind = True

    def _transact(self, writes: Sequence[Write]) -> None:
        self._is_behind = True
        try:
            self._ports.table.transact(writes)
        except PreconditionFailed:
            self._is_behind = False
            raise
        self._is_behind = False

    def _count_write(self, busy: set[int]) -> Write:
        now = encode_instant(self._ports.clock.now())
        return Write(
            key=self._key,
            when=_NOT_CONDEMNED,
            set={
                "state": (WorkerState.BUSY if busy else WorkerState.IDLE).value,
                "busy_slots": len(busy),
                "idle_since": None if busy else now,
                "heartbeat_at": now,
                **({"claimed_at": now} if busy else {}),
                **self._draining,
            },
            add={"version": 1},
        )

    def begin_draining(self) -> None:
        """Say that no new job is taken, now and with each heartbeat (raises Condemned)."""
        self._draining = {"draining_at": encode_instant(self._ports.clock.now())}
        self.beat()

    def beat(self, use: GpuUse | None = None) -> Worker:
        """Say that the worker lives; return its row as it is (raises Condemned).

        ``use`` is how its GPUs were used since the last beat; None: none were seen at work.
        """
        with self._lock:
            now = encode_instant(self._ports.clock.now())
            signs = {"heartbeat_at": now, **self._draining, **_signs_of(use)}
            beat = Write(key=self._key, when=_NOT_CONDEMNED, set=signs)
            row = self._try(self._count_write(self._busy) if self._is_behind else beat)
            self._is_behind = False
        if row is None:
            raise Condemned(self._instance_id)
        return decode(Worker, row)

    def drain(self, reason: Reason, *, unless_warm: bool = False) -> bool:
        """Turn idle into drained; False if a slot took a job or the row was condemned.

        With ``unless_warm`` also if the scaler keeps the worker warm.
        """
        now = encode_instant(self._ports.clock.now())
        when = When(equals={"state": WorkerState.IDLE.value, "busy_slots": 0})
        if unless_warm:
            when = replace(when, at_most={"warm_until": now})
        # It is charged by its last sign of life, and this is one.
        drained = {"state": WorkerState.DRAINED.value, "heartbeat_at": now}
        row = self._change({**drained, "reason": encode_row(reason)}, when, add={"version": 1})
        # If the first answer was lost, the call's repetition finds what it has written itself.
        row = self._ports.table.get(self._key) if row is None else row
        return row is not None and row.get("state") == WorkerState.DRAINED.value

    def record_notice(self, deadline: datetime) -> None:
        """Write down that EC2 takes the instance, if nobody has yet."""
        when = When(exists=True, absent=frozenset({"interrupted_at"}))
        self._change({"interrupted_at": encode_instant(deadline)}, when)

    def record_rebalance(self, at: datetime) -> None:
        """Write down a rebalance recommendation, if nobody has yet."""
        when = When(exists=True, absent=frozenset({"rebalance_at"}))
        self._change({"rebalance_at": encode_instant(at)}, when)

    def bound_lease(self, slot_id: SlotId, lease: Lease, not_after: datetime) -> Lease:
        """Let a lease end with the instance; return it as it is then."""
        bounded = replace(
            lease,
            not_after=min(lease.not_after, not_after),
            deadline=min(lease.deadline, not_after),
        )
        self._try(
            Write(
                key=slot_id.lease_key,
                when=When(equals=lease_identity(lease)),
                set={
                    "not_after": encode_instant(bounded.not_after),
                    "deadline": encode_instant(bounded.deadline),
                },
            )
        )
        return bounded

    def _change(
        self, values: Mapping[str, Any], when: When, add: Mapping[str, float] | None = None
    ) -> Mapping[str, Any] | None:
        return self._try(Write(key=self._key, when=when, set=values, add=add or {}))

    def _try(self, write: Write) -> Mapping[str, Any] | None:
        try:
            return self._ports.table.write(write) or {}
        except PreconditionFailed:
            return None

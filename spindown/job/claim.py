"""Claim the job of a received message: raise the manifest's epoch, then write the lease row.

Whatever stands in the way is dealt with here too, so that after ``claim`` a message is either
held or no longer this worker's concern. The manifest with which an epoch begins is made in
``job.epoch``; who may claim beside a lease is decided in ``domain.lease``.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from spindown.contract.codec import encode
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import JobMessage, parse_job, with_id
from spindown.contract.row import (
    requeued_sort_key,
    worker_partition,
)
from spindown.domain.fleet import Lease, RequeuedJob
from spindown.domain.lease import (
    ClaimVerdict,
    claim_verdict,
    extended_until,
    is_claimable,
    put_back_for,
    unreadable_wait,
    visibility_not_after,
)
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.retry_or_dead_letter import (
    is_unreadable_for_good,
)
from spindown.domain.shape import Shape, parse_shape
from spindown.domain.wasted_work import GoesOn, WastedWork
from spindown.error import (
    AccessDenied,
    ContractError,
    NewerSchema,
    NotFound,
    PreconditionFailed,
    SpindownError,
    StaleHandle,
    Throttled,
    Unreachable,
)
from spindown.job.claimed_job import ClaimedJob, SlotId
from spindown.job.epoch import Epochs, find_freed_lease, is_other_code, items_done, read_requeued
from spindown.job.lease_row import clear_lapsed, lease_identity, lease_key, read_lease
from spindown.job.manifest_store import (
    StoredManifest,
    is_after_cancel,
    is_other_body,
    load_manifest,
    save_manifest,
)
from spindown.job.message import (
    carried,
    copy_message,
    dead_letter,
    dead_letter_untouched,
    delete,
    near_expiry,
    put_back,
    read_stored,
    resend,
)
from spindown.job.policy_in_force import read_code_version
from spindown.job.release import dollars_wasted
from spindown.job.route import fail_unclaimed, read_sized, settle_message
from spindown.job.worker_row import Condemned, WorkerRow
from spindown.port import JobQueue, Key, Message, When, WorkPorts, Write
from spindown.reason_text import say


class ClaimOutcome(StrEnum):
    """What became of a message that is not held."""

    MALFORMED = "malformed"
    NEWER_SCHEMA = "newer-schema"
    SENT_ANEW = "sent-anew"
    #: Its job needs another machine by the policy in force: sent to be routed again.
    OTHER_SHAPE = "other-shape"
    #: It asks for a type or a machine that its workload does not have.
    FORBIDDEN = "forbidden"
    #: The job is over already.
    OVER = "over"
    DEAD_LETTERED = "dead-lettered"
    #: Its job was first claimed with other items or parameters, or what it names is not stored.
    OTHER_BODY = "other-body"
    PUT_BACK = "put-back"
    #: A second message of a job that is held; it was deleted.
    COPY = "copy"
    CONDEMNED = "condemned"


_HELD = "held"
_OVER = frozenset({ClaimOutcome.OVER, ClaimOutcome.DEAD_LETTERED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Declined:
    """A message that was dealt with otherwise than by working on it."""

    outcome: ClaimOutcome
    job_id: str | None = None
    reason: str = ""
    #: Why it is a dead letter, for programs: of a job that has failed, its manifest's.
    code: str = ""


def claim(
    message: Message, *, slot_id: SlotId, worker_row: WorkerRow, ports: WorkPorts, policy: Policy
) -> ClaimedJob | Declined:
    """Claim the job of a message for one slot, or say what became of the message."""
    try:
        claimed = _claim(message, slot_id, worker_row, ports, policy)
    except (AccessDenied, Throttled, Unreachable):
        worker_row.note_unanswered()
        raise
    worker_row.note_answered()
    return claimed


def _claim(
    message: Message, slot_id: SlotId, worker_row: WorkerRow, ports: WorkPorts, policy: Policy
) -> ClaimedJob | Declined:
    try:
        job = with_id(parse_job(message.body), message.message_id)
    except NewerSchema as exc:
        return _leave_to_newer_version(message, None, exc, worker_row, ports)
    except ContractError as exc:
        worker_row.note_declined()
        dead_letter_untouched(message, str(exc), ports)
        return Declined(outcome=ClaimOutcome.MALFORMED, reason=str(exc))
    if near_expiry(message, ports.clock.now()):
        resend(message, job, ports)
        return Declined(outcome=ClaimOutcome.SENT_ANEW, job_id=job.job_id)
    try:
        job = read_stored(job, ports.objects)
    except NewerSchema as exc:
        return _leave_to_newer_version(message, job.job_id, exc, worker_row, ports)
    except (ContractError, NotFound):
        worker_row.note_declined()
        return _refuse_pointer(message, job.job_id or "", ports)
    misfit = _misfit(message, job, slot_id, worker_row, ports, policy)
    return (
        misfit
        or _Claim(
            message=message,
            job=job,
            slot_id=slot_id,
            worker_row=worker_row,
            ports=ports,
            policy=policy,
        ).run()
    )


def _misfit(
    message: Message,
    job: JobMessage,
    slot_id: SlotId,
    worker_row: WorkerRow,
    ports: WorkPorts,
    policy: Policy,
) -> Declined | None:
    """Deal with a message whose job this machine is not for; None: it is.

    Nearly all that a worker receives fits, since it was routed. What does not was settled by an
    earlier policy.
    """
    if not slot_id.shape and job.type is None and job.requirements is None:
        return None
    settled = settle_message(job, policy, read_sized(message) if slot_id.shape else None)
    own = parse_shape(slot_id.shape) or Shape()
    if not settled.rejected and own.covers(settled.shape):
        return None
    if slot_id.shape and ports.queue_of is not None:
        ports.queue_of("").send([copy_message(message, job, ports.objects, carried(message))])
        delete(message.receipt_handle, ports.queue)
        return Declined(outcome=ClaimOutcome.OTHER_SHAPE, job_id=job.job_id)
    if not settled.rejected:
        # Launched before the workload declared types: ``intake`` takes it.
        put_back(message, _LEFT_TO_INTAKE, ports.queue)
        return Declined(outcome=ClaimOutcome.PUT_BACK, job_id=job.job_id, reason="to be routed")
    worker_row.note_declined()
    code = settled.rejected.code
    reason, _ = fail_unclaimed(job, settled.rejected, slot_id.workload, ports)
    dead_letter_untouched(message, reason, ports, code=code, job_id=job.job_id or "")
    return Declined(
        outcome=ClaimOutcome.FORBIDDEN, job_id=job.job_id, reason=reason, code=code.value
    )


#: How long a worker hides what is not for it.
_LEFT_TO_INTAKE = timedelta(seconds=30)


def _refuse_pointer(message: Message, job_id: str, ports: WorkPorts) -> Declined:
    """Refuse a message whose body is not stored; whoever sent it, the job itself stays as it is."""
    code = ReasonCode.BODY_NOT_STORED
    reason = say(Reason(code, {"job": job_id}))
    dead_letter_untouched(message, reason, ports, code=code, job_id=job_id)
    return Declined(outcome=ClaimOutcome.OTHER_BODY, job_id=job_id, reason=reason, code=code)


def _leave_to_newer_version(
    message: Message,
    job_id: str | None,
    error: NewerSchema,
    worker_row: WorkerRow,
    ports: WorkPorts,
) -> Declined:
    """Hide what only a later version can read, and let the ledger know; at last give it up."""
    now, reason = ports.clock.now(), str(error)
    worker_row.note_declined()
    if is_unreadable_for_good(message.sent_at, message.receive_count, now):
        dead_letter_untouched(message, reason, ports)
        return Declined(outcome=ClaimOutcome.MALFORMED, job_id=job_id, reason=reason)
    until = now + unreadable_wait(message.receive_count, is_noted=True)
    is_noted = worker_row.note_newer_message(message, error, until)
    put_back(message, unreadable_wait(message.receive_count, is_noted=is_noted), ports.queue)
    return Declined(outcome=ClaimOutcome.NEWER_SCHEMA, job_id=job_id, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim(Epochs):
    """One attempt to claim: the next epoch begins with it, or the message is dealt with."""

    worker_row: WorkerRow

    def run(self) -> ClaimedJob | Declined:
        # A message that was never received before is nearly always a new job: write first.
        if self.message.receive_count == 1:
            try:
                return self._hold(save_manifest(self.begin_first(), None, self.ports))
            except PreconditionFailed:
                pass
        try:
            stored = load_manifest(self.job_id, self.ports.objects)
        except NewerSchema as exc:
            return _leave_to_newer_version(
                self.message, self.job_id, exc, self.worker_row, self.ports
            )
        try:
            if stored is None:
                return self._hold(save_manifest(self.begin_first(), None, self.ports))
            refusal = self._refusal(stored)
            if refusal is not ReasonCode.NONE:
                return self._refuse(refusal, stored.manifest)
            return self._claim_over(stored)
        except PreconditionFailed:
            # Somebody was quicker; whoever receives it next finds their lease row.
            return self._put_back(None)

    def _claim_over(self, stored: StoredManifest) -> ClaimedJob | Declined:
        lease = self._lease_of(stored.manifest)
        match claim_verdict(
            stored.manifest,
            lease,
            instance_id=self.slot_id.instance_id,
            now=self.ports.clock.now(),
        ):
            case ClaimVerdict.CLAIM:
                is_behind = self._is_behind(stored.manifest)
                late = "begun by newer code"
                return self._put_back(None, late) if is_behind else self._next_epoch(stored, lease)
            case ClaimVerdict.DELETE:
                clear_lapsed(
                    lease,
                    stored.manifest,
                    self.slot_id.workload,
                    self.ports.table,
                    self.ports.clock.now(),
                )
                delete(self.message.receipt_handle, self.ports.queue)
                return self._decline(ClaimOutcome.OVER, stored.manifest.state.value)
            case ClaimVerdict.DEAD_LETTER:
                clear_lapsed(
                    lease,
                    stored.manifest,
                    self.slot_id.workload,
                    self.ports.table,
                    self.ports.clock.now(),
                )
                return self._bury(stored.manifest)
            case ClaimVerdict.PUT_BACK:
                is_held = not is_claimable(stored.manifest, lease, self.ports.clock.now())
                if lease is not None and is_held:
                    return self._leave_to_owner(lease)
                return self._put_back(None)

    def _next_epoch(self, stored: StoredManifest, lease: Lease | None) -> ClaimedJob | Declined:
        """Count how the last epoch ended, then begin the next or give the job up."""
        manifest = self.begin_next(stored)
        before = lease or find_freed_lease(stored.manifest, self.slot_id.workload, self.ports)
        if self.goes_on(manifest) is GoesOn.STABLE:
            return self._leave_to_stable(manifest, before)
        raised = save_manifest(manifest, stored.etag, self.ports)
        clear_lapsed(
            lease, stored.manifest, self.slot_id.workload, self.ports.table, self.ports.clock.now()
        )
        has_failed = raised.manifest.state is JobState.FAILED
        return self._bury(raised.manifest) if has_failed else self._hold(raised, before)

    def _hold(self, stored: StoredManifest, before: Lease | None = None) -> ClaimedJob | Declined:
        """Write the lease row over a manifest that is ours."""
        now = self.ports.clock.now()
        not_after = visibility_not_after(self.message.received_at)
        lease = Lease(
            instance_id=self.slot_id.instance_id,
            slot=self.slot_id.slot,
            job_id=self.job_id,
            epoch=stored.manifest.epoch,
            receipt_handle=self.message.receipt_handle,
            message_id=self.message.message_id,
            deadline=extended_until(now, not_after, self.policy),
            not_after=not_after,
            claimed_at=now,
            items=stored.manifest.items or 0,
            items_done=max(stored.manifest.next_item, items_done(before, self.job_id)),
            sent_at=stored.manifest.sent_at or self.message.sent_at,
            first_item=stored.manifest.next_item,
            is_pinned=self.slot_id.spot is None and self._wants_stable(stored.manifest.wasted_work),
            shape=self.slot_id.shape,
        )
        # Whoever takes a job up again may be late through no fault of the sizing.
        is_first = stored.manifest.epoch == 1
        is_late = is_first and now - self.message.sent_at > self.policy.start_within
        try:
            self.worker_row.occupy(self.slot_id, lease, is_late=is_late, was_requeued=not is_first)
        except Condemned:
            self._undo(stored)
            put_back(self.message, timedelta(0), self.ports.queue)
            return self._decline(ClaimOutcome.CONDEMNED, "")
        except SpindownError:
            # The job was never held: its epoch must not count as one that was lost.
            with suppress(SpindownError):
                self._undo(stored)
            raise
        return ClaimedJob(
            message=self.message,
            job=self.job,
            manifest=stored.manifest,
            etag=stored.etag,
            lease=lease,
        )

    def _wants_stable(self, wasted_work: WastedWork) -> bool:
        """Tell whether a job that we hold now is not to be moved to a less stable machine."""
        if wasted_work.attempts or not wasted_work.saves:
            return wasted_work.attempts > 0
        row = read_requeued(self.slot_id.workload, self.job_id, self.ports.table)
        return row is not None and row.wasted_work is not None

    def _undo(self, stored: StoredManifest) -> None:
        """Say that the epoch which has just begun ended in order."""
        released = replace(stored.manifest, released=True)
        try:
            save_manifest(released, stored.etag, self.ports)
        except PreconditionFailed:
            return

    def _lease_of(self, manifest: Manifest) -> Lease | None:
        if not manifest.owner:
            return None
        return read_lease(self.ports.table, lease_key(self.slot_id.workload, manifest.owner))

    def _is_behind(self, manifest: Manifest) -> bool:
        """Tell whether other code has begun the job, and ours is not what is deployed now.

        During a deploy workers of both versions live, and each would drop what the other has
        done. What is deployed is read anew: it may have changed since this worker last looked.
        """
        if not is_other_code(manifest, self.slot_id):
            return False
        deployed = read_code_version(self.ports.table, self.slot_id.workload)
        return deployed not in {"", self.slot_id.code_version}

    def _put_back(self, lease: Lease | None, why: str = "left to others") -> Declined:
        wait = put_back_for(lease, self.ports.clock.now(), self.ports.random.random())
        put_back(self.message, wait, self.ports.queue)
        if lease is None:
            self._note_next_try(self.ports.clock.now() + wait)
        return self._decline(ClaimOutcome.PUT_BACK, _HELD if lease else why)

    def _note_next_try(self, at: datetime) -> None:
        """Let the ledger know when a job that waits for its next holder can be received again."""
        sort = requeued_sort_key(self.job_id)
        key = Key(partition=worker_partition(self.slot_id.workload), sort=sort)
        # Only what people read depends on it; a job that was claimed meanwhile has no such row.
        with suppress(SpindownError):
            self.ports.table.write(
                Write(key=key, when=When(exists=True), set=encode({"next_try_at": at}))
            )

    def _leave_to_stable(self, manifest: Manifest, before: Lease | None) -> Declined:
        """Leave a job to a stable machine, and let the ledger know that it wants one."""
        sort, now = requeued_sort_key(self.job_id), self.ports.clock.now()
        key = Key(partition=worker_partition(self.slot_id.workload), sort=sort)
        row = read_requeued(self.slot_id.workload, self.job_id, self.ports.table)
        if row is None or row.wasted_work is None:
            known = RequeuedJob(
                job_id=self.job_id,
                sent_at=manifest.sent_at or self.message.sent_at,
                items=manifest.items or 0,
                items_done=max(manifest.next_item, items_done(before, self.job_id)),
                at=now,
                wasted_work=manifest.wasted_work,
                shape=self.slot_id.shape,
            )
            self.ports.table.write(Write(key=key, set=encode(known)))
        return self._put_back(None, "left to a stable machine")

    def _leave_to_owner(self, lease: Lease) -> Declined:
        """Leave a job to its owner; a second message of it is deleted, since one is enough.

        Each time that a second one is visible, it is taken for work and may buy a machine.
        """
        now, message = self.ports.clock.now(), self.message
        is_other = lease.message_id not in {"", message.message_id}
        # A receipt that may have lapsed could delete what somebody else has just received.
        if is_other and now - message.received_at > self.policy.lease_duration / 2:
            return self._put_back(lease)
        if is_other and self._hides(lease, now):
            delete(message.receipt_handle, self.ports.queue)
            return self._decline(ClaimOutcome.COPY, _HELD)
        if lease.shape == self.slot_id.shape:
            # A handle is worth something in its own queue alone.
            self._hand_over(lease)
        return self._put_back(lease)

    def _hides(self, lease: Lease, now: datetime) -> bool:
        """Hide the owner's message as its heartbeat does; False: it is visible, or gone.

        What is hidden returns once the owner is lost.
        """
        queue = self._queue_of(lease)
        if queue is None:
            return False
        try:
            queue.extend(lease.receipt_handle, lease.deadline - now)
        except (NotFound, StaleHandle):
            return False
        return True

    def _queue_of(self, lease: Lease) -> JobQueue | None:
        """Return the queue that the owner's message is in; None: it cannot be told.

        That of another shape, if the same job was sent as one of another size. Workers write lease
        rows, so the name is not taken on trust.
        """
        if lease.shape == self.slot_id.shape:
            return self.ports.queue
        is_known = not lease.shape or parse_shape(lease.shape) is not None
        return self.ports.queue_of(lease.shape) if self.ports.queue_of and is_known else None

    def _hand_over(self, lease: Lease) -> None:
        """Give the owner the handle that controls its message now."""
        owner = f"{lease.instance_id}/{lease.slot}"
        try:
            self.ports.table.write(
                Write(
                    key=lease_key(self.slot_id.workload, owner),
                    when=When(equals=lease_identity(lease)),
                    set={
                        "receipt_handle": self.message.receipt_handle,
                        "message_id": self.message.message_id,
                    },
                )
            )
        except PreconditionFailed:
            return

    def _bury(self, manifest: Manifest) -> Declined:
        dead_letter(
            self.message,
            self.job,
            manifest.reason,
            self.slot_id.log_pointer,
            self.ports,
            code=manifest.code,
            dollars=dollars_wasted(manifest),
        )
        return self._decline(ClaimOutcome.DEAD_LETTERED, manifest.reason, manifest.code)

    def _refusal(self, stored: StoredManifest) -> ReasonCode:
        """Return why the message is not of the job that its id stands for; NONE: it is."""
        if is_other_body(stored.manifest, self.job):
            is_over = stored.manifest.state is not JobState.RUNNING
            return ReasonCode.JOB_ID_REUSED if is_over else ReasonCode.OTHER_BODY
        is_late = is_after_cancel(stored, self.message, self.job)
        return ReasonCode.SENT_AFTER_CANCEL if is_late else ReasonCode.NONE

    def _refuse(self, code: ReasonCode, manifest: Manifest) -> Declined:
        self.worker_row.note_declined()
        reason = say(Reason(code, {"job": self.job_id, "state": manifest.state.value}))
        dead_letter_untouched(self.message, reason, self.ports, code=code, job_id=self.job_id)
        return Declined(
            outcome=ClaimOutcome.OTHER_BODY, job_id=self.job_id, reason=reason, code=code
        )

    def _decline(self, outcome: ClaimOutcome, reason: str, code: str = "") -> Declined:
        if outcome in _OVER:
            self.worker_row.forget(self.job_id)
        return Declined(outcome=outcome, job_id=self.job_id, reason=reason, code=code)

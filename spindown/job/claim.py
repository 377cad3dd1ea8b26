"""Claim the job of a received message: raise the manifest's epoch, then write the lease row.

Whatever stands in the way is dealt with here too, so that after ``claim`` a message is either
held or no longer this worker's concern. ``Epochs`` makes the manifest with which an epoch begins:
what the last one left, and how it ended.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from spindown.contract.codec import Row, decode, encode, replace_fields
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import JobMessage, body_digest, parse_job, with_id
from spindown.contract.row import (
    history_partition,
    requeued_sort_key,
    worker_partition,
    worker_sort_key,
)
from spindown.contract.run import OnNewCode
from spindown.domain.dead_letter import (
    EpochEnd,
    Failure,
    dead_letter_reason,
    epoch_end,
    is_unreadable_for_good,
    never_done,
    too_long,
)
from spindown.domain.fleet import Lease, RequeuedJob, Worker
from spindown.domain.job_type import Shape, parse_shape
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
from spindown.domain.wasted_work import NOTHING_WASTED, GoesOn, WastedWork, goes_on, may_be_risked
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
from spindown.job.held import (
    ClaimedJob,
    SlotId,
    WorkPorts,
    clear_lapsed,
    lease_identity,
    lease_key,
    read_lease,
)
from spindown.job.manifest_store import (
    StoredManifest,
    first_sent,
    is_other_body,
    load_manifest,
    save_manifest,
)
from spindown.job.message import (
    copy_message,
    dead_letter,
    dead_letter_untouched,
    delete,
    near_expiry,
    put_back,
    read_stored,
    resend,
)
from spindown.job.policy import read_code_version
from spindown.job.presence import Condemned, Presence
from spindown.job.release import count_wasted_work, dollars_wasted
from spindown.job.route import fail_unclaimed, read_sized, settle_message
from spindown.port import JobQueue, Key, Message, When, Write
from spindown.reason_text import say


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """The epochs of a message's job, as a slot would begin them."""

    message: Message
    job: JobMessage
    slot_id: SlotId
    ports: WorkPorts
    policy: Policy

    @property
    def job_id(self) -> str:
        """Return the job that the message names; ``with_id`` has seen to it that there is one."""
        return self.job.job_id or ""

    def begin_first(self) -> Manifest:
        """Return the manifest of a job that nobody has claimed before."""
        return self._owned(
            Manifest(job_id=self.job_id, epoch=0, owner="", state=JobState.RUNNING), 1
        )

    def begin_next(self, stored: StoredManifest) -> Manifest:
        """Return the manifest of the next epoch; it has failed if no further try is worth it."""
        counted = _for_code_of(self._count_end(stored.manifest), self.slot_id)
        counted = replace(counted, wasted_work=self._with_wait(counted))
        manifest = self._owned(counted, max(stored.epoch_floor, counted.epoch) + 1)
        reason = dead_letter_reason(manifest.failures, self.policy) or too_long(
            manifest.wasted_work, manifest.cost_usd, self.policy
        )
        if not reason and self.goes_on(manifest) is GoesOn.NOWHERE:
            reason = never_done(manifest.wasted_work)
        if not reason:
            return manifest
        ended = {
            "state": JobState.FAILED,
            "reason": say(reason),
            "code": reason.code.value,
            "finished_at": self.ports.clock.now(),
            "released": True,
        }
        return replace_fields(manifest, ended)

    def goes_on(self, manifest: Manifest) -> GoesOn:
        """Return where a job goes on: here, if interruptions have not cost it too much."""
        if may_be_risked(manifest.wasted_work, self.slot_id.spot, self.policy):
            return GoesOn.ANYWHERE
        return goes_on(manifest.wasted_work, self.slot_id.spot, self.policy)

    def _with_wait(self, manifest: Manifest) -> WastedWork:
        """Return what interruptions have cost, and whether the wait for a sure machine is over."""
        wasted_work = manifest.wasted_work
        if self.slot_id.spot is None:
            return replace(wasted_work, has_waited_in_vain=False)
        if self.goes_on(manifest) is not GoesOn.STABLE:
            return wasted_work
        job = read_requeued(self.slot_id.workload, manifest.job_id, self.ports)
        if job is None or job.wasted_work is None or job.waits_for_stable(self.ports.clock.now()):
            return wasted_work
        return replace(wasted_work, has_waited_in_vain=True)

    def _owned(self, manifest: Manifest, epoch: int) -> Manifest:
        """Return the manifest as the beginning of an epoch of ours."""
        count = None if self.job.items is None else len(self.job.items)
        changes = {
            "epoch": epoch,
            "owner": self.slot_id.owner,
            "released": False,
            "epoch_first": manifest.next_item,
            "busy_first": manifest.busy_seconds,
            "items": manifest.items if count is None else count,
            "batch_id": self.job.batch_id or manifest.batch_id,
            "tenant": self.job.tenant or manifest.tenant,
            "parent": self.job.parent or manifest.parent,
            "body_digest": manifest.body_digest or body_digest(self.job),
            "code_version": self.slot_id.code_version or manifest.code_version,
            "claimed_at": self.ports.clock.now(),
        }
        if self.slot_id.shape:
            changes["routed_at"] = manifest.routed_at or self.message.sent_at
            changes["sized"] = read_sized(self.message)
        if self.policy.finish_within is not None:
            changes["sent_at"] = manifest.sent_at or first_sent(self.message, self.job, self.ports)
        return replace_fields(manifest, changes)

    def _count_end(self, manifest: Manifest) -> Manifest:
        if manifest.epoch == 0:
            return manifest
        row = None if manifest.released else self._owner_row(manifest)
        is_taken = row is not None and row.get("interrupted_at") is not None
        owner = _readable(row)
        if not manifest.released:
            manifest = replace(manifest, lost_epochs=(*manifest.lost_epochs, manifest.epoch))
        boot = 0.0 if owner is None else owner.boot
        match epoch_end(manifest, interrupted=is_taken, boot=boot):
            case EpochEnd.INTERRUPTED:
                return replace(
                    self._count_wasted_work(manifest, owner),
                    interruptions=manifest.interruptions + 1,
                )
            case EpochEnd.LOST:
                loss = Failure(
                    at=self.ports.clock.now(),
                    instance_id=manifest.owner.rpartition("/")[0],
                    epoch=manifest.epoch,
                    kind="loss",
                )
                return replace(
                    manifest, losses=manifest.losses + 1, failures=(*manifest.failures, loss)
                )
            case _:
                return manifest

    def _count_wasted_work(self, manifest: Manifest, worker: Worker | None) -> Manifest:
        """Count an epoch that was interrupted without a word, unless it got anywhere."""
        live = read_lease(self.ports.table, lease_key(self.slot_id.workload, manifest.owner))
        left = live or find_freed_lease(manifest, self.slot_id.workload, self.ports)
        if _is_of(left, manifest) and _done(left, manifest.job_id) > manifest.next_item:
            # It has done an item, though it has not committed it.
            return manifest
        if worker is None:
            return manifest
        ends = [at for at in (worker.interrupted_at, worker.ended_at) if at is not None]
        return count_wasted_work(manifest, worker.boot, worker.spot_terms(), min(ends))

    def _owner_row(self, manifest: Manifest) -> Row | None:
        """Return the row of the last owner; None: the ledger knows nothing of it."""
        sort = worker_sort_key(manifest.owner.rpartition("/")[0])
        for partition in (worker_partition, history_partition):
            row = self.ports.table.get(Key(partition=partition(self.slot_id.workload), sort=sort))
            if row is not None:
                return row
        return None


def find_freed_lease(manifest: Manifest, workload: str, ports: WorkPorts) -> Lease | None:
    """Return what the last owner held when the control plane freed it: how far it was."""
    if not manifest.owner or manifest.released:
        return None
    live = lease_key(workload, manifest.owner)
    past = live._replace(partition=history_partition(workload))
    freed = read_lease(ports.table, past)
    return freed if freed is not None and freed.epoch == manifest.epoch else None


def _readable(row: Row | None) -> Worker | None:
    try:
        return None if row is None else decode(Worker, row)
    except ContractError:
        return None


def read_requeued(workload: str, job_id: str, ports: WorkPorts) -> RequeuedJob | None:
    """Return what the ledger remembers of a requeued job; None: nothing that can be read."""
    key = Key(partition=worker_partition(workload), sort=requeued_sort_key(job_id))
    row = ports.table.get(key)
    try:
        return None if row is None else decode(RequeuedJob, row)
    except ContractError:
        return None


def _is_of(lease: Lease | None, manifest: Manifest) -> bool:
    """Tell whether a lease is that of a manifest's present epoch."""
    return lease is not None and (lease.job_id, lease.epoch) == (manifest.job_id, manifest.epoch)


def _for_code_of(manifest: Manifest, slot_id: SlotId) -> Manifest:
    """Return a manifest as the code of a slot may go on with it.

    Results of another version of the code are dropped, unless the workload says that both give
    the same: then a job may hold results of two versions.
    """
    if not is_other_code(manifest, slot_id):
        return manifest
    # Other code may keep checkpoints, or be faster.
    manifest = replace(manifest, wasted_work=NOTHING_WASTED)
    if slot_id.on_new_code is OnNewCode.KEEP:
        return manifest
    return replace(manifest, next_item=0, parts=(), user_state=(), begun_seconds={})


def is_other_code(manifest: Manifest, slot_id: SlotId) -> bool:
    """Tell whether a job's last owner ran another version of the code; unknown: it did not."""
    ours, theirs = slot_id.code_version, manifest.code_version
    return bool(ours and theirs) and ours != theirs


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
#: S3 tells in whole seconds when it took an object (Amazon S3 API Reference, "GetObject").
_STORED_WITHIN = timedelta(seconds=1)
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
    message: Message, *, slot_id: SlotId, presence: Presence, ports: WorkPorts, policy: Policy
) -> ClaimedJob | Declined:
    """Claim the job of a message for one slot, or say what became of the message."""
    try:
        claimed = _claim(message, slot_id, presence, ports, policy)
    except (AccessDenied, Throttled, Unreachable):
        presence.note_unanswered()
        raise
    presence.note_answered()
    return claimed


def _claim(
    message: Message, slot_id: SlotId, presence: Presence, ports: WorkPorts, policy: Policy
) -> ClaimedJob | Declined:
    try:
        job = with_id(parse_job(message.body), message.message_id)
    except NewerSchema as exc:
        return _leave_to_newer_version(message, None, exc, presence, ports)
    except ContractError as exc:
        presence.note_declined()
        dead_letter_untouched(message, str(exc), ports)
        return Declined(outcome=ClaimOutcome.MALFORMED, reason=str(exc))
    if near_expiry(message, ports.clock.now()):
        resend(message, job, ports)
        return Declined(outcome=ClaimOutcome.SENT_ANEW, job_id=job.job_id)
    try:
        job = read_stored(job, ports.objects)
    except NewerSchema as exc:
        return _leave_to_newer_version(message, job.job_id, exc, presence, ports)
    except (ContractError, NotFound):
        presence.note_declined()
        return _refuse_pointer(message, job.job_id or "", ports)
    misfit = _misfit(message, job, slot_id, presence, ports, policy)
    return (
        misfit
        or _Claim(
            message=message, job=job, slot_id=slot_id, presence=presence, ports=ports, policy=policy
        ).run()
    )


def _misfit(
    message: Message,
    job: JobMessage,
    slot_id: SlotId,
    presence: Presence,
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
        ports.queue_of("").send([copy_message(message, job, ports.objects)])
        delete(message.receipt_handle, ports.queue)
        return Declined(outcome=ClaimOutcome.OTHER_SHAPE, job_id=job.job_id)
    if not settled.rejected:
        # Launched before the workload declared types: ``intake`` takes it.
        put_back(message, _LEFT_TO_INTAKE, ports.queue)
        return Declined(outcome=ClaimOutcome.PUT_BACK, job_id=job.job_id, reason="to be routed")
    presence.note_declined()
    code, reason = settled.rejected.code, fail_unclaimed(job, settled.rejected, ports)
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
    message: Message, job_id: str | None, error: NewerSchema, presence: Presence, ports: WorkPorts
) -> Declined:
    """Hide what only a later version can read, and let the ledger know; at last give it up."""
    now, reason = ports.clock.now(), str(error)
    presence.note_declined()
    if is_unreadable_for_good(message.sent_at, message.receive_count, now):
        dead_letter_untouched(message, reason, ports)
        return Declined(outcome=ClaimOutcome.MALFORMED, job_id=job_id, reason=reason)
    until = now + unreadable_wait(message.receive_count, is_noted=True)
    is_noted = presence.note_newer_message(message, error, until)
    put_back(message, unreadable_wait(message.receive_count, is_noted=is_noted), ports.queue)
    return Declined(outcome=ClaimOutcome.NEWER_SCHEMA, job_id=job_id, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim(Epochs):
    """One attempt to claim: the next epoch begins with it, or the message is dealt with."""

    presence: Presence

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
                self.message, self.job_id, exc, self.presence, self.ports
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
                clear_lapsed(lease, stored.manifest, self.slot_id.workload, self.ports)
                delete(self.message.receipt_handle, self.ports.queue)
                return self._decline(ClaimOutcome.OVER, stored.manifest.state.value)
            case ClaimVerdict.DEAD_LETTER:
                clear_lapsed(lease, stored.manifest, self.slot_id.workload, self.ports)
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
        clear_lapsed(lease, stored.manifest, self.slot_id.workload, self.ports)
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
            items_done=max(stored.manifest.next_item, _done(before, self.job_id)),
            sent_at=stored.manifest.sent_at or self.message.sent_at,
            first_item=stored.manifest.next_item,
            is_pinned=self.slot_id.spot is None and self._wants_stable(stored.manifest.wasted_work),
            shape=self.slot_id.shape,
        )
        # Whoever takes a job up again may be late through no fault of the sizing.
        is_first = stored.manifest.epoch == 1
        is_late = is_first and now - self.message.sent_at > self.policy.start_within
        try:
            self.presence.occupy(self.slot_id, lease, is_late=is_late, was_requeued=not is_first)
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
        row = read_requeued(self.slot_id.workload, self.job_id, self.ports)
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
        row = read_requeued(self.slot_id.workload, self.job_id, self.ports)
        if row is None or row.wasted_work is None:
            known = RequeuedJob(
                job_id=self.job_id,
                sent_at=manifest.sent_at or self.message.sent_at,
                items=manifest.items or 0,
                items_done=max(manifest.next_item, _done(before, self.job_id)),
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
        return ReasonCode.SENT_AFTER_CANCEL if self._is_after_cancel(stored) else ReasonCode.NONE

    def _is_after_cancel(self, stored: StoredManifest) -> bool:
        """Tell whether the id was cancelled before a claim, and this message sent after that.

        Both instants are those of AWS: whoever cancels may have a wrong clock. A split may send its
        children after their cancel: those are cancelled as their parent is.
        """
        return (
            stored.manifest.state is JobState.CANCELLED
            and not stored.manifest.body_digest
            and self.job.parent is None
            and stored.stored_at is not None
            and self.message.sent_at >= stored.stored_at + _STORED_WITHIN
        )

    def _refuse(self, code: ReasonCode, manifest: Manifest) -> Declined:
        self.presence.note_declined()
        reason = say(Reason(code, {"job": self.job_id, "state": manifest.state.value}))
        dead_letter_untouched(self.message, reason, self.ports, code=code, job_id=self.job_id)
        return Declined(
            outcome=ClaimOutcome.OTHER_BODY, job_id=self.job_id, reason=reason, code=code
        )

    def _decline(self, outcome: ClaimOutcome, reason: str, code: str = "") -> Declined:
        if outcome in _OVER:
            self.presence.forget(self.job_id)
        return Declined(outcome=outcome, job_id=self.job_id, reason=reason, code=code)


def _done(before: Lease | None, job_id: str) -> int:
    return before.items_done if before is not None and before.job_id == job_id else 0

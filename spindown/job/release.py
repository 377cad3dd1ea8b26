"""Give a job back: to whoever comes next, or to the dead-letter queue for good.

The caller holds the lock that its heartbeat takes too: a heartbeat between the two steps would
hide the message again for nobody. Whether a job has failed for good is decided in
``domain.retry_or_dead_letter``, whether it goes on elsewhere in ``domain.wasted_work``.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import encode_stored, stored_key, with_needs
from spindown.domain.fleet import RequeuedJob
from spindown.domain.policy import JobNeeds, Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.retry_or_dead_letter import (
    Failure,
    dead_letter_reason,
    last_said,
    never_done,
    too_long,
)
from spindown.domain.shape import settle
from spindown.domain.wasted_work import GoesOn, SpotTerms, goes_on
from spindown.job.claimed_job import ClaimedJob, SlotId, current_handle
from spindown.job.commit import Portion, commit_as, extend_manifest
from spindown.job.message import copy_message, dead_letter, delete, put_back
from spindown.job.worker_row import WorkerRow
from spindown.port import Message, WorkPorts
from spindown.reason_text import say, say_error

#: A reason is for a person; what exceeds this is in the log.
_REASON_CHARACTERS = 1000
#: Of a worker's life, and at the most: so much later than its check-in it may take its first job,
#: or so much earlier than at its end give it back.
_LATE, _LATE_AT_MOST = 0.05, timedelta(minutes=3)


def settle_release(
    held: ClaimedJob,
    portion: Portion,
    *,
    interrupted: bool,
    slot_id: SlotId,
    ports: WorkPorts,
    policy: Policy,
) -> ClaimedJob:
    """Commit what is done, and that this epoch ends in order (raises LeaseLost).

    The job has failed if an item has taken too long, or if an interruption has ended the epoch and
    nothing that the policy allows can do it. An epoch of a worker's whole lifetime that brought
    nothing counts as a failure: the next one would fare no better.
    """
    manifest = replace(extend_manifest(held, portion, slot_id=slot_id, ports=ports), released=True)
    if manifest.state is not JobState.RUNNING:
        return commit_as(manifest, held, ports)
    if interrupted:
        manifest = replace(manifest, interruptions=manifest.interruptions + 1)
        manifest = count_wasted_work(manifest, slot_id.boot, slot_id.spot, ports.clock.now())
    elif _had_a_lifetime(manifest, slot_id.boot, ports.clock.now(), policy):
        lifetime = policy.max_lifetime / timedelta(hours=1)
        text = say(Reason(ReasonCode.OUTLIVES_WORKER, {"hours": lifetime}))
        return _commit_failure(manifest, text, held, slot_id=slot_id, ports=ports, policy=policy)
    why = too_long(manifest.wasted_work, manifest.cost_usd, policy)
    if (
        interrupted
        and not why
        and goes_on(manifest.wasted_work, slot_id.spot, policy) is GoesOn.NOWHERE
    ):
        why = never_done(manifest.wasted_work)
    return commit_as(_failed(manifest, say(why), ports, why.code) if why else manifest, held, ports)


def _had_a_lifetime(manifest: Manifest, boot: float, now: datetime, policy: Policy) -> bool:
    """Tell whether the epoch had all that a worker lives after its boot of so many hours.

    One that began later than that worker's first may well fit into the next one's life.
    """
    if manifest.claimed_at is None or manifest.has_saved:
        return False
    if manifest.next_item > manifest.epoch_first:
        return False
    life = policy.max_lifetime + policy.lifetime_grace
    late = min(_LATE * life, _LATE_AT_MOST)
    return now - manifest.claimed_at >= life - timedelta(hours=boot) - late


def count_wasted_work(
    manifest: Manifest, boot: float, terms: SpotTerms | None, until: datetime
) -> Manifest:
    """Return a manifest after an interruption of its present epoch, which may have moved it on.

    What is committed of the epoch's time is counted already.

    Args:
        manifest: as that epoch leaves it.
        boot: hours that the machine took to boot.
        terms: of the machine; None: it is not spot.
        until: when the epoch ended.
    """
    if manifest.claimed_at is None or manifest.next_item > manifest.epoch_first:
        return manifest
    took = max(until - manifest.claimed_at, timedelta(0))
    before = manifest.wasted_work.worked(took - timedelta(seconds=manifest.epoch_busy))
    if terms is None:
        return replace(manifest, wasted_work=before)
    hours = took / timedelta(hours=1)
    after = before if manifest.has_saved else before.after(hours, boot, terms)
    of_item = before.of_item.after(hours, boot, terms)
    return replace(manifest, wasted_work=replace(after, of_item=of_item))


def dollars_wasted(manifest: Manifest) -> float:
    """Return the USD that a dead letter tells: what interruptions have cost without progress.

    Of an item that took too long, all that the job has cost.
    """
    is_too_long = manifest.code == ReasonCode.ITEM_TOO_LONG
    return manifest.cost_usd if is_too_long else manifest.wasted_work.dollars


def settle_failure(
    held: ClaimedJob,
    portion: Portion,
    reason: str,
    *,
    slot_id: SlotId,
    ports: WorkPorts,
    policy: Policy,
) -> ClaimedJob:
    """Commit what is done, and count a failure of the job's own (raises LeaseLost)."""
    manifest = extend_manifest(held, portion, slot_id=slot_id, ports=ports)
    if manifest.state is not JobState.RUNNING:
        return commit_as(manifest, held, ports)
    return _commit_failure(manifest, reason, held, slot_id=slot_id, ports=ports, policy=policy)


def settle_rejection(held: ClaimedJob, reason: str, *, ports: WorkPorts) -> ClaimedJob:
    """Fail a job whose input no further try can fix (raises LeaseLost)."""
    return commit_as(_failed(held.manifest, reason, ports), held, ports)


def release(
    held: ClaimedJob,
    *,
    slot_id: SlotId,
    worker_row: WorkerRow,
    ports: WorkPorts,
    policy: Policy,
    wait: timedelta = timedelta(0),
) -> None:
    """Clear the lease row, then make the message visible, after ``wait``, by the row's handle."""
    handle = current_handle(held, slot_id, ports)
    requeued = _requeued(held, ports.clock.now())
    if wait:
        requeued = replace(requeued, next_try_at=ports.clock.now() + wait)
    if goes_on(held.manifest.wasted_work, slot_id.spot, policy) is not GoesOn.ANYWHERE:
        requeued = replace(requeued, wasted_work=held.manifest.wasted_work)
    worker_row.vacate(slot_id, held.lease, requeued=requeued)
    put_back(replace(held.message, receipt_handle=handle), wait, ports.queue)


def _requeued(held: ClaimedJob, now: datetime) -> RequeuedJob:
    """Return what to remember of a job that is given back, with what its last failure said."""
    failures = held.manifest.failures
    left = held.lease.requeued(held.manifest.next_item, now)
    return replace(left, failures=len(failures), error=say_error(last_said(failures)))


def send_to_larger(
    held: ClaimedJob,
    needs: JobNeeds,
    *,
    slot_id: SlotId,
    worker_row: WorkerRow,
    ports: WorkPorts,
    policy: Policy,
) -> None:
    """Clear the lease row, send a copy to be routed to a larger machine, delete the original.

    Of the two messages that a crash in between leaves, the manifest lets one do anything. While the
    row stands, whoever receives the copy takes it for a second message and deletes it.
    """
    job = with_needs(held.job, needs)
    queue = ports.queue if ports.queue_of is None else ports.queue_of("")
    handle = current_handle(held, slot_id, ports)
    if job.stored is not None:
        data, job = encode_stored(job)
        ports.objects.put(stored_key(held.job_id, job.stored or ""), data)
    copy = copy_message(held.message, job, ports.objects)
    requeued = _requeued(held, ports.clock.now())
    settled = settle(held.job.type or "", needs, policy, held.manifest.sized)
    requeued = replace(requeued, shape=settled.shape.name)
    worker_row.vacate(slot_id, held.lease, requeued=requeued)
    queue.send([copy])
    delete(handle, ports.queue)


def abandon(held: ClaimedJob, *, slot_id: SlotId, worker_row: WorkerRow) -> None:
    """Clear what is ours of a job that another epoch owns; its message is theirs."""
    worker_row.vacate(slot_id, held.lease)


def dead_letter_job(
    held: ClaimedJob, *, slot_id: SlotId, worker_row: WorkerRow, ports: WorkPorts
) -> None:
    """Move the message of a job that failed for good to the dead-letter queue."""
    handle = current_handle(held, slot_id, ports)
    message: Message = replace(held.message, receipt_handle=handle)
    dead_letter(
        message,
        held.job,
        held.manifest.reason,
        slot_id.log_pointer,
        ports,
        code=held.manifest.code,
        dollars=dollars_wasted(held.manifest),
    )
    worker_row.vacate(slot_id, held.lease)


def _commit_failure(
    manifest: Manifest,
    reason: str,
    held: ClaimedJob,
    *,
    slot_id: SlotId,
    ports: WorkPorts,
    policy: Policy,
) -> ClaimedJob:
    """Commit a manifest with one failure more, which may be one too many (raises LeaseLost)."""
    failure = Failure(
        at=ports.clock.now(),
        instance_id=slot_id.instance_id,
        epoch=manifest.epoch,
        kind="failure",
        reason=reason[:_REASON_CHARACTERS],
    )
    manifest = replace(manifest, failures=(*manifest.failures, failure), released=True)
    verdict = dead_letter_reason(manifest.failures, policy) or too_long(
        manifest.wasted_work, manifest.cost_usd, policy
    )
    if verdict:
        why = f"{say(verdict)}; last: {failure.reason}"
        manifest = _failed(manifest, why, ports, verdict.code)
    return commit_as(manifest, held, ports)


def _failed(
    manifest: Manifest, reason: str, ports: WorkPorts, code: ReasonCode = ReasonCode.NONE
) -> Manifest:
    return replace(
        manifest,
        state=JobState.FAILED,
        reason=reason[:_REASON_CHARACTERS],
        code=code.value,
        finished_at=ports.clock.now(),
        released=True,
    )

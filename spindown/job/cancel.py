"""Cancel jobs: nobody claims them again, and committed results stay.

The manifest is written first: from then on every commit of the job's owner fails. Then the lease
is deleted, so the owner drops the job at its next heartbeat, and so is the message that it holds.
Other visible messages of a cancelled job are deleted too, because each visible message asks for
a worker. A hidden one is deleted by the worker that claims it. What is sent later under an id that
nobody had claimed becomes a dead letter.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from spindown.contract.codec import decode
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import own_children, parse_job, with_id
from spindown.contract.row import requeued_sort_key, worker_partition, worker_sort_key
from spindown.domain.batch import end_of_job
from spindown.domain.fleet import Worker
from spindown.domain.reason import NO_REASON, Reason
from spindown.error import (
    ContractError,
    NewerSchema,
    NotFound,
    PreconditionFailed,
    Unreachable,
)
from spindown.job.lease_row import lease_identity, lease_key, read_lease
from spindown.job.manifest_store import StoredManifest, load_manifest, save_manifest
from spindown.job.message import delete, renew
from spindown.job.redrive import RedriveOutcome, redrive
from spindown.port import Key, Message, When, WorkPorts, Write
from spindown.reason_text import say

T = TypeVar("T")
R = TypeVar("R")

REASON = "cancelled"

#: Tries to write a manifest that others write too.
_TRIES = 5
#: Calls at once, each for a job or a message.
_AT_ONCE = 16
#: How long a message that was read is hidden, and how many are read in one sweep beside one for
#: each job that is cancelled.
_HIDDEN_FOR = timedelta(minutes=2)
_OTHERS_AT_MOST = 1000
_SECONDS_PER_HOUR = 3600.0


class CancelOutcome(StrEnum):
    """The outcome for one job."""

    CANCELLED = "cancelled"
    #: It had ended before; its state says how.
    OVER = "over"
    #: A later version wrote its manifest; only that version may cancel it.
    NEWER_SCHEMA = "newer-schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """One job that was handled."""

    job_id: str
    outcome: CancelOutcome
    #: Its state now, in the word that is told everywhere; None: this version cannot read it.
    state: str | None
    #: Items whose results were committed before.
    #: Without those that failed.
    items_done: int = 0
    items_failed: int = 0
    #: Whether a worker has ever claimed it. If none has, it may not have been sent yet.
    was_claimed: bool = True
    #: Whether a worker held it, which goes on with it until it next writes or reports.
    was_held: bool = False
    #: Whether it had been given up, so that it has a dead letter.
    was_given_up: bool = False
    #: Whether that was found and is deleted. One that another reader has hidden is not found;
    #: whoever sends it back later sends nothing, and another call looks for it again.
    is_letter_deleted: bool = False


def cancel(
    workload: str, jobs: Collection[str], ports: WorkPorts, *, failed: bool = True
) -> Iterator[Cancelled]:
    """Cancel jobs and their children, several at once; yield each in order when it is done.

    Those that may have a dead letter come last, once that was looked for.

    Args:
        workload: whose.
        jobs: their ids; a job that was never claimed can be cancelled too.
        ports: the world; the queue is the workload's.
        failed: whether those too that have failed, whose dead letters can be sent back.
    """
    gone, given_up = set[str](), set[str]()
    last: list[Cancelled] = []
    has_letters = failed and ports.dead_letters.backlog().visible > 0

    def cancel_job(job_id: str) -> tuple[Cancelled, Sequence[str]]:
        """Return what came of a job, and the children that must be cancelled too."""
        try:
            manifest, before = _cancel_one(job_id, workload, ports, failed=failed)
        except NewerSchema:
            return Cancelled(job_id=job_id, outcome=CancelOutcome.NEWER_SCHEMA, state=None), ()
        children: Sequence[str] = ()
        if manifest.state in {JobState.CANCELLED, JobState.SPLIT}:
            children = own_children(job_id, manifest.children)
        was_held = False
        if manifest.state is JobState.CANCELLED:
            gone.add(job_id)
            was_held = _end_lease(manifest, workload, ports)
        was_cancelled = before is None and manifest.state is JobState.CANCELLED
        if before is JobState.FAILED or (has_letters and was_cancelled):
            given_up.add(job_id)
        told = Cancelled(
            job_id=job_id,
            outcome=CancelOutcome.OVER if before is None else CancelOutcome.CANCELLED,
            state=_word(manifest) if before is None else manifest.state.value,
            items_done=manifest.next_item - manifest.items_failed,
            items_failed=manifest.items_failed,
            was_claimed=bool(manifest.body_digest),
            was_held=was_held,
            was_given_up=before is JobState.FAILED,
        )
        return told, children

    left = list(jobs)
    try:
        while left:
            now, left = left, []
            for told, children in _each(cancel_job, now):
                left += children
                if told.job_id in given_up:
                    last.append(told)
                else:
                    yield told
    finally:
        # Also if one of the jobs could not be cancelled.
        deleted = _clear(workload, gone, given_up, ports)
    for told in last:
        yield replace(told, is_letter_deleted=told.job_id in deleted)


def _word(manifest: Manifest) -> str:
    """Return how a job ended; of one that was split, that it was."""
    if manifest.state is JobState.SPLIT:
        return manifest.state.value
    return str(end_of_job(manifest.state.value, items_failed=manifest.items_failed))


def _clear(
    workload: str, gone: Collection[str], given_up: Collection[str], ports: WorkPorts
) -> Collection[str]:
    """Delete the messages of cancelled jobs, and the dead letters of those that were given up.

    Return the jobs whose dead letter is deleted; so many letters are looked at, and no more.
    """
    # In the order in which a message goes through them.
    for queue in (ports.queue, *ports.shapes.values()):
        with suppress(NotFound):
            _sweep(gone, replace(ports, queue=queue))
    if not given_up:
        return ()
    # Of a job that is cancelled it only deletes the letter, and leaves that of another sender who
    # took the same id.
    at_most = len(given_up) + _OTHERS_AT_MOST
    found = redrive(workload, ports, jobs=given_up, letters_at_most=at_most)
    return {one.job_id for one in found if one.outcome is RedriveOutcome.OVER and one.job_id}


def _each(call: Callable[[T], R], given: Sequence[T]) -> Iterator[R]:
    """Yield what a call returns for each, in order; several are made at once."""
    if len(given) < 2:  # noqa: PLR2004 - one needs no thread
        yield from map(call, given)
        return
    with ThreadPoolExecutor(min(len(given), _AT_ONCE)) as pool:
        answers: Iterator[R]
        try:
            answers = pool.map(call, given)
        except RuntimeError:
            # A process that ends starts no thread, and may leave a stream.
            answers = map(call, given)
        yield from answers


def _cancel_one(
    job_id: str, workload: str, ports: WorkPorts, *, failed: bool
) -> tuple[Manifest, JobState | None]:
    """Return the manifest of the job, which is over now, and its state until this call ended it.

    None: it had ended before.
    """
    # One that has failed is a dead letter, and would run again if that is sent back.
    open_states = {JobState.RUNNING, JobState.FAILED} if failed else {JobState.RUNNING}
    for _ in range(_TRIES):
        stored = load_manifest(job_id, ports.objects)
        if stored is not None and stored.manifest.state not in open_states:
            return stored.manifest, None
        with suppress(PreconditionFailed):
            etag = stored.etag if stored is not None else None
            cancelled = _with_open_time(_cancelled(job_id, stored, ports), workload, ports)
            before = stored.manifest.state if stored is not None else JobState.RUNNING
            return save_manifest(cancelled, etag, ports).manifest, before
    raise Unreachable(f"{job_id}: other writers keep changing its manifest; cancel it again")


def cancel_unclaimed(job_id: str, ports: WorkPorts, why: Reason = NO_REASON) -> None:
    """Cancel a job unless somebody has claimed or cancelled it already; ``why``: nobody asked."""
    with suppress(PreconditionFailed):
        save_manifest(_cancelled(job_id, None, ports, why), None, ports)


def _cancelled(
    job_id: str, stored: StoredManifest | None, ports: WorkPorts, why: Reason = NO_REASON
) -> Manifest:
    known = Manifest(job_id=job_id, epoch=0, owner="", state=JobState.RUNNING)
    return replace(
        stored.manifest if stored else known,
        epoch=stored.epoch_floor if stored else 0,
        state=JobState.CANCELLED,
        finished_at=ports.clock.now(),
        reason=say(why) or REASON,
        code=why.code.value,
    )


def _with_open_time(manifest: Manifest, workload: str, ports: WorkPorts) -> Manifest:
    """Count what its owner has worked on it since the last commit, which it can commit no more."""
    if not manifest.owner or manifest.released or manifest.claimed_at is None:
        return manifest
    lease = read_lease(ports.table, lease_key(workload, manifest.owner))
    if lease is None or lease.job_id != manifest.job_id:
        return manifest
    sort = worker_sort_key(lease.instance_id)
    row = ports.table.get(Key(partition=worker_partition(workload), sort=sort))
    if row is None:
        return manifest
    try:
        worker = decode(Worker, row)
    except ContractError:
        return manifest
    # A worker that was lost has worked until its lease ran out, at most.
    took = min(ports.clock.now(), lease.deadline) - manifest.claimed_at
    seconds = max(took.total_seconds() - manifest.epoch_busy, 0.0)
    per_second = worker.price_per_hour / max(worker.slots, 1) / _SECONDS_PER_HOUR
    return replace(
        manifest,
        busy_seconds=manifest.busy_seconds + seconds,
        cost_usd=manifest.cost_usd + seconds * per_second,
    )


def count_cancelled(taken: Manifest, seconds: float, dollars: float, ports: WorkPorts) -> bool:
    """Tell whether a job was cancelled while a worker held it; then count all that this took.

    Whoever cancelled it has counted the time up to then, and the worker went on until it heard.

    Args:
        taken: as the worker claimed it.
        seconds: that its slot had it since.
        dollars: that these have cost, USD.
        ports: the world.
    """
    stored = load_manifest(taken.job_id, ports.objects)
    known = stored.manifest if stored is not None else taken
    if stored is None or (known.state, known.owner) != (JobState.CANCELLED, taken.owner):
        return False
    whole = replace(
        known,
        busy_seconds=max(known.busy_seconds, taken.busy_seconds + seconds),
        cost_usd=max(known.cost_usd, taken.cost_usd + dollars),
    )
    with suppress(PreconditionFailed):
        save_manifest(whole, stored.etag, ports)
    return True


def _end_lease(manifest: Manifest, workload: str, ports: WorkPorts) -> bool:
    """Delete the message that the job's owner holds, and its lease or its requeued row.

    Tell whether there was a lease.
    """
    if not manifest.owner:
        return False
    key = lease_key(workload, manifest.owner)
    lease = read_lease(ports.table, key)
    if lease is None or lease.job_id != manifest.job_id:
        due = Key(partition=worker_partition(workload), sort=requeued_sort_key(manifest.job_id))
        ports.table.write(Write(key=due, delete=True))
        return False
    delete(lease.receipt_handle, ports.shapes.get(lease.shape, ports.queue))
    with suppress(PreconditionFailed):
        ports.table.write(Write(key=key, when=When(equals=lease_identity(lease)), delete=True))
    return True


def _sweep(gone: Collection[str], ports: WorkPorts) -> None:
    """Delete the visible messages of these jobs; show all others again at once."""
    # Without their bodies, of up to a MiB each.
    others: list[str] = []
    turns = iter(range(len(gone) + _OTHERS_AT_MOST))

    def look(_: int) -> None:
        for _ in turns:
            message = ports.queue.receive(wait=timedelta(0), visibility=_HIDDEN_FOR)
            if message is None:
                break
            if _job_of(message) in gone:
                delete(message.receipt_handle, ports.queue)
            elif not renew(message, ports):
                others.append(message.receipt_handle)

    try:
        list(_each(look, range(min(len(gone), _AT_ONCE))))
    finally:
        if others:
            ports.queue.show(others)


def _job_of(message: Message) -> str | None:
    try:
        return with_id(parse_job(message.body), message.message_id).job_id
    except ContractError:
        return None

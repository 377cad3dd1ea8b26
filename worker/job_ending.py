"""How a held job leaves its slot: the last steps of every ending, each told to log and ledger.

Which ending it is says ``worker.attempt``; when a worker must leave, as at a notice of EC2, the
table in ``domain.worker_lifecycle``. What a manifest notes of a job that is given back:
``job.release``. Whether a failed job is tried again: ``domain.retry_or_dead_letter``.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from spindown.contract.job.event import job_event
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.result import ItemStatus
from spindown.contract.metric import class_of
from spindown.domain.batch import BatchEnd, end_of_job
from spindown.domain.lease import outage_wait
from spindown.domain.policy import JobNeeds, Policy
from spindown.domain.retry_or_dead_letter import is_excused
from spindown.domain.rightsizing.type_size import VRAM
from spindown.error import SpindownError, Throttled, Unreachable, WriteConflict
from spindown.job.claimed_job import ClaimedJob, SlotId
from spindown.job.commit import Portion, begun, complete
from spindown.job.release import (
    abandon,
    dead_letter_job,
    release,
    send_to_larger,
    settle_failure,
    settle_release,
)
from spindown.job.split import split
from spindown.job.work_done import Progress, Reporter
from spindown.job.worker_row import WorkerRow
from spindown.port import WorkPorts
from spindown.reason_text import say_error
from spindown.worker.child.runner import Runner
from spindown.worker.lease_renewer import LeaseRenewer
from spindown.worker.lifecycle import SharedLifecycle
from spindown.worker.log import EventLog
from spindown.worker.machine.leftover import Leftovers
from spindown.worker.transfer.next_message import NextMessage
from spindown.worker.transfer.outbox import Outbox
from spindown.worker.usage.journal import UsageRecorder


class AttemptEnd(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    SPLIT = "split"
    #: Given back with what was done; somebody goes on from there.
    RELEASED = "released"
    #: Sent to a larger machine, since it ran out of memory, or of that of a GPU.
    OUTGROWN = "outgrown"
    OUTGROWN_GPU = "outgrown-gpu"
    #: Given back, and counted against the job.
    FAILED = "failed"
    DEAD_LETTERED = "dead-lettered"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotContext:
    """What a slot works with, the same from job to job."""

    slot_id: SlotId
    worker_row: WorkerRow
    ports: WorkPorts
    runner: Runner
    life: SharedLifecycle
    reporter: Reporter
    renewer: LeaseRenewer
    log: EventLog
    batch_size: int
    #: Fetches inputs and writes commits beside the computing.
    transfers: Executor
    #: A directory of this slot alone, which is there.
    scratch: Path
    #: What the code leaves elsewhere; None: it may leave nothing that is not our own.
    leftovers: Leftovers | None = None
    #: Interruptions per hour of the pool that the instance came from.
    interruption_rate: float = 0.0
    #: Notes how the machine was used; None: nobody asks.
    recorder: UsageRecorder | None = None
    #: Memory of the machine, GiB; 0: not known.
    memory_gib: float = 0.0
    #: What the code has to end in order when it is asked to stop.
    stop_grace: timedelta = timedelta(0)
    #: Bound of one attempt; None: none.
    job_timeout: timedelta | None = None
    #: Looks one message ahead; None: nobody does.
    next_message: NextMessage | None = None
    #: Tells other systems of jobs that are over; None: nobody listens.
    outbox: Outbox | None = None
    deployment: str = ""
    #: Whether a job in which every item failed speaks against the machine; not where each job
    #: brings its own command.
    is_judged_by_items: bool = True
    #: Called before the first poll, while the code is being loaded.
    on_ready: Callable[[], None] = lambda: None
    #: Called when the code has its first item, which it had not to wait for.
    on_first_item: Callable[[], None] = lambda: None

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.life.policy


#: How a job ended -> the metric that counts it.
_COUNTED = {BatchEnd.COMPLETED: "JobsCompleted", BatchEnd.FAILED: "JobsFailed"}


def announce(manifest: Manifest, context: SlotContext) -> None:
    """Count how a job ended, and let other systems hear of it, without waiting for them."""
    ended = end_of_job(str(manifest.state), items_failed=manifest.items_failed)
    if ended in _COUNTED:
        context.reporter.emit({_COUNTED[ended]: 1})
    if context.outbox is None:
        return
    event = job_event(
        manifest,
        deployment=context.deployment,
        workload=context.slot_id.workload,
        now=context.ports.clock.now(),
    )
    context.outbox.send(event)


class JobEnding:
    """The last steps of one attempt. The lease's lock is held, so no heartbeat comes between."""

    def __init__(self, context: SlotContext, log: EventLog) -> None:
        self._context = context
        self._log = log

    def complete(self, held: ClaimedJob) -> AttemptEnd:
        """Delete the message of a job that is completed."""
        # First, since nobody tells of it again if what follows gets no answer.
        announce(held.manifest, self._context)
        with self._letting_go(held) as job:
            complete(job, **self._ours)
        manifest = held.manifest
        self._log.info(
            "job_completed",
            items=manifest.items,
            items_failed=manifest.items_failed,
            busy_seconds=round(manifest.busy_seconds, 3),
            cost_usd=round(manifest.cost_usd, 6),
        )
        return AttemptEnd.COMPLETED

    def split(self, held: ClaimedJob, values: Sequence[Any]) -> AttemptEnd:
        """Replace a job that is too large by its children."""
        held = split(held, values, ports=self._context.ports, policy=self._context.policy)
        with self._letting_go(held) as job:
            complete(job, **self._ours)
        self._log.info("job_split", children=len(held.manifest.children), items=len(values))
        return AttemptEnd.SPLIT

    def release(self, held: ClaimedJob, *, wait: timedelta = timedelta(0)) -> AttemptEnd:
        """Give a job back to whoever comes next, not before ``wait``."""
        with self._letting_go(held) as job:
            release(job, **self._ours, policy=self._context.policy, wait=wait)
        self._log.info("job_released", next_item=held.manifest.next_item)
        return AttemptEnd.RELEASED

    def outgrow(self, held: ClaimedJob, needs: JobNeeds, need: str) -> AttemptEnd:
        """Send a job that has run out of memory to a larger machine; ``need`` says of which."""
        with self._letting_go(held) as job:
            send_to_larger(job, needs, **self._ours, policy=self._context.policy)
        self._log.info("job_outgrown", **{need: getattr(needs, need)})
        return AttemptEnd.OUTGROWN_GPU if need == VRAM else AttemptEnd.OUTGROWN

    def break_off(self, held: ClaimedJob, cause: SpindownError, rest: Portion) -> None:
        """Give a job back; an outage says nothing of it, so it is not counted, and can wait."""
        context, message, wait = self._context, held.message, timedelta(0)
        if isinstance(cause, Throttled | Unreachable | WriteConflict):
            if is_excused(message.sent_at, context.ports.clock.now()):
                held = self._save(held, rest)
            if not context.life.must_leave():
                wait = outage_wait(message.receive_count, context.ports.random.random())
        match held.manifest.state:
            case JobState.COMPLETED:
                self.complete(held)
            case JobState.FAILED:
                self.dead_letter(held)
            case _:
                self.release(held, wait=wait)

    def _save(self, held: ClaimedJob, rest: Portion) -> ClaimedJob:
        """Commit, as far as S3 can be had, what is done and that the epoch ends in order."""
        context, started = self._context, self._context.ports.clock.now()
        for portion in (rest, Portion()) if rest.finished else (rest,):
            with suppress(SpindownError):
                saved = settle_release(
                    held,
                    portion,
                    interrupted=context.life.state.is_interrupted,
                    slot_id=context.slot_id,
                    ports=context.ports,
                    policy=context.policy,
                )
                if portion.finished:
                    self.tell(held, saved, portion, context.ports.clock.now() - started)
                return saved
        return held

    def give_up(self, held: ClaimedJob, fault: Exception, rest: Portion) -> None:
        """Give a job back on which the worker itself has failed, with what is done.

        It counts as a failure, named, and not as a loss: so this instance leaves the job to others
        for a while, of which one may be in order, and a job that every worker fails on ends.
        """
        reason = f"the worker failed: {type(fault).__name__}: {fault}"
        for portion in (rest, Portion()) if rest.finished else (rest,):
            if (settled := self._settle_fault(held, portion, reason)) is not None:
                held = settled
                break
        match held.manifest.state:
            case JobState.FAILED:
                self.dead_letter(held)
            case JobState.COMPLETED:
                self.complete(held)
            case _:
                self.release(held)

    def _settle_fault(self, held: ClaimedJob, portion: Portion, reason: str) -> ClaimedJob | None:
        """Commit a portion and a failure; None: that cannot be done, perhaps for the same fault."""
        context, started = self._context, self._context.ports.clock.now()
        try:
            settled = settle_failure(
                held,
                portion,
                reason,
                slot_id=context.slot_id,
                ports=context.ports,
                policy=context.policy,
            )
        except Exception as exc:  # noqa: BLE001 - whatever it is, the job must be let go
            self._log.warning("fault_not_settled", reason=str(exc), items=len(portion.finished))
            return None
        if portion.finished:
            self.tell(held, settled, portion, context.ports.clock.now() - started)
        return settled

    def dead_letter(self, held: ClaimedJob) -> AttemptEnd:
        """Move a job that failed for good to the dead-letter queue."""
        with self._letting_go(held) as job:
            dead_letter_job(job, **self._ours)
        self._context.reporter.emit({"DeadLettered": 1}, reason=class_of(held.manifest.code))
        self._log.warning("job_dead_lettered", reason=held.manifest.reason)
        if not held.manifest.batch_id:
            self.report(Progress(failed_alone=1))
        announce(held.manifest, self._context)
        return AttemptEnd.DEAD_LETTERED

    def abandon(self, held: ClaimedJob, rest: Portion) -> AttemptEnd:
        """Clear what is ours of a job whose lease is gone.

        If nobody has claimed the job since, as when its row was deleted, this epoch ends in order,
        with what is done: it is not counted as lost, for its worker lives.
        """
        held = self._save(held, rest)
        if held.manifest.state is JobState.COMPLETED:
            return self.complete(held)
        with self._letting_go(held) as job:
            abandon(job, slot_id=self._context.slot_id, worker_row=self._context.worker_row)
        return AttemptEnd.LOST

    def tell(
        self,
        before: ClaimedJob,
        held: ClaimedJob,
        portion: Portion,
        took: timedelta,
        *,
        redone: int = 0,
    ) -> None:
        """Report a commit: the job before and after it; ``redone`` items were computed in vain."""
        slot_id = self._context.slot_id
        earlier = begun(before.manifest, portion, slot_id)
        busy = timedelta(seconds=earlier.pop(slot_id.gpu))
        records = [one.record for one in portion.finished]
        failed = [one for one in records if one.status is ItemStatus.FAILED]
        is_completed = held.manifest.state is JobState.COMPLETED
        if is_completed:
            # Nothing is computed during a job's last commit.
            busy += took
        self.report(
            Progress(
                items_ok=len(records) - len(failed),
                items_failed=len(failed),
                failed_job=held.job_id if failed else "",
                failed_with=say_error(failed[-1].error) if failed else "",
                items_redone=redone,
                failed_alone=0 if held.manifest.batch_id else len(failed),
                busy=busy,
                earlier=earlier,
                bytes_in=portion.bytes_in,
                bytes_out=portion.bytes_out + _part_bytes(held, portion),
                commit=took if portion.finished or portion.state is not None else None,
                job_items=held.manifest.items if is_completed else None,
                job_busy=timedelta(seconds=held.manifest.busy_seconds),
                job_type=held.job.type or "",
            )
        )

    def report(self, progress: Progress) -> None:
        """Report progress; the work is safe even if the report is lost."""
        try:
            self._context.reporter.report(progress)
        except SpindownError as exc:
            self._log.warning("report_failed", reason=str(exc))

    @property
    def _ours(self) -> dict[str, Any]:
        context = self._context
        return {
            "slot_id": context.slot_id,
            "worker_row": context.worker_row,
            "ports": context.ports,
        }

    @contextmanager
    def _letting_go(self, held: ClaimedJob) -> Iterator[ClaimedJob]:
        with self._context.renewer.letting_go() as lease:
            try:
                yield held if lease is held.lease else replace(held, lease=lease)
            except SpindownError:
                # What was not cleared runs out by itself; the slot is free all the same.
                self._context.worker_row.free(self._context.slot_id)
                raise


def _part_bytes(held: ClaimedJob, portion: Portion) -> int:
    """Return the size of the part that a portion has become."""
    return held.manifest.parts[-1].bytes if portion.finished else 0

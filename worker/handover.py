"""How a held job leaves its slot: the last steps of every ending, each told to log and ledger."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from spindown.app.work.commit import Portion, complete
from spindown.app.work.held import Held, Seat, WorkPorts
from spindown.app.work.presence import Presence
from spindown.app.work.progress import Progress, Reporter
from spindown.app.work.release import (
    abandon,
    dismiss,
    release,
    settle_failure,
    settle_release,
)
from spindown.app.work.split import split
from spindown.contract.job.event import job_event
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.result import ItemStatus
from spindown.domain.lease import is_excused, outage_wait
from spindown.domain.policy import Policy
from spindown.error import SpindownError, Throttled, Unreachable, WriteConflict
from worker.child.runner import Runner
from worker.keeper import Keeper
from worker.lifecycle import WorkerLifecycle
from worker.log import EventLog
from worker.transfer.ahead import Ahead
from worker.transfer.outbox import Outbox
from worker.usage.record import Recorder


class Ending(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    SPLIT = "split"
    #: Given back with what was done; somebody goes on from there.
    RELEASED = "released"
    #: Given back, and counted against the job.
    FAILED = "failed"
    DEAD_LETTERED = "dead-lettered"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a slot works with, the same from job to job."""

    seat: Seat
    presence: Presence
    ports: WorkPorts
    runner: Runner
    life: WorkerLifecycle
    reporter: Reporter
    keeper: Keeper
    log: EventLog
    batch_size: int
    #: Fetches inputs and writes commits beside the computing.
    transfers: Executor
    #: A directory of this slot alone, which is there.
    scratch: Path
    #: Interruptions per hour of the pool that the instance came from.
    interruption_rate: float = 0.0
    #: Notes how the machine was used; None: nobody asks.
    recorder: Recorder | None = None
    #: What the code has to end in order when it is asked to stop.
    stop_grace: timedelta = timedelta(0)
    #: Bound of one attempt; None: none.
    job_timeout: timedelta | None = None
    #: Looks one message ahead; None: nobody does.
    ahead: Ahead | None = None
    #: Tells other systems of jobs that are over; None: nobody listens.
    outbox: Outbox | None = None
    deployment: str = ""

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.life.policy


def announce(manifest: Manifest, bench: Bench) -> None:
    """Let other systems hear how a job ended, without waiting for it."""
    if bench.outbox is None:
        return
    event = job_event(
        manifest,
        deployment=bench.deployment,
        workload=bench.seat.workload,
        now=bench.ports.clock.now(),
    )
    bench.outbox.add(event)
    bench.transfers.submit(bench.outbox.flush)


class Handover:
    """The last steps of one attempt. The lease's lock is held, so no heartbeat comes between."""

    def __init__(self, bench: Bench, log: EventLog) -> None:
        self._bench = bench
        self._log = log

    def complete(self, held: Held) -> Ending:
        """Delete the message of a job that is completed."""
        # First, since nobody tells of it again if what follows gets no answer.
        announce(held.manifest, self._bench)
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
        return Ending.COMPLETED

    def split(self, held: Held, values: Sequence[Any]) -> Ending:
        """Replace a job that is too large by its children."""
        held = split(held, values, ports=self._bench.ports, policy=self._bench.policy)
        if held.manifest.state is JobState.FAILED:
            return self.dismiss(held, "input")
        with self._letting_go(held) as job:
            complete(job, **self._ours)
        self._log.info("job_split", children=len(held.manifest.children), items=len(values))
        return Ending.SPLIT

    def release(self, held: Held, *, wait: timedelta = timedelta(0)) -> Ending:
        """Give a job back to whoever comes next, not before ``wait``."""
        with self._letting_go(held) as job:
            release(job, **self._ours, wait=wait)
        self._log.info("job_released", next_item=held.manifest.next_item)
        return Ending.RELEASED

    def break_off(self, held: Held, cause: SpindownError, rest: Portion) -> None:
        """Give a job back; an outage says nothing of it, so it is not counted, and can wait."""
        bench, message, wait = self._bench, held.message, timedelta(0)
        if isinstance(cause, Throttled | Unreachable | WriteConflict):
            if is_excused(message.sent_at, bench.ports.clock.now()):
                held = self._save(held, rest)
            if not bench.life.must_leave():
                wait = outage_wait(message.receive_count, bench.ports.random.random())
        self.release(held, wait=wait)

    def _save(self, held: Held, rest: Portion) -> Held:
        """Commit, as far as S3 can be had, what is done and that the epoch ends in order."""
        bench, started = self._bench, self._bench.ports.clock.now()
        for portion in (rest, Portion()) if rest.finished else (rest,):
            with suppress(SpindownError):
                saved = settle_release(
                    held,
                    portion,
                    interrupted=bench.life.state.is_interrupted,
                    seat=bench.seat,
                    ports=bench.ports,
                )
                if portion.finished:
                    self.tell(saved, portion, bench.ports.clock.now() - started)
                return saved
        return held

    def give_up(self, held: Held, fault: Exception) -> None:
        """Give a job back on which the worker itself has failed.

        It counts as a failure, named, and not as a loss: so this instance leaves the job to others
        for a while, of which one may be in order, and a job that every worker fails on ends.
        """
        bench, reason = self._bench, f"the worker failed: {type(fault).__name__}: {fault}"
        with suppress(SpindownError):
            held = settle_failure(
                held, Portion(), reason, seat=bench.seat, ports=bench.ports, policy=bench.policy
            )
        if held.manifest.state is JobState.FAILED:
            self.dismiss(held, "failures")
        else:
            self.release(held)

    def dismiss(self, held: Held, why: str) -> Ending:
        """Move a job that failed for good to the dead-letter queue; ``why`` classes the reason."""
        with self._letting_go(held) as job:
            dismiss(job, **self._ours)
        self._bench.reporter.emit({"DeadLettered": 1}, reason=why)
        self._log.warning("job_dead_lettered", reason=held.manifest.reason)
        announce(held.manifest, self._bench)
        return Ending.DEAD_LETTERED

    def abandon(self, held: Held) -> Ending:
        """Clear what is ours of a job that somebody else owns."""
        with self._letting_go(held) as job:
            abandon(job, seat=self._bench.seat, presence=self._bench.presence)
        return Ending.LOST

    def tell(self, held: Held, portion: Portion, took: timedelta, *, redone: int = 0) -> None:
        """Report a commit; ``redone`` items were computed in vain."""
        failed = sum(one.record.status is ItemStatus.FAILED for one in portion.finished)
        is_completed = held.manifest.state is JobState.COMPLETED
        self.report(
            Progress(
                items_ok=len(portion.finished) - failed,
                items_failed=failed,
                items_redone=redone,
                busy=portion.busy,
                bytes_in=portion.bytes_in,
                bytes_out=portion.bytes_out + _part_bytes(held, portion),
                commit=took if portion.finished else None,
                job_items=held.manifest.items if is_completed else None,
                job_busy=timedelta(seconds=held.manifest.busy_seconds),
            )
        )

    def report(self, progress: Progress) -> None:
        """Report progress; the work is safe even if the report is lost."""
        try:
            self._bench.reporter.report(progress)
        except SpindownError as exc:
            self._log.warning("report_failed", reason=str(exc))

    @property
    def _ours(self) -> dict[str, Any]:
        bench = self._bench
        return {"seat": bench.seat, "presence": bench.presence, "ports": bench.ports}

    @contextmanager
    def _letting_go(self, held: Held) -> Iterator[Held]:
        with self._bench.keeper.letting_go() as lease:
            try:
                yield held if lease is held.lease else replace(held, lease=lease)
            except SpindownError:
                # What was not cleared runs out by itself; the slot is free all the same.
                self._bench.presence.free(self._bench.seat)
                raise


def _part_bytes(held: Held, portion: Portion) -> int:
    """Return the size of the part that a portion has become."""
    return held.manifest.parts[-1].bytes if portion.finished else 0

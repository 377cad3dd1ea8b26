"""One slot's work on one job: compute batch after batch, commit meanwhile, end in order."""

import itertools
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

from spindown.app.work.account import Progress
from spindown.app.work.commit import Portion, commit
from spindown.app.work.held import Finished, Held, LocalFile
from spindown.app.work.item import settle_items
from spindown.app.work.release import settle_failure, settle_rejection, settle_release
from spindown.app.work.split import is_too_large
from spindown.contract.job.manifest import JobState
from spindown.contract.job.result import ItemStatus, Record
from spindown.domain.checkpointing import interval_hours, is_due
from spindown.domain.lease import is_excused, must_release, outage_wait
from spindown.error import ContractError, LeaseLost, SpindownError, Throttled, Unreachable
from worker.child.runner import BatchDone, Broken, ItemDone, Task
from worker.handover import Bench, Ending, Handover
from worker.prefetch import Prefetch
from worker.writer import Writer

#: How often a slot looks up from a batch: what a lost lease or a notice waits for at most.
_LOOK_UP = timedelta(milliseconds=200)
#: Answers that may come one upon the other between two looks.
_POLLS_A_LOOK = 8
#: Time that computing stands still for a commit, until one has been measured.
_COST_ESTIMATE = timedelta(seconds=1)


class Attempt:
    """Works on one held job until it is completed, given back, failed or lost."""

    def __init__(self, held: Held, bench: Bench) -> None:
        self._bench = bench
        self._held = held
        self._log = bench.log.bind(job_id=held.job_id, epoch=held.manifest.epoch)
        self._values: Sequence[Any] = ()
        self._results: dict[int, Finished] = {}
        self._next = held.manifest.next_item
        self._busy_from = bench.ports.clock.now()
        # The epoch is in the name: a fetch of an attempt that was broken off may still come in.
        self._scratch = bench.scratch / f"{held.job_id}.{held.manifest.epoch}"
        self._outputs = self._scratch / "outputs"
        #: Results are there for every item before this one.
        self._row_end = self._next
        self._handover = Handover(bench, self._log)

    @property
    def held(self) -> Held:
        """Return the job as it stands."""
        return self._held

    @property
    def all_failed(self) -> bool:
        """Tell whether the job has come to an end in which not one item went well."""
        manifest = self._held.manifest
        return bool(manifest.items) and sum(p.failed for p in manifest.parts) == manifest.items

    def run(self) -> Ending:
        """Do the work; whatever happens, the job is no longer held when this returns."""
        bench = self._bench
        redone = self._held.lease.items_done - self._held.manifest.next_item
        try:
            bench.keeper.take(self._held, bench.life.deadline)
            return self._run(max(redone, 0))
        except LeaseLost as exc:
            self._log.warning("lease_lost", reason=str(exc))
            bench.runner.kill()
            return self._handover.abandon(self._held)
        except SpindownError as exc:
            self._log.warning("attempt_broken_off", reason=str(exc))
            bench.runner.kill()
            if bench.keeper.is_keeping:
                self._break_off(exc)
            return Ending.RELEASED
        except Exception:
            # A fault of this machine or of ours: the job must not be held on to by a heartbeat.
            bench.runner.kill()
            if bench.keeper.is_keeping:
                self._handover.release(self._held)
            raise
        finally:
            if self._scratch.exists():
                shutil.rmtree(self._scratch, ignore_errors=True)

    def _break_off(self, cause: SpindownError) -> None:
        """Give the job back; an outage says nothing of it, so it is not counted, and can wait."""
        bench, message = self._bench, self._held.message
        wait = timedelta(0)
        if isinstance(cause, Throttled | Unreachable):
            if is_excused(message.sent_at, bench.ports.clock.now()):
                with suppress(SpindownError):
                    self._held = settle_release(
                        self._held,
                        Portion(),
                        interrupted=bench.life.interrupted,
                        seat=bench.seat,
                        ports=bench.ports,
                    )
            if not bench.life.must_leave():
                wait = outage_wait(message.receive_count, bench.ports.random.random())
        self._handover.release(self._held, wait=wait)

    def _run(self, redone: int) -> Ending:
        bench = self._bench
        try:
            self._values = settle_items(self._held.job, bench.ports)
        except ContractError as exc:
            held = settle_rejection(self._held, str(exc), ports=bench.ports)
            return self._handover.dismiss(held, "input")
        if is_too_large(self._held, self._values, bench.policy):
            return self._handover.split(self._held, self._values)
        self._held = self._held.with_items(len(self._values))
        if redone:
            self._handover.report(Progress(items_redone=redone))
        writer = Writer(self._held, self._commit, clock=bench.ports.clock, executor=bench.transfers)
        prefetch = Prefetch(
            self._values,
            inputs=bench.ports.inputs,
            scratch=self._scratch / "inputs",
            executor=bench.transfers,
        )
        try:
            end = self._compute(writer, prefetch)
        finally:
            self._held = writer.settle()
        return self._end(end)

    def _compute(self, writer: Writer, prefetch: Prefetch) -> "_End":
        """Go through the batches until all are done or something ends it."""
        bench, size = self._bench, self._bench.batch_size
        total = len(self._values)
        for first in range(self._next, total, size):
            indexes = range(first, min(first + size, total))
            if self._should_stop() or self._is_held_too_long():
                return _STOPPED
            while not prefetch.is_ready(indexes, _LOOK_UP):
                if self._should_stop():
                    return _STOPPED
            batch = prefetch.take(indexes)
            if indexes.stop < total:
                prefetch.begin(range(indexes.stop, min(indexes.stop + size, total)))
            for index, why in batch.failed.items():
                self._keep(ItemDone(index=index, error=why))
            if batch.items:
                task = Task(
                    job_id=self._held.job_id, params=self._held.job.params, outputs=self._outputs
                )
                bench.runner.begin(task, batch.items)
                end = self._follow(writer)
                if end is not None:
                    return end
            prefetch.clear(indexes)
            self._checkpoint(writer)
        return _End()

    def _follow(self, writer: Writer) -> "_End | None":
        """Take the answers of one batch; None when it is done."""
        for polls in itertools.count(1):
            event = self._bench.runner.poll(_LOOK_UP)
            match event:
                case ItemDone():
                    self._keep(event)
                case BatchDone():
                    return None
                case Broken(reason):
                    return _End(reason=reason)
            if event is None or polls % _POLLS_A_LOOK == 0:
                if self._should_stop():
                    self._bench.runner.kill()
                    return _STOPPED
                self._checkpoint(writer)
        raise AssertionError

    def _should_stop(self) -> bool:
        if self._bench.keeper.is_lost:
            raise LeaseLost(f"{self._held.job_id}: the heartbeat found another owner")
        return self._bench.life.must_leave()

    def _is_held_too_long(self) -> bool:
        return must_release(self._held.message.received_at, self._bench.ports.clock.now())

    def _keep(self, done: ItemDone) -> None:
        """Turn an answer into a record, with the files that lie where they may."""
        error, files = done.error, self._files(done)
        if files is None:
            error, files = "its files lie outside its output directory", ()
        record = Record(
            job_id=self._held.job_id,
            index=done.index,
            item=self._values[done.index],
            status=ItemStatus.OK if error is None else ItemStatus.FAILED,
            result=done.value if error is None else None,
            error=error,
            seconds=done.seconds,
        )
        self._results[done.index] = Finished(record=record, files=files)
        self._bench.keeper.items_done += 1
        while self._row_end in self._results:
            self._row_end += 1

    def _files(self, done: ItemDone) -> tuple[LocalFile, ...] | None:
        """Return the files of an answer; None if one of them is not its own."""
        if not done.files or done.error is not None:
            return ()
        root = self._outputs / str(done.index)
        files = tuple(LocalFile(path=path, local=root / path) for path in done.files)
        return files if all(_is_inside(root, file) for file in files) else None

    def _checkpoint(self, writer: Writer) -> None:
        """Begin a commit of what is done in a row, if one is due and none is under way."""
        writer.check()
        if writer.is_busy:
            return
        policy, clock = self._bench.policy, self._bench.ports.clock
        cost = (writer.cost or _COST_ESTIMATE) / timedelta(hours=1)
        hours = interval_hours(policy, cost_hours=cost, rate=self._bench.interruption_rate)
        due = is_due(
            policy,
            items_since=self._row_end - self._next,
            elapsed=clock.now() - writer.committed_at,
            interval=timedelta(hours=hours),
        )
        # The last portion goes with the end of the job, in one write.
        if due and self._row_end < len(self._values):
            writer.begin(self._portion())

    def _portion(self) -> Portion:
        """Take what is done in a row from the next item on, and the time since the last."""
        finished = tuple(self._results.pop(index) for index in range(self._next, self._row_end))
        self._next = self._row_end
        now = self._bench.ports.clock.now()
        busy, self._busy_from = now - self._busy_from, now
        return Portion(finished=finished, busy=busy)

    def _commit(self, held: Held, portion: Portion) -> Held:
        bench = self._bench
        started = bench.ports.clock.now()
        committed = commit(held, portion, seat=bench.seat, ports=bench.ports)
        self._handover.tell(committed, portion, bench.ports.clock.now() - started)
        for one in portion.finished:
            if one.files:
                shutil.rmtree(self._outputs / str(one.record.index), ignore_errors=True)
        return committed

    def _end(self, end: "_End") -> Ending:
        """End the job in order, with what is done; what a later attempt must redo is counted."""
        bench = self._bench
        portion = self._portion()
        if not end.is_stopped and end.reason is None:
            self._held = self._commit(self._held, portion)
            return self._handover.complete(self._held)
        started = bench.ports.clock.now()
        if end.reason is None:
            self._held = settle_release(
                self._held,
                portion,
                interrupted=bench.life.interrupted,
                seat=bench.seat,
                ports=bench.ports,
            )
        else:
            self._log.warning("attempt_failed", reason=end.reason)
            bench.account.emit({"JobsFailed": 1})
            self._held = settle_failure(
                self._held,
                portion,
                end.reason,
                seat=bench.seat,
                ports=bench.ports,
                policy=bench.policy,
            )
        took = bench.ports.clock.now() - started
        self._handover.tell(self._held, portion, took, redone=len(self._results))
        match self._held.manifest.state:
            case JobState.COMPLETED:
                return self._handover.complete(self._held)
            case JobState.FAILED:
                return self._handover.dismiss(self._held, "failures")
            case _:
                self._handover.release(self._held)
                return Ending.RELEASED if end.reason is None else Ending.FAILED


@dataclass(frozen=True, slots=True)
class _End:
    """Why computing ended: all done, stopped on purpose, or broken with a reason."""

    reason: str | None = None
    is_stopped: bool = False


_STOPPED = _End(is_stopped=True)


def _is_inside(root: Path, file: LocalFile) -> bool:
    path = PurePosixPath(file.path)
    if path.is_absolute() or ".." in path.parts or file.local.is_symlink():
        return False
    return file.local.is_file() and file.local.resolve().is_relative_to(root.resolve())

"""One slot's work on one job: compute batch after batch, commit meanwhile, end in order.

At a notice: the job in hand is stopped, what is done of it is committed, and it is given back.
``domain.worker_lifecycle`` says when; ``job.release`` settles it (``settle_release``).
"""

import errno
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from spindown.contract.job.manifest import JobState
from spindown.contract.job.message import needs_of
from spindown.contract.log import ATTEMPT_FAILED
from spindown.domain.lease import RELEASE_AFTER, must_release
from spindown.domain.out_of_memory import had_used_little, larger_needs, memory_of
from spindown.domain.policy import JobNeeds
from spindown.domain.rightsizing.type_size import MEMORY, VRAM
from spindown.error import ContractError, LeaseLost, SpindownError, printable
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import Portion
from spindown.job.item import settle_items
from spindown.job.release import settle_failure, settle_rejection, settle_release
from spindown.job.split import is_too_large
from spindown.job.work_done import Progress
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import BatchDone, ItemDone
from spindown.worker.code_folder import DiskFull, TooMuch, check_room
from spindown.worker.job_ending import AttemptEnd, JobEnding, SlotContext
from spindown.worker.transfer.prefetch import Prefetch
from spindown.worker.workplace import Workplace, clear_slot
from spindown.worker.writer import ResultBuffer, Writer

#: How often a slot looks up from a batch: the longest delay before it reacts to a lost lease or a
#: notice.
_LOOK_UP = timedelta(milliseconds=200)
#: Answers that may come one upon the other between two looks.
_POLLS_A_LOOK = 8
_UNANSWERED = Broken(
    FailureCause.UNANSWERED,
    "the code said that it was done and had given no answer for some items",
)
#: What runs out -> the need that the job has more of next.
_LACKED = {FailureCause.OUT_OF_MEMORY: MEMORY, FailureCause.OUT_OF_GPU_MEMORY: VRAM}
_WASTED = Broken(
    FailureCause.NO_PROGRESS,
    f"nothing came of it in {RELEASE_AFTER / timedelta(hours=1):g} hours, for which a job may be "
    "held: let it give results as they are done, or keep a checkpoint",
)


class Attempt:
    """Works on one held job until it is completed, given back, failed or lost."""

    def __init__(
        self,
        held: ClaimedJob,
        context: SlotContext,
        *,
        on_begun: Callable[[], None] = lambda: None,
    ) -> None:
        """Hold a job; ``on_begun`` is called once, when the code has its first item."""
        self._context = context
        self._on_begun: Callable[[], None] | None = on_begun
        self._held = held
        self._claimed = held.manifest
        self._log = context.log.bind(job_id=held.job_id, epoch=held.manifest.epoch)
        self._values: Sequence[Any] = ()
        self._place = Workplace(held, context.scratch)
        self._buffer = ResultBuffer(
            held,
            self._place.outputs,
            self._place.private,
            below=context.scratch,
            now=context.ports.clock.now(),
        )
        self._ending = JobEnding(context, self._log)

    @property
    def held(self) -> ClaimedJob:
        """Return the job as it stands."""
        return self._held

    @property
    def span(self) -> tuple[datetime, datetime]:
        """Return when it began, and up to when its time is in its commits."""
        return self._buffer.begun_at, self._buffer.busy_until

    @property
    def first_error(self) -> str:
        """Return the error of the first item that failed; "": none has."""
        return self._buffer.first_error

    @property
    def all_failed(self) -> bool:
        """Tell whether the job has come to an end in which not one item went well."""
        manifest = self._held.manifest
        return bool(manifest.items) and manifest.items_failed == manifest.items

    def run(self) -> AttemptEnd:
        """Do the work; whatever happens, the job is no longer held when this returns."""
        context = self._context
        redone = self._held.lease.items_done - self._held.manifest.next_item
        try:
            context.renewer.take(self._held, context.life.state.deadline)
            return self._run(max(redone, 0))
        except LeaseLost as exc:
            self._log.warning("lease_lost", reason=str(exc))
            rest = self._buffer.take_rest(self._held, context.ports.clock.now())
            self._end_code(partial(self._ending.abandon, self._held, rest))
            return AttemptEnd.LOST
        except SpindownError as exc:
            self._log.warning("attempt_broken_off", reason=str(exc))
            rest = self._buffer.take_rest(self._held, context.ports.clock.now())
            self._end_code(partial(self._ending.break_off, self._held, exc, rest))
            return AttemptEnd.RELEASED
        except Exception as exc:
            # A fault of this machine or of ours: the job must not be held on to by a heartbeat.
            rest = self._buffer.take_rest(self._held, context.ports.clock.now())
            self._end_code(partial(self._ending.give_up, self._held, exc, rest))
            raise
        finally:
            self._place.keep_log(self._held.job_id, context.ports.objects, self._log)
            self._place.remove()
            if context.runner.pid is None:
                clear_slot(context.scratch)
                left = context.leftovers.remove() if context.leftovers is not None else 0
                if left:
                    self._log.warning("files_left_behind", count=left)

    def _end_code(self, let_go: Callable[[], object]) -> None:
        """End the code, then let the job go, also if no signal ends the code."""
        try:
            self._context.runner.kill()
        finally:
            if self._context.renewer.is_keeping:
                let_go()

    def _run(self, redone: int) -> AttemptEnd:
        context = self._context
        try:
            self._values = settle_items(self._held.job, context.ports)
        except ContractError as exc:
            held = settle_rejection(self._held, str(exc), ports=context.ports)
            return self._ending.dead_letter(held)
        if is_too_large(self._held, self._values, context.policy):
            return self._ending.split(self._held, self._values)
        self._held = self._held.with_items(len(self._values))
        context.renewer.items = len(self._values)
        self._buffer.expect(self._values)
        if redone:
            self._ending.report(Progress(items_redone=redone))
        writer = Writer(self._held, context, buffer=self._buffer, place=self._place, log=self._log)
        ahead = (
            context.next_message.prefetched(self._held, self._values)
            if context.next_message
            else None
        )
        prefetch = ahead or Prefetch(
            self._values,
            inputs=context.ports.inputs,
            scratch=self._place.inputs,
            executor=context.transfers,
        )
        try:
            end = self._compute_within_bounds(writer, prefetch)
            if end.is_stopped:
                writer.overtake()
        finally:
            prefetch.remove()
            try:
                writer.settle()
            finally:
                self._held = writer.held
        return self._end(end, writer)

    def _compute_within_bounds(self, writer: Writer, prefetch: Prefetch) -> "_End":
        """Compute; what takes or leaves more than it may has failed, and the worker has not."""
        try:
            self._place.open()
            return self._compute(writer, prefetch)
        except (DiskFull, TooMuch) as exc:
            end = _End(broken=_broken_by(exc))
        except OSError as exc:
            if exc.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            end = _End(broken=Broken(FailureCause.DISK_FULL, f"the disk is full: {exc}"))
        self._context.runner.kill()
        return end

    def _compute(self, writer: Writer, prefetch: Prefetch) -> "_End":
        """Go through the batches until all are done or something ends it."""
        context, total, next_item = self._context, len(self._values), self._buffer.next
        # One that was being claimed as the worker was told to end is no job in hand. Before an
        # interruption each minute counts.
        is_late = context.life.is_finishing and not context.life.state.is_interrupted
        if is_late or not self._open_state():
            return _STOPPED
        started = context.ports.clock.elapsed()
        for first in range(next_item, total, context.batch_size):
            indexes = range(first, min(first + context.batch_size, total))
            if not self._is_ready(prefetch, indexes):
                return _STOPPED
            batch = prefetch.take(indexes)
            self._buffer.note_inputs(batch.sizes)
            self._look_ahead(prefetch, indexes)
            for index, why in batch.failed.items():
                self._keep(ItemDone(index=index, error=why))
            if batch.items:
                may_get_vram = self._next_needs(VRAM) is not None
                task = self._place.task(self._held, may_get_vram=may_get_vram)
                context.runner.begin(task, batch.items)
                end = self._take_answers(writer, started)
                if end is not None:
                    return end
            prefetch.clear(indexes)
            self._checkpoint(writer)
        if context.next_message is not None:
            context.next_message.note_pace(
                total - next_item, context.ports.clock.elapsed() - started
            )
        # Only of a job that is whole the message may go.
        return _End() if self._buffer.is_whole else _End(broken=_UNANSWERED)

    def _is_ready(self, prefetch: Prefetch, indexes: range) -> bool:
        """Wait for the input of a batch; False if the job must be left."""
        if self._should_stop() or self._is_held_too_long():
            return False
        while not prefetch.is_ready(indexes, _LOOK_UP):
            if self._should_stop():
                return False
        return True

    def _look_ahead(self, prefetch: Prefetch, indexes: range) -> None:
        """Fetch, while a batch computes, the next one's input, or the next message and its."""
        total, size = len(self._values), self._context.batch_size
        if indexes.stop < total:
            prefetch.begin(range(indexes.stop, min(indexes.stop + size, total)))
        elif self._context.next_message is not None:
            self._context.next_message.begin(len(indexes))

    def _open_state(self) -> bool:
        """Bring back the user's own checkpoint; False if the worker must leave meanwhile."""
        manifest = self._held.manifest
        if not manifest.user_state:
            return True
        ports = self._context.ports
        coming = self._context.transfers.submit(self._place.state.restore, manifest, ports)
        while wait([coming], _LOOK_UP.total_seconds()).not_done:
            if self._should_stop():
                return False
        trouble = coming.result()
        if trouble is not None:
            self._log.warning("state_damaged", reason=trouble)
        return True

    def _take_answers(self, writer: Writer, started: timedelta) -> "_End | None":
        """Take the answers of one batch; None when it is done."""
        context = self._context
        for polls in itertools.count(1):
            event = context.runner.poll(_LOOK_UP)
            if self._on_begun and (context.runner.has_begun or isinstance(event, ItemDone)):
                self._on_begun()
                self._on_begun = None
            match event:
                case ItemDone():
                    self._keep(event)
                case BatchDone():
                    return None
                case Broken():
                    return _End(broken=event)
            if event is None or polls % _POLLS_A_LOOK == 0:
                context.renewer.progress = self._place.output_log.progress
                if self._should_stop() or self._is_held_too_long():
                    for done in context.runner.stop(context.stop_grace):
                        self._keep(done)
                    return _STOPPED
                if (
                    context.job_timeout
                    and context.ports.clock.elapsed() - started > context.job_timeout
                ):
                    context.runner.kill()
                    seconds = context.job_timeout.total_seconds()
                    reason = f"the job took longer than {seconds:g} s (job_timeout)"
                    return _End(broken=Broken(FailureCause.TIMEOUT, reason))
                check_room(context.scratch)
                self._checkpoint(writer)
        raise AssertionError

    def _should_stop(self) -> bool:
        if self._context.renewer.is_lost:
            raise LeaseLost(f"{self._held.job_id}: the heartbeat found another owner")
        return self._context.life.must_leave(ahead=self._context.stop_grace)

    def _is_held_too_long(self) -> bool:
        return must_release(self._held.message.received_at, self._context.ports.clock.now())

    def _keep(self, done: ItemDone) -> None:
        self._buffer.keep(done, self._context.ports.clock.now())
        self._buffer.check_gap()
        self._context.renewer.items_done += 1

    def _checkpoint(self, writer: Writer) -> None:
        """Begin a commit if one is due; what fills the memory waits for the one under way."""
        while writer.is_crowded and not self._should_stop():
            writer.wait(_LOOK_UP)
        writer.write_if_due()

    def _end(self, end: "_End", writer: Writer) -> AttemptEnd:
        """End the job in order, with what is done; what a later attempt must redo is counted."""
        context = self._context
        # Of an attempt that failed, only what an earlier commit took is to be trusted.
        is_rest = end.is_stopped and not self._buffer.is_whole
        state = None
        if is_rest:
            try:
                state = self._place.state.take(at_rest=True)
            except TooMuch as exc:
                end = _End(broken=_broken_by(exc))
        portion = self._buffer.take(context.ports.clock.now(), state)
        if end.is_stopped and self._is_held_too_long() and not self._has_moved(portion):
            # The next to hold it would fare no better.
            end = _End(broken=_WASTED)
        if portion.finished and state is not None:
            # First what is small: to upload a checkpoint may take longer than the machine has.
            self._held = writer.commit(replace(portion, state=None))
            portion = Portion(state=state)
        if not end.is_stopped and end.broken is None:
            self._held = writer.commit(portion)
            return self._ending.complete(self._held)
        started, before = context.ports.clock.elapsed(), self._held
        larger = self._larger(end.broken)
        if end.broken is None or (larger is not None and not self._had_used_little(end.broken)):
            self._held = settle_release(
                self._held,
                portion,
                interrupted=context.life.state.is_interrupted,
                slot_id=context.slot_id,
                ports=context.ports,
                policy=context.policy,
            )
        else:
            reason = printable(end.broken.reason)
            self._log.warning(ATTEMPT_FAILED, cause=end.broken.cause, reason=reason)
            self._place.output_log.add(f"[spindown] the attempt failed: {reason}")
            self._held = settle_failure(
                self._held,
                portion,
                reason,
                slot_id=context.slot_id,
                ports=context.ports,
                policy=context.policy,
            )
        took = context.ports.clock.elapsed() - started
        try:
            return self._hand_over(end, larger)
        finally:
            # Told afterwards: whoever takes the job next need not wait for our report.
            self._ending.tell(before, self._held, portion, took, redone=self._buffer.behind_a_gap)

    def _larger(self, broken: Broken | None) -> JobNeeds | None:
        """Return what a job asks for next if it has run out of memory; None: nothing."""
        need = None if broken is None else _LACKED.get(broken.cause)
        if need is None:
            return None
        larger, is_of_gpu = self._next_needs(need), need == VRAM
        ran_out = replace(
            self._held.manifest,
            ran_out_gib=round(self._had(need), 1),
            ran_out_of_vram=is_of_gpu,
        )
        self._held = replace(self._held, manifest=ran_out)
        if larger is not None:
            what = "GPU memory" if is_of_gpu else "memory"
            why = f"out of {what}: goes on with {getattr(larger, need):g} GiB"
            self._place.output_log.add(f"[spindown] {why}")
        return larger

    def _next_needs(self, need: str) -> JobNeeds | None:
        """Return what the job asks for once a memory runs out; None: it may have no more of it."""
        context, job = self._context, self._held.job
        return larger_needs(
            job.type or "",
            needs_of(job),
            shape=context.slot_id.shape,
            memory_gib=self._had(need),
            policy=context.policy,
            need=need,
        )

    def _had(self, need: str) -> float:
        """Return the GiB of a memory that the job has here, as far as that is known."""
        context = self._context
        if need == MEMORY:
            known = context.memory_gib
        else:
            known = 0.0 if context.recorder is None else context.recorder.vram_gib
        return memory_of(context.slot_id.shape, known, need)

    def _had_used_little(self, broken: Broken) -> bool:
        """Tell whether it had memory left by far, so that its attempts must not be many."""
        recorder, job = self._context.recorder, self._held.job
        need = _LACKED[broken.cause]
        if need == MEMORY:
            seen = None if recorder is None else recorder.memory_peak
            peak = None if broken.peak_gib is None else max(broken.peak_gib, seen or 0.0)
        else:
            peak = None if recorder is None else recorder.vram_peak
        policy = self._context.policy
        return had_used_little(peak, self._had(need), job.type or "", needs_of(job), policy, need)

    def _has_moved(self, last: Portion) -> bool:
        """Tell whether the job is further than it was claimed, the last portion included."""
        before, now = self._claimed, self._held.manifest
        is_further = (before.next_item, before.user_state) != (now.next_item, now.user_state)
        return is_further or bool(last.finished) or last.state is not None

    def _hand_over(self, end: "_End", larger: JobNeeds | None) -> AttemptEnd:
        match self._held.manifest.state:
            case JobState.COMPLETED:
                return self._ending.complete(self._held)
            case JobState.FAILED:
                return self._ending.dead_letter(self._held)
            case _ if larger is not None and end.broken is not None:
                return self._ending.outgrow(self._held, larger, _LACKED[end.broken.cause])
            case _:
                self._ending.release(self._held)
                return AttemptEnd.RELEASED if end.broken is None else AttemptEnd.FAILED


@dataclass(frozen=True, slots=True)
class _End:
    """Why computing ended: all done, stopped on purpose, or broken."""

    broken: Broken | None = None
    is_stopped: bool = False


_STOPPED = _End(is_stopped=True)


def _broken_by(exc: DiskFull | TooMuch) -> Broken:
    cause = FailureCause.DISK_FULL if isinstance(exc, DiskFull) else FailureCause.TOO_MUCH
    return Broken(cause, str(exc))

"""What one attempt has brought in, and its commits beside the computing.

``ResultBuffer`` turns answers into records, and records in a row into a portion. ``Writer`` commits
one portion at a time, in order, in a thread of its own.

State is uploaded first, which may take minutes. Results need not wait for it: they overtake it if
the worker must leave, and the manifest lists the state when it has come.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from spindown.contract.job.result import ItemStatus, Record
from spindown.domain.commit_interval import COMMIT_BYTES, commit_due
from spindown.job.attachment.checkpoint_store import State, upload_state
from spindown.job.claimed_job import ClaimedJob, Finished, LocalFile
from spindown.job.commit import Portion, commit
from spindown.worker.child.runner import ItemDone
from spindown.worker.code_folder import TooMuch, check_amount, find_fault, take_file
from spindown.worker.job_ending import JobEnding, SlotContext
from spindown.worker.log import EventLog
from spindown.worker.workplace import Workplace

_NO_REASON = "the code gave no reason"
#: Of memory that results may take which no commit can: an earlier item has no answer.
_GAP_BYTES_MAX = 1024**3


class ResultBuffer:
    """The results of one attempt that no commit has taken yet. One thread uses it."""

    def __init__(
        self,
        held: ClaimedJob,
        outputs: Path,
        private: Callable[[], Path],
        *,
        below: Path,
        now: datetime,
    ) -> None:
        """Take files from ``outputs`` to ``private``, which only the worker may enter.

        ``outputs`` lies ``below`` a directory that the code can put nothing in the place of.
        """
        self._below = below
        self._job_id = held.job_id
        self._outputs = outputs
        self._private = private
        self._numbers = count()
        self._values: Sequence[Any] = ()
        self._results: dict[int, Finished] = {}
        #: Index -> bytes of its input, and of its files.
        self._taken: dict[int, int] = {}
        self._given: dict[int, int] = {}
        #: Index -> bytes of an answer that no commit has taken, and of all of them.
        self._sizes: dict[int, int] = {}
        self.waiting_bytes = 0
        #: When the attempt began, and up to when its time is in what ``take`` has called busy.
        self.begun_at = self.busy_until = now
        #: Of the first item that failed; "": none has.
        self.first_error = ""
        #: Time up to here is in what ``take`` has called worked, and when the row last grew.
        self._worked_from = self._row_grew_at = now
        #: The first item that no commit has taken.
        self.next = held.manifest.next_item
        #: Results are there for every item before this one.
        self.row_end = self.next

    def expect(self, values: Sequence[Any]) -> None:
        """Learn what the items are."""
        self._values = values

    def note_inputs(self, sizes: Mapping[int, int]) -> None:
        """Learn how many bytes came for the items of a batch."""
        self._taken |= sizes

    @property
    def in_a_row(self) -> int:
        """Return how many items a commit could take now."""
        return self.row_end - self.next

    @property
    def behind_a_gap(self) -> int:
        """Return how many results no commit can take, since one before them is missing."""
        return len(self._results) - self.in_a_row

    @property
    def is_whole(self) -> bool:
        """Tell whether every item has a result."""
        return self.row_end >= len(self._values)

    def keep(self, done: ItemDone, now: datetime) -> None:
        """Turn an answer into a record, with the files that lie where they may."""
        files, fault = self._try_files(done) if done.files else ((), None)
        error = fault if done.error is None else done.error or _NO_REASON
        record = Record(
            job_id=self._job_id,
            index=done.index,
            item=self._values[done.index],
            status=ItemStatus.OK if error is None else ItemStatus.FAILED,
            result=done.value if fault is None else None,
            error=error,
            traceback=None if error is None else done.traceback,
            seconds=done.seconds,
        )
        self.first_error = self.first_error or error or ""
        self._results[done.index] = Finished(record=record, files=files)
        self._sizes[done.index] = done.size
        self.waiting_bytes += done.size
        while self.row_end in self._results:
            self.row_end += 1
            self._row_grew_at = now

    def check_gap(self) -> None:
        """Check that not too much memory waits for an answer before it (raises TooMuch)."""
        if not self.in_a_row and self.waiting_bytes > _GAP_BYTES_MAX:
            size = _GAP_BYTES_MAX // 1024**2
            raise TooMuch(
                f"results of later items take more than {size} MiB, while item {self.next} has none"
            )

    def take(self, now: datetime, state: State | None = None) -> Portion:
        """Take what is done in a row from the next item on, and the time since the last."""
        indexes = range(self.next, self.row_end)
        finished = tuple(map(self._results.pop, indexes))
        bytes_in, bytes_out = _pop_sum(self._taken, indexes), _pop_sum(self._given, indexes)
        self.waiting_bytes -= _pop_sum(self._sizes, indexes)
        self.next = self.row_end
        busy, self.busy_until = now - self.busy_until, now
        worked = timedelta(0)
        if finished or state is not None:
            until = now if state is not None or self.is_whole else self._row_grew_at
            worked, self._worked_from = until - self._worked_from, until
        return Portion(
            finished=finished,
            busy=max(busy, timedelta(0)),
            worked=max(worked, timedelta(0)),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            state=state,
        )

    def take_rest(self, held: ClaimedJob, now: datetime) -> Portion:
        """Take what a job as it is ``held`` can still be given: nothing behind a lost commit."""
        can_follow = self.in_a_row > 0 and self.next == held.manifest.next_item
        return self.take(now) if can_follow else Portion()

    def _try_files(self, done: ItemDone) -> tuple[tuple[LocalFile, ...], str | None]:
        """Return the files of an answer, or why they cannot be taken."""
        error = next(filter(None, map(find_fault, done.files)), None)
        if error is not None:
            return (), error
        try:
            return self._take_files(done), None
        except (_Foreign, TooMuch) as exc:
            return (), str(exc)

    def _take_files(self, done: ItemDone) -> tuple[LocalFile, ...]:
        """Return the files of an answer (raises _Foreign, TooMuch)."""
        check_amount(range(len(done.files)), self._below)
        root = self._outputs / str(done.index)
        into = self._private() / "files" / str(next(self._numbers))
        into.mkdir(parents=True)
        files, sizes = [], []
        for number, path in enumerate(done.files):
            local = into / str(number)
            status = take_file(root, path, local, below=self._below)
            if status is None:
                raise _Foreign("its files lie outside its output directory")
            sizes.append(status.st_size)
            files.append(LocalFile(path=path, local=local))
        check_amount(sizes, self._below)
        self._given[done.index] = sum(sizes)
        return tuple(files)


def _pop_sum(counts: dict[int, int], indexes: range) -> int:
    """Take what was counted of some items; return the sum."""
    return sum(counts.pop(index, 0) for index in indexes) if counts else 0


class _Foreign(Exception):
    """A file of an answer is not its own."""


#: All of the log is written each time, up to 1 MiB: with every commit it might be most of its cost.
_LOG_EVERY = timedelta(minutes=1)
#: Of memory: with more results than that no more are taken while a commit is under way.
_WAITING_BYTES_MAX = 2 * COMMIT_BYTES


class Writer:
    """Carries a held job from one commit to the next."""

    def __init__(
        self,
        held: ClaimedJob,
        context: SlotContext,
        *,
        buffer: ResultBuffer,
        place: Workplace,
        log: EventLog,
    ) -> None:
        #: The job as it stands.
        self.held = held
        self._context = context
        self._buffer = buffer
        self._place = place
        self._log = log
        self._ending = JobEnding(context, log)
        self._pending: Future[None] | None = None
        #: ClaimedJob while the manifest is written.
        self._writing = threading.Lock()
        #: Of the commit under way, what no manifest lists yet.
        self._results = Portion()
        #: Time that the last commit took; None before the first.
        self._cost: timedelta | None = None
        self._log_kept_at: datetime | None = None
        self._committed_at: datetime = context.ports.clock.now()

    @property
    def is_crowded(self) -> bool:
        """Tell whether so much waits for the commit under way that no more may be taken."""
        return self._is_busy and self._buffer.waiting_bytes >= _WAITING_BYTES_MAX

    def write_if_due(self) -> None:
        """Begin a commit of what is done in a row, if one is due and none is under way."""
        self.check()
        buffer = self._buffer
        # The last portion goes with the end of the job.
        if buffer.is_whole or self._is_busy:
            return
        now = self._context.ports.clock.now()
        # Somebody may have set the clock back.
        self._committed_at = min(self._committed_at, now)
        due = commit_due(
            self._context.policy,
            items=buffer.in_a_row,
            in_bytes=buffer.waiting_bytes,
            elapsed=now - self._committed_at,
            cost=self._cost,
            rate=self._context.interruption_rate,
            is_at_risk=self._context.life.state.is_at_risk_since(self._committed_at),
        )
        state = self._place.state.take(urgent=due.results) if due.state else None
        if due.results or state is not None:
            self._begin(buffer.take(now, state), now)

    def wait(self, length: timedelta) -> None:
        """Wait for the commit under way, no longer than ``length``; raise what it has raised."""
        if self._pending is not None:
            wait([self._pending], length.total_seconds())
        self.check()

    def check(self) -> None:
        """Raise what a finished commit has raised, without waiting for one under way."""
        if not self._is_busy:
            self.settle()

    def overtake(self) -> None:
        """Commit the results that are there, ahead of state that is still on its way."""
        if not (self._is_busy and (self._buffer.in_a_row or self._results.finished)):
            return
        clock = self._context.ports.clock
        with self._writing:
            portion = self._take_results().followed_by(self._buffer.take(clock.now()))
            first = next((one.record.index for one in portion.finished), None)
            # What the commit under way had taken may be lost with it, which ``settle`` raises.
            is_next = first == self.held.manifest.next_item
            tell = self._commit(portion, clock.elapsed()) if is_next else None
        if tell is not None:
            tell()

    def settle(self) -> None:
        """Wait for the commit under way (raises LeaseLost)."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def commit(self, portion: Portion) -> ClaimedJob:
        """Commit a portion now, while none is under way (raises LeaseLost)."""
        portion = self._take_results().followed_by(portion)
        self._commit(portion, self._context.ports.clock.elapsed())()
        return self.held

    @property
    def _is_busy(self) -> bool:
        return self._pending is not None and not self._pending.done()

    def _begin(self, portion: Portion, now: datetime) -> None:
        self._committed_at = now
        # Time of a state that changed while it was uploaded goes with the next.
        self._results = self._results.followed_by(replace(portion, state=None))
        self._pending = self._context.transfers.submit(self._run, portion.state)

    def _run(self, state: State | None) -> None:
        started = self._context.ports.clock.elapsed()
        stored, tell = None if state is None else self._upload(state), None
        with self._writing:
            portion = replace(self._take_results(), state=stored)
            if portion.finished or stored is not None:
                tell = self._commit(portion, started)
            else:
                self._results = portion
        # A ledger that gives no answer must not keep results from overtaking.
        if tell is not None:
            # At the end of an attempt its whole place goes.
            self._place.clear(portion.finished)
            tell()
        self._cost = self._context.ports.clock.elapsed() - started
        self._keep_log()

    def _keep_log(self) -> None:
        """Keep what was printed: an instance that is gone without a word tells no more."""
        now, before = self._context.ports.clock.now(), self._log_kept_at
        if before is None or abs(now - before) >= _LOG_EVERY:
            self._log_kept_at = now
            self._place.keep_log(self.held.job_id, self._context.ports.objects, self._log)

    def _upload(self, state: State) -> State | None:
        """Upload state; None: it changed meanwhile, and must be taken anew."""
        manifest = self.held.manifest
        stored = upload_state(manifest, state, self._context.ports)
        if stored is manifest.user_state:
            self._place.state.forget()
            return None
        return stored

    def _take_results(self) -> Portion:
        results, self._results = self._results, Portion()
        return results

    def _commit(self, portion: Portion, started: timedelta) -> Callable[[], None]:
        """Commit a portion; return what tells the ledger of it."""
        context, before = self._context, self.held
        self.held = commit(before, portion, slot_id=context.slot_id, ports=context.ports)
        if portion.state is not None:
            self._place.state.note_commit(before.manifest, self.held.manifest)
        took = context.ports.clock.elapsed() - started
        return partial(self._ending.tell, before, self.held, portion, took)

"""What one attempt has brought in: answers become records, records in a row become a portion."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from spindown.contract.job.result import ItemStatus, Record
from spindown.job.attachment.state import State
from spindown.job.commit import Portion
from spindown.job.held import ClaimedJob, Finished, LocalFile
from worker.child.runner import ItemDone
from worker.transfer.gather import find_fault, take_file

_NO_REASON = "the code gave no reason"
_FOREIGN = "its files lie outside its output directory"


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
        self._busy_from = now
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

    def keep(self, done: ItemDone) -> None:
        """Turn an answer into a record, with the files that lie where they may."""
        error = next(filter(None, map(find_fault, done.files)), None)
        if done.error is not None:
            error = done.error or _NO_REASON
        files = () if error is not None else self._take_files(done)
        if files is None:
            error, files = _FOREIGN, ()
        record = Record(
            job_id=self._job_id,
            index=done.index,
            item=self._values[done.index],
            status=ItemStatus.OK if error is None else ItemStatus.FAILED,
            result=done.value if error is None else None,
            error=error,
            seconds=done.seconds,
        )
        self._results[done.index] = Finished(record=record, files=files)
        self._sizes[done.index] = done.size
        self.waiting_bytes += done.size
        while self.row_end in self._results:
            self.row_end += 1

    def take(self, now: datetime, state: State | None = None) -> Portion:
        """Take what is done in a row from the next item on, and the time since the last."""
        indexes = range(self.next, self.row_end)
        finished = tuple(self._results.pop(index) for index in indexes)
        bytes_in = sum(self._taken.pop(index, 0) for index in indexes)
        bytes_out = sum(self._given.pop(index, 0) for index in indexes)
        self.waiting_bytes -= sum(self._sizes.pop(index, 0) for index in indexes)
        self.next = self.row_end
        busy, self._busy_from = now - self._busy_from, now
        return Portion(
            finished=finished,
            busy=max(busy, timedelta(0)),
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            state=state,
        )

    def take_rest(self, held: ClaimedJob, now: datetime) -> Portion:
        """Take what a job as it is ``held`` can still be given: nothing behind a lost commit."""
        can_follow = self.in_a_row > 0 and self.next == held.manifest.next_item
        return self.take(now) if can_follow else Portion()

    def _take_files(self, done: ItemDone) -> tuple[LocalFile, ...] | None:
        """Return the files of an answer; None if one of them is not its own."""
        if not done.files:
            return ()
        root = self._outputs / str(done.index)
        into = self._private() / "files" / str(next(self._numbers))
        into.mkdir(parents=True)
        files = []
        for number, path in enumerate(done.files):
            local = into / str(number)
            status = take_file(root, path, local, below=self._below)
            if status is None:
                return None
            self._given[done.index] = self._given.get(done.index, 0) + status.st_size
            files.append(LocalFile(path=path, local=local))
        return tuple(files)

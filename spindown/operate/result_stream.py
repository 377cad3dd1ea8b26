"""The results of a batch as they come: each committed result once, as soon as a look finds it.

What is read is bounded. In order, only the first job that is not over is looked at again, and a few
after it once. In any order, a look reads the manifests of some jobs that have begun and of some
that have not, in turn. Parts never change, so each is read once, and what is read ahead is held as
bytes, so many at most.

A worker writes manifests and parts, and may lie in them. The batch's index, which it cannot write,
says how many items a job has: each place gets one outcome, whatever the manifests say.
"""

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from spindown.contract.job.batch import Batch
from spindown.contract.job.manifest import JobState, Manifest, Part
from spindown.contract.job.message import own_children
from spindown.error import NotFound, SpindownError, Throttled, Unreachable
from spindown.job.result import parse_items, read_manifest, read_part
from spindown.port import ObjectStore

#: Jobs that are read ahead of the first that is not over; their results wait in memory.
_AHEAD = 4
#: Of the jobs that have begun, and of those that have not: so many are in one look.
_LOOKED_AT = 16
_READS_AT_ONCE = 8
_AHEAD_BYTES = 64 * 1024**2

_MISFIT = "its manifest is damaged: it does not fit the items that the job was sent with"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedItem:
    """The record of an item, failed or not."""

    #: Place of the item in its batch; None: not known.
    position: int | None
    job_id: str
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostItems:
    """What a job has not done that was given up or cancelled."""

    #: Place of the first of its items in the batch; None: not known.
    position: int | None
    #: How many, at least one; one, too, where the batch's index does not tell how many there are.
    count: int
    job_id: str
    state: JobState
    reason: str


FoundWork = CommittedItem | LostItems


class _Room:
    """How many bytes may still be read ahead."""

    def __init__(self, left: int) -> None:
        self._left = left
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Take room if there is as much."""
        with self._lock:
            is_there = size <= self._left
            self._left -= size * is_there
            return is_there

    def give(self, size: int) -> None:
        """Give room back."""
        with self._lock:
            self._left += size


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadAhead:
    """What a look has read of a job."""

    #: None: nobody has claimed it.
    manifest: Manifest | None = None
    #: The first of its new parts, as far as there was room.
    ahead: deque[bytes] = field(default_factory=deque)
    taken: int = 0


class _Cursor:
    """How far one job has been read."""

    def __init__(self, job_id: str, first: int | None, count: int | None, given: int = 0) -> None:
        self.job_id = job_id
        self._first = first
        self._count = count
        #: Items before this one have been given.
        self._next = given
        self.has_begun = False
        self.is_over = False
        #: The jobs that it was split into, which are over on their own.
        self.children: Sequence[_Cursor] = ()

    def look(self, store: ObjectStore, room: _Room) -> _ReadAhead:
        """Read what is new, as far as there is room; the rest is read in its turn."""
        try:
            manifest = read_manifest(self.job_id, store)
        except NotFound:
            return _ReadAhead()
        ahead, taken = deque[bytes](), 0
        for part in self._new_parts(manifest):
            if not room.take(part.bytes):
                break
            taken += part.bytes
            # Read again in its turn, it raises what is to be told.
            try:
                ahead.append(read_part(part, store))
            except SpindownError:
                break
        return _ReadAhead(manifest=manifest, ahead=ahead, taken=taken)

    def give(self, look: _ReadAhead, store: ObjectStore) -> Iterator[FoundWork]:
        """Yield what a look has found; after an error the next look finds the rest.

        Raises:
            ContractError: a part is not what was committed.
        """
        manifest = look.manifest
        if manifest is None:
            return
        self.has_begun = True
        if not self._fits(manifest):
            yield from self._lose(manifest, JobState.FAILED, _MISFIT)
            self.is_over = True
            return
        for part in self._new_parts(manifest):
            data = look.ahead.popleft() if look.ahead else read_part(part, store)
            for index, record in enumerate(parse_items(part, self.job_id, data), part.first):
                if index >= self._next:
                    self._next = index + 1
                    yield CommittedItem(
                        position=self._position(index), job_id=self.job_id, record=record
                    )
        children = self._split(manifest)
        if not children and manifest.state in {JobState.FAILED, JobState.CANCELLED}:
            yield from self._lose(manifest, manifest.state, manifest.reason)
        self.children = children
        self.is_over = manifest.state is not JobState.RUNNING

    def _new_parts(self, manifest: Manifest) -> Iterator[Part]:
        return (part for part in manifest.parts if part.last >= self._next)

    def _position(self, index: int) -> int | None:
        return None if self._first is None else self._first + index

    def _size(self, manifest: Manifest) -> int | None:
        """Return how many items there are; only if the index does not tell, a worker is asked."""
        return manifest.items if self._count is None else self._count

    def _fits(self, manifest: Manifest) -> bool:
        """Tell whether the job, as its manifest has it, can give each of its items once."""
        size, done = self._size(manifest), 0
        for part in manifest.parts:
            if part.first != done:
                return False
            done = part.last + 1
        if size is not None and (manifest.items not in {None, size} or done > size):
            return False
        if manifest.state is JobState.SPLIT:
            return bool(self._split(manifest))
        return manifest.state is not JobState.COMPLETED or done == size

    def _lose(self, manifest: Manifest, state: JobState, reason: str) -> Iterator[LostItems]:
        size = self._size(manifest)
        left = 1 if size is None else size - self._next
        if self._first is None:
            # A worker may say any number.
            left = min(left, 1)
        if left > 0:
            yield LostItems(
                position=self._position(self._next),
                count=left,
                job_id=self.job_id,
                state=state,
                reason=reason,
            )

    def _split(self, manifest: Manifest) -> Sequence["_Cursor"]:
        children, size = own_children(self.job_id, manifest.children), self._size(manifest)
        is_split = manifest.state in {JobState.SPLIT, JobState.FAILED, JobState.CANCELLED}
        # Each has an item at least, and less than all: so even splits of splits have an end.
        if not is_split or size is None or not 1 < len(children) <= size:
            return ()
        # As ``job.split`` has cut it.
        bounds = [number * size // len(children) for number in range(len(children) + 1)]
        return [
            _Cursor(
                child, self._position(begin), end - begin, min(max(self._next, begin), end) - begin
            )
            for child, begin, end in zip(children, bounds[:-1], bounds[1:], strict=True)
        ]


def stream_results(
    batch: Batch, store: ObjectStore, *, in_order: bool, ahead_bytes: int = _AHEAD_BYTES
) -> Iterator[FoundWork | None]:
    """Yield what comes of a batch until all its jobs are over; None: wait before the next look.

    Args:
        batch: its index.
        store: its workload's.
        in_order: whether items come in the order in which they were submitted.
        ahead_bytes: of parts that wait in memory for their turn, of all jobs together.

    Raises:
        ContractError: a result is not what was committed.
    """
    size = batch.items_per_job
    cursors = [
        _Cursor(
            job_id,
            None if size is None else number * size,
            None if size is None or batch.items is None else min(size, batch.items - number * size),
        )
        for number, job_id in enumerate(batch.jobs)
    ]
    with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="spindown-read") as pool:
        reader = _Reader(store, pool, ahead_bytes)
        yield from (_in_order if in_order else _in_any_order)(cursors, reader)


class _Reader:
    """Reads ahead within bounds, and gives what was read."""

    def __init__(self, store: ObjectStore, pool: ThreadPoolExecutor, ahead_bytes: int) -> None:
        self._store = store
        self._pool = pool
        self._room = _Room(ahead_bytes)

    def begin(self, cursor: _Cursor) -> "Future[_ReadAhead]":
        """Begin a look at a job."""
        return self._pool.submit(cursor.look, self._store, self._room)

    def finish(self, cursor: _Cursor, begun: "Future[_ReadAhead]") -> Iterator[FoundWork]:
        """Yield what a look has found; without an answer of AWS that is nothing, this time."""
        try:
            look = begun.result()
        except (Throttled, Unreachable):
            return
        try:
            yield from cursor.give(look, self._store)
        except (Throttled, Unreachable):
            pass
        finally:
            self._room.give(look.taken)


#: A job, the look that was begun at it, and before which wait that was.
_Looked = tuple[_Cursor, "Future[_ReadAhead] | None", int]


def _in_order(cursors: Sequence[_Cursor], reader: _Reader) -> Iterator[FoundWork | None]:
    line = deque[_Looked]((cursor, None, 0) for cursor in cursors)
    waits = 0
    while line:
        for place, (cursor, begun, _) in enumerate(list(islice(line, _AHEAD))):
            if begun is None:
                line[place] = (cursor, reader.begin(cursor), waits)
        cursor, look, begun_at = line.popleft()
        if look is not None:
            yield from reader.finish(cursor, look)
        if cursor.children:
            line.extendleft((child, None, 0) for child in reversed(cursor.children))
        elif not cursor.is_over:
            line.appendleft((cursor, None, 0))
            # What was read ahead may have been done since.
            if begun_at == waits:
                yield None
                waits += 1


def _in_any_order(cursors: Sequence[_Cursor], reader: _Reader) -> Iterator[FoundWork | None]:
    waiting, begun = deque(cursors), deque[_Cursor]()
    while waiting or begun:
        looked_at = [
            line.popleft() for line in (begun, waiting) for _ in range(min(len(line), _LOOKED_AT))
        ]
        looks = deque(map(reader.begin, looked_at))
        for cursor in looked_at:
            yield from reader.finish(cursor, looks.popleft())
            if cursor.children:
                waiting.extend(cursor.children)
            elif not cursor.is_over:
                (begun if cursor.has_begun else waiting).append(cursor)
        if waiting or begun:
            yield None

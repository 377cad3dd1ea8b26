"""Follow a batch: each committed result once, as soon as a look finds it.

What is read is bounded. In order, only the first job that is not over is looked at again, and a few
after it once. In any order, a look reads the manifests of some jobs that have begun and of some
that have not, in turn. Parts never change, so each is read once.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

from spindown.contract.job.batch import Batch
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import own_children
from spindown.error import NotFound, Throttled, Unreachable
from spindown.job.result import read_from, read_manifest
from spindown.port import ObjectStore

#: Jobs that are read ahead of the first that is not over; their results wait in memory.
_AHEAD = 4
#: Of the jobs that have begun, and of those that have not: so many are in one look.
_LOOKED_AT = 16
_READS_AT_ONCE = 8


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
    #: How many, at least one.
    count: int
    job_id: str
    state: JobState
    reason: str


FoundWork = CommittedItem | LostItems


class _Cursor:
    """How far one job has been read."""

    def __init__(self, job_id: str, first: int | None, count: int | None) -> None:
        self.job_id = job_id
        self._first = first
        self._count = count
        #: Items before this one have been given.
        self._next = 0
        self.has_begun = False
        self.is_over = False
        #: The jobs that it was split into, which are over on their own.
        self.children: Sequence[_Cursor] = ()

    def look(self, store: ObjectStore) -> Sequence[FoundWork]:
        """Return what is new; after an error the next look finds the same."""
        try:
            manifest = read_manifest(self.job_id, store)
        except NotFound:
            return ()
        found: list[FoundWork] = [
            CommittedItem(
                position=self._position(record["index"]), job_id=self.job_id, record=record
            )
            for record in read_from(manifest, store, self._next)
        ]
        self.has_begun = True
        self._next += len(found)
        self.children = self._split(manifest)
        self.is_over = manifest.state is not JobState.RUNNING
        if manifest.state in {JobState.FAILED, JobState.CANCELLED} and not self.children:
            found += self._lost(manifest)
        return found

    def _position(self, index: int) -> int | None:
        return None if self._first is None else self._first + index

    def _lost(self, manifest: Manifest) -> Sequence[LostItems]:
        count = manifest.items if self._count is None else self._count
        # Of a job that nobody has claimed it may not be known how much it is.
        left = 1 if count is None else count - self._next
        if left <= 0:
            return ()
        return [
            LostItems(
                position=self._position(self._next),
                count=left,
                job_id=self.job_id,
                state=manifest.state,
                reason=manifest.reason,
            )
        ]

    def _split(self, manifest: Manifest) -> Sequence["_Cursor"]:
        children = own_children(self.job_id, manifest.children)
        if not children or manifest.state is JobState.RUNNING:
            return ()
        # As ``job.split`` has cut it.
        bounds = [
            None if manifest.items is None else number * manifest.items // len(children)
            for number in range(len(children) + 1)
        ]
        return [
            _Cursor(
                child,
                None if begin is None else self._position(begin),
                None if begin is None or end is None else end - begin,
            )
            for child, begin, end in zip(children, bounds[:-1], bounds[1:], strict=True)
        ]


def follow(batch: Batch, store: ObjectStore, *, in_order: bool) -> Iterator[FoundWork | None]:
    """Yield what comes of a batch until all its jobs are over; None: wait before the next look.

    Args:
        batch: its index.
        store: its workload's.
        in_order: whether items come in the order in which they were submitted.

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
        yield from (_in_order if in_order else _in_any_order)(cursors, store, pool)


#: A job, the look that was begun at it, and before which wait that was.
_Looked = tuple[_Cursor, "Future[Sequence[FoundWork]] | None", int]


def _in_order(
    cursors: Sequence[_Cursor], store: ObjectStore, pool: ThreadPoolExecutor
) -> Iterator[FoundWork | None]:
    line = deque[_Looked]((cursor, None, 0) for cursor in cursors)
    waits = 0
    while line:
        for place, (cursor, begun, _) in enumerate(list(islice(line, _AHEAD))):
            if begun is None:
                line[place] = (cursor, pool.submit(cursor.look, store), waits)
        cursor, look, begun_at = line.popleft()
        yield from _found(look)
        if cursor.children:
            line.extendleft((child, None, 0) for child in reversed(cursor.children))
        elif not cursor.is_over:
            line.appendleft((cursor, None, 0))
            # What was read ahead may have been done since.
            if begun_at == waits:
                yield None
                waits += 1


def _in_any_order(
    cursors: Sequence[_Cursor], store: ObjectStore, pool: ThreadPoolExecutor
) -> Iterator[FoundWork | None]:
    waiting, begun = deque(cursors), deque[_Cursor]()
    while waiting or begun:
        looked_at = [
            line.popleft() for line in (begun, waiting) for _ in range(min(len(line), _LOOKED_AT))
        ]
        looks = [pool.submit(cursor.look, store) for cursor in looked_at]
        for cursor, look in zip(looked_at, looks, strict=True):
            yield from _found(look)
            if cursor.children:
                waiting.extend(cursor.children)
            elif not cursor.is_over:
                (begun if cursor.has_begun else waiting).append(cursor)
        if waiting or begun:
            yield None


def _found(look: "Future[Sequence[FoundWork]] | None") -> Sequence[FoundWork]:
    """Return what a look has found; without an answer of AWS that is nothing, this time."""
    try:
        return () if look is None else look.result()
    except (Throttled, Unreachable):
        return ()

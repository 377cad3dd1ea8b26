"""Find out when a batch is over: start what waits for it, and tell people how it ended.

Which job is over is judged in ``_BatchLook._walk``, by manifests. What an end is called, which ends
people are told of and which batches start after it (``start_or_cancel``) is decided in
``domain.batch``. What the topic tells, ``functions.webhook`` posts to a
webhook.

A submit leaves a mark for its batch in the bucket. After its tick the scaler looks for marks, at
once after a submit and every ten minutes, and keeps a row for each batch: how far its jobs were
over when it last looked. They are looked at in order, up to the first that is not over, so that a
look at a large batch costs no more than at a small one. A person may send back a job that was
given up and counted, or cancel it. So where one was, all are counted once more at the end, until
that meets none that is not over. Batches that wait for the same one share how far that is.

What a look does, another may do again: it may end after any call. Messages of a job that has begun
are not sent again, and of two messages of one job the manifest lets one act. People are told before
the mark is removed: a look that ends between the two tells them twice.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice

from spindown.contract import row as rows
from spindown.contract.codec import decode, encode, encode_instant
from spindown.contract.job.batch import OPEN, Batch, open_key
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import is_id, parse_job
from spindown.contract.name import resource_name
from spindown.contract.row import BatchesRow, BatchRow
from spindown.domain.batch import (
    FORGOTTEN_AFTER,
    BatchEnd,
    BatchTally,
    EndsTold,
    OnFailure,
    is_forgotten,
    is_told,
    start_or_cancel,
)
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.error import ContractError, NotFound, PreconditionFailed, SpindownError, printable
from spindown.job.cancel import cancel_unclaimed
from spindown.job.manifest_store import load_manifest
from spindown.job.result import NO_MESSAGE, children_of, read_batch, read_bodies
from spindown.ledger import Ledger
from spindown.ledger.partition import Partition
from spindown.port import ControlPorts, Key, ObjectStore, Outgoing, Table, When, WorkPorts
from spindown.reason_text import say_batch_end, say_batch_given_up

#: How often marks are looked for where no submit says that there is one. A listing costs as much as
#: a dozen reads.
LISTED_EVERY = timedelta(minutes=10)
#: Batches that have a row at once; others wait for their turn with their marks. Beyond these each
#: that waits may have the first one of its chain taken in.
_OPEN_AT_MOST = 500
#: Marks without a batch that one look removes.
_VAIN_AT_MOST = 1000
#: After this a look begins nothing more: the scaler has ticked before it, and would be ended.
_LOOKS_FOR = timedelta(seconds=60)
#: Then it is another batch's turn, before more manifests of one are read.
_WALKS_FOR = timedelta(seconds=10)
#: Manifests that are read at once, once as many before them are over.
_AHEAD_AT_MOST = 128
#: A submitter may write more, and a look would then take all of the scaler's memory. A submit ends
#: a bundle once it has 8 MiB; an index of a million jobs has 48 MiB.
_BUNDLE_BYTES, _INDEX_BYTES = 16 * 1024**2, 64 * 1024**2
#: Messages that are sent, or jobs that are cancelled, before that is noted.
_STEP = 500
_CALLS_AT_ONCE = 16


def look_at_batches(
    workload: str,
    ports: ControlPorts,
    work: Callable[[], WorkPorts],
    store_of: Callable[[str], ObjectStore],
    *,
    told: EndsTold = EndsTold.ALL,
    is_nudged: bool = False,
) -> Mapping[str, str]:
    """Look at the batches of a workload; return what failed, by their names.

    Args:
        workload: whose.
        ports: the world.
        work: returns the ports of what is done with its messages.
        store_of: a workload's part of the bucket.
        told: which ends people are told.
        is_nudged: whether a submit has just asked for it.
    """
    ledger, now = Ledger(ports.table, workload), ports.clock.now()
    found = Partition(ports.table.query(rows.control_partition(workload), "batch"))
    head = found.one(BatchesRow, rows.BATCHES) or BatchesRow()
    known = found.named(BatchRow, rows.BATCH)
    is_due = is_nudged or _is_list_due(head, now)
    if not (is_due or known):
        return {}
    free = When(at_most={"until": encode_instant(now)})
    try:
        # Two looks at once would send and tell twice. One that dies holds it a little longer.
        ledger.write(ledger.change(rows.BATCHES, {"until": now + rows.SCALER_TIMEOUT}, when=free))
    except PreconditionFailed:
        if is_nudged:
            # Whoever is at it has perhaps listed the marks before this one was there.
            ledger.write(ledger.change(rows.BATCHES, {"asked_at": now}))
        return {}
    look = _BatchLook(workload, ports, ledger, work, store_of, told, now)
    if is_due:
        known = {**look.take_in(known), **known}
    failed = look.run(known)
    done = {"until": None, **({"listed_at": now} if is_due else {})}
    ledger.write(ledger.change(rows.BATCHES, done))
    return failed


def _is_list_due(head: BatchesRow, now: datetime) -> bool:
    if head.listed_at is None or now - head.listed_at >= LISTED_EVERY:
        return True
    return head.asked_at is not None and head.asked_at >= head.listed_at


def is_held_back(batch: Batch, workload: str, table: Table) -> bool:
    """Tell whether a batch still waits for another, so that its messages are not sent yet.

    Of one that was never looked at, or is over, there is no row.
    """
    if not batch.after:
        return False
    row = table.get(Key(rows.control_partition(workload), f"{rows.BATCH}{batch.batch_id}"))
    return row is None or bool(decode(BatchRow, row).after)


@dataclass(frozen=True, slots=True)
class _BatchLook:
    """One look at the batches of a workload."""

    workload: str
    ports: ControlPorts
    ledger: Ledger
    work: Callable[[], WorkPorts]
    store_of: Callable[[str], ObjectStore]
    told: EndsTold
    now: datetime

    @property
    def _store(self) -> ObjectStore:
        return self.store_of(self.workload)

    @property
    def has_time(self) -> bool:
        """Tell whether something more may be begun."""
        return self.ports.clock.now() - self.now < _LOOKS_FOR

    def take_in(self, known: Mapping[str, BatchRow]) -> Mapping[str, BatchRow]:
        """Give a row to what has a mark and no row.

        A mark of which there is no batch is removed: a submit writes it after the index. So marks
        that a submitter has made up do not hide those behind them for good.
        """
        found: dict[str, BatchRow] = {}
        vain = 0
        for mark in self._store.list(OPEN):
            is_full = len(known) + len(found) >= _OPEN_AT_MOST
            if is_full or vain >= _VAIN_AT_MOST or not self.has_time:
                break
            batch_id = mark.key.removeprefix(OPEN)
            if batch_id in known:
                continue
            try:
                batch = read_batch(batch_id, self._store, at_most_bytes=_INDEX_BYTES)
            except (ContractError, NotFound) as exc:
                vain += 1
                if isinstance(exc, NotFound) or is_forgotten(mark.modified_at, self.now):
                    self._store.delete(mark.key)
                continue
            row = BatchRow(since=mark.modified_at, after=batch.after)
            found[batch_id] = self._keep(batch_id, row)
        return found

    def run(self, known: Mapping[str, BatchRow]) -> Mapping[str, str]:
        """Look at batches until the time is up; return what failed, by their names.

        In any order: one that takes all the time there is keeps no other from its turn.
        """
        failed: dict[str, str] = {}
        #: Workload and name of a batch -> what goes by it: the batch itself, and those that wait.
        groups: dict[tuple[str, str], dict[str, BatchRow]] = {}
        names = list(known)
        self.ports.random.shuffle(names)
        for name in names:
            row = known[name]
            with _noted(failed, name):
                if not is_forgotten(row.since, self.now):
                    after = row.after or name
                    groups.setdefault(self._parse_after(after, self.workload), {})[name] = row
                elif self.has_time:
                    self._give_up(name, row)
        turns = deque(groups.items())
        while turns and self.has_time:
            (workload, name), group = turns.popleft()
            with _noted(failed, *group):
                if self._look_at(workload, name, group, failed):
                    turns.append(((workload, name), group))
        return failed

    def _look_at(
        self, workload: str, name: str, group: dict[str, BatchRow], failed: dict[str, str]
    ) -> bool:
        """Look how far a batch is, for all that go by it; act if it is over.

        Return whether more could be read of it.
        """
        store = self.store_of(workload)
        batch = read_batch(name, store, at_most_bytes=_INDEX_BYTES)
        first = max(group, key=lambda one: (not group[one].path, group[one].path))
        row = group[first]
        seen, is_whole = self._walk(batch.jobs, row, store)
        if row.path and not seen.path and seen.tally.given_up and not seen.is_in_one_go:
            # What was given up may have been sent back, or cancelled, since it was counted.
            anew = replace(seen, path=(0,), tally=BatchTally())
            seen, is_whole = self._walk(batch.jobs, anew, store)
        if seen.path:
            if seen != row:
                group[first] = self._keep(first, seen)
            elif batch.after:
                self._take_in_first(workload, batch)
            return not is_whole
        for one, row in group.items():
            if not self.has_time:
                break
            with _noted(failed, one):
                own = replace(row, path=seen.path, tally=seen.tally)
                if row.after:
                    self._go_on(one, own)
                else:
                    self._end(batch, own)
        return False

    def _end(self, batch: Batch, row: BatchRow) -> None:
        end = row.tally.end
        if is_told(end, self.told, is_waited_for=batch.is_waited_for):
            before = self._cancelled_after(batch) if end is BatchEnd.CANCELLED else ""
            self._tell(end.value, say_batch_end(batch.batch_id, row.tally, before))
        self._forget(batch.batch_id)

    def _cancelled_after(self, batch: Batch) -> str:
        """Return for what a batch waited that did not succeed; "": somebody has cancelled it.

        A worker writes the manifest, so none of its words are told.
        """
        manifest = _manifest(batch.jobs[0], self._store) if batch.after and batch.jobs else None
        is_of_before = manifest is not None and manifest.code == ReasonCode.BEFORE_DID_NOT_SUCCEED
        return batch.after if is_of_before else ""

    def _give_up(self, batch_id: str, row: BatchRow) -> None:
        """Cancel what nobody can start any more, say that nobody looks at it any more, and why."""
        about: About = {"batch": row.after, "days": FORGOTTEN_AFTER.days}
        why = Reason(ReasonCode.WAITED_TOO_LONG if row.after else ReasonCode.NOT_OVER, about)
        # Of what cannot be read nobody knows the jobs.
        with suppress(ContractError, NotFound):
            batch = read_batch(batch_id, self._store, at_most_bytes=_INDEX_BYTES)
            if row.after and not self._cancel(batch, row, why):
                return
        if is_told(None, self.told, is_waited_for=False):
            self._tell(why.code.value, say_batch_given_up(batch_id, why))
        self._forget(batch_id)

    def _tell(self, what: str, words: str) -> None:
        subject = f"{resource_name(self.ports.name, self.workload)}: batch {what}"
        self.ports.topic.publish(subject, printable(words))

    def _go_on(self, batch_id: str, row: BatchRow) -> None:
        """Start or cancel a batch, now that the one before it is over."""
        batch = read_batch(batch_id, self._store, at_most_bytes=_INDEX_BYTES)
        if row.tally.given_up:
            # From now on it counts no more that a job is sent back: else a part might be cancelled.
            self._keep(batch_id, row)
        act = start_or_cancel(row.tally, batch.on_failure)
        about: About = {"batch": row.after, "end": row.tally.end.value}
        why = Reason(ReasonCode.BEFORE_DID_NOT_SUCCEED, about)
        is_begun = act is OnFailure.START
        if self._start(batch, row) if is_begun else self._cancel(batch, row, why):
            # From now on it is looked at itself.
            self._keep(batch_id, BatchRow(since=row.since))

    def _parse_after(self, after: str, workload: str) -> tuple[str, str]:
        """Return the workload and the name of what a batch of a workload waits for."""
        named, _, other = after.rpartition("/")
        named = named or workload
        if named not in self.ports.deployment().workloads or not is_id(other):
            raise ContractError("after", after, "submit it again, after a batch that is there")
        return named, other

    def _take_in_first(self, workload: str, batch: Batch) -> None:
        """Give a row to the first of a chain of batches that wait and have none.

        Else all that have rows might wait for batches whose marks lie behind their own. If one in
        the chain has a row, its own looks lead on.
        """
        first: tuple[str, str, BatchRow] | None = None
        seen: set[tuple[str, str]] = set()
        with suppress(ContractError, NotFound):
            while batch.after and self.has_time and (workload, batch.batch_id) not in seen:
                name, store = batch.batch_id, self.store_of(workload)
                seen.add((workload, name))
                key = Key(rows.control_partition(workload), f"{rows.BATCH}{name}")
                if self.ports.table.get(key) is not None:
                    return
                # Without a mark it is over.
                mark = next(iter(store.list(open_key(name))), None)
                if mark is None or mark.key != open_key(name):
                    break
                first = workload, name, BatchRow(since=mark.modified_at, after=batch.after)
                workload, other = self._parse_after(batch.after, workload)
                batch = read_batch(other, self.store_of(workload), at_most_bytes=_INDEX_BYTES)
        if first is not None:
            owner, name, row = first
            ledger, is_new = Ledger(self.ports.table, owner), When(exists=False)
            with suppress(PreconditionFailed):
                ledger.write(ledger.change(f"{rows.BATCH}{name}", encode(row), when=is_new))

    def _start(self, batch: Batch, row: BatchRow) -> bool:
        """Send the messages that the submit has kept, but for those of jobs that have begun.

        Return whether all are sent; the next look goes on.
        """
        work = self.work()
        messages = islice(_submitted(batch, work.objects), row.done, None)
        while self.has_time:
            step = list(islice(messages, _STEP))
            if not step:
                return True
            with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
                manifests = pool.map(lambda one: load_manifest(one[0], work.objects), step)
                left = [
                    one for (_, one), stored in zip(step, manifests, strict=True) if stored is None
                ]
            if left:
                work.queue.send(left)
            row = self._keep(batch.batch_id, replace(row, done=row.done + len(step)))
        return False

    def _cancel(self, batch: Batch, row: BatchRow, why: Reason) -> bool:
        """Cancel all jobs that are not sent yet; return whether that is done."""
        work = self.work()
        while self.has_time:
            step = batch.jobs[row.done : row.done + _STEP]
            if not step:
                return True
            with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
                list(pool.map(lambda job_id: cancel_unclaimed(job_id, work, why), step))
            row = self._keep(batch.batch_id, replace(row, done=row.done + len(step)))
        return False

    def _walk(
        self, jobs: Sequence[str], row: BatchRow, store: ObjectStore
    ) -> tuple[BatchRow, bool]:
        """Go on from where a row stands through jobs and the children of split ones.

        Return how far they are over, and whether no more of them can be read now.
        """
        until = min(self.ports.clock.now() + _WALKS_FOR, self.now + _LOOKS_FOR)
        manifests = _Manifests(store)
        levels: list[Sequence[str]] = [jobs]
        path, tally, is_whole = list(row.path), row.tally, False
        for at in path[:-1]:
            if at >= len(levels[-1]):
                remedy = (
                    "cancel the batch, and submit it again: its index or a manifest was replaced"
                )
                raise ContractError("job of the batch", at, remedy)
            levels.append(_children(levels[-1][at], len(levels) - 1, store))
        while self.ports.clock.now() < until:
            while path and path[-1] >= len(levels[-1]):
                path.pop()
                levels.pop()
                if path:
                    path[-1] += 1
            manifest = manifests.read(levels[-1], path[-1]) if path else None
            if manifest is None or manifest.state is JobState.RUNNING:
                is_whole = True
                break
            if manifest.state is JobState.SPLIT:
                levels.append(children_of(manifest, len(path) - 1))
                path.append(0)
                continue
            tally = tally.with_job(
                manifest.state.value,
                items=manifest.items_done,
                failed=manifest.items_failed,
                dollars=manifest.cost_usd,
            )
            path[-1] += 1
        has_met_open = is_whole and bool(path)
        is_in_one_go = (row.is_in_one_go or row.path == (0,)) and not has_met_open
        return replace(row, path=tuple(path), tally=tally, is_in_one_go=is_in_one_go), is_whole

    def _keep(self, batch_id: str, row: BatchRow) -> BatchRow:
        self.ledger.write(self.ledger.put(f"{rows.BATCH}{batch_id}", row))
        return row

    def _forget(self, batch_id: str) -> None:
        self._store.delete(open_key(batch_id))
        self.ledger.write(self.ledger.delete(f"{rows.BATCH}{batch_id}"))


def _submitted(batch: Batch, objects: ObjectStore) -> Iterator[tuple[str, Outgoing]]:
    """Yield each message of a batch with its job, in the order in which it was cut.

    Raises:
        ContractError: a line is no message of it, so no submit has written this.
    """
    jobs = deque(batch.jobs)
    for key, body in read_bodies(batch.batch_id, objects, at_most_bytes=_BUNDLE_BYTES):
        if not jobs:
            return
        job, job_id = parse_job(body), jobs.popleft()
        if job.job_id != job_id:
            raise ContractError(key, job.job_id, NO_MESSAGE)
        yield job_id, Outgoing(body=body, tenant=job.tenant)


class _Manifests:
    """The manifests of jobs in a row, read ahead: the more, the more of them were over."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._ahead = 1
        #: Those that were read and not yet asked for.
        self._found: dict[str, Manifest | None] = {}

    def read(self, jobs: Sequence[str], at: int) -> Manifest | None:
        """Return the manifest of the job at a place; None: it has none."""
        if jobs[at] not in self._found:
            names = jobs[at : at + self._ahead]
            self._ahead = min(2 * self._ahead, _AHEAD_AT_MOST)
            if len(names) == 1:
                return _manifest(names[0], self._store)
            with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
                found = pool.map(lambda name: _manifest(name, self._store), names)
                self._found.update(zip(names, found, strict=True))
        return self._found.pop(jobs[at])


@contextmanager
def _noted(failed: dict[str, str], *names: str) -> Iterator[None]:
    """Note for batches what fails in looking at them, and go on with others."""
    try:
        yield
    except SpindownError as exc:
        failed.update(dict.fromkeys(names, str(exc)))


def _children(job_id: str, depth: int, store: ObjectStore) -> Sequence[str]:
    manifest = _manifest(job_id, store)
    return () if manifest is None else children_of(manifest, depth)


def _manifest(job_id: str, store: ObjectStore) -> Manifest | None:
    stored = load_manifest(job_id, store)
    return None if stored is None else stored.manifest

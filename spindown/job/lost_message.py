"""Find the jobs whose messages are gone, and send them again.

A purge of the queue deletes messages and tells nobody. The index of a batch names its jobs, their
manifests say which are not over, and the messages that were submitted lie in the bucket. Of two
messages of one job the manifest lets only one have an effect, so to send one too many costs
little; a job that nobody sends again is never done.

A job that was sent without ``submit`` is in no index, and is not found here.
"""

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from heapq import nlargest
from itertools import islice

from spindown.contract.job.batch import BATCHES, batch_of
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import (
    JobMessage,
    encode_job,
    parse_job,
    stored_prefix,
    with_id,
)
from spindown.error import BadInput, ContractError, NewerSchema, NotFound
from spindown.job.batch_end import is_held_back
from spindown.job.lease_row import is_held
from spindown.job.manifest_store import load_manifest, read_small_manifest
from spindown.job.message import renew
from spindown.job.redrive import (
    HIDDEN_FOR,
    WAIT,
    Redriven,
    RedriveOutcome,
    read_dead_letter,
)
from spindown.job.result import children_of, read_batch, read_bodies
from spindown.job.shape_queue import backlogs, queues_of
from spindown.port import ControlPorts, JobQueue, Message, ObjectStore, Outgoing, Table, WorkPorts

#: A submit writes the index first and then sends; a large one takes minutes.
LOOKED_AT_AFTER = timedelta(minutes=15)
#: The queue keeps a message for 12 days; older batches are asked for by name.
_RECENT = timedelta(days=14)
_READS_AT_ONCE = 16
#: What is found is taken up after so many, so that no thread waits for the slowest of a few.
_READ_IN_A_ROW = 4 * _READS_AT_ONCE
#: Indices and manifests that one count reads, in a minute or two.
_COUNTED_AT_MOST = 5_000
#: JSON takes 30 times as much memory at worst, and the function has 512 MiB: an index of so many
#: bytes names 150,000 jobs, and of manifests, small ones, 16 are read at once.
_INDEX_BYTES = 4 * 1024**2
#: Each takes a call. With more than this many visible messages, workers must come first.
_LOOKED_AT_MOST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenJob:
    """A job that is not over, so it must have a message somewhere."""

    job_id: str
    #: The job of the batch that it is, or that it was split from.
    submitted: str
    batch_id: str
    #: Whether a worker holds it, and so its message.
    is_held: bool
    #: Why nobody can tell whether it is open; "": it is.
    fault: str = ""


def redrive_lost(
    workload: str, ports: WorkPorts, *, batches: Collection[str] = ()
) -> Iterator[Redriven]:
    """Send each job again that is not over and has no message; yield it when that is done.

    A batch whose index is damaged, or a job that was split too often, is yielded too, as
    unreadable, and hides no other.

    Args:
        workload: whose.
        ports: the world; the queues are the workload's.
        batches: only jobs of these; empty: of all of the last 14 days that are a while old.

    Raises:
        NotFound: there is no such batch.
        BadInput: too many messages wait to be looked at.
    """
    now, objects = ports.clock.now(), ports.objects
    look = _Look(
        read=partial(_read_manifest, objects=objects),
        is_held=lambda found: is_held(found, workload, ports.table, now),
    )
    left: list[OpenJob] = []
    for batch_id in batches or _recent_batches(objects, now):
        try:
            batch = read_batch(batch_id, objects)
            if is_held_back(batch, workload, ports.table):
                continue
        except ContractError as exc:
            yield Redriven(job_id=None, outcome=RedriveOutcome.UNREADABLE, reason=str(exc))
            continue
        for one in look.find(batch_id, batch.jobs):
            if one.fault:
                outcome = RedriveOutcome.UNREADABLE
                yield Redriven(job_id=one.job_id, outcome=outcome, reason=one.fault)
            elif not one.is_held:
                left.append(one)
    seen = _find_messages(ports) if left else frozenset[str]()
    lost = {one.job_id: one for one in left if one.job_id not in seen}
    for job, message in _find_submitted(list(lost.values()), ports.objects):
        if lost.pop(job.job_id, None) is not None:
            ports.queue.send([message])
            yield Redriven(job_id=job.job_id, outcome=RedriveOutcome.SENT_AGAIN)
    for job_id in lost:
        yield Redriven(job_id=job_id, outcome=RedriveOutcome.NOT_STORED)


def count_lost(
    workload: str,
    *,
    objects: ObjectStore,
    queues: Sequence[JobQueue],
    table: Table,
    now: datetime,
    reads_at_most: int,
    batch: str | None = None,
) -> int:
    """Return how many jobs have no message, at least; nothing is received.

    Every job that is not over needs a message. A message may also be of a job that no batch
    names, so there may be more jobs without one than this. Nor is a job counted that is not
    reached, or whose manifest or index is damaged or too large to be read here.

    Args:
        workload: whose.
        objects: its part of the bucket.
        queues: all its queues, and its dead-letter queue.
        table: the ledger.
        now: the time.
        reads_at_most: so many indices and manifests are read, those of the newest batches first,
            and of each the jobs that were sent last, which are over last.
        batch: look only at this one, if it is of the last 14 days and a while old; None: at all.
    """
    # In this order: what ends or is sent meanwhile makes the count smaller, never larger.
    batches = _recent_batches(
        objects, now, only=batch, bytes_at_most=_INDEX_BYTES, number_at_most=reads_at_most
    )
    if not batches:
        return 0
    counts = list(backlogs(queues))
    messages = sum(count.visible + count.in_flight + count.delayed for count in counts)
    look = _Look(
        read=partial(read_small_manifest, objects=objects),
        is_held=lambda found: is_held(found, workload, table, now),
        left=reads_at_most,
    )
    unfinished = 0
    for batch_id in batches:
        if look.left <= 0:
            break
        look.left -= 1
        try:
            found = read_batch(batch_id, objects)
            if is_held_back(found, workload, table):
                continue
        except ContractError:
            # `spindown batches` and `redrive --lost` tell it.
            continue
        unfinished += sum(not one.fault for one in look.find(batch_id, found.jobs[::-1]))
    return max(unfinished - messages, 0)


def count_recent(workload: str, ports: ControlPorts, store_of: Callable[[str], ObjectStore]) -> int:
    """Return how many jobs of the newest batches have no message, at least."""
    settings, _ = ports.settings.workload(workload)
    return count_lost(
        workload,
        objects=store_of(workload),
        queues=[*queues_of(ports, settings), ports.queue(settings.dlq_url)],
        table=ports.table,
        now=ports.clock.now(),
        reads_at_most=_COUNTED_AT_MOST,
    )


def _recent_batches(
    objects: ObjectStore,
    now: datetime,
    *,
    only: str | None = None,
    bytes_at_most: int = sys.maxsize,
    number_at_most: int = sys.maxsize,
) -> Sequence[str]:
    """Return the batches of the last days whose submit is over, newest first."""
    found = (
        (index.modified_at, batch_id)
        for index in objects.list(BATCHES)
        if (batch_id := batch_of(index.key)) is not None
        and only in {None, batch_id}
        and index.bytes <= bytes_at_most
        and LOOKED_AT_AFTER <= now - index.modified_at <= _RECENT
    )
    return [batch_id for _, batch_id in nlargest(number_at_most, found)]


@dataclass(kw_only=True)
class _Look:
    """Finds the jobs of batches that are not over."""

    #: Returns a job's manifest, None if it has none (raises ContractError: it is not known).
    read: Callable[[str], Manifest | None]
    #: Whether a worker holds a job that has begun.
    is_held: Callable[[Manifest], bool]
    #: Manifests that may still be read.
    left: int = sys.maxsize

    def find(self, batch_id: str, jobs: Sequence[str]) -> Iterator[OpenJob]:
        """Yield those jobs of a batch that are not over; of a split job, its children.

        No more children are kept in memory than may still be read.
        """
        waiting = deque(
            _Place(job_id=job, submitted=job, batch_id=batch_id) for job in jobs[: self.left]
        )
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            while waiting:
                some = [waiting.popleft() for _ in range(min(len(waiting), _READ_IN_A_ROW))]
                self.left -= len(some)
                for found, children in pool.map(self._look, some):
                    yield from found
                    waiting.extend(islice(children, self.left - len(waiting)))

    def _look(self, place: "_Place") -> tuple[Sequence[OpenJob], Sequence["_Place"]]:
        """Return the job, if it is open, and where its children are."""
        is_held = False
        try:
            manifest = self.read(place.job_id)
            if manifest is not None and manifest.state is JobState.SPLIT:
                names = children_of(manifest, place.depth)[: self.left]
                return (), [replace(place, job_id=name, depth=place.depth + 1) for name in names]
            if manifest is not None and manifest.state is not JobState.RUNNING:
                return (), ()
            is_held = manifest is not None and self.is_held(manifest)
        except NewerSchema:
            return (), ()
        except ContractError as exc:
            return [place.open(fault=str(exc))], ()
        return [place.open(is_held=is_held)], ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A job of a batch, or one that was split from it."""

    job_id: str
    submitted: str
    batch_id: str
    #: Splits between the two.
    depth: int = 0

    def open(self, *, is_held: bool = False, fault: str = "") -> OpenJob:
        """Return that it is not over."""
        return OpenJob(
            job_id=self.job_id,
            submitted=self.submitted,
            batch_id=self.batch_id,
            is_held=is_held,
            fault=fault,
        )


def _read_manifest(job_id: str, objects: ObjectStore) -> Manifest | None:
    stored = load_manifest(job_id, objects)
    return None if stored is None else stored.manifest


def _find_messages(ports: WorkPorts) -> frozenset[str]:
    """Return the jobs of all visible messages and dead letters; each is seen for a moment."""
    waiting = frozenset[str]()
    for queue in (ports.queue, *ports.shapes.values()):
        there = replace(ports, queue=queue)
        with suppress(NotFound):
            waiting |= _receive_all(queue, _job_of, renewed=partial(renew, ports=there))
    # A letter may be received as often as anybody likes.
    given_up = _receive_all(ports.dead_letters, partial(_job_of_letter, ports=ports))
    return waiting | given_up


def _receive_all(
    queue: JobQueue,
    job_of: Callable[[Message], str | None],
    *,
    renewed: Callable[[Message], bool] = lambda _: False,
) -> frozenset[str]:
    # Without their bodies, of up to a MiB each.
    found, held = set[str](), list[str]()
    try:
        while message := queue.receive(wait=WAIT, visibility=HIDDEN_FOR):
            held.append(message.receipt_handle)
            if len(held) > _LOOKED_AT_MOST:
                remedy = "let workers work some of them off first"
                raise BadInput("messages", f"more than {_LOOKED_AT_MOST}", remedy)
            found.add(job_of(message) or "")
            renewed(message)
    finally:
        # A handle of one that was renewed holds nothing any more.
        queue.show(held)
    return frozenset(found)


def _job_of(message: Message) -> str | None:
    with suppress(ContractError):
        return with_id(parse_job(message.body), message.message_id).job_id
    return None


def _job_of_letter(letter: Message, ports: WorkPorts) -> str | None:
    with suppress(ContractError, NotFound):
        return read_dead_letter(letter, ports).job_id
    return None


def _find_submitted(
    lost: Collection[OpenJob], objects: ObjectStore
) -> Iterator[tuple[OpenJob, Outgoing]]:
    """Yield those of the lost jobs whose message was stored, with the message."""
    wanted = defaultdict[str, list[OpenJob]](list)
    for one in lost:
        wanted[one.submitted].append(one)
    for batch_id in sorted({one.batch_id for one in lost}):
        # Of a batch with a line that is no message the rest is told as not stored.
        with suppress(ContractError):
            for _, body in read_bodies(batch_id, objects):
                for one, message in _messages_of(body, wanted, objects):
                    yield one, message


def _messages_of(
    body: str, wanted: Mapping[str, Sequence[OpenJob]], objects: ObjectStore
) -> Iterator[tuple[OpenJob, Outgoing]]:
    """Yield the lost jobs that a submitted message tells of, each with its own message."""
    with suppress(ContractError):
        job = parse_job(body)
        for one in wanted.get(job.job_id or "", ()):
            sent = body if one.job_id == one.submitted else _find_body(one.job_id, objects)
            if sent:
                yield one, Outgoing(body=sent, tenant=job.tenant)


def _find_body(child: str, objects: ObjectStore) -> str:
    """Return the message of a split job's child; "": what it asks for is stored no more.

    Only a split writes below a child's id, and every attempt at it the same.
    """
    for found in objects.list(stored_prefix(child)):
        digest = found.key.removeprefix(stored_prefix(child)).removesuffix(".json")
        return encode_job(JobMessage(job_id=child, stored=digest))
    return ""

"""Find the jobs whose messages are gone, and send them again.

A purge of the queue deletes messages and tells nobody. The index of a batch names its jobs, their
manifests say which are not over, and the messages that were submitted lie in the bucket. Of two
messages of one job the manifest lets only one have an effect, so to send one too many costs
little; a job that nobody sends again is never done.

A job that was sent without ``submit`` is in no index, and is not found here.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from spindown.contract.job.batch import BATCHES, batch_of, submitted_prefix
from spindown.contract.job.manifest import JobState
from spindown.contract.job.message import (
    JobMessage,
    encode_job,
    own_children,
    parse_job,
    stored_prefix,
    with_id,
)
from spindown.error import BadInput, ContractError, NewerSchema, NotFound
from spindown.job.fence import read_fence
from spindown.job.held import WorkPorts, is_at_work
from spindown.job.message import put_back, show_again
from spindown.job.redrive import (
    HIDDEN_FOR,
    WAIT,
    Redriven,
    RedriveOutcome,
    read_dead_letter,
)
from spindown.job.result import read_batch
from spindown.job.shape_queue import backlogs, queues_of
from spindown.port import ControlPorts, JobQueue, Message, ObjectStore, Outgoing, Table

#: A submit writes the index first and then sends; a large one takes minutes.
LOOKED_AT_AFTER = timedelta(minutes=15)
#: The queue keeps a message for 12 days; older batches are asked for by name.
_RECENT = timedelta(days=14)
_READS_AT_ONCE = 16
#: Jobs whose manifests one count reads, within seconds.
_COUNTED_AT_MOST = 5_000
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


def redrive_lost(
    workload: str, ports: WorkPorts, *, batches: Collection[str] = ()
) -> Iterator[Redriven]:
    """Send each job again that is not over and has no message; yield it when that is done.

    A batch whose index is damaged is yielded too, as unreadable, and hides no other.

    Args:
        workload: whose.
        ports: the world; the queues are the workload's.
        batches: only jobs of these; empty: of all of the last 14 days that are a while old.

    Raises:
        NotFound: there is no such batch.
        BadInput: too many messages wait to be looked at.
    """
    now, objects = ports.clock.now(), ports.objects
    left: list[OpenJob] = []
    for batch_id in batches or _recent_batches(objects, now):
        try:
            jobs = read_batch(batch_id, objects).jobs
        except ContractError as exc:
            yield Redriven(job_id=None, outcome=RedriveOutcome.UNREADABLE, reason=str(exc))
            continue
        found = _find_unfinished(batch_id, jobs, workload, objects, ports.table, now)
        left += (one for one in found if not one.is_held)
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
    jobs_at_most: int,
    batch: str | None = None,
) -> int:
    """Return how many jobs have no message, at least; nothing is received.

    Every job that is not over needs a message. A message may also be of a job that no batch
    names, so there may be more jobs without one than this.

    Args:
        workload: whose.
        objects: its part of the bucket.
        queues: all its queues, and its dead-letter queue.
        table: the ledger.
        now: the time.
        jobs_at_most: read no more batches once they name so many jobs, the newest first.
        batch: look only at this one, if it is of the last 14 days and a while old; None: at all.
    """
    # In this order: what ends or is sent meanwhile makes the count smaller, never larger.
    batches = [one for one in _recent_batches(objects, now) if batch in {None, one}]
    if not batches:
        return 0
    counts = list(backlogs(queues))
    messages = sum(count.visible + count.in_flight + count.delayed for count in counts)
    unfinished = read = 0
    for batch_id in batches:
        if read >= jobs_at_most:
            break
        try:
            jobs = read_batch(batch_id, objects).jobs
        except ContractError:
            # `spindown batches` and `redrive --lost` tell it.
            continue
        read += len(jobs)
        unfinished += len(_find_unfinished(batch_id, jobs, workload, objects, table, now))
    return max(unfinished - messages, 0)


def count_recent(workload: str, ports: ControlPorts, store_of: Callable[[str], ObjectStore]) -> int:
    """Return how many jobs of the newest batches have no message, at least.

    Args:
        workload: whose.
        ports: the world.
        store_of: a workload's part of the bucket.
    """
    settings, _ = ports.settings.workload(workload)
    return count_lost(
        workload,
        objects=store_of(workload),
        queues=[*queues_of(ports, settings), ports.queue(settings.dlq_url)],
        table=ports.table,
        now=ports.clock.now(),
        jobs_at_most=_COUNTED_AT_MOST,
    )


def _recent_batches(objects: ObjectStore, now: datetime) -> Sequence[str]:
    """Return the batches of the last days whose submit is over, newest first."""
    found = [
        (index.modified_at, batch_id)
        for index in objects.list(BATCHES)
        if (batch_id := batch_of(index.key)) is not None
        and LOOKED_AT_AFTER <= now - index.modified_at <= _RECENT
    ]
    return [batch_id for _, batch_id in sorted(found, reverse=True)]


def _find_unfinished(
    batch_id: str,
    jobs: Sequence[str],
    workload: str,
    objects: ObjectStore,
    table: Table,
    now: datetime,
) -> Sequence[OpenJob]:
    """Return those of a batch's jobs that are not over; of a split job, its children."""

    def look(job_id: str, submitted: str) -> Iterator[OpenJob]:
        try:
            fence = read_fence(job_id, objects)
        except NewerSchema:
            return
        state = JobState.RUNNING if fence is None else fence.manifest.state
        if fence is not None and state is JobState.SPLIT:
            for child in own_children(job_id, fence.manifest.children):
                yield from look(child, submitted)
        elif state is JobState.RUNNING:
            is_held = fence is not None and is_at_work(fence.manifest, workload, table, now)
            yield OpenJob(job_id=job_id, submitted=submitted, batch_id=batch_id, is_held=is_held)

    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        return [one for found in pool.map(lambda job: [*look(job, job)], jobs) for one in found]


def _find_messages(ports: WorkPorts) -> frozenset[str]:
    """Return the jobs of all visible messages and dead letters; each is seen for a moment."""
    waiting = frozenset[str]()
    for queue in (ports.queue, *ports.shapes.values()):
        there = replace(ports, queue=queue)
        with suppress(NotFound):
            waiting |= _receive_all(queue, _job_of, again=partial(_show_again, there))
    letters = ports.dead_letters
    given_up = _receive_all(
        letters,
        lambda letter: _job_of_letter(letter, ports),
        # It may be received as often as anybody likes.
        again=lambda letter: put_back(letter, timedelta(0), letters),
    )
    return waiting | given_up


def _show_again(ports: WorkPorts, message: Message) -> None:
    show_again(message, ports)


def _receive_all(
    queue: JobQueue,
    job_of: Callable[[Message], str | None],
    *,
    again: Callable[[Message], None],
) -> frozenset[str]:
    held: list[Message] = []
    try:
        while message := queue.receive(wait=WAIT, visibility=HIDDEN_FOR):
            held.append(message)
            if len(held) > _LOOKED_AT_MOST:
                remedy = "let workers work some of them off first"
                raise BadInput("messages", f"more than {_LOOKED_AT_MOST}", remedy)
    finally:
        for message in held:
            again(message)
    return frozenset(filter(None, map(job_of, held)))


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
        for bundle in list(objects.list(submitted_prefix(batch_id))):
            for line in objects.get(bundle.key).data.splitlines():
                body = line.decode(errors="replace")
                with suppress(ContractError):
                    job = parse_job(body)
                    for one in wanted.get(job.job_id or "", ()):
                        sent = (
                            body if one.job_id == one.submitted else _find_body(one.job_id, objects)
                        )
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

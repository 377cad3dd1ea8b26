"""Send the failed items of a batch again, as a batch of their own, when a person asks for it.

``redrive`` sends whole jobs again. What is tried again by itself is decided in
``domain.retry_or_dead_letter``.

Every item keeps its one result: the new jobs have other ids, and the old ones stay as they are.
The new batch is named after the old one and its index is written once, so nobody sends the same
items twice, however often this runs; a call that was broken off before the first message is gone
on with. That is why a batch must be over first, with no job given up: then no further item of it
can fail.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from spindown.contract.job.batch import Batch, open_key
from spindown.contract.job.message import JobMessage, parse_job
from spindown.error import BadInput, NotFound
from spindown.job.result import (
    JobProgress,
    read_batch,
    read_bodies,
    read_progress,
    read_records,
)
from spindown.job.submit import (
    BATCH_REMEDY,
    ITEMS_PER_JOB,
    MAX_BODY_BYTES,
    Draft,
    Tell,
    submit_items,
)
from spindown.port import JobQueue, ObjectStore

_READS_AT_ONCE = 16
#: Jobs that a remedy names.
_SHOWN = 3
#: Room in a message for what its jobs share.
_ITEMS_BYTES = MAX_BODY_BYTES // 2


def again_of(batch_id: str) -> str:
    """Return the name of the batch in which the failed items of a batch are sent again."""
    return f"{batch_id}-again"


def send_failed_again(
    batch_id: str, workload: str, *, queue: JobQueue, store: ObjectStore, begun: Tell
) -> Batch:
    """Send the failed items of a batch in new jobs; return the batch that these are.

    If they were sent before, or some of them, that batch is returned; ``begun`` is told nothing.

    Raises:
        BadInput: there is no such batch, it is not over, no item of it has failed, what its jobs
            asked for is not stored any more, or a record names an item that its job was not asked
            for.
    """
    try:
        batch = read_batch(batch_id, store)
    except NotFound:
        raise BadInput("BATCH", batch_id, BATCH_REMEDY) from None
    again = again_of(batch_id)
    if (sent := _find_sent(again, store)) is not None:
        return sent
    _check_over(batch, workload, store)
    failed = {
        job_id: items
        for job_id in batch.jobs
        if (items := [one.get("item") for one in read_records(job_id, store, failed_only=True)])
    }
    if not failed:
        raise BadInput("BATCH", batch_id, "name a batch of which an item has failed")
    asked = _check_asked(batch_id, failed, store)
    items = [item for of_job in failed.values() for item in of_job]
    draft = Draft(
        workload=workload,
        batch_id=again,
        items_per_job=min(batch.items_per_job or ITEMS_PER_JOB, _fitting(items)),
        tenant=asked.tenant,
        params=asked.params,
        type=asked.type,
        requirements=asked.requirements,
        command=batch.command,
        goes_on=True,
    )
    return submit_items(items, draft, queue=queue, store=store, begun=begun)


def _find_sent(batch_id: str, store: ObjectStore) -> Batch | None:
    """Return the batch of this name; None: there is none, or no message of it was ever sent.

    Its mark is written before its first message, and removed once it is over.
    """
    with suppress(NotFound):
        batch = read_batch(batch_id, store)
        if any(job.state is not None for job in _read_jobs(batch, store)):
            return batch
        store.get(open_key(batch_id))
        return batch
    return None


def say_given_up(batch: Batch, workload: str, store: ObjectStore) -> str:
    """Return what to do first where jobs of a batch were given up; "": none was."""
    return _say_given_up(_read_jobs(batch, store), workload)


def _read_jobs(batch: Batch, store: ObjectStore) -> Sequence[JobProgress]:
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        return list(pool.map(lambda job: read_progress(job, store), batch.jobs))


def _say_given_up(jobs: Sequence[JobProgress], workload: str) -> str:
    given_up = [job.job_id for job in jobs if job.is_given_up]
    if not given_up:
        return ""
    command = f"`spindown redrive {workload} {shlex.join(given_up[:_SHOWN])}`"
    others = f" and for {left:,} more" if (left := len(given_up) - _SHOWN) > 0 else ""
    return f"send back first the jobs that were given up: {command}{others}"


def _check_over(batch: Batch, workload: str, store: ObjectStore) -> None:
    jobs = _read_jobs(batch, store)
    if remedy := _say_given_up(jobs, workload):
        raise BadInput("BATCH", batch.batch_id, remedy)
    if left := sum(not job.is_over for job in jobs):
        raise BadInput("BATCH", batch.batch_id, f"wait until its jobs are over (jobs left: {left})")


def _check_asked(
    batch_id: str, failed: Mapping[str, Sequence[Any]], store: ObjectStore
) -> JobMessage:
    """Return what all jobs of a batch share, as the first of its messages says.

    A worker wrote the records of the failed items. So each item must be one that its job was asked
    for, as often; only where a message names a list or a prefix in S3 that cannot be told. The
    message of each job must be there.
    """
    first: JobMessage | None = None
    missing = dict.fromkeys(failed)
    for job in _read_messages(batch_id, store):
        first = first or job
        missing.pop(job.job_id or "", None)
        items = failed.get(job.job_id or "", ())
        if job.items is None or not items:
            continue
        forged = Counter(map(_as_json, items)) - Counter(map(_as_json, job.items))
        for text in forged:
            remedy = f"submit the items yourself: {job.job_id} was not asked for this one"
            raise BadInput("item", text, remedy)
    if first is None or missing:
        remedy = (
            f"submit the items yourself: what {next(iter(missing))} asked for is stored no more"
        )
        raise BadInput("BATCH", batch_id, remedy)
    return first


def _read_messages(batch_id: str, store: ObjectStore) -> Iterator[JobMessage]:
    for _, body in read_bodies(batch_id, store):
        yield parse_job(body)


def _as_json(item: object) -> str:
    return json.dumps(item, sort_keys=True)


def _fitting(items: list[Any]) -> int:
    """Return how many of the items surely fit into one message."""
    largest = max(len(json.dumps(item)) for item in items)
    return max(1, _ITEMS_BYTES // (largest + 2))

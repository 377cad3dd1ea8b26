"""Read what jobs have committed, always through their manifests, never by listing parts."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from io import BytesIO
from itertools import count
from typing import Any

from spindown.contract.codec import count_values, decode, from_json
from spindown.contract.job.batch import Batch, batch_key, batch_of_job, name_job, submitted_key
from spindown.contract.job.manifest import JobState, Manifest, Part
from spindown.contract.job.message import MESSAGE_BYTES_MAX, derived_id, is_id, own_children
from spindown.contract.job.result import ItemStatus
from spindown.domain.batch import end_of_job
from spindown.domain.retry_or_dead_letter import last_said
from spindown.error import ContractError, NotFound
from spindown.job.manifest_store import load_manifest
from spindown.job.source_search import find_by_object, is_address
from spindown.port import ObjectStore
from spindown.reason_text import say_count

#: So deep may splits lie within each other. A child is small enough, so that it is split again only
#: if somebody has lowered ``max_items_per_job`` meanwhile.
SPLITS_MAX = 8
#: Of an index that is bounded each value has so many bytes in the mean, as those of a submit have.
#: Text of shorter ones takes many times its own size of memory once it is read.
_BYTES_OF_VALUE = 48
#: What a batch may be said to wait for, as far as a row can hold it: whoever submits writes it.
_AFTER = re.compile(r"[A-Za-z0-9._/-]{0,300}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """Progress of one job."""

    job_id: str
    #: None: not claimed yet.
    state: JobState | None
    #: Without those that failed.
    items_done: int = 0
    items_failed: int = 0
    items: int | None = None
    interruptions: int = 0
    losses: int = 0
    epoch: int = 0
    busy_seconds: float = 0.0
    cost_usd: float = 0.0
    reason: str = ""
    #: ``ReasonCode`` of it, where there is one.
    code: str = ""
    #: Whose slot had its last attempt; "": nobody has claimed it, or it was split.
    instance_id: str = ""
    #: The address of the object that it is made of, if an event of S3 asked for it.
    source: str = ""
    #: Whether a worker holds it; of a split one, one of its children.
    is_held: bool = False
    #: Failures and losses that count, and what was said of the last. Of a split one that is not
    #: over, only those of children that are not: these are tried again.
    failures: int = 0
    last_failure: str = ""
    #: Before then nobody can receive it; None: it does not wait so, or that is not known. Of a
    #: split one it is told of its children alone.
    next_try_at: datetime | None = None
    #: Whether it was given up; of a split one, whether one of its children was.
    is_given_up: bool = False
    #: Jobs that are not over (of a split one its children), and the items that are left of the
    #: largest; None: nobody has claimed it.
    jobs_left: int = 1
    largest_left: int | None = None
    #: Job in hand (of a split one its children) -> its first item without a committed result, and
    #: the seconds of slot time that its epoch has committed.
    in_hand: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """Return its state in one word, the same wherever it is told."""
        if self.is_over:
            return str(end_of_job(str(self.state), items_failed=self.items_failed))
        return "running" if self.is_held else "waiting"

    @property
    def failures_told(self) -> str:
        """Return how often it has failed so far, and what was said of the last; "": never."""
        if not self.failures or self.is_over:
            return ""
        if not self.last_failure:
            # Every failure says something: these are losses.
            count = "1 loss" if self.failures == 1 else f"{self.failures:,} losses"
            return f"{count}: the worker ended without a word"
        return f"{say_count(self.failures, 'failure')}; last: {self.last_failure}"

    @property
    def items_over(self) -> int:
        """Return how many items are done or have failed."""
        return self.items_done + self.items_failed

    @property
    def is_over(self) -> bool:
        """Tell whether the job has ended."""
        return self.state in {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED}


def find_jobs(name: str, store: ObjectStore) -> tuple[str, ...]:
    """Return the job ids that ``name``, a batch or a job, stands for.

    A job of a batch is found by its batch even before it is claimed, and one whose message names
    no id by the id that SQS gave to the message. The address of an object stands for the jobs that
    events of S3 asked for.

    Raises:
        NotFound: it is none of them.
        ContractError: it is a batch whose index is damaged.
    """
    if is_address(name):
        return find_by_object(name, store)
    with suppress(NotFound):
        return read_batch(name, store).jobs
    try:
        read_manifest(name, store)
    except NotFound:
        batch = batch_of_job(name)
        with suppress(NotFound):
            if batch and name in read_batch(batch, store).jobs:
                return (name,)
        return (read_manifest(derived_id(name), store).job_id,)
    return (name,)


def read_batch(batch_id: str, store: ObjectStore, *, at_most_bytes: int | None = None) -> Batch:
    """Return the index of a batch.

    Raises:
        NotFound: there is no such batch.
        ContractError: it is damaged, or larger than ``at_most_bytes``.
    """
    if is_address(batch_id):
        # No batch is called so, and S3 takes no key that holds a long one.
        raise NotFound(f"no batch {batch_id}")
    what = "index of the batch"
    index = store.get(batch_key(batch_id), at_most_bytes=at_most_bytes).data
    remedy = f"restore {batch_key(batch_id)} from an older version, or ask for its jobs one by one"
    values = count_values(index)
    if at_most_bytes is not None and values > at_most_bytes // _BYTES_OF_VALUE:
        raise ContractError(what, f"{values} values", f"it holds too many: {remedy}")
    batch = decode(Batch, from_json(what, index, remedy))
    # A submitter writes it: it must speak of no batch and of no job but its own, which whoever
    # follows, cancels or sends this batch acts upon.
    if batch.batch_id != batch_id or not is_id(batch_id):
        raise ContractError(what, batch.batch_id, f"this is another batch's name: {remedy}")
    for number, job_id in enumerate(batch.jobs):
        if job_id != name_job(batch_id, number) or not is_id(job_id):
            raise ContractError(what, job_id, f"this is no job of it: {remedy}")
    if not _AFTER.fullmatch(batch.after):
        raise ContractError(what, batch.after, f"this names no batch: {remedy}")
    return batch


def read_bodies(
    batch_id: str, store: ObjectStore, *, at_most_bytes: int | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the bodies of a batch's messages in the order of its jobs, each with its object's key.

    What lies beside these objects, whoever has put it there, is not read.

    Raises:
        ContractError: an object is larger than ``at_most_bytes``, or a line longer than any
            message, so no submit has written this.
    """
    with suppress(NotFound):
        for number in count():
            key = submitted_key(batch_id, number)
            for line in BytesIO(store.get(key, at_most_bytes=at_most_bytes).data):
                body = line.removesuffix(b"\n")
                if len(body) > MESSAGE_BYTES_MAX:
                    raise ContractError(key, f"{len(body)} bytes a line", NO_MESSAGE)
                yield key, body.decode(errors="replace")


#: What is done about a batch whose messages no submit has written.
NO_MESSAGE = "cancel this batch, and submit again"


def count_items(name: str, store: ObjectStore) -> int | None:
    """Return how many items a batch has by its index; None: that is not known, or it is a job."""
    with suppress(NotFound):
        return read_batch(name, store).items
    return None


def read_manifest(job_id: str, store: ObjectStore) -> Manifest:
    """Return a job's manifest; the last readable version if the newest is damaged.

    Raises:
        NotFound: it has none yet.
        NewerSchema: a later version of Spindown wrote it.
    """
    stored = load_manifest(job_id, store)
    if stored is None:
        raise NotFound(f"no manifest of job {job_id}")
    return stored.manifest


def children_of(manifest: Manifest, depth: int) -> tuple[str, ...]:
    """Return the children of a job that was itself made by so many splits, one after the other.

    Raises:
        ContractError: nobody splits so often. A worker may name children in any manifest.
    """
    children = own_children(manifest.job_id, manifest.children)
    if children and depth >= SPLITS_MAX:
        remedy = f"submit its items anew: a job is split {SPLITS_MAX} times at most"
        raise ContractError(f"children of job {manifest.job_id}", children[0], remedy)
    return children


def read_records(
    job_id: str,
    store: ObjectStore,
    on_damage: Callable[[str, ContractError], None] | None = None,
    *,
    failed_only: bool = False,
    depth: int = 0,
) -> Iterator[dict[str, Any]]:
    """Yield the committed result records of a job and of its children, in item order.

    Args:
        job_id: the job.
        store: its workload's.
        failed_only: only those of failed items; parts without one are not read.
        on_damage: told each job of which the rest cannot be read, which hides no other; None: the
            first such is raised.
        depth: splits that lie between the job and the one that was submitted.

    Raises:
        NotFound: nobody has claimed the job.
        ContractError: a part is not what the manifest committed, or splits are too deep.
    """
    children: tuple[str, ...] = ()
    try:
        manifest = read_manifest(job_id, store)
        children = children_of(manifest, depth)
        yield from _read_own(manifest, store, failed_only=failed_only)
    except ContractError as exc:
        if on_damage is None:
            raise
        on_damage(job_id, exc)
    for child in children:
        with suppress(NotFound):
            yield from read_records(
                child, store, on_damage, failed_only=failed_only, depth=depth + 1
            )


def parse_items(part: Part, job_id: str, data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the records in the bytes of a part one by one, each with the index that it must have.

    Raises:
        ContractError: a record is not what the manifest committed.
    """
    expected = part.first
    for record in _parse(part, job_id, data):
        if record.get("index") != expected or expected > part.last:
            raise ContractError(f"indexes of {part.key}", record.get("index"), _OF_NO_USE)
        yield record
        expected += 1
    if expected <= part.last:
        raise ContractError(f"indexes of {part.key}", expected - 1, _OF_NO_USE)


def _read_own(
    manifest: Manifest, store: ObjectStore, *, failed_only: bool
) -> Iterator[dict[str, Any]]:
    for part in manifest.parts:
        if failed_only and not part.failed:
            continue
        for record in _parse(part, manifest.job_id, read_part(part, store)):
            if not failed_only or record.get("status") == ItemStatus.FAILED:
                yield record


#: Several times what a worker holds before it must commit.
_PART_BYTES_MAX = 1024**3
#: Why a job has failed that says that it was split, and into no job that a split makes.
_NO_CHILDREN = "its manifest is damaged: it was split, and names no job of the split"
_OF_NO_USE = "its results are of no use: repair its code, and send its items anew"


def _parse(part: Part, job_id: str, data: bytes) -> Iterator[dict[str, Any]]:
    # Line by line: as objects, values take many times the memory of their text.
    for line in BytesIO(data):
        record = from_json(f"a record of {part.key}", line, _OF_NO_USE)
        if not isinstance(record, dict) or record.get("job_id") != job_id:
            raise ContractError(f"a record of {part.key}", record, _OF_NO_USE)
        yield record


def read_part(part: Part, store: ObjectStore) -> bytes:
    """Return the bytes that were committed, from an older version if the newest is damaged.

    An object of another size is not downloaded.

    Raises:
        ContractError: they are gone, or more than a worker commits at once. NotFound would mean
            that nobody has claimed the job.
    """
    if part.bytes > _PART_BYTES_MAX:
        raise ContractError(f"bytes of {part.key}", part.bytes, _OF_NO_USE)
    for version in _versions(part.key, store):
        with suppress(NotFound, ContractError):
            data = store.get(part.key, version=version, at_most_bytes=part.bytes).data
            if hashlib.sha256(data).hexdigest() == part.sha256:
                return data
    raise ContractError(
        "part", part.key, "restore it: it is gone, or its bytes are not the committed ones"
    )


def _versions(key: str, store: ObjectStore) -> Iterator[str | None]:
    """Yield the versions of a key: the current one first, then the older ones."""
    yield None
    yield from store.versions(key)


def _is_kept(manifest: Manifest) -> bool:
    return not manifest.released


def progress_of(manifest: Manifest, is_held: Callable[[Manifest], bool] = _is_kept) -> JobProgress:
    """Return the progress of a job by its manifest alone, without that of its children."""
    own = JobProgress(
        job_id=manifest.job_id,
        state=manifest.state,
        items_done=manifest.items_done - manifest.items_failed,
        items_failed=manifest.items_failed,
        items=manifest.items,
        interruptions=manifest.interruptions,
        losses=manifest.losses,
        epoch=manifest.epoch,
        busy_seconds=manifest.busy_seconds,
        cost_usd=manifest.cost_usd,
        reason=manifest.reason,
        code=manifest.code,
        instance_id=manifest.owner.partition("/")[0],
        is_held=manifest.state is JobState.RUNNING and is_held(manifest),
        failures=len(manifest.failures),
        source=manifest.source,
        last_failure=last_said(manifest.failures),
        is_given_up=manifest.state is JobState.FAILED,
    )
    left = None if own.items is None else max(own.items - own.items_over, 0)
    own = replace(own, jobs_left=int(not own.is_over), largest_left=0 if own.is_over else left)
    if own.is_held:
        own = replace(own, in_hand={manifest.job_id: (manifest.next_item, manifest.epoch_busy)})
    return own


def read_progress(
    job_id: str,
    store: ObjectStore,
    is_held: Callable[[Manifest], bool] = _is_kept,
    *,
    depth: int = 0,
) -> JobProgress:
    """Return the progress of a job, its children summed up.

    Args:
        job_id: the job.
        store: its workload's.
        is_held: tells whether a worker holds a job that has begun. By its manifest alone, a job
            whose worker was lost is still held.
        depth: splits that lie between the job and the one that was submitted.

    Raises:
        ContractError: splits are too deep.
    """
    try:
        manifest = read_manifest(job_id, store)
    except NotFound:
        return JobProgress(job_id=job_id, state=None)
    own = progress_of(manifest, is_held)
    if manifest.state not in {JobState.SPLIT, JobState.CANCELLED}:
        return own
    named = children_of(manifest, depth)
    if not named and manifest.state is JobState.SPLIT:
        own = replace(own, state=JobState.FAILED, is_given_up=True, reason=_NO_CHILDREN)
        return replace(own, jobs_left=0, largest_left=0)
    if not named:
        return own
    children = [read_progress(child, store, is_held, depth=depth + 1) for child in named]
    return _sum_children(own, children)


def _sum_children(own: JobProgress, children: list[JobProgress]) -> JobProgress:
    states = {child.state for child in children}
    over = all(child.is_over for child in children)
    ended = next(
        (state for state in (JobState.FAILED, JobState.CANCELLED) if state in states),
        JobState.COMPLETED,
    )
    ranked = sorted(children, key=lambda child: child.state is not ended)
    told = next((child for child in ranked if child.reason), own)
    tried = [child for child in children if over or not child.is_over]
    return JobProgress(
        job_id=own.job_id,
        state=ended if over else JobState.SPLIT,
        items_done=sum(child.items_done for child in children),
        items_failed=sum(child.items_failed for child in children),
        items=own.items,
        interruptions=sum(child.interruptions for child in children),
        losses=sum(child.losses for child in children),
        epoch=max((child.epoch for child in children), default=own.epoch),
        busy_seconds=sum(child.busy_seconds for child in children),
        cost_usd=sum(child.cost_usd for child in children),
        reason=told.reason,
        code=told.code,
        failures=sum(child.failures for child in tried),
        last_failure=next((x.last_failure for x in tried if x.last_failure), ""),
        is_given_up=any(child.is_given_up for child in children),
        jobs_left=sum(child.jobs_left for child in children),
        is_held=any(child.is_held for child in children),
        largest_left=max((child.largest_left or 0 for child in children), default=0)
        or (None if own.items is None else own.items // max(len(children), 1)),
        in_hand={job_id: at for child in children for job_id, at in child.in_hand.items()},
    )

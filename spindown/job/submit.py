"""Turn items into jobs on a queue: upload local files, cut into jobs, index the batch, send.

The index of the batch and a copy of its messages are written before the first message is sent. So
every job on the queue is found through its batch, and a message that is gone can be sent again.
After a crash submit again: that makes a new batch.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from spindown.contract.codec import encode
from spindown.contract.job.batch import (
    UPLOADS,
    Batch,
    batch_key,
    name_job,
    open_key,
    submitted_key,
)
from spindown.contract.job.message import is_id, parse_job
from spindown.domain.batch import OnFailure
from spindown.error import AccessDenied, BadInput, NotFound, PreconditionFailed
from spindown.port import Absent, JobQueue, ObjectStore, Outgoing

#: Of the name of no batch.
BATCH_REMEDY = "name a batch that was submitted: `spindown batches` lists them"

#: Room for SQS's 1 MiB (AWS, "Amazon SQS message quotas"), which counts attributes too.
MAX_BODY_BYTES = 1_000_000

#: Characters that no message may have (SQS API reference, SendMessage), besides those that JSON
#: escapes.
_UNSENDABLE = re.compile("[\ud800-\udfff\ufffe\uffff]")

#: Items of a job where nobody says how many. Of few items Python makes smaller jobs
#: (``client.workload``).
ITEMS_PER_JOB = 200

_UPLOADS_AT_ONCE = 8
_BUNDLE_BYTES = 8 * 1024**2


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What all jobs of one submit share."""

    workload: str
    batch_id: str
    items_per_job: int = ITEMS_PER_JOB
    #: The place of its first item among all that were given.
    first: int = 0
    tenant: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    #: Type and requirements of the jobs, as a message has them; None: none.
    type: str | None = None
    requirements: Mapping[str, Any] | None = None
    #: What a later submit of this name is compared with (``contract.job.batch.Batch``).
    digest: str = ""
    #: The batch that must be over first, and what becomes of this one if that has failed.
    after: str = ""
    on_failure: OnFailure = OnFailure.CANCEL
    #: Whoever submits it waits for its results, and cancels it otherwise.
    is_waited_for: bool = False
    #: How the command of a `spindown run` begins; "": it is none.
    command: str = ""
    #: Whether it goes on with a call for the same that was broken off.
    goes_on: bool = False


def name_batch(at: datetime, random: Random) -> str:
    """Return a batch id that sorts by time and is unique."""
    return f"b-{at:%Y%m%d-%H%M%S}-{random.getrandbits(32):08x}"


#: What may be the name of a batch: its jobs have it in their ids.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(batch_id: str) -> None:
    """Check the form of a batch's name (BadInput)."""
    if not _NAME.fullmatch(batch_id):
        remedy = "write 1 to 100 of A-Z, a-z, 0-9, . _ and -, a letter or digit first"
        raise BadInput("--batch", batch_id, remedy)


def check_unused(batch_id: str, store: ObjectStore) -> None:
    """Check that no submit has used a name, before files are uploaded below it (BadInput).

    Who may only submit may not look, and is told when the index of the batch is written.
    """
    with suppress(AccessDenied, NotFound):
        store.get(batch_key(batch_id))
        raise _used(batch_id)


def check_after(after: str, store_of: Callable[[str], ObjectStore | None]) -> None:
    """Check that there is a batch that a submit is to wait for (raises BadInput).

    Who may only submit may not look; then it waits until there is one.

    Args:
        after: ``WORKLOAD/BATCH``, or a batch of the same workload.
        store_of: a workload's part of the bucket, of "" the submit's own; None: there is no such.
    """
    workload, _, batch_id = after.rpartition("/")
    store = store_of(workload)
    remedy = f"{BATCH_REMEDY}; one of another workload is WORKLOAD/BATCH"
    if store is None or not is_id(batch_id):
        raise BadInput("after", after, remedy)
    with suppress(AccessDenied):
        try:
            store.get(batch_key(batch_id))
        except NotFound:
            raise BadInput("after", after, remedy) from None


def _used(batch_id: str) -> BadInput:
    remedy = (
        f"name another: `spindown results {batch_id}` shows what became of the jobs of this one"
    )
    return BadInput("batch", batch_id, remedy)


def own_folder(batch_id: str, random: Random) -> str:
    """Return a folder for the files of a batch that a person has named.

    Another submit of the same name has another one, and replaces no file of this one.
    """
    return f"{batch_id}/{random.getrandbits(32):08x}"


def upload(
    paths: Iterable[tuple[Path, str]], *, store: ObjectStore, root: str, folder: str
) -> Iterator[str]:
    """Upload files into a folder of the inputs; yield the URI of each, in order.

    Args:
        paths: each file with its name below the folder.
        store: the workload's part of the bucket.
        root: its URI, ``s3://bucket/.../``.
        folder: of the batch alone: its id, or ``own_folder``.
    """

    def send(pair: tuple[Path, str]) -> str:
        path, name = pair
        key = f"{UPLOADS}{folder}/{name}"
        try:
            store.put_file(key, path)
        except OSError as exc:
            raise BadInput("file", str(path), f"give a readable file ({exc.strerror})") from exc
        return f"{root}{key}"

    with ThreadPoolExecutor(_UPLOADS_AT_ONCE) as pool:
        yield from pool.map(send, paths)


class SendStage(Enum):
    """How far a submit has come whose index is there."""

    #: Nothing of it is sent, nor will be.
    NAMED = auto()
    #: From here on messages of it may be on the queue. What is not is sent by ``redrive --lost``.
    SENDING = auto()
    SENT = auto()


#: Is told the batch and each stage of its submit as that begins.
Tell = Callable[[Batch, SendStage], object]


def _tell_nobody(_batch: Batch, _stage: SendStage) -> None:
    """Do nothing: nobody asked."""


def submit_items(
    items: Iterable[Any],
    draft: Draft,
    *,
    queue: JobQueue,
    store: ObjectStore,
    begun: Tell = _tell_nobody,
) -> Batch:
    """Send items inline, ``items_per_job`` to a message; return the batch.

    Args:
        items: JSON values.
        draft: what all jobs share.
        queue: of the workload.
        store: the workload's part of the bucket.
        begun: is told how far it has come, once the index is there.

    Raises:
        BadInput: no items, an item that is not JSON, a job too large for a message, or anything
            else that the worker would refuse. Nothing was sent.
    """
    # Check what all jobs share before ``items`` is read: reading may upload.
    _body({"items": []}, draft.batch_id, draft)
    chunks = list(_cut(items, draft.items_per_job))
    bodies = [{"items": chunk} for chunk in chunks]
    counts = [len(chunk) for chunk in chunks]
    return _send(bodies, counts, draft, queue=queue, store=store, begun=begun)


def submit_uri(
    source: Mapping[str, str],
    draft: Draft,
    *,
    queue: JobQueue,
    store: ObjectStore,
    begun: Tell = _tell_nobody,
) -> Batch:
    """Send one job over ``{"items_uri": ...}`` or ``{"prefix_uri": ...}``; the worker splits it.

    ``begun`` is told as by ``submit_items``.

    Raises:
        BadInput: the worker would refuse it. Nothing was sent.
    """
    return _send([dict(source)], [None], draft, queue=queue, store=store, begun=begun)


def _cut(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def _send(
    sources: Sequence[dict[str, Any]],
    counts: Sequence[int | None],
    draft: Draft,
    *,
    queue: JobQueue,
    store: ObjectStore,
    begun: Tell,
) -> Batch:
    if not sources:
        raise BadInput("items", [], "give at least one item")
    jobs = tuple(name_job(draft.batch_id, n) for n in range(len(sources)))
    messages = [
        Outgoing(body=_body(source, job_id, draft, n), tenant=draft.tenant)
        for n, (source, job_id) in enumerate(zip(sources, jobs, strict=True))
    ]
    items = None if None in counts else sum(count or 0 for count in counts)
    batch = Batch(
        batch_id=draft.batch_id,
        workload=draft.workload,
        jobs=jobs,
        items=items,
        items_per_job=None if items is None else draft.items_per_job,
        digest=draft.digest,
        after=draft.after,
        on_failure=draft.on_failure,
        is_waited_for=draft.is_waited_for,
        type=draft.type or "",
        requirements=draft.requirements,
        command=draft.command,
    )
    _write_once(batch_key(draft.batch_id), json.dumps(encode(batch)).encode(), draft, store)
    begun(batch, SendStage.NAMED)
    for number, data in enumerate(_bundle(messages)):
        _write_once(submitted_key(draft.batch_id, number), data, draft, store)
    begun(batch, SendStage.SENDING)
    # Only now: what waits is started by these messages, so all of them must be there.
    _write_once(open_key(draft.batch_id), b"", draft, store)
    if not draft.after:
        queue.send(messages)
    begun(batch, SendStage.SENT)
    return batch


def _write_once(key: str, data: bytes, draft: Draft, store: ObjectStore) -> None:
    """Write what is nobody's; the bucket lets nobody write over it (raises BadInput).

    What an earlier try has written, whose answer was lost, is ours, and so is the same of a call
    that this one goes on with.
    """
    try:
        store.put(key, data, condition=Absent())
    except PreconditionFailed as exc:
        is_ours = exc.may_be_own or draft.goes_on
        # Who may only submit may not look.
        with suppress(AccessDenied, NotFound):
            is_ours = is_ours and store.get(key).data == data
        if not is_ours:
            raise _used(draft.batch_id) from None


def _bundle(messages: Iterable[Outgoing]) -> Iterator[bytes]:
    """Yield the bodies of messages as JSON lines, in objects that fit into memory."""
    lines, size = list[bytes](), 0
    for message in messages:
        lines.append(message.body.encode() + b"\n")
        size += len(lines[-1])
        if size >= _BUNDLE_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    if lines:
        yield b"".join(lines)


def _body(source: Mapping[str, Any], job_id: str, draft: Draft, number: int = 0) -> str:
    """Return the message of the job of this number (raises BadInput)."""
    message = {**source, "job_id": job_id, "batch_id": draft.batch_id, "schema": 1}
    if draft.tenant is not None:
        message["tenant"] = draft.tenant
    if draft.type is not None:
        message["type"] = draft.type
    if draft.requirements is not None:
        message["requirements"] = dict(draft.requirements)
    if draft.params:
        message["params"] = dict(draft.params)
    try:
        body = _to_text(message)
    except (TypeError, ValueError) as exc:
        raise BadInput("items", job_id, f"give items that are JSON ({exc})") from exc
    if (size := _size(body)) > MAX_BODY_BYTES:
        items = source.get("items", ())
        raise _too_large(size, items, draft, draft.first + number * draft.items_per_job)
    parse_job(body)
    return body


def _to_text(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _UNSENDABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _size(text: str) -> int:
    return len(text.encode())


def _too_large(size: int, items: Sequence[Any], draft: Draft, first: int) -> BadInput:
    """Return what of a message is too large: its largest item, what jobs share, or the number.

    Args:
        size: of the message, in bytes.
        items: in it.
        draft: what all jobs share.
        first: the place of the first of these items among those of the batch.
    """
    sizes = [_size(_to_text(item)) for item in items]
    shared, most = size - sum(sizes), f"a message holds {MAX_BODY_BYTES:,} bytes"
    if shared > MAX_BODY_BYTES:
        return BadInput("params", f"{shared:,} bytes", f"put them into a file in S3: {most}")
    largest = max(sizes)
    if shared + largest > MAX_BODY_BYTES:
        name = f"item {first + sizes.index(largest)}"
        return BadInput(name, f"{largest:,} bytes", f"send it as a file: {most}")
    return BadInput("items_per_job", draft.items_per_job, f"lower it: {most}, these have {size:,}")

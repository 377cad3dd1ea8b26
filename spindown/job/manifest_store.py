"""Read and write a job's manifest, its fence, so that of two owners only one goes on.

Every write is conditional on the ETag that its writer has read and carries a nonce, by which
the writer knows its own write again after a lost answer.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from spindown.contract.codec import replace_fields
from spindown.contract.job.manifest import (
    JobState,
    Manifest,
    decode_manifest,
    encode_manifest,
    manifest_key,
)
from spindown.contract.job.message import JobMessage, body_digest
from spindown.error import (
    ContractError,
    NewerSchema,
    NotFound,
    PreconditionFailed,
    Throttled,
    Unreachable,
    WriteConflict,
)
from spindown.job.message import first_sent_at
from spindown.port import Absent, Matches, Message, ObjectStore, StoredObject, WorkPorts

T = TypeVar("T")

#: Waits of 0.1 s doubling to 6.4 s: about 13 s in all, well within a lease.
_TRIES = 8
_FIRST_PAUSE = timedelta(milliseconds=100)
#: Of a manifest of 1,000 parts or 8,000 children; JSON takes 30 times as much memory at worst.
SMALL_BYTES = 256 * 1024
#: S3 tells in whole seconds when it took an object (Amazon S3 API Reference, "GetObject").
_STORED_WITHIN = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredManifest:
    """A manifest as read or written, and the ETag that the next write must match."""

    manifest: Manifest
    etag: str
    #: Epochs up to this one may have been used; above the manifest's own only when a corrupt
    #: version has hidden what it said.
    epoch_floor: int
    #: When S3 took it, by its own clock, in whole seconds; None: as written here.
    stored_at: datetime | None = None


def load_manifest(job_id: str, objects: ObjectStore) -> StoredManifest | None:
    """Return a job's manifest, or None if it has none.

    A corrupt one is replaced by the newest version that can be read, under the ETag of the
    corrupt one; the epoch still never goes back.

    Raises:
        NewerSchema: a later version of Spindown wrote it.
    """
    try:
        stored = objects.get(manifest_key(job_id))
    except NotFound:
        return None
    manifest = _decode(stored, job_id)
    if manifest is not None:
        return StoredManifest(
            manifest=manifest,
            etag=stored.etag,
            epoch_floor=manifest.epoch,
            stored_at=stored.modified_at,
        )
    return _read_older(job_id, stored, objects)


def read_small_manifest(job_id: str, objects: ObjectStore) -> Manifest | None:
    """Return the newest manifest of a job, or None if it has none.

    Older versions are not looked for: a worker may write any number of damaged ones.

    Raises:
        ContractError: it is damaged, or larger than ``SMALL_BYTES``.
        NewerSchema: a later version of Spindown wrote it.
    """
    with suppress(NotFound):
        return decode_manifest(objects.get(manifest_key(job_id), at_most_bytes=SMALL_BYTES).data)
    return None


def read_older(job_id: str, objects: ObjectStore) -> Iterator[Manifest]:
    """Yield the older versions of a job's manifest that can be read, newest first."""
    for version in objects.versions(manifest_key(job_id))[1:]:
        try:
            manifest = _decode(objects.get(manifest_key(job_id), version=version), job_id)
        except (NotFound, NewerSchema):
            continue
        if manifest is not None:
            yield manifest


def save_manifest(manifest: Manifest, etag: str | None, ports: WorkPorts) -> StoredManifest:
    """Write a manifest over the one with ``etag`` (None: over none), with a fresh nonce.

    Raises:
        PreconditionFailed: somebody else has written since.
    """
    nonce = f"{ports.random.getrandbits(64):016x}"
    fresh = replace_fields(manifest, {"nonce": nonce, "previous": etag})
    return write_patiently(lambda: _write_once(fresh, etag, ports.objects), ports)


def write_patiently(write: Callable[[], T], ports: WorkPorts) -> T:
    """Make a write, again while others are under way or there is no answer.

    What was computed since the last commit is lost with a write that fails.

    Raises:
        Unreachable, Throttled: of the last try; it may have been written all the same.
    """
    wait = _FIRST_PAUSE
    for _ in range(_TRIES - 1):
        try:
            return write()
        except (WriteConflict, Unreachable, Throttled):
            # It may have been written all the same: then the next try meets our own.
            ports.pause(wait * (0.5 + ports.random.random()))
            wait *= 2
    try:
        return write()
    except WriteConflict as exc:
        raise Unreachable(str(exc)) from exc


def _write_once(fresh: Manifest, etag: str | None, objects: ObjectStore) -> StoredManifest:
    condition = Absent() if etag is None else Matches(etag=etag)
    try:
        written = objects.put(
            manifest_key(fresh.job_id), encode_manifest(fresh), condition=condition
        )
    except PreconditionFailed:
        written = _confirm_own(fresh, objects)
    return StoredManifest(manifest=fresh, etag=written, epoch_floor=fresh.epoch)


def _confirm_own(fresh: Manifest, objects: ObjectStore) -> str:
    """Return the ETag if the manifest that stands is the very one we wrote, else raise."""
    key = manifest_key(fresh.job_id)
    try:
        stored = objects.get(key)
        standing = decode_manifest(stored.data)
    except (NotFound, ContractError):
        standing = None
    if standing is None or standing.nonce != fresh.nonce:
        raise PreconditionFailed(f"{key} was written by somebody else")
    return stored.etag


def _decode(stored: StoredObject, job_id: str) -> Manifest | None:
    try:
        manifest = decode_manifest(stored.data)
    except NewerSchema:
        raise
    except ContractError:
        return None
    return manifest if manifest.job_id == job_id else None


def _read_older(job_id: str, current: StoredObject, objects: ObjectStore) -> StoredManifest:
    unread = 0
    for version in objects.versions(manifest_key(job_id)):
        try:
            manifest = _decode(objects.get(manifest_key(job_id), version=version), job_id)
        except NotFound:
            manifest = None
        if manifest is not None:
            # Each one that cannot be read may have been a claim, which raises the epoch by one.
            floor = max(manifest.epoch + unread, _last_part_epoch(job_id, objects))
            return StoredManifest(manifest=manifest, etag=current.etag, epoch_floor=floor)
        unread += 1
    floor = max(unread, _last_part_epoch(job_id, objects))
    blank = Manifest(job_id=job_id, epoch=0, owner="", state=JobState.RUNNING)
    return StoredManifest(manifest=blank, etag=current.etag, epoch_floor=floor)


def _last_part_epoch(job_id: str, objects: ObjectStore) -> int:
    prefix = f"jobs/{job_id}/parts/"
    epochs = (found.key[len(prefix) :].partition("-")[0] for found in objects.list(prefix))
    return max((int(text) for text in epochs if text.isdecimal()), default=0)


def is_other_body(manifest: Manifest, job: JobMessage) -> bool:
    """Tell whether a message asks for something else than what its job was claimed with."""
    return manifest.body_digest not in {"", body_digest(job)}


def is_after_cancel(stored: StoredManifest, message: Message, job: JobMessage) -> bool:
    """Tell whether an id was cancelled before any claim, and its message sent after that.

    Both instants are those of AWS: whoever cancels may have a wrong clock. A split may send its
    children after their cancel: those are cancelled as their parent is.
    """
    return (
        stored.manifest.state is JobState.CANCELLED
        and not stored.manifest.body_digest
        and job.parent is None
        and stored.stored_at is not None
        and first_sent_at(message) >= stored.stored_at + _STORED_WITHIN
    )


def first_sent(message: Message, job: JobMessage, ports: WorkPorts) -> datetime:
    """Return when a job was sent; of a part of a split job, when that was."""
    if job.parent is not None:
        try:
            parent = load_manifest(job.parent, ports.objects)
        except NewerSchema:
            parent = None
        if parent is not None and parent.manifest.sent_at is not None:
            return parent.manifest.sent_at
    return message.sent_at

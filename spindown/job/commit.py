"""Commit results: the state and the files first, then the part, last the manifest.

Only the manifest makes them count.

A crash or a lost lease at any point leaves objects that no manifest lists, never half a result.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from spindown.contract.codec import replace_fields
from spindown.contract.job.manifest import JobState, Manifest, Part
from spindown.contract.job.result import (
    ItemStatus,
    OutputFile,
    Record,
    encode_part,
    part_key,
    part_stem,
)
from spindown.domain.wasted_work import NOTHING_WASTED
from spindown.error import LeaseLost, PreconditionFailed
from spindown.job.attachment.checkpoint_store import State, measure, upload_state
from spindown.job.claimed_job import ClaimedJob, Finished, SlotId, current_handle
from spindown.job.manifest_store import save_manifest, write_patiently
from spindown.job.message import delete
from spindown.job.worker_row import WorkerRow
from spindown.port import WorkPorts


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """What one commit makes durable. Items follow each other from ``manifest.next_item`` on."""

    finished: tuple[Finished, ...] = ()
    #: Slot time since the last portion: what is paid for.
    busy: timedelta = timedelta(0)
    #: Slot time that its items and its state took; without state, none for an item half done.
    worked: timedelta = timedelta(0)
    #: Bytes of input that its items took, and of the files that they gave.
    bytes_in: int = 0
    bytes_out: int = 0
    #: The user's own checkpoint as of the last item; None: unchanged.
    state: State | None = None

    def followed_by(self, later: "Portion") -> "Portion":
        """Return both as one; the state is that of the later."""
        return Portion(
            finished=self.finished + later.finished,
            busy=self.busy + later.busy,
            worked=self.worked + later.worked,
            bytes_in=self.bytes_in + later.bytes_in,
            bytes_out=self.bytes_out + later.bytes_out,
            state=later.state,
        )


def commit(held: ClaimedJob, portion: Portion, *, slot_id: SlotId, ports: WorkPorts) -> ClaimedJob:
    """Make a portion durable; the job is completed by the portion that holds its last item.

    Raises:
        LeaseLost: another epoch owns the job; nothing was committed.
    """
    return commit_as(extend_manifest(held, portion, slot_id=slot_id, ports=ports), held, ports)


def extend_manifest(
    held: ClaimedJob, portion: Portion, *, slot_id: SlotId, ports: WorkPorts
) -> Manifest:
    """Upload what a portion holds; return the manifest that would list it."""
    manifest = held.manifest
    changes: dict[str, Any] = {
        "busy_seconds": manifest.busy_seconds + portion.busy.total_seconds(),
        "cost_usd": manifest.cost_usd
        + slot_id.price_per_hour * (portion.busy / timedelta(hours=1)),
    }
    if portion.state is not None:
        changes["user_state"] = upload_state(manifest, portion.state, ports)
    next_item = manifest.next_item
    if portion.finished or portion.state is not None:
        changes["begun_seconds"] = {} if portion.finished else begun(manifest, portion, slot_id)
    if portion.finished:
        part = _upload_part(manifest, portion.finished, ports)
        next_item = part.last + 1
        changes |= {"parts": (*manifest.parts, part), "next_item": next_item}
        changes["wasted_work"] = NOTHING_WASTED
    else:
        has_saved = changes.get("user_state", manifest.user_state) != manifest.user_state
        known = manifest.wasted_work.saved() if has_saved else manifest.wasted_work
        changes["wasted_work"] = known.worked(portion.busy)
    if manifest.items is not None and next_item >= manifest.items:
        changes |= {
            "state": JobState.COMPLETED,
            "released": True,
            "finished_at": ports.clock.now(),
            "reason": "" if manifest.items else "it has no items",
        }
    return replace_fields(manifest, changes)


def begun(manifest: Manifest, portion: Portion, slot_id: SlotId) -> dict[str, float]:
    """Return GPU -> slot seconds that a portion ends: its own, and what earlier state took."""
    own = manifest.begun_seconds.get(slot_id.gpu, 0.0) + portion.worked.total_seconds()
    return {**manifest.begun_seconds, slot_id.gpu: own}


def commit_as(manifest: Manifest, held: ClaimedJob, ports: WorkPorts) -> ClaimedJob:
    """Write a manifest over the one that we hold (raises LeaseLost)."""
    try:
        stored = save_manifest(manifest, held.etag, ports)
    except PreconditionFailed as exc:
        raise LeaseLost(f"{held.job_id}: epoch {held.manifest.epoch} is over") from exc
    return replace_fields(held, {"manifest": stored.manifest, "etag": stored.etag})


def complete(held: ClaimedJob, *, slot_id: SlotId, worker_row: WorkerRow, ports: WorkPorts) -> None:
    """Delete the message of a job whose manifest says that it is over; clear the lease row."""
    # If neither handle holds it, whoever receives the message finds the job over.
    is_gone = delete(held.lease.receipt_handle, ports.queue)
    if not is_gone and (newer := current_handle(held, slot_id, ports)) != held.lease.receipt_handle:
        delete(newer, ports.queue)
    worker_row.vacate(slot_id, held.lease)


def _upload_part(manifest: Manifest, finished: Sequence[Finished], ports: WorkPorts) -> Part:
    first = manifest.next_item
    last = first + len(finished) - 1
    if [one.record.index for one in finished] != list(range(first, last + 1)):
        raise ValueError(f"{manifest.job_id}: a portion must follow item {first} without a gap")
    stem = part_stem(manifest.job_id, manifest.epoch, first, last)
    records = [_with_outputs(one, stem, ports) for one in finished]
    data = encode_part(records)
    key = part_key(manifest.job_id, manifest.epoch, first, last)
    write_patiently(partial(ports.objects.put, key, data), ports)
    return Part(
        key=key,
        first=first,
        last=last,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        failed=sum(record.status is ItemStatus.FAILED for record in records),
    )


def _with_outputs(finished: Finished, stem: str, ports: WorkPorts) -> Record:
    if not finished.files:
        return finished.record
    outputs = []
    for file in finished.files:
        key = f"{stem}/{finished.record.index}/{file.path}"
        size, digest = measure(file.local)
        write_patiently(partial(ports.objects.put_file, key, file.local), ports)
        outputs.append(OutputFile(path=file.path, key=key, bytes=size, sha256=digest))
    return replace(finished.record, outputs=tuple(outputs))

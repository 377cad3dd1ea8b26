"""The manifest of a job: the fence that decides who owns it, and the list of what is done.

One S3 object a job, ``jobs/{job_id}/manifest.json``, written only conditionally. A field that
this version does not know is kept as it was read; a newer schema is not to be written at all.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from spindown.contract.codec import decode, encode, to_json
from spindown.domain.retry_or_dead_letter import Failure
from spindown.domain.shape import Sized
from spindown.domain.value_range import Amount, Dollars, ItemCount, Sample, Tally
from spindown.domain.wasted_work import NOTHING_WASTED, WastedWork
from spindown.error import ContractError, NewerSchema

SCHEMA = 1

#: Where the users' own state lies, for as long as a rule of the bucket keeps it.
STATES = "state/"
#: A file of state that never changes is written anew after this, well before the rule's 30 days
#: (``infra.workload``). A job that nobody holds for the rest of them loses its state.
RENEW_STATE_AFTER = timedelta(days=7)

#: Key of the check: the SHA-256 of all the rest. Later schemas keep it.
_CHECK = "check"


#: Where all that is kept of a job lies.
JOBS = "jobs/"


def manifest_key(job_id: str) -> str:
    """Return the S3 key of a job's manifest."""
    return f"{JOBS}{job_id}/manifest.json"


def state_key(job_id: str, sha256: str) -> str:
    """Return the S3 key of a file of the user's own state; its content names it."""
    return f"{STATES}{job_id}/{sha256}"


class JobState(StrEnum):
    """What became of a job."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    #: Split into children; completed when they all are.
    SPLIT = "split"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Results of a run of items, in one immutable object of JSON lines."""

    key: str
    #: Index of the first and the last item, both included.
    first: ItemCount
    last: ItemCount
    bytes: Tally
    sha256: str
    #: Items in it whose status is "failed".
    failed: ItemCount = 0

    @property
    def makes_sense(self) -> bool:
        """Tell whether it holds an item, and no more failures than items."""
        return self.first <= self.last and self.failed <= self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    """One file of the user's own checkpoint, in an immutable object."""

    path: str
    key: str
    bytes: Tally
    sha256: str
    #: When it was last written: the bucket drops it by age.
    stored_at: datetime

    def is_aging(self, now: datetime) -> bool:
        """Tell whether it must be written again before the bucket drops it."""
        return now - self.stored_at >= RENEW_STATE_AFTER


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything durable about one job."""

    job_id: str
    epoch: Tally
    #: ``{instance_id}/{slot}``.
    owner: str
    state: JobState
    #: Items before this index are committed.
    next_item: ItemCount = 0
    #: Items in all; None until the first claimer has read the input.
    items: ItemCount | None = None
    parts: tuple[Part, ...] = ()
    user_state: tuple[StateFile, ...] = ()
    #: ETag of the manifest that this one replaced.
    previous: str | None = None
    #: ``RunSpec.version`` of the code that the last owner ran.
    code_version: str = ""
    #: ``body_digest`` of the message that the first claim read; "": nobody has claimed the job.
    body_digest: str = ""
    failures: tuple[Failure, ...] = ()
    interruptions: Tally = 0
    losses: Tally = 0
    #: GiB that the attempt had which last ran out of memory, and whether it was that of a GPU; 0:
    #: none has.
    ran_out_gib: Amount = 0.0
    ran_out_of_vram: bool = False
    #: Epochs that ended without a release, whatever the reason: nobody saved their output.
    lost_epochs: tuple[Tally, ...] = ()
    #: Whether the present epoch has ended in an orderly release.
    released: bool = False
    #: ``next_item`` when the present epoch began: too little since then makes it a loss.
    epoch_first: ItemCount = 0
    busy_seconds: Sample = 0.0
    #: ``busy_seconds`` when the present epoch began.
    busy_first: Sample = 0.0
    #: What computed, as ``contract.row.processor_kind`` names it -> slot seconds spent on items
    #: that have no result yet, and that the state keeps.
    begun_seconds: Mapping[str, Sample] = field(default_factory=dict)
    cost_usd: Dollars = 0.0
    #: What interruptions have cost since the last item, and since the last item or new state.
    wasted_work: WastedWork = NOTHING_WASTED
    #: Random per write, so that a writer knows its own write after a lost answer.
    nonce: str = ""
    batch_id: str | None = None
    tenant: str | None = None
    parent: str | None = None
    #: The address of its object, where an event of S3 asked for it; "": none did.
    source: str = ""
    children: tuple[str, ...] = ()
    claimed_at: datetime | None = None
    #: When the job was first sent, if it has a deadline: a message that is sent anew forgets.
    sent_at: datetime | None = None
    #: When the job was first routed to a shape, and what it got there; None: by its type alone.
    routed_at: datetime | None = None
    sized: Sized | None = None
    #: The needs that its message stated itself then: once memory runs out it states more.
    stated: tuple[str, ...] = ()
    finished_at: datetime | None = None
    reason: str = ""
    #: ``ReasonCode`` of it, where there is one.
    code: str = ""
    schema: int = SCHEMA
    #: Fields that a later version wrote; carried along unread.
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_saved(self) -> bool:
        """Tell whether the present epoch has committed new state."""
        begun = self.claimed_at
        return begun is not None and any(file.stored_at >= begun for file in self.user_state)

    @property
    def epoch_busy(self) -> float:
        """Return seconds of slot time that the present epoch has committed."""
        return self.busy_seconds - self.busy_first

    @property
    def makes_sense(self) -> bool:
        """Tell whether its numbers go together: a worker may write any."""
        return (
            self.epoch_first <= self.next_item
            and (self.items is None or self.next_item <= self.items)
            and all(part.makes_sense for part in self.parts)
        )

    @property
    def items_done(self) -> int:
        """Return how many items are in parts."""
        return sum(part.last - part.first + 1 for part in self.parts)

    @property
    def items_failed(self) -> int:
        """Return how many of them have failed."""
        return sum(part.failed for part in self.parts)


#: Field -> default; a required one has none that a value could equal.
_DEFAULTS = {f.name: f.default for f in fields(Manifest) if f.name != "extra"}


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the object's bytes: what differs from the defaults, and what others wrote."""
    state = {
        name: value
        for name, default in _DEFAULTS.items()
        if (value := getattr(manifest, name)) != default
    }
    row = {**manifest.extra, **encode(state), "schema": manifest.schema}
    row.pop(_CHECK, None)
    text = to_json(row)
    # As if it were the row's last key; to write the whole row twice would cost as much again.
    return f'{text[:-1]},"{_CHECK}":"{_digest(text)}"}}'.encode()


def decode_manifest(data: bytes) -> Manifest:
    """Read the object (raises NewerSchema, ContractError for anything truncated or foreign)."""
    try:
        row = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise ContractError("manifest", data[:100], "its previous version serves") from exc
    if not isinstance(row, dict):
        raise ContractError("manifest", row, "its previous version serves")
    # First, since a damaged bit may look like a later schema.
    _verify(row)
    schema = row.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        remedy = f"this version reads schema {SCHEMA}"
        raise NewerSchema("manifest.schema", schema, remedy)
    manifest = decode(Manifest, {name: row[name] for name in row if name in _DEFAULTS})
    if not manifest.makes_sense:
        raise ContractError("manifest", manifest.parts, "its previous version serves")
    return replace(manifest, extra={name: row[name] for name in row if name not in _DEFAULTS})


def _verify(row: dict[str, Any]) -> None:
    """Take the check out of a row; refuse one that was damaged since it was written."""
    check = row.pop(_CHECK, "")
    try:
        is_whole = check == _digest(to_json(row))
    except (ValueError, RecursionError):
        is_whole = False
    if not is_whole:
        raise ContractError("manifest.check", check, "its previous version serves")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

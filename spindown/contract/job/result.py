"""What a job leaves behind: one record an item, gathered into immutable parts.

A part is an object of JSON lines whose key holds the epoch that wrote it. Only the parts that
the manifest lists are results; a part that no manifest lists is an orphan of a lost lease.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spindown.contract.codec import encode, to_json


class ItemStatus(StrEnum):
    """What became of an item."""

    OK = "ok"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """One file that an item produced, in an immutable object."""

    #: Relative to the item's output directory, with forward slashes.
    path: str
    key: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The result of one item."""

    job_id: str
    index: int
    #: The item as the job named it.
    item: Any
    status: ItemStatus
    #: What the user's code returned, any JSON value; of a failed item what it still told, or None.
    result: Any = None
    error: str | None = None
    #: Where in the code it failed, as Python prints it; None, and no key: nothing is known.
    traceback: str | None = None
    outputs: tuple[OutputFile, ...] = ()
    #: Time that the item took, as far as the user's code lets one see.
    seconds: float = 0.0


def parts_prefix(job_id: str) -> str:
    """Return below what all parts of a job and the files of its items lie."""
    return f"jobs/{job_id}/parts/"


def part_stem(job_id: str, epoch: int, first: int, last: int) -> str:
    """Return the S3 key of a part without its ending; output files lie below it."""
    return f"{parts_prefix(job_id)}{epoch:08d}-{first:08d}-{last:08d}"


def part_key(job_id: str, epoch: int, first: int, last: int) -> str:
    """Return the S3 key of a part; ``first`` and ``last`` are both included."""
    return f"{part_stem(job_id, epoch, first, last)}.jsonl"


def log_prefix(job_id: str) -> str:
    """Return the beginning of the S3 keys of a job's output."""
    return f"jobs/{job_id}/logs/"


def log_key(job_id: str, epoch: int) -> str:
    """Return the S3 key of what the code printed in one epoch."""
    return f"{log_prefix(job_id)}{epoch:08d}.txt"


def encode_part(records: Iterable[Record]) -> bytes:
    """Return records as JSON lines."""
    return "".join(to_json(to_row(record)) + "\n" for record in records).encode()


def to_row(record: Record) -> dict[str, Any]:
    """Return a record as a person, and a part, has it: a value a key."""
    # Not through the codec: item and result are JSON already, and there are many records.
    row = {
        "job_id": record.job_id,
        "index": record.index,
        "item": record.item,
        "status": record.status,
        "result": record.result,
        "error": record.error,
        "outputs": [encode(output) for output in record.outputs],
        "seconds": record.seconds,
    }
    if record.traceback is not None:
        row["traceback"] = record.traceback
    return row

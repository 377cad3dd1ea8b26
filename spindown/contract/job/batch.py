"""What one submit leaves in the bucket: which jobs it made, and their messages.

The index ``batches/{batch_id}.json`` is written once. The messages lie beside it as JSON lines,
for as long as a rule of the bucket keeps them, so that they can be sent again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spindown.domain.batch import OnFailure

#: Where in the deployment's bucket a submit puts the files that it uploads.
UPLOADS = "inputs/"
#: Where the indices of batches lie.
BATCHES = "batches/"
#: Where the messages of batches lie; the rule is in ``infra.workload``.
SUBMITTED = "submitted/"

#: Where the marks of batches lie that are not over, or of which nobody has seen that they are.
OPEN = "open/"

_ENDING = ".json"


def batch_key(batch_id: str) -> str:
    """Return the S3 key of a batch's index."""
    return f"{BATCHES}{batch_id}{_ENDING}"


def open_key(batch_id: str) -> str:
    """Return the S3 key of the mark of a batch."""
    return f"{OPEN}{batch_id}"


def batch_of(key: str) -> str | None:
    """Return the batch whose index lies under a key; None: no index does."""
    name = key.removeprefix(BATCHES)
    is_index = name != key and name.endswith(_ENDING) and "/" not in name
    return name.removesuffix(_ENDING) if is_index else None


def name_job(batch_id: str, number: int) -> str:
    """Return the id of one job of a batch, counted from 0."""
    return f"{batch_id}-{number:05d}"


def batch_of_job(job_id: str) -> str:
    """Return the batch whose submit may have named a job so; "": none."""
    return job_id.rpartition("-")[0]


def submitted_prefix(batch_id: str) -> str:
    """Return below what a batch's messages lie."""
    return f"{SUBMITTED}{batch_id}/"


def submitted_key(batch_id: str, number: int) -> str:
    """Return the S3 key of one object of a batch's messages."""
    return f"{submitted_prefix(batch_id)}{number:05d}.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The jobs that were submitted together."""

    batch_id: str
    workload: str
    jobs: tuple[str, ...]
    #: None when the workers have yet to read the input.
    items: int | None = None
    #: Items of each job but the last; None: jobs differ, or their workers have yet to read them.
    items_per_job: int | None = None
    #: SHA-256 of all that was asked for, by which a submit with the same name is known to be the
    #: same; "": nobody compares.
    digest: str = ""
    #: The batch that must be over before this one starts, ``WORKLOAD/BATCH``, or without a slash
    #: one of the same workload; "": none.
    after: str = ""
    on_failure: OnFailure = OnFailure.CANCEL
    #: Who has submitted it waits for its results, and cancels it otherwise.
    is_waited_for: bool = False
    #: Type and requirements of its jobs, as their messages have them.
    type: str = ""
    requirements: Mapping[str, Any] | None = None
    #: How the command of a `spindown run` begins; "": it is none.
    command: str = ""
    schema: int = 1

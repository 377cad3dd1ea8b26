"""The index of a batch: which jobs one submit made. Written once, ``batches/{batch_id}.json``."""

from dataclasses import dataclass

#: Where in the deployment's bucket a submit puts the files that it uploads.
UPLOADS = "inputs/"


def batch_key(batch_id: str) -> str:
    """Return the S3 key of a batch's index."""
    return f"batches/{batch_id}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The jobs that were submitted together."""

    batch_id: str
    workload: str
    jobs: tuple[str, ...]
    #: None when the workers have yet to read the input.
    items: int | None = None
    schema: int = 1

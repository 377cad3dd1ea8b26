"""The bucket, and the inputs that a workload may read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Write only if the key has no current object (``If-None-Match: *``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Write only over the object with this ETag (``If-Match``)."""

    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object's bytes and identity."""

    data: bytes
    etag: str
    version: str
    modified_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSummary:
    """One row of a listing."""

    key: str
    bytes: int
    modified_at: datetime


class ObjectStore(Protocol):
    """The deployment's own versioned bucket, or one workload's part of it.

    Every key is relative to what the store stands for.
    """

    def get(self, key: str, *, version: str | None = None) -> StoredObject:
        """Read an object.

        Raises:
            NotFound: there is none.
        """
        ...

    def put(self, key: str, data: bytes, *, condition: Absent | Matches | None = None) -> str:
        """Write an object, return its ETag.

        Raises:
            PreconditionFailed: the condition does not hold (412, or 404 for ``Matches``).
            WriteConflict: another write was under way (409); repeat with the same condition.
        """
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Upload a file unconditionally, in parts if it is large."""
        ...

    def get_file(self, key: str, path: Path) -> None:
        """Download an object into ``path`` (raises NotFound)."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectSummary]:
        """List objects under a prefix in key order."""
        ...

    def versions(self, key: str) -> Sequence[str]:
        """Return the version ids of a key, newest first, without delete markers."""
        ...


class InputSource(Protocol):
    """What a workload was declared to be allowed to read, by ``s3://bucket/key``."""

    def read(self, uri: str, *, at_most_bytes: int) -> bytes:
        """Read an object.

        Raises:
            NotFound: it does not exist.
            AccessDenied: it lies outside the declared inputs.
            ContractError: it is larger than ``at_most_bytes``.
        """
        ...

    def list(self, uri_prefix: str) -> Iterator[str]:
        """Yield the URIs of the objects under a prefix, in key order."""
        ...

    def fetch(self, uri: str, path: Path) -> None:
        """Download an object to a local file."""
        ...

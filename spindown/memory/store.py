"""A versioned S3 bucket with conditional writes, and the inputs of a workload, in memory."""

import hashlib
import threading
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from spindown.contract.location import check_declared, check_listed
from spindown.error import NotFound, PreconditionFailed, WriteConflict, too_large
from spindown.port import Absent, Clock, Matches, ObjectSummary, StoredObject

#: S3's page of a listing.
_PAGE = 1000


class MemoryObjectStore:
    """ObjectStore in memory, strongly consistent as S3 is.

    An ETag is the MD5 of the bytes, so writing the same bytes again gives the same ETag.
    """

    def __init__(self, clock: Clock, *, noncurrent_versions: int | None = None) -> None:
        """Keep ``noncurrent_versions`` of each key besides the current one (None: all)."""
        self._clock = clock
        self._noncurrent_versions = noncurrent_versions
        self._lock = threading.RLock()
        #: Oldest first; None is a delete marker.
        self._versions: dict[str, list[StoredObject | None]] = {}
        #: Keys with a current object, sorted.
        self._keys: list[str] = []
        self._conflicts: Counter[str] = Counter()
        self._written = 0

    def get(
        self, key: str, *, version: str | None = None, at_most_bytes: int | None = None
    ) -> StoredObject:
        """Read an object, or one of its older versions."""
        with self._lock:
            if version is None:
                found = self._current(key)
            else:
                versions = self._versions.get(key, ())
                found = next((v for v in versions if v and v.version == version), None)
        if found is None:
            raise NotFound(f"no object {key}" + (f" at version {version}" if version else ""))
        if at_most_bytes is not None and len(found.data) > at_most_bytes:
            raise too_large(key, len(found.data), at_most_bytes)
        return found

    def put(self, key: str, data: bytes, *, condition: Absent | Matches | None = None) -> str:
        """Write an object if the condition holds, return its ETag."""
        with self._lock:
            if self._conflicts.get(key, 0) > 0:
                self._conflicts[key] -= 1
                raise WriteConflict(f"another write of {key} is under way")
            current = self._current(key)
            if isinstance(condition, Absent) and current is not None:
                raise PreconditionFailed(f"{key} exists already")
            if isinstance(condition, Matches) and (
                current is None or current.etag != condition.etag
            ):
                raise PreconditionFailed(f"{key} is not at {condition.etag}")
            return self._write(key, data, is_new=current is None)

    def put_file(self, key: str, path: Path) -> None:
        """Write the bytes of a file."""
        self.put(key, path.read_bytes())

    def get_file(self, key: str, path: Path) -> None:
        """Write an object's bytes into a file."""
        path.write_bytes(self.get(key).data)

    def list(self, prefix: str) -> Iterator[ObjectSummary]:
        """List objects page by page; each page is as the bucket is when it is reached."""
        after = prefix
        while True:
            with self._lock:
                page = self._page(prefix, after)
            yield from page
            if len(page) < _PAGE:
                return
            after = page[-1].key + "\0"

    def versions(self, key: str) -> Sequence[str]:
        """Return the version ids of a key, newest first."""
        with self._lock:
            return [v.version for v in reversed(self._versions.get(key, ())) if v]

    def delete(self, key: str) -> None:
        """Put a delete marker over an object, as S3 does, an expiry rule or a person."""
        with self._lock:
            if self._current(key) is not None:
                self._versions[key].append(None)
                self._keys.pop(bisect_left(self._keys, key))

    def expire(self, prefix: str) -> None:
        """Remove objects with all their versions, as a lifecycle rule does."""
        with self._lock:
            first = last = bisect_left(self._keys, prefix)
            while last < len(self._keys) and self._keys[last].startswith(prefix):
                del self._versions[self._keys[last]]
                last += 1
            del self._keys[first:last]

    def conflict_next(self, key: str, times: int = 1) -> None:
        """Make the next writes of a key meet another write under way (409)."""
        with self._lock:
            self._conflicts[key] += times

    def _current(self, key: str) -> StoredObject | None:
        versions = self._versions.get(key)
        return versions[-1] if versions else None

    def _write(self, key: str, data: bytes, *, is_new: bool) -> str:
        self._written += 1
        written = StoredObject(
            data=bytes(data),
            etag=f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"',
            version=f"v{self._written}",
            modified_at=self._clock.now(),
        )
        versions = self._versions.setdefault(key, [])
        versions.append(written)
        if self._noncurrent_versions is not None:
            del versions[: -1 - self._noncurrent_versions]
        if is_new:
            insort(self._keys, key)
        return written.etag

    def _page(self, prefix: str, after: str) -> Sequence[ObjectSummary]:
        page = []
        for key in self._keys[(start := bisect_left(self._keys, after)) : start + _PAGE]:
            current = self._current(key)
            if not key.startswith(prefix) or current is None:
                break
            page.append(
                ObjectSummary(key=key, bytes=len(current.data), modified_at=current.modified_at)
            )
        return page


class MemoryInputSource:
    """InputSource over a mapping of URI to bytes, which may be changed at any time."""

    def __init__(self, objects: Mapping[str, bytes], declared: Sequence[str]) -> None:
        self._objects = objects
        self._declared = tuple(declared)

    def read(self, uri: str, *, at_most_bytes: int) -> bytes:
        """Read an object under a declared prefix."""
        data = self._find(uri)
        if len(data) > at_most_bytes:
            raise too_large(uri, len(data), at_most_bytes)
        return data

    def list(self, uri_prefix: str) -> Iterator[str]:
        """Yield the URIs that begin with a prefix, in key order."""
        begin = str(check_listed(uri_prefix, self._declared))
        yield from sorted(uri for uri in self._objects if uri.startswith(begin))

    def fetch(self, uri: str, path: Path) -> None:
        """Write an object's bytes into a file."""
        path.write_bytes(self._find(uri))

    def _find(self, uri: str) -> bytes:
        check_declared(uri, self._declared)
        if uri not in self._objects:
            raise NotFound(f"no object {uri}")
        return self._objects[uri]

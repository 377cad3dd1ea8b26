"""The user's own checkpoint of a job: upload what is new, bring back what was committed.

Its objects are named by their content, so none is ever written over by another, and what two
commits have in common lies there once; what lies there for long is written again, since the bucket
drops it by age. The manifest alone says which of them are a job's state: ``job.commit`` writes it,
when ``domain.commit_interval`` says.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath

from spindown.contract.job.manifest import Manifest, StateFile, state_key
from spindown.error import NotFound, SpindownError
from spindown.job.claimed_job import LocalFile
from spindown.job.manifest_store import read_older, write_patiently
from spindown.port import ObjectStore, WorkPorts

#: What a commit holds of it: files to upload, and files that lie in S3 already.
State = tuple[LocalFile | StateFile, ...]

_HASH_CHUNK = 1024 * 1024
#: Older manifests whose state is tried when the newest one's is damaged.
_VERSIONS_TRIED = 20


def measure(path: Path) -> tuple[int, str]:
    """Return a file's size and SHA-256, read in pieces."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def upload_state(
    manifest: Manifest, state: Sequence[LocalFile | StateFile], ports: WorkPorts
) -> tuple[StateFile, ...]:
    """Upload what is new of a state; return all of it.

    A file that changes meanwhile would belie its name; then the state stays as the manifest has
    it, and the next commit tries again.
    """
    stored, now = [], ports.clock.now()
    there = {file.sha256: file.stored_at for file in manifest.user_state if not file.is_aging(now)}
    for file in state:
        if isinstance(file, StateFile):
            stored.append(file)
            continue
        before = _stamp(file.local)
        size, digest = measure(file.local)
        key = state_key(manifest.job_id, digest)
        if digest not in there:
            try:
                write_patiently(partial(ports.objects.put_file, key, file.local), ports)
            except SpindownError:
                # S3 refuses a large file that becomes shorter on its way.
                if _stamp(file.local) == before:
                    raise
                return manifest.user_state
            there[digest] = now
        if _stamp(file.local) != before:
            return manifest.user_state
        stored.append(
            StateFile(path=file.path, key=key, bytes=size, sha256=digest, stored_at=there[digest])
        )
    return tuple(stored)


def restore_state(
    manifest: Manifest, root: Path, ports: WorkPorts
) -> tuple[tuple[StateFile, ...], str | None]:
    """Bring a job's state into the empty directory ``root``.

    If an object of it is missing or damaged, the newest older state that is whole serves. Results
    that were committed since stay: state may be older than they are, never newer.

    Returns:
        What was restored, and what was wrong with newer state, if anything was.
    """
    if not manifest.user_state:
        return (), None
    trouble = None
    seen = set()
    for files in _candidates(manifest, ports.objects):
        if files in seen:
            continue
        seen.add(files)
        wrong = _fetch(files, root, ports.objects)
        if wrong is None:
            return files, trouble
        trouble = trouble or wrong
    return (), trouble


def _candidates(manifest: Manifest, objects: ObjectStore) -> Iterator[tuple[StateFile, ...]]:
    yield manifest.user_state
    for older in islice(read_older(manifest.job_id, objects), _VERSIONS_TRIED):
        if older.user_state and older.code_version == manifest.code_version:
            yield older.user_state


def _fetch(files: Sequence[StateFile], root: Path, objects: ObjectStore) -> str | None:
    """Fetch a state; if a file of it is not what was committed, remove all and say which."""
    made: list[Path] = []
    for file in files:
        name = PurePosixPath(file.path)
        if name.is_absolute() or not name.parts or ".." in name.parts:
            wrong: str | None = f"{file.path} lies outside of the state directory"
        else:
            local = root / name
            local.parent.mkdir(parents=True, exist_ok=True)
            made.append(local)
            wrong = _fetch_one(file, local, objects)
        if wrong is not None:
            for path in made:
                path.unlink(missing_ok=True)
            return wrong
    return None


def _fetch_one(file: StateFile, local: Path, objects: ObjectStore) -> str | None:
    try:
        objects.get_file(file.key, local)
    except NotFound:
        return f"{file.key} is gone"
    if measure(local) != (file.bytes, file.sha256):
        return f"{file.key} is damaged"
    return None


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return (status.st_size, status.st_mtime_ns)

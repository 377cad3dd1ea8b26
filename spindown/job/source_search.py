"""Find the jobs that events of S3 asked for: they are in no batch, and nobody has named them."""

import heapq
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from spindown.contract.job.manifest import JOBS, Manifest, manifest_key
from spindown.contract.job.s3_event import ADDRESS, ID_PREFIX, is_source_id
from spindown.error import ContractError, NewerSchema, NotFound
from spindown.job.manifest_store import read_small_manifest
from spindown.port import ObjectStore

#: Manifests that one search reads, the newest: within seconds.
SEARCHED_AT_MOST = 5_000
_READS_AT_ONCE = 16
#: Keys of one answer of S3.
_LISTED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, order=True)
class SourceJob:
    """A job of a source; the one whose manifest was written last is the greatest."""

    changed_at: datetime
    job_id: str


def list_source_jobs(store: ObjectStore, *, limit: int = SEARCHED_AT_MOST) -> Sequence[SourceJob]:
    """Return the newest jobs of sources that a worker has claimed, newest first.

    All that is kept of such jobs is listed for it; memory holds ``limit`` of them.
    """
    return heapq.nlargest(limit, _claimed(store))


def has_source_jobs(store: ObjectStore) -> bool:
    """Tell whether there is any, by one request: none is seen behind many that people named so."""
    first = islice(store.list(f"{JOBS}{ID_PREFIX}"), _LISTED_AT_ONCE)
    return any(is_source_id(one.key.removeprefix(JOBS).partition("/")[0]) for one in first)


def is_address(name: str) -> bool:
    """Tell whether a name is the address of an object, which no batch and no job is called."""
    return name.startswith(ADDRESS)


def find_by_object(address: str, store: ObjectStore) -> tuple[str, ...]:
    """Return the jobs of an object, newest first; each write of it is one.

    Only the newest ``SEARCHED_AT_MOST`` jobs of sources are looked at.

    Raises:
        NotFound: there is none, or no worker has claimed it yet.
    """
    every = read_source_jobs(list_source_jobs(store), store)
    jobs = tuple(one.job_id for one, manifest in every if manifest.source == address)
    if not jobs:
        raise NotFound(f"no job of {address}")
    return jobs


def read_source_jobs(
    found: Sequence[SourceJob], store: ObjectStore
) -> Iterator[tuple[SourceJob, Manifest]]:
    """Yield jobs with their manifests, some read at once; what cannot be read is left out."""
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        # A pool reads all that it is given, whatever has been taken of it.
        for first in range(0, len(found), _READS_AT_ONCE):
            some = found[first : first + _READS_AT_ONCE]
            manifests = pool.map(lambda one: _read(one.job_id, store), some)
            for one, manifest in zip(some, manifests, strict=True):
                if manifest is not None:
                    yield one, manifest


def _claimed(store: ObjectStore) -> Iterator[SourceJob]:
    for found in store.list(f"{JOBS}{ID_PREFIX}"):
        job_id, _, rest = found.key.removeprefix(JOBS).partition("/")
        # People may name a batch so, too.
        if rest and is_source_id(job_id) and found.key == manifest_key(job_id):
            yield SourceJob(found.modified_at, job_id)


def _read(job_id: str, store: ObjectStore) -> Manifest | None:
    with suppress(ContractError, NewerSchema):
        return read_small_manifest(job_id, store)
    return None

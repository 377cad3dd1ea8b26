"""Where objects lie: ``s3://bucket/key``, and a workload's own part of the bucket."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spindown.error import AccessDenied, ContractError

_SCHEME = "s3://"
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """A bucket and a key, or the beginning of keys."""

    bucket: str
    key: str

    def __str__(self) -> str:
        """Return it as a URI."""
        return f"{_SCHEME}{self.bucket}/{self.key}"

    @property
    def below(self) -> str:
        """Return what the keys of a folder begin with: ``scans`` holds no ``scans-private``."""
        return f"{self.key}/" if self.key and not self.key.endswith("/") else self.key


def work_root(workload: str) -> str:
    """Return below what all jobs, batches and uploads of a workload lie in the bucket.

    A worker is given this part alone, and the keys that it writes down are relative to it.
    """
    return f"workloads/{workload}/"


def is_whole(text: str) -> bool:
    """Tell whether a request can carry a text.

    Half of a surrogate pair it cannot: JSON can write one, and Python reads a byte of a name or an
    argument so that is no UTF-8.
    """
    return _HALF_A_PAIR.search(text) is None


def parse_location(uri: str) -> Location:
    """Read ``s3://bucket/key``.

    Raises:
        ContractError: it is not one, or a segment of its key is ``.`` or ``..``: such a key is
            lawful in S3, but must never become a path on a disk. Nor may half of a surrogate pair
            be in it, which JSON can write and no request can.
    """
    if not is_whole(uri):
        raise ContractError("uri", uri, "write it in whole characters")
    bucket, slash, key = uri.removeprefix(_SCHEME).partition("/")
    if not uri.startswith(_SCHEME) or not bucket or not slash:
        raise ContractError("uri", uri, "write s3://bucket/key")
    if any(segment in {".", ".."} for segment in key.split("/")):
        raise ContractError("uri", uri, "write a key without . and .. segments")
    return Location(bucket=bucket, key=key)


def check_declared(uri: str, declared: Sequence[str]) -> Location:
    """Return the location of ``uri`` if one of the declared prefixes covers it.

    Raises:
        AccessDenied: none does.
    """
    location = parse_location(uri)
    if not any(_covers(parse_location(prefix), location) for prefix in declared):
        shown = "".join(c if c.isprintable() else "?" for c in uri)
        raise AccessDenied(f"{shown} lies outside the workload's inputs: add its prefix there")
    return location


def check_listed(uri_prefix: str, declared: Sequence[str]) -> Location:
    """Return what keys begin with under ``uri_prefix``, none of which lies outside ``declared``.

    Raises:
        AccessDenied: no declared prefix covers it.
    """
    location = check_declared(uri_prefix, declared)
    if any(_is_below(parse_location(prefix), location) for prefix in declared):
        return location
    return replace(location, key=location.below)


def _covers(prefix: Location, location: Location) -> bool:
    return prefix == location or _is_below(prefix, location)


def _is_below(prefix: Location, location: Location) -> bool:
    return prefix.bucket == location.bucket and location.key.startswith(prefix.below)

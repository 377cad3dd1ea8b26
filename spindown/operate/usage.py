"""Bring the usage of some days together in a folder, as files that any reader of Parquet asks."""

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from pathlib import Path

from spindown.contract.usage import type_of_key
from spindown.control.parquet import encode_table
from spindown.control.usage import days_of, measured_tables, table_keys
from spindown.port import ObjectStore

_READS_AT_ONCE = 8


def fetch_usage(
    workload: str,
    objects: ObjectStore,
    folder: Path,
    *,
    since: datetime,
    until: datetime,
    type_: str | None = None,
    declared: Collection[str] = (),
) -> Sequence[Path]:
    """Write a workload's usage below ``folder``, as it lies in the bucket; return the files.

    Days that are over come as they are; of others a table is made here. Every part of a path is
    ours: a name of a workload, a day, a type that was checked. ``declared``: the types that the
    workload has.
    """
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        days = pool.map(
            lambda day: list(_tables(workload, day, objects, type_, declared)),
            days_of(since, until),
        )
        found = [table for tables in days for table in tables]
    paths = []
    for key, data in found:
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        paths.append(path)
    return paths


def _tables(
    workload: str,
    day: date,
    objects: ObjectStore,
    wanted: str | None,
    declared: Collection[str],
) -> Iterator[tuple[str, bytes]]:
    keys = table_keys(workload, day, objects)
    for key in keys or ():
        if wanted is None or type_of_key(key) == wanted:
            yield key, objects.get(key).data
    if keys is not None:
        return
    for key, rows in measured_tables(workload, day, objects, declared=declared):
        if wanted is None or type_of_key(key) == wanted:
            yield key, encode_table(rows)

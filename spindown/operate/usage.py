"""Bring the usage of some days together in a folder, as files that any reader of Parquet asks."""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
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

    def is_wanted(key: str) -> bool:
        return type_ is None or type_of_key(key) == type_

    def write(key: str, data: bytes) -> Path:
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    paths: list[Path] = []
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        days = list(days_of(since, until))
        tables = pool.map(lambda day: table_keys(workload, day, objects), days)
        for day, keys in zip(days, tables, strict=True):
            ready = filter(is_wanted, keys or ())
            paths += pool.map(lambda key: write(key, objects.get(key).data), ready)
            if keys is not None:
                continue
            # One day after the other, since what workers wrote may fill a memory.
            for key, rows in measured_tables(workload, day, objects, declared=declared):
                if is_wanted(key):
                    paths.append(write(key, encode_table(rows)))
    return paths

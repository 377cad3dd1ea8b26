"""The usage records of a workload: what workers have measured, and the tables made of it.

Objects that workers wrote are as hostile as they: each is read within bounds and field by field, or
left out. Only what was read so goes into a table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from spindown.contract.usage import (
    OBJECT_BYTES_MAX,
    TYPE,
    UsageRecord,
    UsageSeries,
    decode_usage,
    done_key,
    measured_prefix,
    table_key,
    table_prefix,
    type_of_key,
)
from spindown.contract.usage_table import TableRow, to_row
from spindown.control.parquet import decode_table, encode_table
from spindown.error import ContractError, NotFound, SpindownError
from spindown.port import ControlPorts, ObjectStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """What is read of one workload and day: no worker that writes without end fills a memory."""

    objects: int = 20_000
    #: Names that are looked at, read or not: of a day there may be millions.
    listed: int = 100_000
    bytes: int = 64 * 1024 * 1024
    #: A row takes 4 kB of memory, of which the function has 512 MiB.
    records: int = 20_000
    #: Each is a file.
    types: int = 100


_BOUNDS = ReadBounds()

_READS_AT_ONCE = 8
#: How many days that are over are looked at, and in which hours of a UTC day: the hourly run is
#: sure to fall into one of them, and lists nothing in the others.
_DAYS_BACK = 7
_HOURS = range(1, 4)
#: Of one run, beside whatever else the hourly function does.
_TIME_AT_MOST = timedelta(minutes=1)


def compact_all(ports: ControlPorts) -> dict[str, dict[str, Any]]:
    """Make tables of the days that are over; an error in one workload does not stop the others.

    Return by workload how many records went into tables (``compacted``), and why the rest was not
    done (``not_compacted``), which the next run does.
    """
    now = ports.clock.now()
    days = [now.date() - timedelta(days=back) for back in range(_DAYS_BACK, 0, -1)]
    done: dict[str, int] = {}
    failures: dict[str, str] = {}
    for workload in ports.deployment().workloads if now.hour in _HOURS else ():
        for day in days:
            if ports.clock.now() - now >= _TIME_AT_MOST:
                failures[workload] = "no time was left"
                break
            try:
                records = compact(workload, day, ports.objects)
            except SpindownError as exc:
                failures[workload] = str(exc)
                break
            if records:
                done[workload] = done.get(workload, 0) + records
    return {"compacted": done, "not_compacted": failures}


def compact(workload: str, day: date, objects: ObjectStore, *, bounds: ReadBounds = _BOUNDS) -> int:
    """Make the table of one day if there is none; return how many records went into it."""
    # Most days of most workloads have no records, and one request says so.
    has_any = next(iter(objects.list(measured_prefix(workload, day))), None) is not None
    if not has_any or _is_done(workload, day, objects):
        return 0
    rows = measured_rows(workload, day, objects, bounds=bounds)
    if not rows:
        return 0
    for type_, own in rows.items():
        objects.put(table_key(workload, day, type_), encode_table(own))
    objects.put(done_key(workload, day), b"")
    return sum(map(len, rows.values()))


def measured_rows(
    workload: str, day: date, objects: ObjectStore, *, bounds: ReadBounds = _BOUNDS
) -> Mapping[str, Sequence[TableRow]]:
    """Return what workers wrote on a day by type of job, as rows of the table."""
    by_type: dict[str, list[TableRow]] = {}
    # The text of a series is a fraction of what its numbers take.
    for row in _read_measured(workload, day, objects, to_row, bounds=bounds):
        if row[TYPE] in by_type or len(by_type) < bounds.types:
            by_type.setdefault(str(row[TYPE]), []).append(row)
    return dict(sorted(by_type.items()))


def _read_measured(
    workload: str,
    day: date,
    objects: ObjectStore,
    keep: Callable[[UsageRecord], T],
    *,
    bounds: ReadBounds = _BOUNDS,
    written: tuple[datetime, datetime] | None = None,
) -> Sequence[T]:
    """Return what workers wrote on a day, each attempt once; what cannot be read is left out.

    ``written``: from one instant on and before another.
    """
    keys = list(_keys_within(bounds, workload, day, objects, written))

    def read(key: str) -> list[tuple[tuple[str, int, str], T]]:
        found = _read(lambda: decode_usage(objects.get(key).data, workload=workload))
        return [((one.job_id, one.epoch, one.instance_id), keep(one)) for one in found]

    # An object whose write had no answer was written again, with others.
    kept: dict[tuple[str, int, str], T] = {}
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        for first in range(0, len(keys), _READS_AT_ONCE):
            for found in pool.map(read, keys[first : first + _READS_AT_ONCE]):
                kept.update(found)
            if len(kept) >= bounds.records:
                break
    return list(kept.values())[: bounds.records]


def read_written(
    workload: str,
    objects: ObjectStore,
    keep: Callable[[UsageRecord], T],
    *,
    since: datetime,
    until: datetime,
    bounds: ReadBounds,
) -> Sequence[T]:
    """Return what is kept of the records that workers wrote in a span of time, by S3's clock."""
    return [
        kept
        for day in days_of(since, until)
        for kept in _read_measured(
            workload, day, objects, keep, bounds=bounds, written=(since, until)
        )
    ]


def _keys_within(
    bounds: ReadBounds,
    workload: str,
    day: date,
    objects: ObjectStore,
    written: tuple[datetime, datetime] | None,
) -> Iterator[str]:
    left = bounds.bytes
    listed = islice(objects.list(measured_prefix(workload, day)), bounds.listed)
    within = (
        found for found in listed if written is None or written[0] <= found.modified_at < written[1]
    )
    for found in islice(within, bounds.objects):
        left -= found.bytes
        if left < 0:
            return
        if found.bytes <= OBJECT_BYTES_MAX:
            yield found.key


def read_usage(
    workload: str, objects: ObjectStore, *, since: datetime, until: datetime
) -> Sequence[UsageRecord]:
    """Return the records of a workload of attempts that began in a span of time.

    Nothing that is nested is read.
    """
    found: list[UsageRecord] = []
    for day in days_of(since, until):
        tables = table_keys(workload, day, objects)
        if tables is None:
            found += _read_measured(workload, day, objects, _without_series)
        for key in tables or ():
            found += _read(partial(decode_table, objects.get(key).data, workload=workload))
    return [one for one in found if one.started_at >= since]


def _without_series(record: UsageRecord) -> UsageRecord:
    return replace(record, cores=(), devices=(), series=UsageSeries())


def days_of(since: datetime, until: datetime) -> Iterator[date]:
    """Yield the UTC days of a span, the first and the last too."""
    for number in range((until.date() - since.date()).days + 1):
        yield since.date() + timedelta(days=number)


def table_keys(workload: str, day: date, objects: ObjectStore) -> Sequence[str] | None:
    """Return the keys of a day's table; None: there is none, or it is not whole."""
    keys = [found.key for found in objects.list(table_prefix(workload, day))]
    if done_key(workload, day) not in keys:
        return None
    return [key for key in keys if type_of_key(key) is not None]


def _is_done(workload: str, day: date, objects: ObjectStore) -> bool:
    return table_keys(workload, day, objects) is not None


def _read(read: Callable[[], tuple[UsageRecord, ...]]) -> tuple[UsageRecord, ...]:
    with suppress(ContractError, NotFound):
        return read()
    return ()

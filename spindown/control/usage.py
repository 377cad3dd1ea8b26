"""The usage records of a workload: what workers have measured, and the tables made of it.

Objects that workers wrote are as hostile as they: each is read within bounds and field by field, or
left out. Only what was read so goes into a table.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from spindown.contract.usage import (
    OBJECT_BYTES_MAX,
    OTHER_TYPES,
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
from spindown.control.policy import current_policy
from spindown.error import ContractError, NotFound
from spindown.port import ControlPorts, ObjectStore, ObjectSummary

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """How much is read of one workload and day, so that no worker can fill the memory."""

    objects: int = 100_000
    #: Names that are looked at, read or not: of a day there may be millions.
    listed: int = 100_000
    bytes: int = 512 * 1024 * 1024
    records: int = 200_000
    #: Each is a file at least.
    types: int = 100
    #: Records that are held at once, to become files: a row takes 4 kB of memory, of which the
    #: function has 512 MiB. And the bytes that these were read from.
    records_at_once: int = 20_000
    bytes_at_once: int = 64 * 1024 * 1024


_BOUNDS = ReadBounds()

_READS_AT_ONCE = 8
#: How many days that are over are looked at, and in which hours of a UTC day: the hourly run is
#: sure to fall into one of them, and lists nothing in the others.
_DAYS_BACK = 7
_HOURS = range(1, 4)
#: Time of one run; the hourly function has more to do.
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
                records = compact(workload, day, ports.objects, declared=_declared(workload, ports))
            except Exception as exc:  # noqa: BLE001 - an edge: what one workload's workers wrote
                _log.warning("not_compacted", exc_info=exc)
                failures[workload] = str(exc) or type(exc).__name__
                break
            if records:
                done[workload] = done.get(workload, 0) + records
    return {"compacted": done, "not_compacted": failures}


def _declared(workload: str, ports: ControlPorts) -> Collection[str]:
    _, policy = current_policy(workload, ports)
    return frozenset(each.name for each in policy.types)


def compact(
    workload: str,
    day: date,
    objects: ObjectStore,
    *,
    declared: Collection[str] = (),
    bounds: ReadBounds = _BOUNDS,
) -> int:
    """Make the table of one day if there is none; return how many records went into it.

    ``declared``: the types that the workload has.
    """
    # Most days of most workloads have no records, and one request says so.
    has_any = next(iter(objects.list(measured_prefix(workload, day))), None) is not None
    if not has_any or _is_done(workload, day, objects):
        return 0
    records, beyond = 0, set[str]()
    for key, rows in measured_tables(
        workload, day, objects, declared=declared, bounds=bounds, beyond=beyond
    ):
        objects.put(key, encode_table(rows))
        records += len(rows)
    if not records:
        return 0
    left_out = ", ".join(sorted(beyond))
    if left_out:
        _log.warning("usage_left_out: %s %s: beyond the bounds of %s", workload, day, left_out)
    objects.put(done_key(workload, day), left_out.encode())
    return records


def measured_tables(
    workload: str,
    day: date,
    objects: ObjectStore,
    *,
    declared: Collection[str] = (),
    bounds: ReadBounds = _BOUNDS,
    beyond: set[str] | None = None,
) -> Iterator[tuple[str, Sequence[TableRow]]]:
    """Yield the files of what workers wrote on a day: the key of each, and its rows.

    A type with many records has several. A worker may make up types without end: beyond a bound,
    those that are not ``declared`` go under one name. ``beyond`` gets the bounds that have left
    something out.
    """
    beyond = set() if beyond is None else beyond
    parts: dict[str, int] = {}
    # Jobs without a type have the workload's name.
    own, others = {workload, *declared}, set[str]()
    # The text of a series is a fraction of what its numbers take.
    for rows in _read_batches(workload, day, objects, to_row, bounds=bounds, beyond=beyond):
        by_type: dict[str, list[TableRow]] = {}
        for row in rows:
            type_ = str(row[TYPE])
            if type_ not in own and len(others | {type_}) > bounds.types:
                type_ = OTHER_TYPES
            elif type_ not in own:
                others.add(type_)
            by_type.setdefault(type_, []).append({**row, TYPE: type_})
        for type_, found in sorted(by_type.items()):
            parts[type_] = parts.get(type_, 0) + 1
            yield table_key(workload, day, type_, parts[type_]), found


def _read_measured(
    workload: str,
    day: date,
    objects: ObjectStore,
    keep: Callable[[UsageRecord], T],
    *,
    bounds: ReadBounds = _BOUNDS,
    written: tuple[datetime, datetime] | None = None,
) -> Sequence[T]:
    """Return what workers wrote on a day; ``written``: from one instant on and before another."""
    batches = _read_batches(
        workload, day, objects, keep, bounds=bounds, beyond=set(), written=written
    )
    return [kept for batch in batches for kept in batch]


def _read_batches(
    workload: str,
    day: date,
    objects: ObjectStore,
    keep: Callable[[UsageRecord], T],
    *,
    bounds: ReadBounds,
    beyond: set[str],
    written: tuple[datetime, datetime] | None = None,
) -> Iterator[Sequence[T]]:
    """Yield what workers wrote on a day, each attempt once; what cannot be read is left out.

    So many records at once as a memory holds. ``beyond`` gets the bounds that have left out more.
    """
    found = list(_found_within(bounds, workload, day, objects, written, beyond))
    # An object whose write had no answer was written again, with others.
    seen: set[int] = set()
    batch: list[T] = []
    size = 0.0
    for attempt, kept, line in _read_each(workload, found, objects, keep):
        if attempt in seen:
            continue
        if len(seen) >= bounds.records:
            beyond.add("records")
            break
        seen.add(attempt)
        batch.append(kept)
        size += line
        if len(batch) >= bounds.records_at_once or size >= bounds.bytes_at_once:
            yield batch
            batch, size = [], 0.0
    if batch:
        yield batch


def _read_each(
    workload: str,
    found: Sequence[ObjectSummary],
    objects: ObjectStore,
    keep: Callable[[UsageRecord], T],
) -> Iterator[tuple[int, T, float]]:
    """Yield of each record which attempt it is of, what is kept of it, and its bytes."""

    def read(one: ObjectSummary) -> list[tuple[int, T, float]]:
        records = _read(lambda: decode_usage(objects.get(one.key).data, workload=workload))
        return [
            (hash((x.job_id, x.epoch, x.instance_id)), keep(x), one.bytes / len(records))
            for x in records
        ]

    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        for first in range(0, len(found), _READS_AT_ONCE):
            for records in pool.map(read, found[first : first + _READS_AT_ONCE]):
                yield from records


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


def _found_within(
    bounds: ReadBounds,
    workload: str,
    day: date,
    objects: ObjectStore,
    written: tuple[datetime, datetime] | None,
    beyond: set[str],
) -> Iterator[ObjectSummary]:
    left, taken = bounds.bytes, 0
    for number, found in enumerate(objects.list(measured_prefix(workload, day))):
        if number >= bounds.listed:
            beyond.add("names")
            return
        if written is not None and not written[0] <= found.modified_at < written[1]:
            continue
        left, taken = left - found.bytes, taken + 1
        if left < 0 or taken > bounds.objects:
            beyond.add("bytes" if left < 0 else "objects")
            return
        if found.bytes <= OBJECT_BYTES_MAX:
            yield found


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

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
from heapq import nsmallest
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Generic, TypeVar

from spindown.contract.usage import (
    OBJECT_BYTES_MAX,
    OTHER_TYPES,
    TYPE,
    Begun,
    UsageRecord,
    UsageSeries,
    begun_key,
    begun_of_key,
    decode_usage,
    done_key,
    measured_prefix,
    table_key,
    table_prefix,
    type_of_key,
    weigh_usage,
)
from spindown.contract.usage_table import TableRow, to_row
from spindown.control.parquet import decode_table, encode_table
from spindown.control.policy_edit import current_policy
from spindown.error import AccessDenied, ContractError, NotFound, Unreadable, printable
from spindown.port import Clock, ControlPorts, ObjectStore, ObjectSummary

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBounds:
    """How much is read of one workload and day, so that no worker can fill the memory."""

    objects: int = 100_000
    #: Names that are looked at, read or not: of a day there may be millions.
    listed: int = 100_000
    #: Beyond them the largest objects are left out, whoever wrote them.
    bytes: int = 512 * 1024 * 1024
    records: int = 200_000
    #: Each is a file at least.
    types: int = 100
    #: Records that are held at once, to become files: a row takes 4 kB of memory, of which the
    #: function has 512 MiB. And the bytes of the objects that were read, and how many these are.
    records_at_once: int = 20_000
    #: Of what cannot be read too (``contract.usage.weigh_usage``).
    bytes_at_once: int = 64 * 1024 * 1024
    objects_at_once: int = 1_000


_BOUNDS = ReadBounds()
_FIRST = Begun()

_READS_AT_ONCE = 8
#: How many days that are over are looked at, and in which hours of a UTC day: the hourly run is
#: sure to fall into one of them, and lists nothing in the others.
_DAYS_BACK = 7
_HOURS = range(1, 4)
#: Time of one run; the hourly function has 15 minutes, and more to do. Each workload goes on for so
#: many objects at least (``ReadBounds.objects_at_once``).
_TIME_AT_MOST = timedelta(minutes=4)


def compact_all(ports: ControlPorts) -> dict[str, dict[str, Any]]:
    """Make tables of the days that are over; an error in one workload does not stop the others.

    Return by workload how many records went into tables (``compacted``), and why the rest was not
    done (``not_compacted``), which the next run does.
    """
    now = ports.clock.now()
    done: dict[str, int] = {}
    failures: dict[str, str] = {}
    workloads = ports.deployment().workloads if now.hour in _HOURS else ()
    turns = share_time(len(workloads), ports.clock, _TIME_AT_MOST)
    for workload, has_time in zip(workloads, turns, strict=True):
        try:
            records, is_whole = _compact_days(workload, ports, now.date(), has_time)
        except Exception as exc:  # noqa: BLE001 - an edge: what one workload's workers wrote
            _log.warning("not_compacted", exc_info=exc)
            failures[workload] = str(exc) or type(exc).__name__
            continue
        if records:
            done[workload] = records
        if not is_whole:
            failures[workload] = "no time was left"
    return {"compacted": done, "not_compacted": failures}


def share_time(turns: int, clock: Clock, most: timedelta) -> Iterator[Callable[[], bool]]:
    """Yield for each of so many turns, as it begins, what tells whether there is time for more.

    Each has an equal share of the time that is left: what one leaves is the others'.
    """
    end = clock.now() + most
    for left in range(turns, 0, -1):
        begun = clock.now()
        until = begun + max(end - begun, timedelta(0)) / left
        yield partial(_is_before, clock, until)


def _is_before(clock: Clock, until: datetime) -> bool:
    return clock.now() < until


def _compact_days(
    workload: str, ports: ControlPorts, today: date, has_time: Callable[[], bool]
) -> tuple[int, bool]:
    """Return how many records went into tables, and whether all days have theirs."""
    records, declared = 0, _declared(workload, ports)
    for back in range(_DAYS_BACK, 0, -1):
        day = today - timedelta(days=back)
        made = compact(workload, day, ports.objects, declared=declared, has_time=has_time)
        records += made.records
        if not made.is_whole or (back > 1 and made.is_read and not has_time()):
            return records, False
    return records, True


def _declared(workload: str, ports: ControlPorts) -> Collection[str]:
    _, policy = current_policy(workload, ports)
    return frozenset(each.name for each in policy.types)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a run has made of a day."""

    #: How many went into files.
    records: int = 0
    #: Whether nothing is left of the day.
    is_whole: bool = True
    #: Whether it has read objects, which takes time whatever is in them.
    is_read: bool = False


def compact(
    workload: str,
    day: date,
    objects: ObjectStore,
    *,
    declared: Collection[str] = (),
    bounds: ReadBounds = _BOUNDS,
    has_time: Callable[[], bool] = lambda: True,
) -> Compacted:
    """Make the table of one day if there is none, or go on with it, while there is time.

    Whatever becomes of a run, the next one goes on with the first objects that no mark tells of,
    and writes what they come to into files of the same names.

    Args:
        workload: whose.
        day: it is over.
        objects: where records and tables lie.
        declared: the types that the workload has.
        bounds: what is read of the day.
        has_time: whether there is time for more.

    Raises:
        AccessDenied: nothing may be read; nothing is marked, so a later run reads it.
    """
    # Most days of most workloads have no records, and one request says so.
    has_any = next(iter(objects.list(measured_prefix(workload, day))), None) is not None
    keys = [found.key for found in objects.list(table_prefix(workload, day))] if has_any else []
    if not has_any or done_key(workload, day) in keys:
        return Compacted()
    made, beyond, own = 0, set[str](), {workload, *declared}
    others = set(filter(None, map(type_of_key, keys))) - {*own, OTHER_TYPES}
    begun = max(filter(None, map(begun_of_key, keys)), default=_FIRST)
    if begun != _FIRST:
        begun = replace(begun, key=objects.get(begun_key(workload, day, begun)).data.decode())
    for batch in _read_batches(
        workload, day, objects, to_row, bounds=bounds, beyond=beyond, begun=begun
    ):
        for key, rows in _tables(workload, day, batch, own, others, bounds):
            objects.put(key, encode_table(rows))
        made += len(batch.kept)
        if batch.is_last:
            break
        objects.put(begun_key(workload, day, batch.end), batch.end.key.encode())
        if not has_time():
            return Compacted(made, is_whole=False, is_read=True)
    left_out = ", ".join(sorted(beyond))
    if left_out:
        _log.warning("usage_left_out: %s %s: beyond the bounds of %s", workload, day, left_out)
    objects.put(done_key(workload, day), left_out.encode())
    return Compacted(made, is_read=True)


def measured_tables(
    workload: str, day: date, objects: ObjectStore, *, declared: Collection[str] = ()
) -> Iterator[tuple[str, Sequence[TableRow]]]:
    """Yield the files of what workers wrote on a day: the key of each, and its rows."""
    own, others = {workload, *declared}, set[str]()
    for batch in _read_batches(workload, day, objects, to_row, bounds=_BOUNDS, beyond=set()):
        yield from _tables(workload, day, batch, own, others, _BOUNDS)


def _tables(
    workload: str,
    day: date,
    batch: "_Batch[TableRow]",
    own: Collection[str],
    others: set[str],
    bounds: ReadBounds,
) -> Iterator[tuple[str, Sequence[TableRow]]]:
    """Yield the files of a batch, one of each type.

    A worker may make up types without end: beyond a bound, those that are not the workload's
    ``own`` go under one name. ``others`` are those that have their own file all the same.
    """
    by_type: dict[str, list[TableRow]] = {}
    for row in batch.kept:
        type_ = str(row[TYPE])
        # Jobs without a type have the workload's name.
        if type_ not in own and type_ not in others:
            if len(others) < bounds.types:
                others.add(type_)
            else:
                type_ = OTHER_TYPES
        by_type.setdefault(type_, []).append({**row, TYPE: type_})
    for type_, found in sorted(by_type.items()):
        yield table_key(workload, day, type_, batch.begun.objects + 1), found


def _read_measured(
    workload: str,
    day: date,
    objects: ObjectStore,
    keep: Callable[[UsageRecord], T],
    *,
    bounds: ReadBounds = _BOUNDS,
) -> Sequence[T]:
    """Return what workers wrote on a day."""
    batches = _read_batches(workload, day, objects, keep, bounds=bounds, beyond=set())
    return [kept for batch in batches for kept in batch.kept]


@dataclass(frozen=True, slots=True)
class _Batch(Generic[T]):
    """What was read of some objects of a day, one after the other."""

    begun: Begun
    #: Of the last one nothing asks for it.
    end: Begun
    kept: Sequence[T]
    is_last: bool


def _read_batches(
    workload: str,
    day: date,
    objects: ObjectStore,
    keep: Callable[[UsageRecord], T],
    *,
    bounds: ReadBounds,
    beyond: set[str],
    begun: Begun = _FIRST,
) -> Iterator[_Batch[T]]:
    """Yield what workers wrote on a day, each attempt once; what cannot be read is left out.

    So many records at once as a memory holds, of whole objects; the last batch may be empty.
    ``beyond`` gets the bounds that have left out more.

    Raises:
        AccessDenied: of a missing right, where nothing could be read so far.
    """
    # By key, since what is written late changes the number of an object.
    within = _found_within(bounds, workload, day, objects, beyond)
    found, access = [one for one in within if one.key > begun.key], _Access()
    # An object whose write had no answer was written again, with others. A run that goes on with a
    # day does not know of those that the one before has read.
    seen: set[int] = set()
    first, kept, size, records = begun, list[T](), 0, begun.records
    read = _read_each(workload, day, found, objects, keep, access)
    for number, (weight, attempts) in enumerate(read, begun.objects + 1):
        size += weight
        for attempt, one in attempts:
            if attempt in seen:
                continue
            if records >= bounds.records:
                beyond.add("records")
                yield _Batch(first, first, kept, is_last=True)
                return
            seen.add(attempt)
            kept.append(one)
            records += 1
        is_full = (
            len(kept) >= bounds.records_at_once
            or size >= bounds.bytes_at_once
            or number - first.objects >= bounds.objects_at_once
        )
        if is_full and number - begun.objects < len(found):
            access.check()
            end = Begun(number, records, found[number - begun.objects - 1].key)
            yield _Batch(first, end, kept, is_last=False)
            first, kept, size = end, [], 0
    access.check()
    yield _Batch(first, first, kept, is_last=True)


@dataclass(slots=True)
class _Access:
    """Whether what workers wrote may be read.

    A worker may have its objects archived, or encrypt them with a key of its own. Such ones are
    passed over, so that they stop nothing. But where none could be read and one was denied, a right
    is missing: what nobody reads for as long must not be lost for good.
    """

    is_given: bool = False
    is_told: bool = False
    denied: AccessDenied | None = None

    @property
    def missing(self) -> AccessDenied | None:
        """Return what told that a right is missing; None: nothing did."""
        return None if self.is_given else self.denied

    def check(self) -> None:
        """Raise AccessDenied, if a right is missing."""
        if (missing := self.missing) is not None:
            raise missing


def _read_each(
    workload: str,
    day: date,
    found: Sequence[ObjectSummary],
    objects: ObjectStore,
    keep: Callable[[UsageRecord], T],
    access: _Access,
) -> Iterator[tuple[int, Sequence[tuple[int, T]]]]:
    """Yield of each object its weight and its records: which attempt each is of, what is kept.

    What may not be read is passed over, and noted in ``access``.
    """

    def get(one: ObjectSummary) -> bytes:
        try:
            data = objects.get(one.key, at_most_bytes=OBJECT_BYTES_MAX).data
        except AccessDenied as exc:
            if not access.is_told:
                access.is_told = True
                # A worker has named it, and a person's terminal may show this.
                said = printable(f"{one.key}: {exc}")
                _log.warning("usage_not_read: %s; further ones are not told", said)
            if not isinstance(exc, Unreadable):
                access.denied = exc
        except (ContractError, NotFound):
            pass
        else:
            access.is_given = True
            return data
        return b""

    def read(data: bytes) -> Sequence[tuple[int, T]]:
        with suppress(ContractError):
            return [
                (hash((x.job_id, x.epoch, x.instance_id)), keep(x))
                for x in decode_usage(data, workload=workload)
                if x.may_be_of(day)
            ]
        return ()

    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        for first in range(0, len(found), _READS_AT_ONCE):
            some = found[first : first + _READS_AT_ONCE]
            # Several wait for S3 at once; what is in them is taken apart one after the other.
            for one, data in zip(some, pool.map(get, some), strict=True):
                yield max(one.bytes, weigh_usage(data)), read(data)


@dataclass(frozen=True, slots=True, order=True)
class ReadTo:
    """How far what workers wrote is read: by S3's clock, then by key."""

    at: datetime
    #: Of the last object of that instant which is read; "": none is.
    key: str = ""


def read_written(
    workload: str,
    objects: ObjectStore,
    keep: Callable[[UsageRecord], T],
    *,
    since: ReadTo,
    until: datetime,
    bounds: ReadBounds,
    has_time: Callable[[], bool] = lambda: True,
) -> tuple[Sequence[T], ReadTo]:
    """Return what is kept of the records that workers wrote, the oldest first, and how far it came.

    What is beyond the bounds, or the time, is for the next call. So no sender chooses by the ids of
    its jobs whose records are left out. Of more bytes than may be read the largest objects are left
    out for good: else a worker that writes without end would have all others wait behind it. Where
    a right is missing, nothing is read, and the next call begins at the same place.
    """
    found = nsmallest(bounds.objects + 1, _found_since(workload, objects, since, until, bounds))
    kept, seen, end, access = list[T](), set[int](), since, _Access()
    read_now = found[: bounds.objects]
    within = _within_bytes(bounds.bytes, [one for _, _, one in read_now])
    small = [each for each in read_now if each[2].key in within]
    if len(small) < len(read_now):
        left_out = len(read_now) - len(small)
        _log.warning("usage_left_out: %s: the %d largest objects", workload, left_out)
    for day, some in groupby(small, key=itemgetter(1)):
        ours = [(place, one) for place, _, one in some]
        read = _read_each(workload, day, [one for _, one in ours], objects, keep, access)
        for (place, _), (_, attempts) in zip(ours, read, strict=True):
            fresh = {attempt: value for attempt, value in attempts if attempt not in seen}
            if len(kept) + len(fresh) > bounds.records:
                return kept, end
            seen |= fresh.keys()
            kept += fresh.values()
            end = place
            if not has_time():
                return kept, since if access.missing else end
    if access.missing:
        return kept, since
    return kept, read_now[-1][0] if len(found) > bounds.objects else ReadTo(until)


def _within_bytes(most: int, found: Sequence[ObjectSummary]) -> Collection[str]:
    """Return the keys of the smallest objects that have so many bytes, of one size the oldest."""
    sizes = sorted(found, key=lambda one: (one.bytes, one.modified_at, one.key))
    sums = accumulate(one.bytes for one in sizes)
    return {one.key for one, total in zip(sizes, sums, strict=True) if total <= most}


def _found_since(
    workload: str, objects: ObjectStore, since: ReadTo, until: datetime, bounds: ReadBounds
) -> Iterator[tuple[ReadTo, date, ObjectSummary]]:
    for day in days_of(since.at, until):
        for number, one in enumerate(objects.list(measured_prefix(workload, day))):
            if number >= bounds.listed:
                _log.warning("usage_left_out: %s %s: beyond the bounds of names", workload, day)
                break
            place = ReadTo(one.modified_at, one.key)
            if since < place and place.at < until and one.bytes <= OBJECT_BYTES_MAX:
                yield place, day, one


def _found_within(
    bounds: ReadBounds,
    workload: str,
    day: date,
    objects: ObjectStore,
    beyond: set[str],
) -> Sequence[ObjectSummary]:
    found: list[ObjectSummary] = []
    for number, one in enumerate(objects.list(measured_prefix(workload, day))):
        if number >= bounds.listed:
            beyond.add("names")
            break
        if one.bytes <= OBJECT_BYTES_MAX:
            found.append(one)
    within = _within_bytes(bounds.bytes, found)
    small = [one for one in found if one.key in within]
    if len(small) < len(found):
        beyond.add("bytes")
    if len(small) > bounds.objects:
        beyond.add("objects")
    return small[: bounds.objects]


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
            data = objects.get(key).data
            with suppress(ContractError):
                found += decode_table(data, workload=workload)
    return [one for one in found if since <= one.started_at <= until]


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

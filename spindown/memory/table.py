"""A DynamoDB table in memory: conditional writes, transactions, an index that may lag.

Rows are copied on the way in and out, so that nobody holds the table's own.
"""

import math
import threading
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from spindown.contract.codec import KeptRow, Row
from spindown.contract.location import is_whole
from spindown.contract.row import MACHINE, machine_sort_key
from spindown.error import ContractError, PreconditionFailed
from spindown.port import ALWAYS, Clock, Key, When, Write

#: DynamoDB's quota of a transaction.
TRANSACTION_WRITES_MAX = 100

_INDEXED = "instance_id"
_ATOMS = frozenset({bool, int, type(None)})
_FLOAT = frozenset({float})
_NUMBERS = frozenset({int, float})


class MemoryTable:
    """Table in memory."""

    def __init__(
        self, clock: Clock, *, index_lag: timedelta = timedelta(0), shares_rows: bool = False
    ) -> None:
        """Begin empty.

        Args:
            clock: the time.
            index_lag: how long after a change the index shows it.
            shares_rows: copy nothing, neither on the way in nor out, and decode a row once,
                however often it is read. For callers that change no row they have got and write
                only what the codec has encoded, as a simulation that reads rows by the million.
        """
        self._clock = clock
        self._index_lag = index_lag
        self._shares_rows = shares_rows
        self._lock = threading.RLock()
        self._partitions: dict[str, dict[str, Row]] = {}
        #: partition -> its sort keys, sorted.
        self._sorts: dict[str, list[str]] = {}
        #: instance -> key of a machine row -> when it was written and, if so, removed.
        self._index: dict[str, dict[Key, tuple[datetime, datetime | None]]] = {}

    def get(self, key: Key) -> Row | None:
        """Read one row."""
        with self._lock:
            row = self._find(key)
            return row if row is None or self._shares_rows else _copy_row(row)

    def get_each(self, keys: Sequence[Key]) -> Mapping[Key, Row]:
        """Read rows by their keys."""
        with self._lock:
            return {key: row for key in keys if (row := self.get(key)) is not None}

    def query(
        self, partition: str, prefix: str = "", *, at_most: int | None = None
    ) -> Mapping[str, Row]:
        """Read the first rows of a partition whose sort key begins with ``prefix``."""
        with self._lock:
            rows = self._partitions.get(partition, {})
            sorts = self._sorts.get(partition, [])
            found = sorts
            if prefix:
                first = last = bisect_left(sorts, prefix)
                while last < len(sorts) and sorts[last].startswith(prefix):
                    last += 1
                found = sorts[first:last]
            found = found[:at_most]
            if self._shares_rows:
                return {sort: rows[sort] for sort in found}
            return {sort: _copy_row(rows[sort]) for sort in found}

    def query_each(
        self, partitions: Sequence[str], *, at_most: int
    ) -> Sequence[Mapping[str, Row]] | None:
        """Read all rows of some partitions, unless they are too many; size is not looked at."""
        with self._lock:
            if sum(len(self._sorts.get(partition, ())) for partition in partitions) > at_most:
                return None
            return [self.query(partition) for partition in partitions]

    def write(self, write: Write) -> Row | None:
        """Change one row if its condition holds; return it as it is now."""
        if _INDEXED in write.set:
            _check_indexed(write)
        with self._lock:
            row = self._find(write.key)
            _check_conditions([write], [row])
            changed = self._changed(write, row)
            self._put(write.key, row, changed)
            return changed if changed is None or self._shares_rows else _copy_row(changed)

    def transact(self, writes: Sequence[Write]) -> None:
        """Change all rows or none."""
        if len(writes) > TRANSACTION_WRITES_MAX:
            raise ContractError("transaction", f"{len(writes)} writes", "write at most 100 rows")
        if len({write.key for write in writes}) < len(writes):
            raise ContractError("transaction", "the same row twice", "write each row once")
        for write in writes:
            if _INDEXED in write.set:
                _check_indexed(write)
        with self._lock:
            found = [self._find(write.key) for write in writes]
            _check_conditions(writes, found)
            changes = [self._changed(write, row) for write, row in zip(writes, found, strict=True)]
            for write, row, changed in zip(writes, found, changes, strict=True):
                self._put(write.key, row, changed)

    def find_machine(self, instance_id: str) -> Sequence[Key]:
        """Return the keys of the machine rows of an instance, as late as the index lags."""
        seen_at = self._clock.now() - self._index_lag
        with self._lock:
            entries = self._index.get(instance_id, {})
            return [
                key
                for key, (since, until) in entries.items()
                if key.sort == machine_sort_key(instance_id)
                and since <= seen_at
                and (until is None or until > seen_at)
            ]

    def _find(self, key: Key) -> Row | None:
        partition = self._partitions.get(key.partition)
        return None if partition is None else partition.get(key.sort)

    def _changed(self, write: Write, row: Row | None) -> Row | None:
        """Return a row after a write; its earlier version stays as it is."""
        if write.delete:
            return None
        if not (write.set or write.add):
            return row
        changed: Row
        if self._shares_rows:
            changed = KeptRow(row or ())
            changed.update(write.set)
            if row is not None:
                changed.follow(row, (*write.set, *write.add))
        else:
            changed = dict(row or ())
            for name, value in write.set.items():
                changed[name] = value if type(value) in _ATOMS else _copy(name, value)
        for name, value in write.add.items():
            before = changed.get(name, 0)
            if type(before) not in _NUMBERS:
                raise ContractError(name, before, "add only to a number")
            changed[name] = before + value
        return changed

    def _put(self, key: Key, before: Row | None, row: Row | None) -> None:
        if row is before:
            return
        partition, sort = key
        if row is None:
            del self._partitions[partition][sort]
            sorts = self._sorts[partition]
            sorts.pop(bisect_left(sorts, sort))
        else:
            if before is None:
                insort(self._sorts.setdefault(partition, []), sort)
            self._partitions.setdefault(partition, {})[sort] = row
        if sort.startswith(MACHINE):
            old = None if before is None else before.get(_INDEXED)
            new = None if row is None else row.get(_INDEXED)
            if old != new:
                self._index_change(key, old, new)

    def _index_change(self, key: Key, old: str | None, new: str | None) -> None:
        now = self._clock.now()
        if old is not None:
            since, _ = self._index[old].pop(key)
            if self._index_lag:
                self._index[old][key] = (since, now)
        if new is not None:
            self._index.setdefault(new, {})[key] = (now, None)


def _check_conditions(writes: Sequence[Write], found: Sequence[Row | None]) -> None:
    failed = []
    for write, row in zip(writes, found, strict=True):
        if write.when is not ALWAYS and not holds(write.when, row):
            failed.append(write.key)
    if failed:
        said = ", ".join(f"{key.partition} {key.sort}" for key in failed)
        raise PreconditionFailed(f"{said}: condition fails", keys=failed)


def holds(when: When, row: Row | None) -> bool:
    """Tell whether a condition holds for a row (None: there is no row)."""
    if when.exists is not None and when.exists != (row is not None):
        return False
    row = row or {}
    for name, value in when.equals.items():
        if not _same(row.get(name), value):
            return False
    for name, value in when.differs.items():
        if _same(row.get(name), value):
            return False
    for name, value in when.at_most.items():
        if not _is_at_most(row.get(name), value):
            return False
    for name in when.absent:  # noqa: SIM110 - asked for every heartbeat
        if row.get(name) is not None:
            return False
    return True


def _same(left: object, right: object) -> bool:
    # In DynamoDB a truth value never equals a number; in Python True == 1.
    if left is True or left is False or right is True or right is False:
        return left is right
    return left == right


def _is_at_most(value: Any, limit: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, str) and isinstance(limit, str):
        return value.encode() <= limit.encode()
    return bool(_is_number(value) and _is_number(limit) and value <= limit)


def _is_number(value: object) -> bool:
    return type(value) in _NUMBERS


def _check_indexed(write: Write) -> None:
    value = write.set[_INDEXED]
    if not (isinstance(value, str) and value):
        raise ContractError(_INDEXED, value, "write an instance id")


def _copy_row(row: Row) -> Row:
    """Return a row as it is handed out: what the table has taken in needs no second check."""
    copied = row.copy()
    for name, value in row.items():
        if type(value) is list or type(value) is dict:
            copied[name] = _copy_nested(value)
    return copied


def _copy_nested(value: Any) -> Any:
    if type(value) is list:
        if _NESTED.isdisjoint(map(type, value)):
            return value[:]
        return [_copy_nested(inner) for inner in value]
    if type(value) is dict:
        return {key: _copy_nested(inner) for key, inner in value.items()}
    return value


_NESTED = frozenset({list, dict})


def _copy(name: str, value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS or (kind is float and math.isfinite(value)):
        return value
    if kind is list or kind is tuple:
        if _FLOAT.issuperset(map(type, value)) and all(map(math.isfinite, value)):
            return list(value)
        return [_copy(name, inner) for inner in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) and is_whole(key) for key in value):
        return {str(key): _copy(name, inner) for key, inner in value.items()}
    if isinstance(value, str) and is_whole(value):
        return str(value)
    raise ContractError(name, value, "store whole text, a number, true, false, null, list or map")

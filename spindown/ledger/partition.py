"""The rows of one partition, decoded.

One that cannot be read, or lies under a key that is not its own, is skipped and named, never
guessed: rolling deploys mix versions, and one bad row must not stop a fleet.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from typing import Any, TypeVar

from spindown.contract import row as rows
from spindown.contract.codec import KeptRow, Row, decode
from spindown.contract.row import DoneRow, NewerMessage, ShapeRow, SpendRow
from spindown.domain.fleet import Launch, Lease, RequeuedJob, Worker
from spindown.domain.pool_cooldown import PoolCooldown
from spindown.domain.shape import parse_shape
from spindown.error import ContractError

T = TypeVar("T")


class Partition:
    """Decodes the rows of a partition, and keeps the names of those that it cannot."""

    def __init__(self, partition: Mapping[str, Row]) -> None:
        """Take the rows of a partition by their sort keys."""
        self._partition = partition
        #: Kind, which the sort key names up to its first "#" -> its rows.
        self._kinds: dict[str, list[tuple[str, Row]]] = {}
        for sort, row in partition.items():
            self._kinds.setdefault(sort.partition("#")[0], []).append((sort, row))
        self.bad: list[str] = []

    def all_of(self, cls: type[T], prefix: str, *, required: str = "") -> dict[str, T]:
        """Decode the rows under a prefix; one whose ``required`` field is empty is no value."""
        return {
            sort: value
            for sort, row in self._under(prefix)
            if (not required or row.get(required))
            and (value := self._decode(cls, sort, row)) is not None
        }

    def named(self, cls: type[T], prefix: str) -> dict[str, T]:
        """Decode the rows under a prefix, each by what follows it."""
        found = self.all_of(cls, prefix).items()
        return {sort.removeprefix(prefix): value for sort, value in found}

    def one(self, cls: type[T], sort: str) -> T | None:
        """Decode a single row; None if it is not there or cannot be read."""
        row = self._partition.get(sort)
        return None if row is None else self._decode(cls, sort, row)

    def _under(self, prefix: str) -> Sequence[tuple[str, Row]]:
        return self._kinds.get(prefix.removesuffix("#"), ())

    def _decode(self, cls: type[T], sort: str, row: Row) -> T | None:
        # Of a simulation's rows, most are as the last tick has read them.
        if type(row) is KeptRow and row.is_placed and type(row.read_as) is cls:
            return row.read_as
        try:
            return decode_at(cls, sort, row)
        except ContractError:
            self.bad.append(sort)
            return None


#: Of a row that a worker of ours writes; most have some hundred.
_CHARACTERS_AT_MOST = 32_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRows:
    """The rows that workers write, as far as they are read."""

    partition: Partition
    #: Instances that have a row of their own, and that no launch has given.
    unlaunched: frozenset[str]
    #: Sort keys of rows that nobody reads, those of ``unlaunched`` included.
    ignored: tuple[str, ...]


def bound_worker_rows(
    written: Mapping[str, Row], machines: Mapping[str, Worker], *, is_flooded: bool = False
) -> ReportedRows:
    """Return what is read of the rows that workers may write without bound.

    Args:
        written: rows by sort key, in its order.
        machines: the instances that launches have given, by id.
        is_flooded: there are too many, or too large ones: none of those is read.
    """
    read: dict[str, Row] = {}
    counts: Counter[str] = Counter()
    unlaunched, ignored = set[str](), []
    for sort, row in written.items():
        kind, _, name = sort.partition("#")
        if is_flooded and len(repr(row)) > _CHARACTERS_AT_MOST:
            ignored.append(sort)
            continue
        if kind in _OF_INSTANCES:
            instance_id, _, slot = name.partition("#")
            machine = machines.get(instance_id)
            if machine is None and kind == _LEASE and counts[_LEASE] < rows.LOST_LEASES_READ:
                # Its job is given back.
                counts[_LEASE] += 1
            elif machine is None or (kind == _LEASE and slot not in _slots(machine.slots)):
                ignored.append(sort)
                if kind == _WORKER:
                    unlaunched.add(instance_id)
                continue
        else:
            prefix = next((p for p in rows.READ_AT_MOST if sort.startswith(p)), "")
            counts[prefix] += 1
            if counts[prefix] > rows.READ_AT_MOST.get(prefix, 0):
                ignored.append(sort)
                continue
        read[sort] = row
    return ReportedRows(
        partition=Partition(read), unlaunched=frozenset(unlaunched), ignored=tuple(ignored)
    )


@lru_cache(maxsize=64)
def _slots(count: int) -> frozenset[str]:
    return frozenset(map(str, range(count)))


_WORKER, _LEASE = rows.WORKER.removesuffix("#"), rows.LEASE.removesuffix("#")
_OF_INSTANCES = frozenset({_WORKER, _LEASE})


def decode_at(cls: type[T], sort: str, row: Row) -> T:
    """Decode a row that lies under a sort key; one that belongs under another cannot be read.

    Two rows could name one instance otherwise, and what is done about one of them be undone for
    the other.
    """
    value = decode(cls, row)
    is_place = _PLACES.get(cls)
    if is_place is not None and not is_place(sort, value):
        raise ContractError(f"{cls.__name__} under {sort}", None, "keep a row under its own key")
    if type(row) is KeptRow:
        row.is_placed = True
    return value


def _is_day(sort: str, _: DoneRow) -> bool:
    prefix, _mark, day = sort.rpartition("#")
    try:
        return f"{prefix}#{date.fromisoformat(day)}" == sort
    except ValueError:
        return False


#: Kind of row -> whether a sort key is that of a value.
_PLACES: Mapping[type[Any], Callable[[str, Any], bool]] = {
    Worker: lambda sort, x: (
        sort in {rows.worker_sort_key(x.instance_id), rows.machine_sort_key(x.instance_id)}
    ),
    Lease: lambda sort, x: sort == rows.lease_sort_key(x.instance_id, x.slot),
    RequeuedJob: lambda sort, x: sort == rows.requeued_sort_key(x.job_id),
    NewerMessage: lambda sort, x: sort == rows.newer_message_sort_key(x.message_id),
    Launch: lambda sort, x: sort == rows.launch_sort_key(x.launch_id),
    PoolCooldown: lambda sort, x: sort == rows.pool_cooldown_sort_key(x.pool),
    ShapeRow: lambda sort, x: (
        sort == rows.shape_sort_key(x.shape) and parse_shape(x.shape) is not None
    ),
    SpendRow: _is_day,
    DoneRow: _is_day,
}

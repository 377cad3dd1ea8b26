"""The table under the ledger: rows, conditions, writes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple, Protocol

from spindown.contract.codec import Row


class Key(NamedTuple):
    """Where a row lies: partition and sort key."""

    partition: str
    sort: str


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A condition on the row as it is; all parts must hold. An empty one always holds.

    Everywhere a missing attribute is the same as a null one, so that a row written before a
    field was known meets the same conditions as one written after.
    """

    #: True: the row must exist. False: it must not. None: either.
    exists: bool | None = None
    equals: Mapping[str, Any] = field(default_factory=dict)
    differs: Mapping[str, Any] = field(default_factory=dict)
    #: Attribute missing or null, or less than or equal to the value.
    at_most: Mapping[str, Any] = field(default_factory=dict)
    #: Attribute missing or null.
    absent: frozenset[str] = frozenset()


ALWAYS = When()


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One conditional change of one row. ``delete`` excludes ``set`` and ``add``.

    A change creates the row if there is none. Without any change it only checks the condition.
    """

    key: Key
    when: When = ALWAYS
    set: Mapping[str, Any] = field(default_factory=dict)
    #: Numbers added atomically; a missing attribute counts as 0.
    add: Mapping[str, float] = field(default_factory=dict)
    delete: bool = False

    def __post_init__(self) -> None:
        """Refuse what no table can carry out: a change beside a delete, one attribute twice."""
        if self.delete:
            if self.set or self.add:
                raise ValueError(f"{self.key}: a write deletes the row or changes it, not both")
        elif self.set and self.add and not self.set.keys().isdisjoint(self.add):
            raise ValueError(f"{self.key}: a write changes each attribute once")

    @property
    def is_check(self) -> bool:
        """Tell whether it only checks the condition."""
        return not (self.delete or self.set or self.add)

    @property
    def is_sum(self) -> bool:
        """Tell whether it adds to numbers, whatever the row is, and does nothing else."""
        return not (self.delete or self.set) and self.when is ALWAYS


class Table(Protocol):
    """The DynamoDB table. Rows are JSON-like dicts without their keys; reads are consistent.

    A null value in ``set`` is stored as null. ``instance_id`` is indexed on its own.
    """

    def get(self, key: Key) -> Row | None:
        """Read one row."""
        ...

    def query(self, partition: str, prefix: str = "") -> Mapping[str, Row]:
        """Read all rows of a partition whose sort key begins with ``prefix``, by sort key."""
        ...

    def write(self, write: Write) -> Row | None:
        """Change one row; return it as it is now (None once deleted).

        Raises:
            PreconditionFailed: the condition does not hold.
        """
        ...

    def transact(self, writes: Sequence[Write]) -> None:
        """Change up to 100 rows, all or none.

        Raises:
            PreconditionFailed: one of the conditions does not hold.
        """
        ...

    def find_instance(self, instance_id: str) -> Key | None:
        """Return the key of the worker row of an instance, eventually consistent."""
        ...


def merge(writes: Iterable[Write]) -> list[Write]:
    """Return writes as one transaction takes them, with each row once."""
    by_row: dict[Key, list[Write]] = {}
    for write in writes:
        by_row.setdefault(write.key, []).append(write)
    return [_join_all(of_row) for of_row in by_row.values()]


def _join_all(writes: Sequence[Write]) -> Write:
    first = writes[0]
    if len(writes) == 1:
        return first
    if not all(write.is_sum for write in writes):
        return reduce(_join, writes)
    # The many additions to one account or pool.
    sums: dict[str, float] = {}
    for write in writes:
        for name, number in write.add.items():
            sums[name] = sums.get(name, 0) + number
    return Write(key=first.key, add=sums)


def _join(first: Write, second: Write) -> Write:
    """Return one write with the effect of both, the second after the first.

    A row that is deleted and then put keeps the fields that the put does not name: no write both
    deletes and puts.
    """
    when = _join_conditions(first.when, second.when)
    if first.when.exists is False and not (first.is_check or first.delete):
        # That it is there is what the first sees to.
        when = replace(when, exists=False)
    if first.delete or second.delete:
        return replace(second, when=when)
    changed = {**first.set, **second.set}
    sums = {name: number for name, number in first.add.items() if name not in second.set}
    for name, number in second.add.items():
        if name in first.set:
            changed[name] = first.set[name] + number
        else:
            sums[name] = sums.get(name, 0) + number
    return Write(
        key=first.key,
        when=when,
        set=changed,
        add=sums,
    )


def _join_conditions(first: When, second: When) -> When:
    if second is ALWAYS or second == ALWAYS:
        return first
    return When(
        exists=first.exists if second.exists is None else second.exists,
        equals={**second.equals, **first.equals},
        differs={**second.differs, **first.differs},
        at_most={**second.at_most, **first.at_most},
        absent=first.absent | second.absent,
    )

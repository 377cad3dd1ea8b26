"""The table under the ledger: rows, conditions, writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from spindown.contract.codec import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One conditional change of one row. ``delete`` excludes ``set``, ``add`` and ``remove``.

    A change creates the row if there is none. Without any change it only checks the condition.
    """

    key: Key
    when: When = field(default_factory=When)
    set: Mapping[str, Any] = field(default_factory=dict)
    #: Numbers added atomically; a missing attribute counts as 0.
    add: Mapping[str, float] = field(default_factory=dict)
    remove: frozenset[str] = frozenset()
    delete: bool = False

    def __post_init__(self) -> None:
        """Refuse what no table can carry out: a change beside a delete, one attribute twice."""
        changed = len(self.set) + len(self.add) + len(self.remove)
        if self.delete and changed:
            raise ValueError(f"{self.key}: a write deletes the row or changes it, not both")
        is_mixed = changed > max(len(self.set), len(self.add), len(self.remove))
        if is_mixed and changed > len(self.set.keys() | self.add.keys() | self.remove):
            raise ValueError(f"{self.key}: a write changes each attribute once")

    @property
    def is_check(self) -> bool:
        """Tell whether it only checks the condition."""
        return not (self.delete or self.set or self.add or self.remove)


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

"""The rows of one partition, decoded.

One that cannot be read is skipped and named, never guessed: rolling deploys mix versions, and one
bad row must not stop a fleet.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from spindown.contract.codec import Row, decode
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
        try:
            return decode(cls, row)
        except ContractError:
            self.bad.append(sort)
            return None

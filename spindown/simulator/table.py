"""The table of a simulation: as in memory, without copies, checks of types and locks."""

from collections.abc import Mapping, Sequence

from spindown.app.port import ALWAYS, Key, Write
from spindown.contract.codec import KeptRow, Row
from spindown.error import PreconditionFailed
from spindown.memory import MemoryTable
from spindown.memory.table import holds


class SimTable(MemoryTable):
    """Hands its own rows out: a change makes a new row, and no reader changes one.

    A month reads and writes the same rows by the million; each version of one is copied once and
    decoded once. Only the codec's values may be written.
    """

    def get(self, key: Key) -> Row | None:
        """Read one row."""
        return self._find(key)

    def query(self, partition: str, prefix: str = "") -> Mapping[str, Row]:
        """Read the rows of a partition whose sort key begins with ``prefix``."""
        if prefix:
            return super().query(partition, prefix)
        rows = self._partitions.get(partition, {})
        return {sort: rows[sort] for sort in self._sorts.get(partition, ())}

    def write(self, write: Write) -> Row | None:
        """Change one row if its condition holds; return it as it is now."""
        row = self._find(write.key)
        if write.when is not ALWAYS and not holds(write.when, row):
            raise PreconditionFailed(f"{write.key.partition} {write.key.sort}: condition fails")
        changed = self._changed(write, row)
        self._put(write.key, row, changed)
        return changed

    def transact(self, writes: Sequence[Write]) -> None:
        """Change all rows or none."""
        found = []
        for write in writes:
            row = self._find(write.key)
            if write.when is not ALWAYS and not holds(write.when, row):
                raise PreconditionFailed(f"{write.key.partition} {write.key.sort}: condition fails")
            found.append((write, row))
        for write, row in found:
            self._put(write.key, row, self._changed(write, row))

    def _hand_out(self, row: Row) -> Row:
        return row

    def _changed(self, write: Write, row: Row | None) -> Row | None:
        if write.delete:
            return None
        if not (write.set or write.add):
            return row
        changed = KeptRow(row or {})
        changed.update(write.set)
        for name, number in write.add.items():
            changed[name] = changed.get(name, 0) + number
        return changed

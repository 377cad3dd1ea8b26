"""The table of a simulation: as in memory, without copies."""

from spindown.app.port import Write
from spindown.contract.codec import KeptRow, Row
from spindown.memory import MemoryTable


class SimTable(MemoryTable):
    """Hands its own rows out: a change makes a new row, and no reader changes one.

    A month reads the same rows by the million; each is copied once, and of a new version only
    what has changed is decoded.
    """

    def _hand_out(self, row: Row) -> Row:
        return row

    def _begin(self, row: Row | None) -> Row:
        return KeptRow(row or {})

    def _changed(self, write: Write) -> Row | None:
        before, changed = self._find(write.key), super()._changed(write)
        if type(changed) is KeptRow and type(before) is KeptRow and changed is not before:
            changed.follow(before, (*write.set, *write.add, *write.remove))
        return changed

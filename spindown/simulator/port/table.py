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

    def _changed(self, write: Write, row: Row | None) -> Row | None:
        changed = super()._changed(write, row)
        if type(changed) is KeptRow and type(row) is KeptRow and changed is not row:
            changed.follow(row, (*write.set, *write.add, *write.remove))
        return changed

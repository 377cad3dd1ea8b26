"""The table of a simulation: as in memory, without copies."""

from spindown.app.port import Write
from spindown.contract.codec import KeptRow, Row
from spindown.memory import MemoryTable


class SimTable(MemoryTable):
    """Hands its own rows out: a change makes a new row, and no reader changes one.

    A month reads the same rows by the million; each is copied and decoded once.
    """

    def _hand_out(self, row: Row) -> Row:
        return row

    def _changed(self, write: Write) -> Row | None:
        changed = super()._changed(write)
        return changed if changed is None or type(changed) is KeptRow else KeptRow(changed)

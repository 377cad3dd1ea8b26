"""The table of a simulation: as in memory, but a row is decoded once, however often it is read."""

from spindown.contract.codec import KeptRow, Row
from spindown.memory import MemoryTable
from spindown.port import Write


class SimTable(MemoryTable):
    """Hands its own rows out: a change makes a new row, and no reader changes one.

    A month reads the same rows by the million; copied ones would have to be decoded anew.
    """

    def _hand_out(self, row: Row) -> Row:
        return row

    def _changed(self, write: Write, row: Row | None) -> Row | None:
        changed = super()._changed(write, row)
        return changed if changed is None or changed is row else KeptRow(changed)

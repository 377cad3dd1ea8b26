"""The writes of one tick, gathered so that a quiet tick costs one transaction.

A *unit* is a few writes that hold together: all of them or none. Units wait in the journal until
something must be durable (an intent, a condemnation, the end of the tick) and then go in one
transaction under the fence. If that fails, those that may stand in its way go on their own: a unit
whose condition no longer holds lost a race against a worker or an event, and is dropped; the next
tick sees why. A unit is also dropped if the table refuses it because of a row's content. One
exception: additions to an unreadable row are left out, and the rest of the unit is written.
Otherwise one bad row would stop the whole fleet.
"""

from collections.abc import Collection, Sequence

from spindown.error import ContractError, PreconditionFailed, WriteConflict
from spindown.ledger import FencingToken, Ledger
from spindown.port import Key, Write, merge

Unit = tuple[Write, ...]

#: Below DynamoDB's 100 writes a transaction, with room for the lock and one more unit.
_ROOM = 80


class FenceLost(PreconditionFailed):
    """Another tick has taken the lock: nothing more may be decided here."""


class Journal:
    """Units of writes that wait to be carried out under a fence."""

    def __init__(
        self, ledger: Ledger, fence: FencingToken, *, damaged: Collection[str] = ()
    ) -> None:
        """Write under a fence; ``damaged`` are the sort keys of rows that could not be read."""
        self.ledger = ledger
        self._fence = fence
        self._damaged = frozenset(ledger.key(sort) for sort in damaged)
        self._units: list[Unit] = []
        #: Units that were dropped, and how often the table refused what a row holds.
        self.dropped: list[Unit] = []
        self.refused = 0

    @property
    def fence(self) -> int:
        """Return the fence's number."""
        return self._fence.fence

    @property
    def is_lock_repaired(self) -> bool:
        """Tell whether the lock's row was damaged and has been replaced."""
        return self._fence.is_repaired

    def write_later(self, unit: Unit) -> None:
        """Let a unit wait for the next transaction."""
        if unit:
            self._units.append(unit)

    def commit(self, units: Sequence[Unit]) -> list[bool]:
        """Make units durable now, with all that wait; return of each whether it won its race.

        Raises:
            FenceLost: another tick is at work.
        """
        waiting, self._units = self._units, []
        lost: set[int] = set()
        for load in _loads([*waiting, *units]):
            lost |= {id(unit) for unit in self._carry_out(load)}
        self.dropped += [unit for unit in waiting if id(unit) in lost]
        return [id(unit) not in lost for unit in units]

    def flush(self, *, release: bool = False) -> None:
        """Carry out what waits; with ``release`` give the lock back in the last transaction.

        Raises:
            FenceLost: another tick is at work.
        """
        waiting, self._units = self._units, []
        *first, last = _loads(waiting)
        for load in first:
            self.dropped += self._carry_out(load)
        self.dropped += self._carry_out(last, release=release)

    def _carry_out(self, load: Sequence[Unit], *, release: bool = False) -> list[Unit]:
        """Carry out a load of units; return those that lost a race, or were refused.

        Where the table names the rows whose conditions fail, only the units of these are tried
        alone: of a thousand workers that end, a few may have just written their rows.
        """
        failed = self._try(load, release=release)
        if failed is None:
            return []
        is_suspect = [any(write.key in failed for write in unit) for unit in load]
        suspects = [unit for unit, suspect in zip(load, is_suspect, strict=True) if suspect]
        rest = [unit for unit, suspect in zip(load, is_suspect, strict=True) if not suspect]
        if not suspects or (rest and self._try(rest) is not None):
            suspects = list(load)
        lost = [unit for unit in suspects if not self._try_alone(unit)]
        if release:
            # If even this is in the way of another write, the lock's lease ends by itself.
            self._try([], release=True)
        return lost

    def _try_alone(self, unit: Unit) -> bool:
        kept = tuple(w for w in unit if not (w.is_sum and w.key in self._damaged))
        return self._try([unit]) is None or (len(kept) < len(unit) and self._try([kept]) is None)

    def _try(self, units: Sequence[Unit], *, release: bool = False) -> frozenset[Key] | None:
        """Carry out units together; None: done, else the rows that are known to stand in the way.

        Nothing was done then.
        """
        try:
            self.ledger.apply(
                self._fence, merge(write for unit in units for write in unit), release=release
            )
        except PreconditionFailed as exc:
            self._check_fence(exc)
            return frozenset(Key(*key) for key in exc.keys)
        except WriteConflict:
            # Another transaction on one of the rows was under way, for all of our tries.
            return frozenset()
        except ContractError:
            # A row holds what cannot be added to.
            self.refused += 1
            return frozenset()
        return None

    def _check_fence(self, cause: PreconditionFailed) -> None:
        try:
            self.ledger.apply(self._fence, ())
        except PreconditionFailed:
            raise FenceLost("the lock was taken over") from cause


def _loads(units: Sequence[Unit]) -> list[list[Unit]]:
    """Return the units, in their order, as few transactions as take them; at least one.

    Rows count once: the units of a large fleet share those of the day, the month and the pool.
    """
    loads: list[list[Unit]] = [[]]
    keys: set[Key] = set()
    for unit in units:
        more = {write.key for write in unit}
        if loads[-1] and len(keys) + len(more - keys) > _ROOM:
            loads.append([])
            keys = set()
        loads[-1].append(unit)
        keys |= more
    return loads

"""The ledger of one workload: read whole by one request, written row by row under conditions.

Whoever ticks holds the lock, whose fence only grows; every transaction of a tick is
conditional on it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from spindown.contract import row as rows
from spindown.contract.codec import Row, decode, encode, encode_instant
from spindown.contract.row import OF_WORKERS, LockRow, SpendRow
from spindown.domain.fleet import Worker
from spindown.error import ContractError, PreconditionFailed, SpindownError, Unreachable
from spindown.ledger.partition import Partition, bound_worker_rows, decode_at
from spindown.ledger.view import AccountView, LedgerView, account_of, view_of
from spindown.port import ALWAYS, Key, Table, When, Write, merge

#: What the control plane has decided, then what workers tell.
_LIVE = (rows.control_partition, rows.worker_partition)

#: Rows of a flood that a tick removes: a dozen transactions.
_REMOVED_AT_ONCE = 900

#: DynamoDB's bound on one transaction (AWS, TransactWriteItems); one is the fence's check.
_WRITES_AT_ONCE = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingToken:
    """Proof of holding the lock: good until somebody takes it after its lease."""

    fence: int
    holder: str
    #: Whether the lock's row was damaged and has been replaced.
    is_repaired: bool = False

    @property
    def condition(self) -> When:
        """Return the condition under which a write of this holder may happen."""
        return When(equals={"fence": self.fence, "holder": self.holder})


class RowWrites:
    """Makes the writes of one workload's rows; carries out none."""

    def __init__(self, workload: str) -> None:
        self._workload = workload
        self._history = rows.history_partition(workload)

    def put(self, sort: str, value: Any) -> Write:
        """Return the write of a whole row; fields that it does not know stay."""
        return Write(key=self.key(sort), set=encode(value))

    def delete(self, sort: str) -> Write:
        """Return the removal of a row."""
        return Write(key=self.key(sort), delete=True)

    def change(self, sort: str, changes: Mapping[str, Any], *, when: When | None = None) -> Write:
        """Return the change of some fields of a row."""
        return Write(key=self.key(sort), when=when or ALWAYS, set=encode(changes))

    def add(self, sort: str, sums: Mapping[str, float]) -> Write:
        """Return an atomic addition to the numbers of a row."""
        return Write(key=self.key(sort), add={k: v for k, v in sums.items() if v})

    def move_to_history(self, sort: str, value: Any, *, now: datetime) -> tuple[Write, Write]:
        """Return the two writes that take a finished row out of the live partition."""
        expires = int((now + rows.HISTORY_FOR).timestamp())
        put = Write(
            key=Key(partition=self._history, sort=sort), set={**encode(value), "expires": expires}
        )
        return self.delete(sort), put

    def key(self, sort: str) -> Key:
        """Return where a live row lies."""
        return Key(rows.live_partition(self._workload, sort), sort)


class Ledger(RowWrites):
    """The rows of one workload, and of the account that it shares."""

    def __init__(self, table: Table, workload: str) -> None:
        super().__init__(workload)
        self._table = table

    def read(self) -> LedgerView:
        """Read all live rows by one consistent request.

        A row in the other's partition is none: workers may write theirs under any sort key, and as
        many as they like. How many of them are read is bounded (``bound_told``).
        """
        control, workers = (partition(self._workload) for partition in _LIVE)
        found = self._table.query_each([control, workers], at_most=rows.ROWS_AT_MOST)
        decided = self._table.query(control) if found is None else found[0]
        own = Partition({s: row for s, row in decided.items() if not s.startswith(OF_WORKERS)})
        machines = own.named(Worker, rows.MACHINE)
        written = self._read_few(workers, machines) if found is None else found[1]
        said = bound_worker_rows(written, machines, is_flooded=found is None)
        return view_of(own, machines, said, is_flooded=found is None)

    def _read_few(self, partition: str, machines: Mapping[str, Worker]) -> Mapping[str, Row]:
        """Read what workers write where they have written more than anybody reads.

        The rows of instances that were launched by their keys, of each other kind the first ones,
        and the first of all, to be removed if they are none of these.
        """
        # If they are too large for all to be read, leases are left out before any worker.
        keys = [
            *(Key(partition, rows.worker_sort_key(name)) for name in machines),
            *(
                Key(partition, rows.lease_sort_key(name, slot))
                for name, machine in machines.items()
                for slot in range(machine.slots)
            ),
        ]
        # However the ignored ones are named, some are among the first: so many, or large ones.
        first = _REMOVED_AT_ONCE + len(keys) + sum(rows.READ_AT_MOST.values())
        found = dict(self._table.query(partition, at_most=first))
        for prefix, most in rows.READ_AT_MOST.items():
            found |= self._table.query(partition, prefix, at_most=most)
        return found | {key.sort: row for key, row in self._table.get_each(keys).items()}

    def read_account(self) -> AccountView:
        """Read what all workloads share."""
        return account_of(Partition(self._table.query(rows.DEPLOYMENT_PARTITION)))

    def read_ended(self) -> Mapping[str, Worker]:
        """Read the workers that have ended, as long as history keeps them."""
        reader = Partition(self._table.query(self._history, rows.WORKER))
        return {w.instance_id: w for w in reader.all_of(Worker, rows.WORKER).values()}

    def read_ended_one(self, instance_id: str) -> Worker | None:
        """Read one worker that has ended; None: history does not keep it, or it cannot be read."""
        sort = rows.worker_sort_key(instance_id)
        row = self._table.get(Key(self._history, sort))
        known = {} if row is None else Partition({sort: row}).all_of(Worker, rows.WORKER)
        return next(iter(known.values()), None)

    def read_past_days(self) -> Mapping[str, SpendRow]:
        """Read the days of spend that are not live any more, as long as history keeps them."""
        return Partition(self._table.query(self._history, rows.SPEND)).named(SpendRow, rows.SPEND)

    def take_lock(
        self, *, holder: str, now: datetime, lease: timedelta = rows.LOCK_LEASE
    ) -> FencingToken | None:
        """Take the lock if it is free or its lease is over; None if somebody holds it.

        A write whose answer was lost is known again by its holder and the microsecond of its lease:
        two calls of one holder may run at once, since Lambda delivers an event at least once.

        A damaged row is taken as free, or the workload would stay locked for ever: one that cannot
        be read, or whose lease ends later than any lease can.
        """
        free = When(at_most={"until": encode_instant(now)})
        taken = {"holder": holder, "until": encode_instant(now + lease)}
        write = Write(key=self.key(rows.LOCK), when=free, set=taken, add={"fence": 1})
        try:
            row = self._table.write(write) or {}
        except (PreconditionFailed, ContractError, Unreachable) as exc:
            row = self._read_back(write.key, taken)
            if any(row.get(name) != value for name, value in taken.items()):
                if isinstance(exc, Unreachable):
                    raise
                return self._replace_lock(row, taken, now) if is_lock_damaged(row, now) else None
        if is_lock_damaged(row, now):
            return self._replace_lock(row, taken, now)
        return FencingToken(fence=decode(LockRow, row).fence, holder=holder)

    def _replace_lock(
        self, row: Row, taken: Mapping[str, str], now: datetime
    ) -> FencingToken | None:
        """Take the lock whose row is damaged; None if somebody else was quicker."""
        known = {name: row.get(name) for name in ("fence", "holder", "until")}
        when = When(
            equals={name: value for name, value in known.items() if value is not None},
            absent=frozenset(name for name, value in known.items() if value is None),
        )
        last = known["fence"]
        # A fence must be higher than all before it. Fewer ticks than seconds have passed.
        fence = last + 1 if type(last) is int and last >= 0 else int(now.timestamp())
        changes = {**taken, "fence": fence}
        try:
            self._table.write(Write(key=self.key(rows.LOCK), when=when, set=changes))
        except PreconditionFailed:
            return None
        return FencingToken(fence=fence, holder=taken["holder"], is_repaired=True)

    def _read_back(self, key: Key, taken: Mapping[str, Any]) -> Row:
        """Return the lock's row; if it has no answer either, let nobody wait for a lost lock."""
        try:
            return self._table.get(key) or {}
        except SpindownError:
            free = Write(key=key, when=When(equals=taken), set={"until": encode_instant(_FREE)})
            with suppress(SpindownError):
                self._table.write(free)
            raise

    def apply(self, fence: FencingToken, writes: Sequence[Write], *, release: bool = False) -> None:
        """Carry out writes under the fence, all or none up to 99 of them.

        With ``release`` the lock is given back by the same transaction. More than 99 writes
        become several transactions: the last takes the last 99, and the lock's.

        Raises:
            PreconditionFailed: the lock was lost, or a condition of the writes fails.
        """
        # The last writes belong together (``plan.launch_outcome``): the first chunk is short.
        rest = len(writes) % _WRITES_AT_ONCE
        starts = [*([0] if rest else []), *range(rest, len(writes), _WRITES_AT_ONCE)]
        ends = [*starts[1:], len(writes)]
        chunks = [writes[start:end] for start, end in zip(starts, ends, strict=False)] or [()]
        for number, chunk in enumerate(chunks, start=1):
            last = release and number == len(chunks)
            lock = Write(
                key=self.key(rows.LOCK),
                when=fence.condition,
                set={"until": encode_instant(_FREE)} if last else {},
            )
            self._table.transact([lock, *chunk])

    def write(self, write: Write) -> Row | None:
        """Carry out one write on its own."""
        return self._table.write(write)

    def transact(self, writes: Sequence[Write]) -> None:
        """Carry out writes together, without the lock: for events, each conditional by itself.

        Raises:
            PreconditionFailed: a condition does not hold; nothing has changed.
        """
        self._table.transact(merge(writes))

    def carry_out_each(self, units: Sequence[Sequence[Write]]) -> list[bool]:
        """Carry out units of writes, each all or none, without the lock and in few transactions.

        Return of each whether it was done; False: one of its conditions does not hold. No two
        units write one row.
        """
        done: list[bool] = []
        load: list[Sequence[Write]] = []
        for unit in units:
            if load and sum(map(len, load)) + len(unit) > _WRITES_AT_ONCE:
                done += self._carry_out_load(load)
                load = []
            load.append(unit)
        return done + self._carry_out_load(load)

    def _carry_out_load(self, load: Sequence[Sequence[Write]]) -> list[bool]:
        left = dict(enumerate(load))
        while left:
            try:
                self._carry_out([write for unit in left.values() for write in unit])
                break
            except PreconditionFailed as exc:
                failed = [n for n, u in left.items() if any(w.key in exc.keys for w in u)]
                for number in failed:
                    del left[number]
                if not failed:
                    raise
        return [number in left for number in range(len(load))]

    def _carry_out(self, writes: Sequence[Write]) -> None:
        """Carry out writes together; one alone costs half as much without a transaction."""
        if len(writes) == 1:
            self._table.write(writes[0])
        else:
            self._table.transact(writes)


def account_key(sort: str) -> Key:
    """Return the key of a row that all workloads share."""
    return Key(partition=rows.DEPLOYMENT_PARTITION, sort=sort)


def month_key(at: datetime) -> Key:
    """Return the key of the row of a month's budget."""
    return account_key(rows.budget_sort_key(at))


def read_worker(table: Table, key: Key) -> Worker | None:
    """Read a worker row; None if it is gone or cannot be read."""
    row = table.get(key)
    try:
        return None if row is None else decode_at(Worker, key.sort, row)
    except ContractError:
        return None


#: Long past: the lock's lease once it is given back.
_FREE = datetime(1970, 1, 1, tzinfo=UTC)


def is_lock_damaged(row: Row, now: datetime) -> bool:
    """Tell whether a lock's row cannot be read, or says that it is held for longer than can be."""
    try:
        return decode(LockRow, row).until > now + rows.LOCK_HELD_AT_MOST
    except ContractError:
        return True

"""What one query of the ledger saw, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter

from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.contract.row import (
    LOCK_HELD_AT_MOST,
    BacklogRow,
    BatchRow,
    BreakerRow,
    BudgetRow,
    CallsRow,
    ClaimsRow,
    DecisionRow,
    DoneRow,
    LockRow,
    NewerMessage,
    PolicyRow,
    QuotaRow,
    RateRow,
    ShapeRow,
    SpendRow,
)
from spindown.domain.alert import AlertState
from spindown.domain.bake_or_bootstrap import ImageHistory
from spindown.domain.cost_rise import AcceptedCost, CostRise
from spindown.domain.fleet import Launch, Lease, RequeuedJob, Worker, WorkerState
from spindown.domain.offer import Pool
from spindown.domain.pool_cooldown import PoolCooldown
from spindown.domain.reason import Reason, ReasonCode
from spindown.ledger.partition import Partition, ReportedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """Everything live about one workload, as one query saw it."""

    workers: Mapping[str, Worker] = field(default_factory=dict)
    #: Instance id -> what the control plane itself knows of what its launches gave: as launched,
    #: up to where it is charged, and when it ended. ``workers`` go by it.
    machines: Mapping[str, Worker] = field(default_factory=dict)
    leases: tuple[Lease, ...] = ()
    #: Jobs that somebody has worked on and nobody holds, by id.
    requeued_jobs: Mapping[str, RequeuedJob] = field(default_factory=dict)
    #: Messages that only a later version reads.
    newer_messages: tuple[NewerMessage, ...] = ()
    launches: Mapping[str, Launch] = field(default_factory=dict)
    pool_cooldowns: Mapping[Pool, PoolCooldown] = field(default_factory=dict)
    #: Sort key -> learned sums.
    rates: Mapping[str, RateRow] = field(default_factory=dict)
    #: UTC day as ``2026-11-20`` -> what was spent and done in it.
    spend: Mapping[str, SpendRow] = field(default_factory=dict)
    backlog: BacklogRow = field(default_factory=BacklogRow)
    #: Shapes that have a queue of their own, by name, and what ticks have seen of those queues.
    shapes: Mapping[str, ShapeRow] = field(default_factory=dict)
    shape_backlogs: Mapping[str, BacklogRow] = field(default_factory=dict)
    #: Region -> breaker; home is "".
    breakers: Mapping[str, BreakerRow] = field(default_factory=dict)
    #: Architecture -> what was baked for it.
    images: Mapping[str, ImageHistory] = field(default_factory=dict)
    #: Name -> what is remembered of what people are told.
    alerts: Mapping[str, AlertState] = field(default_factory=dict)
    #: Batches that are followed, by name.
    batches: Mapping[str, BatchRow] = field(default_factory=dict)
    cost_rise: CostRise | None = None
    #: Costs of an item that people have accepted, oldest first.
    accepted: tuple[AcceptedCost, ...] = ()
    policy: PolicyRow = field(default_factory=PolicyRow)
    decision: DecisionRow | None = None
    lock: LockRow | None = None
    #: Sort keys of rows that could not be read.
    bad_rows: tuple[str, ...] = ()
    #: Instances that have a worker's row and that no launch has given.
    unlaunched: frozenset[str] = frozenset()
    #: Sort keys of rows that workers have written and nobody reads.
    ignored_rows: tuple[str, ...] = ()
    #: Whether workers have written more rows than are read.
    is_flooded: bool = False

    @property
    def breaker(self) -> BreakerRow:
        """Return the breaker of the home region."""
        return self.breakers.get("", BreakerRow())

    @property
    def unreadable_workers(self) -> frozenset[str]:
        """Return the instances whose rows could not be read: ours, and nothing more is known."""
        return frozenset(
            sort.removeprefix(rows.WORKER) for sort in self.bad_rows if sort.startswith(rows.WORKER)
        )

    def is_lock_damaged(self, now: datetime) -> bool:
        """Tell whether the next tick takes the lock as free, since its row is damaged."""
        return rows.LOCK in self.bad_rows or (
            self.lock is not None and self.lock.until > now + LOCK_HELD_AT_MOST
        )

    def leases_of(self, instance_id: str) -> tuple[Lease, ...]:
        """Return what the slots of one instance hold."""
        return tuple(lease for lease in self.leases if lease.instance_id == instance_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """What all workloads share: full quota classes, the month's budget, EC2's bucket of calls."""

    quotas: tuple[QuotaRow, ...] = ()
    #: Sort key -> month.
    budgets: Mapping[str, BudgetRow] = field(default_factory=dict)
    #: Sort key -> launch requests of a region.
    calls: Mapping[str, CallsRow] = field(default_factory=dict)
    bad_rows: tuple[str, ...] = ()

    def calls_at(self, region: str, at: datetime) -> int:
        """Return the launch requests made in a region in the minute that ``at`` lies in."""
        row = self.calls.get(rows.calls_sort_key(region), CallsRow())
        return row.count if row.minute == rows.minute_of(at) else 0

    def budget_at(self, at: datetime) -> BudgetRow:
        """Return what is spent and set aside of the month that ``at`` lies in."""
        return self.budgets.get(rows.budget_sort_key(at), BudgetRow())


def view_of(
    decided: Partition,
    machines: Mapping[str, Worker],
    said: ReportedRows,
    *,
    is_flooded: bool = False,
) -> LedgerView:
    """Return everything live about one workload.

    Args:
        decided: the rows that only the control plane writes.
        machines: by instance, what these say of them.
        said: the rows that workers write.
        is_flooded: whether workers have written more rows than are read.
    """
    written = said.partition
    leases = written.all_of(Lease, rows.LEASE, required="job_id")
    return LedgerView(
        workers={
            w.instance_id: _as_decided(w, machines[w.instance_id])
            for w in written.all_of(Worker, rows.WORKER).values()
        },
        machines=machines,
        leases=tuple(leases.values()),
        requeued_jobs={x.job_id: x for x in written.all_of(RequeuedJob, rows.REQUEUED).values()},
        newer_messages=tuple(written.all_of(NewerMessage, rows.NEWER_MESSAGE).values()),
        launches={x.launch_id: x for x in decided.all_of(Launch, rows.LAUNCH).values()},
        pool_cooldowns={
            x.pool: x for x in decided.all_of(PoolCooldown, rows.POOL_COOLDOWN).values()
        },
        rates={**decided.all_of(RateRow, rows.RATE), **written.all_of(RateRow, rows.RATE)},
        spend=_days(decided.named(SpendRow, rows.SPEND), written.named(DoneRow, rows.DONE)),
        backlog=_backlog(
            decided.one(BacklogRow, rows.BACKLOG), written.one(ClaimsRow, rows.CLAIMS)
        ),
        shapes=decided.named(ShapeRow, rows.SHAPE),
        shape_backlogs=decided.named(BacklogRow, rows.SHAPE_BACKLOG),
        breakers={
            name.removeprefix("#"): x for name, x in decided.named(BreakerRow, rows.BREAKER).items()
        },
        images=decided.named(ImageHistory, rows.IMAGE),
        alerts=decided.named(AlertState, rows.ALERT),
        batches=decided.named(BatchRow, rows.BATCH),
        cost_rise=decided.one(CostRise, rows.COST_RISE),
        accepted=tuple(sorted(decided.all_of(AcceptedCost, rows.ACCEPTED).values(), key=_at)),
        policy=decided.one(PolicyRow, rows.POLICY) or PolicyRow(),
        decision=decided.one(DecisionRow, rows.DECISION),
        lock=decided.one(LockRow, rows.LOCK),
        bad_rows=(*decided.bad, *_named(written.bad)),
        unlaunched=said.unlaunched,
        ignored_rows=said.ignored,
        is_flooded=is_flooded,
    )


def _named(bad: Sequence[str]) -> list[str]:
    """Return the rows that are named of those that workers have spoilt: all of instances."""
    own = [sort for sort in bad if sort.startswith(rows.WORKER)]
    return [*own, *[sort for sort in bad if not sort.startswith(rows.WORKER)][:_BAD_NAMED]]


#: Workers may spoil thousands.
_BAD_NAMED = 100


_KNOWN_BETTER = (*rows.DECIDED, *rows.REPORTED_BY_EC2)
_known_of = attrgetter(*_KNOWN_BETTER)


def _as_decided(said: Worker, machine: Worker) -> Worker:
    """Return what a worker's row says, but for what the control plane knows better.

    Only a tick ends a row. One that says so of itself is one to be ended.
    """
    changes: dict[str, object] = dict(zip(_KNOWN_BETTER, _known_of(machine), strict=True))
    if machine.ended_at is not None:
        changes["state"] = WorkerState.ENDED
    elif said.state is WorkerState.ENDED:
        changes |= {"state": WorkerState.CONDEMNED, "reason": Reason(ReasonCode.NOT_ENDED)}
    return replace_fields(said, changes)


def _days(spent: Mapping[str, SpendRow], done: Mapping[str, DoneRow]) -> dict[str, SpendRow]:
    """Return day -> what was spent, with what workers did: each is believed of its own alone."""
    return {
        day: replace_fields(spent.get(day, SpendRow()), vars(done.get(day, DoneRow())))
        for day in sorted(spent.keys() | done.keys())
    }


def _backlog(seen: BacklogRow | None, claims: ClaimsRow | None) -> BacklogRow:
    """Return what ticks have seen; a row of claims that cannot be read says nothing new."""
    seen = seen or BacklogRow()
    known = claims or ClaimsRow(claims=seen.claims_seen, late=seen.late_seen)
    return replace_fields(seen, vars(known))


def _at(accepted: AcceptedCost) -> datetime:
    return accepted.at


def account_of(shared: Partition) -> AccountView:
    """Return what all workloads share."""
    return AccountView(
        quotas=tuple(shared.all_of(QuotaRow, rows.QUOTA).values()),
        budgets=shared.all_of(BudgetRow, rows.BUDGET),
        calls=shared.all_of(CallsRow, rows.CALLS),
        bad_rows=tuple(shared.bad),
    )

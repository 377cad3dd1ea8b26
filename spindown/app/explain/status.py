"""What is happening now, gathered for a person: queue, workers, jobs, dollars. Writes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.app.ledger import Ledger, LedgerView, sum_spend
from spindown.app.port import JobQueue
from spindown.contract.row import SpendRow
from spindown.domain.fleet import Backlog, LaunchState, Lease, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """One worker and the jobs that its slots hold."""

    worker: Worker
    leases: tuple[Lease, ...]

    @property
    def word(self) -> str:
        """Return its state in one word; an announced interruption comes first."""
        return "interrupting" if self.worker.is_interrupting else str(self.worker.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One workload at one moment. Money is USD, and an estimate until AWS bills it."""

    workload: str
    at: datetime
    backlog: Backlog
    dead_letters: int
    #: How long visible work has waited without a claim.
    waited: timedelta
    workers: tuple[WorkerStatus, ...]
    launching: int
    today: SpendRow
    month_usd: float
    budget_usd: float | None
    #: The last decision in a sentence, and until when a launch is held.
    decision: str
    held_until: datetime | None
    #: What a person must mend before anything launches or changes.
    troubles: tuple[str, ...]

    @property
    def cost_per_item(self) -> float | None:
        """Return today's dollars by today's items; None before the first item."""
        return self.today.dollars / self.today.items if self.today.items else None

    @property
    def is_quiet(self) -> bool:
        """Tell whether nothing waits, nothing runs and nothing bills."""
        return self.backlog.is_empty and not self.workers and not self.launching


def read_status(
    workload: str,
    *,
    ledger: Ledger,
    queue: JobQueue,
    dead_letters: JobQueue,
    budget_usd: float | None,
    now: datetime,
) -> Status:
    """Gather the status of one workload."""
    view = ledger.read()
    decision = view.decision
    return Status(
        workload=workload,
        at=now,
        backlog=queue.backlog(),
        dead_letters=dead_letters.backlog().visible,
        waited=_waited(view.backlog.backlog_since, now),
        workers=_workers(view),
        launching=sum(x.state is LaunchState.INTENDED for x in view.launches.values()),
        today=view.spend.get(f"{now:%Y-%m-%d}", SpendRow()),
        month_usd=sum_spend(_month(view, now)).dollars,
        budget_usd=budget_usd,
        decision=decision.summary if decision else "no decision yet",
        held_until=decision.held_until if decision else None,
        troubles=tuple(_troubles(view, now)),
    )


def _waited(since: datetime | None, now: datetime) -> timedelta:
    return now - since if since is not None else timedelta(0)


def _workers(view: LedgerView) -> tuple[WorkerStatus, ...]:
    ordered = sorted(view.workers.values(), key=lambda worker: worker.launched_at)
    return tuple(
        WorkerStatus(worker=worker, leases=view.leases_of(worker.instance_id)) for worker in ordered
    )


def _month(view: LedgerView, now: datetime) -> Sequence[SpendRow]:
    return [day for name, day in view.spend.items() if name.startswith(f"{now:%Y-%m-}")]


def _troubles(view: LedgerView, now: datetime) -> list[str]:
    troubles = []
    breaker = view.breaker
    if breaker.open_until is not None and breaker.open_until > now:
        troubles.append(f"launching is stopped: {breaker.reason}")
    if view.policy.refusal:
        troubles.append(f"the live policy is refused: {view.policy.refusal}")
    if view.bad_rows:
        troubles.append(f"{len(view.bad_rows)} ledger rows cannot be read: {view.bad_rows[0]}")
    return troubles

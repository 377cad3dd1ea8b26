"""What is happening now, gathered for a person: queue, workers, jobs, dollars. Writes nothing."""

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from spindown.config import format_duration
from spindown.contract.job.manifest import JobState
from spindown.contract.row import QuotaRow, SpendRow, budget_sort_key
from spindown.control.alert.cost_rise import COST
from spindown.domain.alert import FORGOTTEN_AFTER
from spindown.domain.fleet import Backlog, Lease, Worker, WorkerState, all_of
from spindown.domain.offer import QUOTA_CODES
from spindown.domain.past_cost import CostWindow, Saving, accrue_at_least
from spindown.job.result import JobProgress
from spindown.job.shape_queue import backlogs
from spindown.ledger import AccountView, Ledger, LedgerView
from spindown.operate.spent import spent_of
from spindown.port import JobQueue
from spindown.reason_text import say, say_count, say_error, say_last_outcome, say_next_try

#: After so long without a tick, of which one comes each minute, what was decided tells little.
_SILENT_AFTER = timedelta(minutes=2)
#: Alert -> what status says of it.
_DEADLINES = {
    "deadline-missed": "a job is past its deadline (`finish_within`): `spindown why` names it",
    "deadline-at-risk": "a job takes longer than is left to its deadline: `spindown why` names it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """One worker and the jobs that its slots hold."""

    worker: Worker
    leases: tuple[Lease, ...]

    @property
    def word(self) -> str:
        """Return its state in one word; an announced interruption comes before all but the end.

        "ending": it was told that budget or limits leave no further work for it.
        """
        if self.worker.is_interrupting and self.is_present:
            return "interrupting"
        is_winding_down = self.worker.spent_at or self.worker.surplus_at
        return "ending" if is_winding_down and self.worker.is_live else str(self.worker.state)

    @property
    def is_present(self) -> bool:
        """Tell whether EC2 still has the instance, as far as is known."""
        return self.worker.state is not WorkerState.ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One workload at one moment. Money is USD, and an estimate until AWS bills it."""

    workload: str
    at: datetime
    #: Of all its queues together.
    backlog: Backlog
    #: Of a workload with types: what waits in the queue of each shape that is declared or has
    #: anything; "": what is to be routed.
    shapes: Mapping[str, Backlog]
    dead_letters: int
    #: How long visible work has waited without a claim.
    waited: timedelta
    #: Those that ended a short while ago included.
    workers: tuple[WorkerStatus, ...]
    launching: int
    today: SpendRow
    #: The last 24 hours, and the last seven times as long.
    last_day: CostWindow
    last_week: CostWindow
    #: Over so many days it is told what an item costs: those until ten are done; 1: there are none.
    cost_days: int = 1
    cost_window: CostWindow
    #: Over seven days.
    saving: Saving
    #: Since when there was work; None: that is not known.
    begun: datetime | None = None
    #: Whether the policy leaves no room for a worker, as after a drain.
    is_drained: bool = False
    #: ``max_workers`` as deployed; any but 0 is what a drain goes back to.
    deployed_workers: int = 1
    #: Of the whole deployment, as the budget is.
    month_usd: float
    budget_usd: float | None
    #: Of the budget, for what runs and is being launched.
    reserved_usd: float
    #: The last decision in a sentence, when it was made (None: none yet), and until when a launch
    #: is held.
    decision: str
    decided_at: datetime | None
    #: Further sentences to it: the nearest offer and what rules it out, what EC2 did not answer.
    notes: tuple[str, ...]
    held_until: datetime | None
    #: What a person must fix before anything launches or changes.
    troubles: tuple[str, ...]
    #: Job that was put back for later -> before when nobody can receive it.
    next_tries: Mapping[str, datetime] = field(default_factory=dict)


def read_status(
    workload: str,
    *,
    ledger: Ledger,
    queues: Mapping[str, JobQueue],
    dead_letters: JobQueue,
    budget_usd: float | None,
    refusal: str,
    now: datetime,
    declared: Collection[str] = (),
) -> Status:
    """Gather the status of one workload.

    Args:
        workload: whose.
        ledger: its ledger.
        queues: its queues, by shape; "": the entry queue, which alone is there without types.
        dead_letters: its dead-letter queue.
        budget_usd: of the deployment, a month; None: there is none.
        refusal: why the live policy as stored is not in force; "": it is.
        now: the time.
        declared: shapes of its types; of others only those that have anything are listed.
    """
    view, account = ledger.read(), ledger.read_account()
    decision, spent = view.decision, spent_of(ledger, view, now)
    waiting = dict(zip(queues, backlogs(queues.values()), strict=True))
    backlog = all_of(waiting.values())
    # What is in flight is at work, as far as the rows of workers tell.
    seen = replace(backlog, in_flight=0, delayed=0)
    month = account.budget_at(now)
    # The next tick charges it.
    accrued = sum(accrue_at_least(worker, now).dollars for worker in view.workers.values())
    return Status(
        workload=workload,
        at=now,
        backlog=backlog,
        shapes=_shown_shapes(waiting, view, declared),
        dead_letters=dead_letters.backlog().visible,
        waited=_waited(view.backlog.backlog_since, now),
        workers=_workers(view),
        launching=sum(x.is_open for x in view.launches.values()),
        today=spent.today,
        last_day=spent.last(),
        last_week=spent.last(7),
        cost_days=spent.cost_days,
        cost_window=spent.last(spent.cost_days),
        saving=spent.saving,
        begun=spent.begun,
        month_usd=month.dollars + accrued,
        budget_usd=budget_usd,
        reserved_usd=max(month.committed - month.dollars - accrued, 0.0),
        decision=(
            say_last_outcome(decision.outcome, decision.summary, seen)
            if decision
            else "no decision yet"
        ),
        decided_at=decision.at if decision else None,
        notes=tuple(say(note) for note in decision.notes) if decision else (),
        held_until=decision.held_until if decision else None,
        troubles=tuple(_troubles(view, account, now, refusal)),
        next_tries=next_tries(view, now),
    )


def _shown_shapes(
    waiting: Mapping[str, Backlog], view: LedgerView, declared: Collection[str]
) -> Mapping[str, Backlog]:
    if waiting.keys() == {""}:
        return {}
    live = {worker.shape for worker in view.workers.values() if worker.is_live}
    kept = {"", *declared, *live}
    return {
        shape: each
        for shape, each in waiting.items()
        if shape in kept or each.visible or each.in_flight
    }


def _waited(since: datetime | None, now: datetime) -> timedelta:
    return now - since if since is not None else timedelta(0)


def _workers(view: LedgerView) -> tuple[WorkerStatus, ...]:
    ordered = sorted(view.workers.values(), key=lambda worker: worker.launched_at)
    return tuple(
        WorkerStatus(worker=worker, leases=view.leases_of(worker.instance_id)) for worker in ordered
    )


def _troubles(view: LedgerView, account: AccountView, now: datetime, refusal: str) -> Iterator[str]:
    yield from _say_silence(view, now)
    if view.is_lock_damaged(now):
        yield "the row of the tick's lock is damaged: the next tick takes it as free"
    for region, breaker in sorted(view.breakers.items()):
        if breaker.open_until is not None and breaker.open_until > now:
            where = f" in {region}" if region else ""
            yield f"launching{where} is stopped: {say(breaker.reason)}"
    yield from (_quota_words(quota) for quota in account.quotas if quota.until > now)
    yield from say_failing(view, now)
    if refusal:
        yield f"the live policy is refused: {refusal}"
    for name, alert_state in sorted(view.alerts.items()):
        if name.startswith(COST) and now - alert_state.seen_at <= FORGOTTEN_AFTER:
            cause = name.removeprefix(COST).replace("-", " ")
            yield (
                f"an item costs more than it used to, because of {cause}: `spindown cost` says "
                "since when"
            )
    for name, words in _DEADLINES.items():
        known = view.alerts.get(name)
        if known is not None and now - known.seen_at <= FORGOTTEN_AFTER:
            yield words
    yield from _damages(view.bad_rows + account.bad_rows, now)


def _say_silence(view: LedgerView, now: datetime) -> Iterator[str]:
    """Yield that no tick has decided for long, and until when none can while one holds the lock."""
    silence = now - view.decision.at if view.decision else timedelta(0)
    if silence < _SILENT_AFTER:
        return
    whole = format_duration(timedelta(seconds=round(silence.total_seconds())))
    until = view.lock.until if view.lock is not None else now
    is_held = until > now and not view.is_lock_damaged(now)
    held = f"one that began and has not ended holds the others up until {until:%H:%M:%S} UTC; "
    yield (
        f"no tick for {whole}: nothing is launched meanwhile; {held if is_held else ''}"
        "`spindown doctor` says what ticks, and the scaler's log why it fails"
    )


def next_tries(view: LedgerView, now: datetime) -> Mapping[str, datetime]:
    """Return of each job that was put back for later before when nobody can receive it."""
    return {
        job.job_id: job.next_try_at
        for job in view.requeued_jobs.values()
        if job.next_try_at is not None and job.next_try_at > now
    }


def with_next_try(job: JobProgress, find: Callable[[str], datetime | None]) -> JobProgress:
    """Return a job with its next try; ``find`` is asked of one that waits, by its id."""
    is_waiting = job.state is JobState.RUNNING and not job.is_held
    return replace(job, next_try_at=find(job.job_id)) if is_waiting else job


def say_failing(view: LedgerView, now: datetime) -> Iterator[str]:
    """Yield what waits to be tried again after a failure, the latest named, and until when."""
    failing = sorted((x for x in view.requeued_jobs.values() if x.failures), key=lambda x: x.at)
    if failing:
        last = failing[-1]
        waits = f"{say_count(len(failing), 'job')} {'waits' if len(failing) == 1 else 'wait'}"
        times, job = say_count(last.failures, "time"), shlex.quote(last.job_id)
        said = f", with {error}" if (error := say_error(last.error)) else ""
        yield (
            f"{waits} after a failure, the last {last.job_id} (failed {times}{said}): "
            f"`spindown logs {job}` shows why"
        )
    if tries := next_tries(view, now):
        first = min(tries, key=lambda job_id: (tries[job_id], job_id))
        yield f"{first}: {say_next_try(tries[first], now)}; until then it counts as in flight"
        if more := len(tries) - 1:
            yield f"{say_count(more, 'more job')} {'waits' if more == 1 else 'wait'} so"


def _damages(bad_rows: Sequence[str], now: datetime) -> Iterator[str]:
    if bad_rows:
        yield f"{say_count(len(bad_rows), 'ledger row')} cannot be read: {bad_rows[0]}"
    if (month := budget_sort_key(now)) in bad_rows:
        yield f"nothing is launched while {month} cannot be read: `spindown doctor` fixes it"


def _quota_words(quota: QuotaRow) -> str:
    code = QUOTA_CODES.get(quota.quota_class.partition("/")[2])
    name = f"{code} ({quota.quota_class})" if code else quota.quota_class
    return f"quota {name} is full, tried again at {quota.until:%H:%M:%S} UTC: {quota.message}"

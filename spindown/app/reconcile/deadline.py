"""Gather what is left of every job that must be finished within a time, and what that asks for."""

from collections.abc import Iterator

from spindown.app.reconcile.tick import Tick
from spindown.app.reconcile.track import waiting_of
from spindown.contract.decision import DeadlineRecord
from spindown.domain.deadline import (
    DeadlineForecast,
    JobForecast,
    PurchaseMode,
    Unfinished,
    forecast_deadlines,
    held_job,
    is_measured,
    never_claimed,
    requeued,
    reserve_of,
)
from spindown.domain.fleet import Backlog, WorkerState

#: Jobs that a decision spells out, those with the least slack.
_SHOWN = 20


def look_ahead(tick: Tick, work: Backlog) -> DeadlineForecast | None:
    """Return what deadlines ask for.

    None: there are none, or nothing has shown yet how long work takes; an estimate that nobody
    has measured is no reason to wait.

    Args:
        tick: leases, and what is remembered of jobs that nobody holds.
        work: the queue, with what interrupted workers hold counted as visible.
    """
    if tick.policy.finish_within is None or not is_measured(tick.knowledge):
        return None
    reserve = reserve_of(tick.knowledge, tick.policy)
    slots = max((worker.slots for worker in tick.workers.values()), default=1)
    most = tick.policy.max_workers * slots
    return forecast_deadlines(list(_unfinished(tick, work)), reserve, tick.now, slots=most)


def _unfinished(tick: Tick, work: Backlog) -> Iterator[Unfinished]:
    policy, knowledge = tick.policy, tick.knowledge
    within = policy.finish_within
    if within is None:
        return
    claimed, held, requeued_jobs = 0, set(), dict(tick.requeued_jobs)
    for lease in tick.leases:
        worker = tick.workers.get(lease.instance_id)
        if worker is None or worker.state is WorkerState.ENDED:
            continue
        if lease.deadline <= tick.now:
            # Nobody has taken it up since, or its row would be gone.
            due = lease.left_behind(tick.now)
            requeued_jobs.update({} if due is None else {lease.job_id: due})
            continue
        job = held_job(
            lease, worker, within=within, knowledge=knowledge, policy=policy, now=tick.now
        )
        held.add(lease.job_id)
        claimed += job.on is None
        yield job
    for due in requeued_jobs.values():
        if due.job_id not in held:
            claimed += 1
            yield requeued(due, within=within, knowledge=knowledge, policy=policy)
    yield from never_claimed(
        waiting_of(tick.seen),
        max(work.visible - claimed, 0),
        items=max(
            [*(x.items for x in tick.leases), *(x.items for x in requeued_jobs.values())], default=0
        ),
        within=within,
        knowledge=knowledge,
        policy=policy,
    )


def record_deadlines(forecast: DeadlineForecast | None) -> tuple[DeadlineRecord, ...]:
    """Return the tightest deadlines as a decision spells them out."""
    if forecast is None:
        return ()
    return tuple(_record(verdict) for verdict in forecast.jobs[:_SHOWN])


def _record(verdict: JobForecast) -> DeadlineRecord:
    job = verdict.job
    return DeadlineRecord(
        job_id=job.job_id,
        jobs=job.jobs,
        due_at=job.due,
        work_seconds=round(job.work.total_seconds()),
        slack_seconds=round(verdict.slack.total_seconds()),
        on="" if job.on is None else job.on.value,
        mode="" if job.on is not None else verdict.mode.value,
        waits_until=verdict.waits_until if _waits(verdict) else None,
        moves_to="" if verdict.moves_to is None else verdict.moves_to.value,
    )


def _waits(verdict: JobForecast) -> bool:
    return verdict.job.on is None and verdict.mode is PurchaseMode.SPOT

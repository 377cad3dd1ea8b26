"""The jobs that deadlines plan for: those that wait to start, and those that are not finished.

A start deadline needs no more than when messages came, since each of them takes a job's usual
time. A finish deadline needs the rest of each job by itself, also of those at work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.domain.fleet import Lease, RequeuedJob, Worker
from spindown.domain.learning import Knowledge, items_per_job, usual_throughput, worker_throughput
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Messages that a tick saw for the first time, and that nobody has claimed since."""

    since: datetime
    jobs: int
    #: Those of them that had started: their worker was taken away, or gave them back.
    requeued: int = 0


def mark_requeued(waiting: Sequence[Waiting], dates: Sequence[datetime]) -> tuple[Waiting, ...]:
    """Return what waits with those jobs told apart that had started once.

    Each is one of the first messages that a tick has seen since; a claim may have been counted as
    of those, and then it is one of the last.

    Args:
        waiting: what waits, oldest first.
        dates: when each such job was put down; of more than wait, the first are left out.
    """
    groups = list(waiting)
    for at in sorted(dates, reverse=True):
        free = [place for place, group in enumerate(groups) if group.requeued < group.jobs]
        if not free:
            break
        place = next((place for place in free if groups[place].since >= at), free[-1])
        groups[place] = replace(groups[place], requeued=groups[place].requeued + 1)
    return tuple(groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """A job as its deadline sees it, or several that are alike."""

    #: "": nobody has claimed it yet.
    job_id: str
    due: datetime
    #: What it still takes on a slot of the usual kind.
    work: timedelta
    #: What works on it; None: it waits, or its instance is being taken.
    on: CapacityType | None = None
    instance_id: str = ""
    jobs: int = 1
    #: How long it has been held, of which nothing may be committed yet.
    held: timedelta = timedelta(0)

    @property
    def at_risk(self) -> timedelta:
        """Return the work that a loss of its machine can undo at the most."""
        return self.held + self.work


def is_measured(knowledge: Knowledge) -> bool:
    """Tell whether any worker has reported how fast it is."""
    return any(each.items > 0.0 < each.hours for each in knowledge.throughput.values())


def held_job(
    lease: Lease,
    worker: Worker,
    *,
    within: timedelta,
    knowledge: Knowledge,
    policy: Policy,
    now: datetime,
) -> Unfinished:
    """Return a job that a slot holds; its pace so far tells whether it is harder than most.

    The item in hand counts as far as it should be by now, or the slack would seem to shrink and
    jump with each. A worker of an earlier version does not tell when the job was sent: the claim
    is the nearest that is known.
    """
    items = lease.items or items_per_job(knowledge, policy)
    beat_at = min(now, max(lease.deadline - policy.lease_duration, lease.claimed_at))
    expected = worker_throughput(knowledge, worker, policy).items_per_hour / worker.slots
    pace = lease.pace(lease.items_done, beat_at)
    share = 1.0 if pace is None else min(1.0, pace / expected)
    begun = expected * ((now - lease.claimed_at) / _HOUR) + lease.first_item
    done = min(max(begun, lease.items_done), lease.items_done + 1.0)
    rate = usual_throughput(knowledge, policy) * share
    return Unfinished(
        job_id=lease.job_id,
        due=(lease.sent_at or lease.claimed_at) + within,
        work=timedelta(hours=max(items - done, 0.0) / rate),
        on=None if worker.is_interrupting else worker.capacity_type,
        instance_id=worker.instance_id,
        held=now - lease.claimed_at,
    )


def requeued(
    due: RequeuedJob, *, within: timedelta, knowledge: Knowledge, policy: Policy
) -> Unfinished:
    """Return a job that somebody has worked on, and that waits for the next."""
    usual = usual_throughput(knowledge, policy)
    rate = usual if due.items_per_hour is None else min(usual, due.items_per_hour)
    items = due.items or items_per_job(knowledge, policy)
    return Unfinished(
        job_id=due.job_id,
        due=due.sent_at + within,
        work=timedelta(hours=max(items - due.items_done, 0) / rate),
    )


def never_claimed(
    waiting: Sequence[Waiting],
    jobs: int,
    *,
    items: float,
    within: timedelta,
    knowledge: Knowledge,
    policy: Policy,
) -> Iterator[Unfinished]:
    """Yield the oldest ``jobs`` messages, each as large as the largest that was seen lately.

    A tick may see a message only a tick after it was sent.

    Args:
        waiting: what waits, oldest first.
        jobs: how many of it nobody has claimed before.
        items: of the largest job that somebody holds or has given back; 0: none.
        within: the deadline.
        knowledge: sizes of the last jobs, and throughput.
        policy: the estimate of a job's size until one is known, and the tick.
    """
    items = max([items, *knowledge.items_per_job]) or items_per_job(knowledge, policy)
    work = timedelta(hours=items / usual_throughput(knowledge, policy))
    for group in waiting:
        count = min(group.jobs, jobs)
        if count > 0:
            due = group.since - policy.tick + within
            yield Unfinished(job_id="", due=due, work=work, jobs=count)
        jobs -= count

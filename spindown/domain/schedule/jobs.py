"""The jobs that deadlines plan for: those that wait to start, and those that are not finished.

For a start deadline it is enough to know when messages came; each is taken for a usual job. A
finish deadline needs what is left of every single job, running ones included.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.domain.fleet import Lease, RequeuedJob, Worker
from spindown.domain.learning import Knowledge, items_per_job, usual_throughput, worker_throughput
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy
from spindown.domain.value_range import span

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Messages that one tick saw first, and that nobody has claimed since."""

    since: datetime
    jobs: int
    #: How many of them had started before: their worker was taken away, or gave them back.
    requeued: int = 0


def mark_requeued(waiting: Sequence[Waiting], dates: Sequence[datetime]) -> tuple[Waiting, ...]:
    """Return what waits, with requeued jobs marked: those that had started before.

    A requeued job belongs to the first group that a tick has seen since. If that group has no
    unmarked job left, a claim was counted for it, and the last group that has one is marked.

    Args:
        waiting: what waits, oldest first.
        dates: when each job was requeued; if more than wait, the earliest are left out.
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
    """What is left of a job that has a deadline, or of several jobs that are alike."""

    #: "": nobody has claimed it yet.
    job_id: str
    due: datetime
    #: Time that it still takes on a slot of the usual kind.
    work: timedelta
    #: Where it runs; None: it waits, or EC2 is taking its instance away.
    on: CapacityType | None = None
    instance_id: str = ""
    jobs: int = 1
    #: How long its holder has worked on it; perhaps nothing of that is committed yet.
    held: timedelta = timedelta(0)

    @property
    def at_risk(self) -> timedelta:
        """Return the most work that a loss of its machine can undo."""
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
    """Return what is left of a job that a slot holds; a pace below the usual makes it longer.

    The present item counts as far as it should be done by now; otherwise the slack would shrink
    and jump with each item. If it is not known when the job was sent, its claim counts.
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
        due=lease.sent_at + within,
        work=span(max(items - done, 0.0) / rate),
        on=None if worker.is_interrupting else worker.capacity_type,
        instance_id=worker.instance_id,
        held=now - lease.claimed_at,
    )


def requeued(
    due: RequeuedJob, *, within: timedelta, knowledge: Knowledge, policy: Policy
) -> Unfinished:
    """Return what is left of a job that had started and waits again."""
    usual = usual_throughput(knowledge, policy)
    rate = usual if due.items_per_hour is None else min(usual, due.items_per_hour)
    items = due.items or items_per_job(knowledge, policy)
    return Unfinished(
        job_id=due.job_id,
        due=due.sent_at + within,
        work=span(max(items - due.items_done, 0) / rate),
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
    """Yield the oldest ``jobs`` messages, each as large as the largest job seen lately.

    A message may have been sent up to one tick before a tick saw it.

    Args:
        waiting: what waits, oldest first.
        jobs: how many of them nobody has claimed before.
        items: of the largest job that is held or requeued; 0: there is none.
        within: the deadline.
        knowledge: sizes of the last jobs, and throughput.
        policy: the estimate of a job's size until one is known, and the tick.
    """
    items = max([items, *knowledge.jobs.largest]) or items_per_job(knowledge, policy)
    work = span(items / usual_throughput(knowledge, policy))
    for group in waiting:
        count = min(group.jobs, jobs)
        if count > 0:
            due = group.since - policy.tick + within
            yield Unfinished(job_id="", due=due, work=work, jobs=count)
        jobs -= count

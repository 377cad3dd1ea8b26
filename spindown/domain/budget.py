"""Where the month's budget stops work: what a launch takes of it, which workers it still pays for.

*Is there budget for a launch?* ``left_for_workers`` is what the month leaves to a workload,
``divide`` what its running workers take of that, and ``LaunchBudget.workers`` how many new ones the
rest pays for. ``control.plan.launch_allowance.reserve`` then sets the money aside by a conditional
write, since other workloads may have been quicker.

Nothing here knows of rows: ``control.plan.wind_down`` does. ``WorkerLifetimes`` says how long
beginnings and ends of workers take; ``LaunchBudget`` how many workers of an offer the rest of a
budget pays for; ``divide`` which of the workers that run may go on, and which end first.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from spindown.domain.fleet import Lease, Worker, WorkerState
from spindown.domain.idle import idle_timeout
from spindown.domain.learning import (
    Knowledge,
    boot_p50,
    boot_p95,
    items_per_job,
    worker_throughput,
)
from spindown.domain.offer import slot_count
from spindown.domain.policy import Policy, WhenSpent
from spindown.domain.ranking import Candidate
from spindown.domain.schedule import rests_in_hand
from spindown.domain.value_range import span
from spindown.domain.worker_lifecycle import POWER_OFF, hang_grace

_HOUR = timedelta(hours=1)
#: Of USD: so that 0.3 have room for three of 0.1, whatever binary fractions make of it.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLifetimes:
    """What beginnings and ends of a workload's workers take."""

    when_spent: WhenSpent
    boot: timedelta
    #: What 19 of 20 boots keep; a launch must pay for it, so that it is not ended while it boots.
    boot_at_most: timedelta
    #: How long a worker stays without work.
    idle: timedelta
    #: From now until a worker that the next tick tells has heard it and has powered off.
    word: timedelta
    #: The same, with the time to commit and put a job back.
    put_back: timedelta
    items_per_job: float
    #: ``run.slots``.
    slots: str
    tick: timedelta


def worker_lifetimes(knowledge: Knowledge, policy: Policy) -> WorkerLifetimes:
    """Return what is known of how workers begin and end."""
    word = policy.tick + policy.heartbeat_interval + POWER_OFF
    return WorkerLifetimes(
        when_spent=policy.when_spent,
        boot=boot_p50(knowledge, policy),
        boot_at_most=boot_p95(knowledge, policy),
        idle=idle_timeout(knowledge, policy),
        word=word,
        put_back=word + hang_grace(knowledge.stop_grace),
        items_per_job=items_per_job(knowledge, policy),
        slots=knowledge.slots,
        tick=policy.tick,
    )


# What a launch takes.


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBudget:
    """What is left of a budget for launches, and what a worker takes of it."""

    #: The whole budget of a month.
    month_usd: float
    #: USD of it that launches may still set aside.
    left_usd: float
    lifetimes: WorkerLifetimes
    #: Waiting items that no present worker will take; the first that is launched does.
    items_waiting: float = 0.0
    #: What all workloads may have spent and set aside in the month once a launch is reserved;
    #: None: that is not looked at.
    committed_at_most_usd: float | None = None

    def least(self, candidate: Candidate) -> float:
        """Return the USD below which no worker of an offer is launched.

        Its machines go on until they are idle: boot, all that waits, idle end. They finish the jobs
        in hand: boot, one job, and the time in which a worker hears of the end. They stop: boot, as
        long again of work (one job, if that is shorter), and the time to hear of it and put back.
        """
        ahead = self.lifetimes
        if ahead.when_spent is WhenSpent.STOP_LAUNCHES:
            return self._fixed(candidate) + self._waiting(candidate)
        slots = slot_count(candidate.offer.instance_type.gpu_count, ahead.slots)
        job = span(ahead.items_per_job * slots / candidate.items_per_hour)
        end = ahead.word
        if ahead.when_spent is WhenSpent.STOP:
            job, end = min(job, ahead.boot_at_most), ahead.put_back
        return candidate.offer.price * ((ahead.boot_at_most + job + end) / _HOUR)

    def workers(self, band: Sequence[Candidate]) -> tuple[list[Candidate], float]:
        """Return the offers of a band that can be paid, and how many workers of the dearest.

        Where the work that a worker is bought for does not fit, one is launched all the same if it
        ends in time.
        """
        left = self.left_usd + ROUNDING
        if self.lifetimes.when_spent is WhenSpent.STOP_LAUNCHES:
            paid = [each for each in band if self.least(each) <= left]
            rooms = ((left - self._waiting(c)) / max(self._fixed(c), ROUNDING) for c in paid)
            return paid, math.floor(min(rooms, default=0.0))
        if whole := [each for each in band if self._whole(each) <= left]:
            return whole, math.floor(left / max(map(self._whole, whole)))
        paid = [each for each in band if self.least(each) <= left]
        return paid, 1 if paid else 0

    def reserved(self, band: Sequence[Candidate], count: int) -> float:
        """Return the USD that so many workers set aside, whichever offers EC2 chooses."""
        if self.lifetimes.when_spent is WhenSpent.STOP_LAUNCHES:
            return max(count * self._fixed(c) + self._waiting(c) for c in band)
        return min(count * max(map(self._whole, band)), self.left_usd)

    def after(self, dollars: float, given: int) -> "LaunchBudget":
        """Return what is left once so many workers came for so many USD."""
        waiting = 0.0 if given else self.items_waiting
        return replace(self, left_usd=self.left_usd - dollars, items_waiting=waiting)

    def _whole(self, candidate: Candidate) -> float:
        """Return the USD of a worker with all the work that it is bought for."""
        return max(candidate.expected_dollars, self.least(candidate))

    def _fixed(self, candidate: Candidate) -> float:
        """Return the USD of a worker's boot and idle end."""
        return candidate.offer.price * ((self.lifetimes.boot + self.lifetimes.idle) / _HOUR)

    def _waiting(self, candidate: Candidate) -> float:
        return self.items_waiting * (candidate.parts.work + candidate.parts.redo)


# What runs.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNeed:
    """What one worker will still cost, USD."""

    instance_id: str
    #: Its cost since it was last charged.
    uncharged: float
    #: Its cost until its end, if the next tick tells it to end.
    at_least: float
    #: Its cost on top of that, if it may go on for now; 0: it ends anyway, or knows already.
    more: float
    #: Its cost with all the work in sight, as far as it is likely to be its own.
    in_sight: float
    is_booting: bool = False
    #: Whether it could be told to end.
    can_end: bool = True

    @property
    def whole(self) -> float:
        """Return what it will still cost if it goes on for now."""
        return self.at_least + self.more


def remaining_costs(
    workers: Iterable[Worker],
    leases: Sequence[Lease],
    *,
    visible: int,
    knowledge: Knowledge,
    policy: Policy,
    now: datetime,
) -> dict[str, WorkerNeed]:
    """Return instance id -> what each worker that bills will still cost."""
    ahead = worker_lifetimes(knowledge, policy)
    billing = [worker for worker in workers if worker.state is not WorkerState.ENDED]
    speeds = {w.instance_id: worker_throughput(knowledge, w, policy) for w in billing}
    taking = sum(speeds[w.instance_id].items_per_hour for w in billing if w.takes_jobs)
    drain = span(visible * ahead.items_per_job / taking) if taking else timedelta(0)
    rests = rests_in_hand(billing, leases, knowledge=knowledge, policy=policy, now=now)
    needs = {}
    for worker in billing:
        speed = speeds[worker.instance_id].items_per_hour
        job = span(ahead.items_per_job * worker.slots / speed)
        held = max(rests[worker.instance_id], default=timedelta(0))
        left = _time_left(worker, ahead, now, held=held, job=job, drain=drain, waits=visible > 0)
        uncharged = max(now - (worker.accrued_until or worker.launched_at), timedelta(0))
        at_least, more, in_sight = (worker.price_per_hour * (time / _HOUR) for time in left)
        is_stop = policy.when_spent is WhenSpent.STOP
        needs[worker.instance_id] = WorkerNeed(
            instance_id=worker.instance_id,
            uncharged=worker.price_per_hour * (uncharged / _HOUR),
            at_least=at_least,
            more=more,
            in_sight=in_sight,
            is_booting=worker.state is WorkerState.BOOTING,
            can_end=policy.when_spent is not WhenSpent.STOP_LAUNCHES
            and worker.is_live
            and worker.spent_at is None
            and (is_stop or worker.takes_jobs),
        )
    return needs


class _TimeLeft(NamedTuple):
    """How long a worker still bills, as ``WorkerNeed`` says it in USD."""

    at_least: timedelta
    more: timedelta
    in_sight: timedelta


def _time_left(
    worker: Worker,
    ahead: WorkerLifetimes,
    now: datetime,
    *,
    held: timedelta,
    job: timedelta,
    drain: timedelta,
    waits: bool,
) -> _TimeLeft:
    """Return how long a worker bills at least, on top of that, and with the work in sight."""
    if not worker.is_live:
        return _TimeLeft(ahead.tick, timedelta(0), ahead.tick)
    boot = idle = timedelta(0)
    if worker.state is WorkerState.BOOTING:
        boot = max(ahead.boot - (now - worker.launched_at), timedelta(0))
    if worker.takes_jobs:
        useless = worker.useless_since
        idle = ahead.idle if useless is None else max(ahead.idle - (now - useless), ahead.tick)
    in_sight = boot + held + (drain if worker.takes_jobs else timedelta(0)) + idle
    if ahead.when_spent is WhenSpent.STOP_LAUNCHES:
        return _TimeLeft(in_sight, timedelta(0), in_sight)
    is_stop = ahead.when_spent is WhenSpent.STOP
    end = ahead.put_back if is_stop else max(held, ahead.word)
    if worker.state is WorkerState.BOOTING:
        # It has no job to finish, so the tick itself can end it.
        useful = min(job, ahead.boot) + ahead.put_back if is_stop else job + ahead.word
        return _TimeLeft(ahead.tick, boot + useful - ahead.tick, in_sight)
    if is_stop or not worker.takes_jobs:
        return _TimeLeft(end, timedelta(0), in_sight)
    return _TimeLeft(end, job if waits else idle, in_sight)


def left_for_workers(
    whole: float, *, used: float, reserved_before: float, reserved_by_own: float
) -> float:
    """Return the USD of a month's budget that a workload's own workers may still cost.

    What launches of its running workers have set aside is counted in ``used``, and is theirs, so
    it is added again. Launches of an earlier month have set aside nothing in this one.

    Worked: of a budget of 100, 60 are spent or set aside by all workloads, 10 of them by the
    launches of the workers that run here; a launch that was asked for last month, and has no worker
    yet, has set 5 aside there. So 100 - 60 - 5 + 10 = 45 are left for the workers that run here and
    for further launches; ``divide`` shares them out.

    Args:
        whole: the budget of the month.
        used: spent or set aside in it by all workloads, what this very tick adds included.
        reserved_before: set aside in earlier months by launches that have no worker yet.
        reserved_by_own: set aside in this month by the launches of workers that run here.
    """
    return whole - used - reserved_before + reserved_by_own


def divide(needs: Iterable[WorkerNeed], left: float) -> tuple[tuple[str, ...], float]:
    """Return who must end now, so that the rest is paid for, and the USD left for launches.

    What all cost at least is paid first. Then whoever may go on does, as long as that can be paid:
    the cheapest first, those that boot last. Nobody goes on once the ends alone are too much.

    Args:
        needs: of all workers of the workload.
        left: USD of the budget that neither is spent nor belongs to others.
    """
    needs = list(needs)
    left -= sum(need.uncharged + need.at_least for need in needs)
    ends = []
    for need in sorted(needs, key=lambda each: (each.is_booting, each.more, each.instance_id)):
        if need.more <= left + ROUNDING or not need.can_end:
            left -= need.more
        else:
            ends.append(need.instance_id)
    return tuple(ends), left

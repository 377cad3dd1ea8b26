"""What ``finish_within`` asks for: which capacity a waiting job may use, and when a job migrates.

The slack of a job is the time until its deadline, less the time that its work still takes. Waiting
for spot uses slack up, and so does every loss of a machine; running does not. With much slack, only
the first rung of the price ladder is open. When the slack is down to what is held back for losses
to come, the other rungs open too. While more than a last reserve is left, a job on demand goes back
to spot as soon as there is any.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.commit_interval import interval_hours
from spindown.domain.learning import (
    Knowledge,
    PoolRecord,
    checkpoint_cost,
    interruption_rate,
    surely_up,
    usual_throughput,
)
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy
from spindown.domain.schedule.jobs import Unfinished
from spindown.domain.schedule.slots import done_within
from spindown.domain.spot_or_on_demand import PurchaseMode
from spindown.domain.value_range import span

_HOUR = timedelta(hours=1)
_SPOT, _ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
#: How many changes of machines the slack must leave time for. Below the first number, a job on
#: spot migrates to on demand. Below the second, a waiting job gets on demand only ("Can't Be Late",
#: NSDI 2024, holds back as many). From the third on, a job on demand may go back to spot: it can
#: lose one machine there and still have time for two changes.
_LEAVE_SPOT, _ON_DEMAND_ONLY, _RETURN = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeReserve:
    """What slack is held back for: changes of machines, and how often they happen."""

    #: What one change of machines takes at most.
    change: timedelta
    #: The part of ``change`` that is work done again.
    redone: timedelta = timedelta(0)
    #: Interruptions of spot to expect, an hour.
    rate: float

    def of(self, at_risk: timedelta) -> timedelta:
        """Return what one change takes for a job that can lose only so much work."""
        return self.change - max(self.redone - at_risk, timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForecast:
    """What the deadline of one job asks for."""

    job: Unfinished
    slack: timedelta
    mode: PurchaseMode
    #: Where a running job migrates: on demand, because it must, or (cheaper) spot, if that pays.
    #: None: it stays where it is, or it waits.
    moves_to: CapacityType | None = None
    #: Until when it may wait for spot, if it waits.
    waits_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineForecast:
    """What all deadlines of a workload ask for."""

    #: The least slack first.
    jobs: tuple[JobForecast, ...] = ()
    #: Mode of the waiting job with the least slack, urgent jobs first; None: no job waits.
    mode: PurchaseMode | None = None
    #: Waiting jobs that cannot wait for spot any longer.
    urgent: int = 0
    #: Until when all other waiting jobs may wait; None: there are none.
    waits_until: datetime | None = None
    #: Speed that a machine for the urgent jobs must have, as a share of the usual speed.
    speed: float = 0.0


def reserve_of(knowledge: Knowledge, policy: Policy) -> TimeReserve:
    """Return what is held back: a change takes the p95 boot, two ticks, and the work done again.

    A tick passes until the need is seen, and one more if the launch is refused and tried again. At
    worst a whole checkpoint interval is lost, or one item, but never more than the job. Worked: a
    boot of 3 min, two ticks of 1 min, 2 min 30 s of work: 7 min 30 s.
    """
    pools = [r for pool, r in knowledge.pools.items() if pool.capacity_type is _SPOT]
    seen = PoolRecord(
        interruptions=sum(max(r.interruptions, 0.0) for r in pools),
        hours=sum(max(r.hours, 0.0) for r in pools),
    )
    rate = interruption_rate(seen, None)
    redone = interval_hours(policy, cost_hours=checkpoint_cost(knowledge) / _HOUR, rate=rate)
    redone = max(redone, 1.0 / usual_throughput(knowledge, policy))
    again = span(redone)
    change = surely_up(knowledge, policy, ticks=2) + again
    return TimeReserve(change=change, redone=again, rate=rate)


def judge(
    job: Unfinished,
    reserve: TimeReserve,
    now: datetime,
    *,
    takes: timedelta | None = None,
    at_risk: timedelta | None = None,
) -> JobForecast:
    """Return what the deadline of a job asks for now.

    With slack s, change c, work w and rate r, the losses to expect take r w c. A waiting job waits
    for spot while s > 3c + r w c. After that it takes what there is, and at s <= 2c on demand only.
    A running job may migrate to spot, or to cheaper spot, at s >= 3c. On spot, it must leave at
    s < c. While a job runs, s stays the same, so it goes back and forth only if an estimate was
    wrong by 2c. Worked: 48 h of work due in 52 h, c = 7.5 min, 0.2 losses an hour: the job waits
    for spot until 4 h - 22.5 min - 1 h 12 min = 2 h 25 min have passed.

    Args:
        job: what is left of it.
        reserve: what a change takes, and how often one is needed.
        now: the present.
        takes: time until it is done, with all that is done before it; None: its own work.
        at_risk: work that a loss can undo until then; None: its own alone.
    """
    change = reserve.of(job.at_risk if at_risk is None else at_risk)
    takes = job.work if takes is None else takes
    slack = job.due - now - takes
    losses = reserve.rate * (takes / _HOUR) * change
    waits_for = slack - _RETURN * change - losses
    mode = PurchaseMode.SPOT if waits_for > timedelta(0) else PurchaseMode.ANY
    if slack <= _ON_DEMAND_ONLY * change:
        mode = PurchaseMode.ON_DEMAND
    moves_to = None
    if job.on is _SPOT and slack < _LEAVE_SPOT * change:
        moves_to = _ON_DEMAND
    elif job.on is not None and slack >= _RETURN * change:
        moves_to = _SPOT
    return JobForecast(
        job=job,
        slack=slack,
        mode=mode,
        moves_to=moves_to,
        waits_until=now + max(waits_for, timedelta(0)),
    )


def forecast_deadlines(
    jobs: Sequence[Unfinished], reserve: TimeReserve, now: datetime, *, slots: int
) -> DeadlineForecast:
    """Return what all deadlines ask for together; the fleet has ``slots`` slots at most."""
    found = sorted(_judge_all(jobs, reserve, now, slots), key=lambda each: each.slack)
    waiting = [each for each in found if each.job.on is None]
    urgent = [each for each in waiting if each.mode is not PurchaseMode.SPOT]
    may_wait = [each.waits_until for each in waiting if each.mode is PurchaseMode.SPOT]
    return DeadlineForecast(
        jobs=tuple(found),
        # Whoever has the least slack has the most urgent mode.
        mode=next((each.mode for each in (*urgent, *waiting)), None),
        urgent=sum(each.job.jobs for each in urgent),
        waits_until=min(may_wait, default=None),
        speed=max((_speed(each, reserve, now) for each in urgent), default=0.0),
    )


def _judge_all(
    jobs: Sequence[Unfinished], reserve: TimeReserve, now: datetime, slots: int
) -> Iterator[JobForecast]:
    """Yield what each job asks for.

    If there are more jobs than slots, a waiting job comes after all that are due before it.
    """
    work = longest = most_at_risk = timedelta(0)
    count, most = 0, max(slots, 1)
    for job in sorted(jobs, key=lambda each: (each.due, each.on is None)):
        work, count = work + job.work * job.jobs, count + job.jobs
        longest, most_at_risk = max(longest, job.work), max(most_at_risk, job.at_risk)
        takes, at_risk = job.work, job.at_risk
        if job.on is None and count > most:
            takes = max(takes, done_within(work, longest, most))
            # If a job before it loses work, this one starts later too.
            at_risk = most_at_risk
        yield judge(job, reserve, now, takes=takes, at_risk=at_risk)


def _speed(verdict: JobForecast, reserve: TimeReserve, now: datetime) -> float:
    """Return the speed that meets the deadline, as a share of the usual; 0: no speed does."""
    left = verdict.job.due - now - reserve.of(verdict.job.at_risk)
    return verdict.job.work / left if left > timedelta(0) else 0.0


def pays_at(verdict: JobForecast, dollars: float, reserve: TimeReserve, policy: Policy) -> float:
    """Return the cost of an item on spot, USD, below which a running job should migrate there.

    An item costs u now and v there. During a change of length c at most, both machines are paid.
    The saving lasts for T, until the work is done or spot is taken back. So migrating pays if
    (u - v) T > c (u + v), or v < u (T - c) / (T + c). It must pay by more than ``band``, since
    prices within a band count as equal. Worked: on demand at 3 cents, c = 7.5 min, T = 5 h, a band
    of 5 %: below 2.71 cents.

    Args:
        verdict: of a job that may migrate.
        dollars: what an item costs where it runs now.
        reserve: how long a change takes, and how often spot is taken back.
        policy: the band.
    """
    rest_hours = verdict.job.work / _HOUR
    if reserve.rate > 0.0:
        rest_hours = min(rest_hours, 1.0 / reserve.rate)
    change = reserve.change / _HOUR
    return (1.0 - policy.band) * dollars * max(rest_hours - change, 0.0) / (rest_hours + change)

"""What a deadline asks for: wait for spot, take what there is, or on demand alone; and moves.

The slack of a job is the time until it is due, less what it still takes. Waiting for spot uses it
up, and so does every loss of a machine; running does not. While there is plenty, nothing but the
first rung of the price ladder is open. What is held back for the losses to come opens the others,
and a job on demand goes back to spot whenever there is any, until a last reserve is reached.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.checkpointing import interval_hours
from spindown.domain.ladder import PurchaseMode
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

_HOUR = timedelta(hours=1)
_SPOT, _ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
#: Changes of machines that are held back: below the first number a job on spot is moved to on
#: demand, below the second one that waits is given nothing else ("Can't Be Late", NSDI 2024, holds
#: back as many), from the third on a job on demand may go back to spot: it can lose one there and
#: still be where the second begins.
_LEAVE_SPOT, _HOME, _RETURN = 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What slack is held back for."""

    #: What one change of machines takes at most.
    change: timedelta
    #: Of it, work that is done again.
    redone: timedelta = timedelta(0)
    #: Interruptions of spot to expect, an hour.
    rate: float

    def of(self, at_risk: timedelta) -> timedelta:
        """Return what one change takes where no more work than this can be undone."""
        return self.change - max(self.redone - at_risk, timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobForecast:
    """What the deadline of one job asks for."""

    job: Unfinished
    slack: timedelta
    mode: PurchaseMode
    #: Where it must move to while it runs (on demand), or may if it pays (spot, or cheaper spot);
    #: None: it stays, or waits.
    moves_to: CapacityType | None = None
    #: Until when it may wait for spot, if it waits.
    waits_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineForecast:
    """What all deadlines of a workload ask for."""

    #: The least slack first.
    jobs: tuple[JobForecast, ...] = ()
    #: Of the job that waits and has least slack, of the urgent ones if there are; None: none waits.
    mode: PurchaseMode | None = None
    #: Jobs that wait and cannot wait longer for spot.
    urgent: int = 0
    #: Until when all others may wait.
    waits_until: datetime | None = None
    #: Share of the usual speed that a machine for the urgent ones must have.
    speed: float = 0.0


def reserve_of(knowledge: Knowledge, policy: Policy) -> Reserve:
    """Return what is held back: a change is p95 boot, two ticks, and what is done again.

    One tick sees the need, in the other a refused launch is tried again; at the worst a whole
    checkpoint interval is lost, or the item in hand; of a job that is shorter, the job. Worked:
    3 min, 1 min each, 2 min 30 s: 7 min 30 s.
    """
    pools = [r for pool, r in knowledge.pools.items() if pool.capacity_type is _SPOT]
    seen = PoolRecord(
        interruptions=sum(max(r.interruptions, 0.0) for r in pools),
        hours=sum(max(r.hours, 0.0) for r in pools),
    )
    rate = interruption_rate(seen, None)
    redone = interval_hours(policy, cost_hours=checkpoint_cost(knowledge) / _HOUR, rate=rate)
    redone = max(redone, 1.0 / usual_throughput(knowledge, policy))
    again = timedelta(hours=redone)
    change = surely_up(knowledge, policy, ticks=2) + again
    return Reserve(change=change, redone=again, rate=rate)


def judge(
    job: Unfinished,
    reserve: Reserve,
    now: datetime,
    *,
    takes: timedelta | None = None,
    at_risk: timedelta | None = None,
) -> JobForecast:
    """Return what the deadline of a job asks for now.

    ``takes`` is the time until it can be done if everything runs, with what is due before it;
    None: its own work. ``at_risk`` is what a loss on the way can undo; None: of itself alone.

    With slack s, change c, work w and rate r: a job that waits may wait for spot while
    s > 3c + r w c, the losses to be expected; from there on it takes what there is, and at s <= 2c
    nothing but on demand. One that runs may move to spot, or to cheaper spot, at s >= 3c; one on
    spot must leave it at s < c. Running on leaves s as it is, so between that and the way back
    lies an estimate that was wrong by 2c. Worked: 48 h of work due in 52 h, c = 7.5 min, 0.2
    losses an hour: spot is waited for until 4 h - 22.5 min - 1 h 12 min have gone, 2 h 25 min.
    """
    change = reserve.of(job.at_risk if at_risk is None else at_risk)
    takes = job.work if takes is None else takes
    slack = job.due - now - takes
    losses = reserve.rate * (takes / _HOUR) * change
    waits_for = slack - _RETURN * change - losses
    mode = PurchaseMode.SPOT if waits_for > timedelta(0) else PurchaseMode.ANY
    if slack <= _HOME * change:
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
    jobs: Sequence[Unfinished], reserve: Reserve, now: datetime, *, slots: int
) -> DeadlineForecast:
    """Return what all deadlines ask for together, with so many slots at the most."""
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
    jobs: Sequence[Unfinished], reserve: Reserve, now: datetime, slots: int
) -> Iterator[JobForecast]:
    """Yield what each job asks for.

    While there are more jobs than slots, one that waits has before it all that is due before.
    """
    work = longest = most_at_risk = timedelta(0)
    count, most = 0, max(slots, 1)
    for job in sorted(jobs, key=lambda each: (each.due, each.on is None)):
        work, count = work + job.work * job.jobs, count + job.jobs
        longest, most_at_risk = max(longest, job.work), max(most_at_risk, job.at_risk)
        takes, at_risk = job.work, job.at_risk
        if job.on is None and count > most:
            takes = max(takes, done_within(work, longest, most))
            # A loss of what is done before it puts it off as well.
            at_risk = most_at_risk
        yield judge(job, reserve, now, takes=takes, at_risk=at_risk)


def _speed(verdict: JobForecast, reserve: Reserve, now: datetime) -> float:
    """Return how fast a machine must be to be in time, as a share of the usual; 0: none is."""
    left = verdict.job.due - now - reserve.of(verdict.job.at_risk)
    return verdict.job.work / left if left > timedelta(0) else 0.0


def pays_at(verdict: JobForecast, dollars: float, reserve: Reserve, policy: Policy) -> float:
    """Return the dollars an item at which a job that runs had better be elsewhere, on spot.

    While it moves both machines are paid for, a change at the longest; what is saved is saved
    until the work is done or spot is taken back, T. So (u - v) T > c (u + v), or
    v < u (T - c) / (T + c), and by more than ``band``: prices that near are one price. Worked: on
    demand at 3 cents, c = 7.5 min, T = 5 h, a band of 5 %: below 2.71 cents.

    Args:
        verdict: that it may move.
        dollars: what an item costs where it runs.
        reserve: how long a change takes, and how often spot is taken back.
        policy: the band.
    """
    stays = verdict.job.work / _HOUR
    if reserve.rate > 0.0:
        stays = min(stays, 1.0 / reserve.rate)
    change = reserve.change / _HOUR
    return (1.0 - policy.band) * dollars * max(stays - change, 0.0) / (stays + change)

"""What jobs of the past would have cost from a pool, each on a machine of its own, or side by side.

A model of the machines' time, not of the market: every machine is there when it is asked for, and a
job takes as long as it took. Where machines take job after job, a job waits for one at work as long
as the policy lets it. What differs is what is paid beside the work: boots, idle time, EC2's
least minute, and the part of a shared machine that nobody uses.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.past_cost import LEAST_BILLED
from spindown.domain.policy import Dispatch
from spindown.domain.rightsizing.type_size import are_few

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """One attempt at a job: when it came, and for how long it held a slot."""

    at: datetime
    took: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineTerms:
    """What machines cost beside the work that they do."""

    #: USD per hour of a machine for one job or of a pool, and of one that jobs share; None: there
    #: is none, or what jobs need side by side is not known.
    alone: float | None
    shared: float | None
    #: Jobs side by side on a machine of a pool, and on a shared one.
    pool_slots: int
    shared_slots: int
    #: From the launch to the first job.
    boot: timedelta
    #: How long a machine waits for more.
    idle: timedelta
    #: How long a job may wait for a machine at work, dedicated ones aside.
    start_within: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchCost:
    """What one way would have cost."""

    dispatch: Dispatch
    #: USD for all jobs.
    dollars: float
    machines: int


def compare_dispatches(jobs: Sequence[PastJob], terms: MachineTerms) -> tuple[DispatchCost, ...]:
    """Return what each way would have cost, the cheapest first; of equals, the simplest first.

    Worked, two jobs of 60 s that come at once, a boot of 60 s, idle for 60 s: from a pool with one
    slot a machine the second one starts 120 s later on the machine of the first, if it may wait so
    long: 60 + 2 x 60 + 60 = 240 s. Else each has its own, which waits for more at the end, 2 x 180
    s. Dedicated they are 2 x 120 s, and side by side 180 s of a shared machine.
    """
    prices: Mapping[Dispatch, tuple[float | None, int]] = {
        Dispatch.POOL: (terms.alone, terms.pool_slots),
        Dispatch.DEDICATED: (terms.alone, 1),
        Dispatch.SHARED: (terms.shared, terms.shared_slots),
    }
    found = []
    for dispatch, (price, slots) in prices.items():
        if price is None or not jobs:
            continue
        if dispatch is Dispatch.DEDICATED:
            lives = [terms.boot + job.took for job in jobs]
        else:
            lives = _lives(jobs, terms, slots)
        paid = sum((max(life, LEAST_BILLED) for life in lives), timedelta(0))
        found.append(
            DispatchCost(dispatch=dispatch, dollars=price * (paid / _HOUR), machines=len(lives))
        )
    return tuple(sorted(found, key=lambda each: each.dollars))


#: Less than this tells nothing: of the dollars of the present way, and in dollars.
_SHARE_LEAST, _DOLLARS_LEAST = 0.05, 0.01


def cheaper_dispatch(costs: Sequence[DispatchCost], now: Dispatch, *, jobs: int) -> Dispatch | None:
    """Return the way that would have cost clearly less than the present one; None: none would.

    Of few jobs nothing is said, nor of less than a cent or 5 %.
    """
    known = {each.dispatch: each.dollars for each in costs}
    if not known or are_few(jobs):
        return None
    best = costs[0]
    saved = known.get(now, math.inf) - best.dollars
    is_clear = saved >= max(_DOLLARS_LEAST, _SHARE_LEAST * known.get(now, 0.0))
    return best.dispatch if is_clear else None


@dataclass(slots=True)
class _Machine:
    launched_at: datetime
    #: When each slot is free.
    free_at: list[datetime]

    @property
    def done_at(self) -> datetime:
        return max(self.free_at)

    def starts(self, job: PastJob) -> datetime:
        """Return when it could start a job."""
        return max(job.at, min(self.free_at))


def _lives(jobs: Sequence[PastJob], terms: MachineTerms, slots: int) -> list[timedelta]:
    """Return how long each machine is paid for, if machines take job after job.

    A job that would wait too long gets a machine, unless one is free before that has booted. Of
    several free ones the machine that was busy last takes the job, so that the others end.
    """
    idle, patience = terms.idle, max(terms.start_within, terms.boot)
    alive: list[_Machine] = []
    over: list[timedelta] = []
    for job in sorted(jobs, key=lambda each: each.at):
        ended = [one for one in alive if one.done_at + idle < job.at]
        over += [one.done_at + idle - one.launched_at for one in ended]
        alive = [one for one in alive if one.done_at + idle >= job.at]
        ready = [one for one in alive if min(one.free_at) <= job.at + patience]
        if ready:
            # Of equally early ones, the one that is done last.
            taker = min(ready, key=lambda one: (one.starts(job), job.at - one.done_at))
        else:
            taker = _Machine(launched_at=job.at, free_at=[job.at + terms.boot] * slots)
            alive.append(taker)
        slot = taker.free_at.index(min(taker.free_at))
        taker.free_at[slot] = taker.starts(job) + job.took
    return over + [one.done_at + idle - one.launched_at for one in alive]

"""A schedule made as jobs come, by one who knows all of what has come and nothing of what will.

Whenever a job becomes known, all that has not begun is planned anew: it goes where it costs least,
then some machines' jobs are taken away and handed out again, as ``search`` does for who knows
everything beforehand. A machine is launched as late as its plan allows, stays from then on as long
as its jobs last, and ends with the last of them: on standby it would cost more here than it spares.
"""

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from random import Random

from research.compare.integral.bill import Bill
from research.compare.integral.market import Market
from research.compare.integral.problem import Problem
from spindown.simulator import SimScenario

#: Tries for each job that has not begun, and in all; more find nothing. Where many wait, each
#: try is long, and they are planned anew soon.
_TRIES_A_JOB, _TRIES_AT_LEAST, _TRIES_AT_MOST = 5, 10, 60
_MANY = 1_000
#: Machines whose jobs are handed out again, at most.
_RUINED = 3
#: Annealing at first, of the mean cost of a machine.
_WARM = 0.02
#: How much dearer a place may look by chance, and what another machine looks like.
_NOISE = 0.1
_OPENING = (0.6, 1.1)
_LEAST = 1e-6


@dataclass(slots=True, eq=False)
class Life:
    """One machine: what it has begun, and what it is to do."""

    speed: float
    #: When it is ready: as late as its jobs allow, and fixed once it is launched.
    ready: float = math.inf
    is_launched: bool = False
    #: Job by number, and when it began.
    begun: list[tuple[int, float]] = field(default_factory=list)
    #: When it can take its next job, once it is launched.
    free: float = math.inf
    #: What it has not begun, in order of arrival.
    jobs: list[int] = field(default_factory=list)
    ends: float = math.inf
    dollars: float = 0.0


@dataclass(slots=True)
class Online(Problem):
    """One trace, told as it comes."""

    #: Seconds before its arrival at which a job becomes known.
    ahead: float = 0.0
    _now: float = -math.inf

    def run(self) -> list[Life]:
        """Return every machine, with what it did."""
        lives: list[Life] = []
        over: list[Life] = []
        known = 0
        while known < len(self.jobs):
            self._now = self.jobs[known].at - self.ahead
            lives = self._go_on(lives, over)
            new = range(known, bisect_right(self.jobs, self._now + self.ahead, key=lambda x: x.at))
            self._hand_out(lives, new)
            lives = self._improve(lives)
            known = new.stop
        self._now = math.inf
        self._go_on(lives, over)
        return over

    def _go_on(self, lives: Sequence[Life], over: list[Life]) -> list[Life]:
        """Let time pass until now; return who is left, and add to those that are over."""
        left: list[Life] = []
        for life in lives:
            if life.ready - self.boot <= self._now and not life.is_launched:
                life.is_launched, life.free = True, life.ready
            if life.is_launched:
                self._begin(life)
            is_over = life.is_launched and not life.jobs and life.free < self._now
            (over if is_over else left).append(life)
        return left

    def _begin(self, life: Life) -> None:
        while life.jobs:
            begins = max(life.free, self.jobs[life.jobs[0]].at)
            if begins > self._now:
                break
            job = life.jobs.pop(0)
            life.begun.append((job, begins))
            life.free = begins + self.takes(job, life.speed)

    def _plan(self, life: Life, jobs: Sequence[int]) -> tuple[float, float, float]:
        """Return USD, when it is ready and when it ends with such jobs ahead; inf: one is late."""
        if not life.is_launched and not jobs:
            return 0.0, math.inf, math.inf
        free = life.free if life.is_launched else -math.inf
        latest, work = math.inf, 0.0
        for job in jobs:
            due = self.jobs[job].at + self.within
            if free > due:
                return math.inf, math.inf, math.inf
            latest = min(latest, due - work)
            takes = self.takes(job, life.speed)
            free, work = max(free, self.jobs[job].at) + takes, work + takes
        if life.is_launched:
            return self.bills[life.speed](life.ready, free), life.ready, free
        if latest < self._now + self.boot - _LEAST:
            return math.inf, math.inf, math.inf
        ends = max(latest + work, free)
        return self.bills[life.speed](latest, ends), latest, ends

    def _give(self, life: Life, jobs: list[int]) -> None:
        life.jobs = jobs
        life.dollars, life.ready, life.ends = self._plan(life, jobs)

    def _hand_out(self, lives: list[Life], jobs: Sequence[int], noise: float = 0.0) -> bool:
        """Give each job to whom it costs least; tell whether each could be given to somebody."""
        random = self.random
        opening = random.uniform(*_OPENING) if noise else 1.0
        for job in jobs:
            cheapest, taker, theirs = math.inf, None, list[int]()
            due = self.jobs[job].at + self.within
            for life in lives:
                if life.is_launched and life.free > due:
                    continue
                more = list(life.jobs)
                insort(more, job)
                dollars = self._plan(life, more)[0]
                if dollars < math.inf:
                    dollars = (dollars - life.dollars) * (1.0 + noise * random.random())
                    if dollars < cheapest:
                        cheapest, taker, theirs = dollars, life, more
            opened = None
            for speed in self.bills:
                alone = Life(speed)
                dollars = self._plan(alone, [job])[0] * opening
                dollars *= 1.0 + noise * random.random()
                if dollars < cheapest:
                    cheapest, taker, theirs, opened = dollars, alone, [job], alone
            if taker is None:
                return False
            if opened is not None:
                lives.append(opened)
            self._give(taker, theirs)
        return True

    def _improve(self, lives: list[Life]) -> list[Life]:
        """Return a plan that is not dearer."""
        random, waiting = self.random, sum(len(life.jobs) for life in lives)
        now, best = lives, lives
        cost = least = math.fsum(life.dollars for life in lives)
        tries = min(max(_TRIES_A_JOB * waiting, _TRIES_AT_LEAST), _TRIES_AT_MOST)
        tries = min(tries, _MANY // max(waiting, 1))
        heat = _WARM * cost / len(lives)
        for turn in range(tries if waiting else 0):
            new, freed = self._ruin(now)
            if not self._hand_out(new, freed, _NOISE * random.random()):
                continue
            dollars = math.fsum(life.dollars for life in new)
            if dollars < cost + heat * random.expovariate(1.0) * (1.0 - turn / tries):
                now, cost = new, dollars
                if cost < least - _LEAST**2:
                    best, least = now, cost
        return best

    def _ruin(self, lives: Sequence[Life]) -> tuple[list[Life], list[int]]:
        """Return copies without some jobs that have not begun, and those jobs."""
        random = self.random
        copies = [copy(life) for life in lives]
        busy = [life for life in copies if life.jobs]
        middle = random.choice(busy).ends
        busy.sort(key=lambda life: abs(life.ends - middle))
        freed = []
        for life in busy[: random.randint(1, _RUINED)]:
            first = random.randrange(len(life.jobs)) if random.random() < 0.5 else 0
            until = random.randint(first + 1, len(life.jobs)) if first else len(life.jobs)
            freed += life.jobs[first:until]
            self._give(life, life.jobs[:first] + life.jobs[until:])
        return [life for life in copies if life.jobs or life.is_launched], sorted(freed)


def online(scenario: SimScenario, *, start_within: float, ahead: float = 0.0) -> float:
    """Return the USD in the mean of a schedule that is made as jobs come.

    How long a job takes is known when it comes. What a machine costs is as in ``feasible``: boots
    take their mean, nobody knows when EC2 will take a machine, and nothing is worked on twice.

    Args:
        scenario: arrivals, prices, reclaims and boots; capacity and the controller play no part.
        start_within: seconds from a job's arrival to its start, at most.
        ahead: seconds before its arrival at which each job becomes known.
    """
    market = Market(scenario, is_refunded=False)
    bills = {speed: Bill(scenario, market, speed) for speed in market.hours}
    jobs = sorted(scenario.arrivals, key=lambda each: each.at)
    commit = scenario.delays.commit
    told = Online(jobs, bills, start_within, commit, market.boot, Random(len(jobs)), ahead)
    return math.fsum(each.dollars for each in told.run())

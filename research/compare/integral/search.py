"""Make a schedule cheaper: take some machines' jobs away, and hand them out again one by one.

Ruin and recreate with annealing (Schrimpf and others, 2000). A schedule says only which jobs a
machine takes; it takes them in order of arrival, becomes ready as late as all of them allow, and
ends with the last. What a machine's jobs in a row come to is three figures, and those of two rows
one after the other follow from theirs, so that trying a job in a machine takes no time at all.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

from research.compare.integral.bill import Bill
from research.compare.integral.problem import Problem

#: Jobs in a row: seconds of work; the end at the soonest; the latest instant to be ready for them.
Row = tuple[float, float, float]
#: Speed, numbers of jobs in order of arrival.
Plan = tuple[float, list[int]]
_EMPTY: Row = (0.0, -math.inf, math.inf)
#: Annealing: of the mean cost of a machine, at the beginning and at the end.
_WARM, _COLD = 0.05, 0.001
#: Machines whose jobs are handed out again, at most, and jobs, about.
_RUINED, _JOBS_RUINED = 5, 40
#: How much dearer a place may look by chance, and what another machine looks like.
_NOISE = 0.1
_OPENING = (0.6, 1.1)


def join(one: Row, other: Row) -> Row:
    """Return what two rows are one after the other; its latest instant is -inf if none will do."""
    work, ends, latest = one
    more, other_ends, other_latest = other
    latest = min(latest, other_latest - work) if ends <= other_latest else -math.inf
    return work + more, max(ends + more, other_ends), latest


class Machine:
    """Some jobs on one machine."""

    __slots__ = ("_after", "_before", "_row", "bill", "dollars", "ends", "jobs", "ready", "speed")

    def __init__(
        self, speed: float, jobs: list[int], row: Callable[[int, float], Row], bill: Bill
    ) -> None:
        """Take jobs, by number, in order of arrival; infinitely dear if one would be late."""
        self.speed, self.jobs, self._row, self.bill = speed, jobs, row, bill
        rows = [row(job, speed) for job in jobs]
        self._before = list(accumulate(rows, join, initial=_EMPTY))
        after = accumulate(reversed(rows), lambda late, early: join(early, late), initial=_EMPTY)
        self._after = list(after)[::-1]
        work, soonest, self.ready = self._before[-1]
        self.ends = max(self.ready + work, soonest)
        self.dollars = math.inf if self.ready == -math.inf else bill(self.ready, self.ends)

    def with_job(self, job: int) -> float:
        """Return what it would cost with one job more."""
        place = bisect_left(self.jobs, job)
        whole = join(join(self._before[place], self._row(job, self.speed)), self._after[place])
        work, soonest, ready = whole
        if ready == -math.inf:
            return math.inf
        return self.bill(ready, max(ready + work, soonest))

    def same(self, jobs: list[int]) -> "Machine":
        """Return a machine of the same kind with other jobs."""
        return Machine(self.speed, jobs, self._row, self.bill)


class Search(Problem):
    """One part of a trace, known beforehand."""

    __slots__ = ()

    def improve(self, plans: Iterable[Plan], rounds: int) -> list[Machine]:
        """Return a schedule that is not dearer than the one given.

        Args:
            plans: of each machine, its speed and its jobs.
            rounds: of ruin and recreation.
        """
        dues = [job.at + self.within for job in self.jobs]
        takes = {
            speed: [self.takes(job, speed) for job in range(len(self.jobs))] for speed in self.bills
        }

        def row(job: int, speed: float) -> Row:
            seconds = takes[speed][job]
            return seconds, self.jobs[job].at + seconds, dues[job]

        def machine(speed: float, jobs: list[int]) -> Machine:
            return Machine(speed, jobs, row, self.bills[speed])

        now = [machine(speed, sorted(jobs)) for speed, jobs in plans]
        cost = math.fsum(each.dollars for each in now)
        best, least = now, cost
        heat = _WARM * cost / len(now)
        cooler = (_COLD / _WARM) ** (1.0 / max(rounds, 1))
        for _ in range(rounds):
            staying, freed = self._ruin(now)
            new = self._recreate(staying, freed, machine)
            dollars = math.fsum(each.dollars for each in new)
            if dollars < cost + heat * self.random.expovariate(1.0):
                now, cost = new, dollars
                if cost < least - 1e-12:
                    best, least = now, cost
            heat *= cooler
        return best

    def _ruin(self, now: Sequence[Machine]) -> tuple[list[Machine], list[int]]:
        """Return who stays, and jobs of some machines that are near each other in time."""
        random = self.random
        chosen = random.choice(now)
        middle = random.uniform(chosen.ready, chosen.ends)
        near = sorted(now, key=lambda x: max(x.ready - middle, middle - x.ends, 0.0))
        count = random.randint(1, _RUINED)
        each_at_most = max(1, _JOBS_RUINED // count)
        kept, freed = near[count:], []
        first = bisect_left(self.jobs, middle - self.within, key=lambda job: job.at)
        for each in near[:count]:
            place = bisect_left(each.jobs, first)
            begins = max(0, min(place - random.randint(0, each_at_most), len(each.jobs) - 1))
            ends = begins + each_at_most
            if len(each.jobs) <= each_at_most:
                begins = 0
            freed += each.jobs[begins:ends]
            kept += self._rest(each, each.jobs[:begins], each.jobs[ends:])
        return kept, freed

    def _rest(self, old: Machine, early: list[int], late: list[int]) -> list[Machine]:
        """Return one machine or two for what is left of one, whichever is cheaper."""
        apart = [old.same(jobs) for jobs in (early, late) if jobs]
        if len(apart) < 2:
            return apart
        together = old.same([*early, *late])
        return [together] if together.dollars <= apart[0].dollars + apart[1].dollars else apart

    def _recreate(
        self,
        machines: list[Machine],
        freed: list[int],
        machine: Callable[[float, list[int]], Machine],
    ) -> list[Machine]:
        random, boot, within = self.random, self.boot, self.within
        freed.sort()
        first, last = self.jobs[freed[0]].at - boot, self.jobs[freed[-1]].at + 2.0 * within
        far = [each for each in machines if each.ends < first or each.ready > last]
        near = [each for each in machines if first <= each.ends and each.ready <= last]
        noise, opening = _NOISE * random.random(), random.uniform(*_OPENING)
        for job in freed:
            at = self.jobs[job].at
            cheapest, place = math.inf, -1
            for number, each in enumerate(near):
                if each.ready > at + 2.0 * within or each.ends < at - boot:
                    continue
                more = (each.with_job(job) - each.dollars) * (1.0 + noise * random.random())
                if more < cheapest:
                    cheapest, place = more, number
            alone: Machine | None = None
            for speed in self.bills:
                new = machine(speed, [job])
                dollars = new.dollars * opening * (1.0 + noise * random.random())
                if dollars < cheapest:
                    cheapest, alone = dollars, new
            if alone is not None:
                near.append(alone)
            else:
                near[place] = near[place].same(sorted([*near[place].jobs, job]))
        return [*far, *near]

"""A schedule that knows all arrivals and prices: how near to a bound the optimum can be at most.

It begins as list scheduling with a few parameters, the best of them taken for each part of a trace:
machines of one speed; once nothing is open, some open so long after the first arrival; a job goes
to the open machine that is free last, or first, of those that start it in time; where none does,
another opens when the job is due. A machine ends where its next job is farther away than a boot.
``search`` makes it cheaper then, with machines of all speeds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from random import Random

from research.compare.integral.bill import Bill
from research.compare.integral.market import Market, parts
from research.compare.integral.search import Plan, Search
from spindown.simulator import Arrival, SimScenario

#: Share of the promise for which work gathers, and how many machines open then.
_HOLDS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
_OPENED = (1, 2, 3, 4)
#: Of the search, for one part.
_ROUNDS_AT_LEAST, _ROUNDS_AT_MOST = 200, 6_000

#: A machine's jobs in order: which, from when to when.
Run = list[tuple[int, float, float]]


@dataclass(slots=True)
class _Machine:
    #: When it can take its next job.
    free: float
    run: Run = field(default_factory=list)


def feasible(scenario: SimScenario, *, start_within: float, rounds: int = 3) -> float:
    """Return the USD in the mean of the cheapest schedule found.

    It does not know when EC2 will take a machine (``bill``). Boots take their mean, and nothing is
    worked on twice.

    Args:
        scenario: arrivals, prices, reclaims and boots; capacity and the controller play no part.
        start_within: seconds from a job's arrival to its start, at most.
        rounds: of the search, for each job of a part.
    """
    market = Market(scenario, is_refunded=False)
    bills = {speed: Bill(scenario, market, speed) for speed in market.hours}
    commit, dollars = scenario.delays.commit, 0.0
    for jobs in parts(scenario, market, start_within):
        search = Search(jobs, bills, start_within, commit, market.boot, Random(len(jobs)))
        plans = _cheapest(jobs, market, start_within, commit)
        count = min(max(rounds * len(jobs), _ROUNDS_AT_LEAST), _ROUNDS_AT_MOST)
        dollars += math.fsum(each.dollars for each in search.improve(plans, count))
    return dollars


def _cheapest(jobs: Sequence[Arrival], market: Market, within: float, commit: float) -> list[Plan]:
    least, best = math.inf, list[Plan]()
    for speed, share, opened, is_packed in product(market.hours, _HOLDS, _OPENED, (True, False)):
        takes = [each.work_seconds / speed + commit for each in jobs]
        runs = list_runs(jobs, takes, within, share * within, market.boot, opened, is_packed)
        dollars = math.fsum(market.charge(speed, run[0][1], run[-1][2]) for run in runs)
        if dollars < least:
            least, best = dollars, [(speed, [number for number, _, _ in run]) for run in runs]
    return best


def list_runs(
    jobs: Sequence[Arrival],
    takes: Sequence[float],
    within: float,
    hold: float,
    boot: float,
    opened: int,
    is_packed: bool,
) -> list[Run]:
    """Return what each machine does.

    Args:
        jobs: in order of arrival.
        takes: seconds of each.
        within: seconds from a job's arrival to its start, at most.
        hold: seconds after the first arrival at which machines open.
        boot: seconds; who idles for longer ends instead.
        opened: how many open then.
        is_packed: whether a job goes to who is free last, so that others can end.
    """
    machines: list[_Machine] = []
    over: list[_Machine] = []
    for number, (job, seconds) in enumerate(zip(jobs, takes, strict=True)):
        due = job.at + within
        over += [each for each in machines if job.at - each.free > boot]
        machines = [each for each in machines if job.at - each.free <= boot]
        if not machines:
            machines = [_Machine(job.at + hold) for _ in range(opened)]
        ready = [each for each in machines if each.free <= due]
        if not ready:
            ready = [_Machine(due)]
            machines += ready
        chosen = min(ready, key=lambda each: each.free)
        if is_packed:
            used = [each for each in ready if each.run]
            chosen = max(used or ready, key=lambda each: each.free)
        begins = max(chosen.free, job.at)
        chosen.free = begins + seconds
        chosen.run.append((number, begins, chosen.free))
    return [each.run for each in (*over, *machines) if each.run]

"""What many jobs at once cost where capacity is scarce: work and boots that spot cannot take.

Two relaxations, each below every schedule. Work: of what a span has on sale no more is used than
its capacity gives and than the jobs that may run in it need; the rest is bought dearer. Boots: a
slot that is up for a span starts at most one job each time that the shortest takes, so jobs
that must all start within it need so many machines; those beyond the capacity of spot are not spot.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from research.bound.price import Prices
from research.bound.refund import refund_share
from research.bound.supply import Offered, Supply
from spindown.simulator.scenario import Arrival

_HOUR = 3600.0
_ROUNDING = 1e-9


def crowd_work(arrivals: Sequence[Arrival], prices: Prices, within: float, slowest: float) -> float:
    """Return the USD of the work at least, by the capacity of each span between two changes.

    Args:
        arrivals: in order of time.
        prices: of work.
        within: no start is later than this after the arrival.
        slowest: the least speed on sale: it takes longest for a job.
    """
    starts = [each.at for each in arrivals]
    ends = sorted(each.at + within + each.work_seconds / slowest for each in arrivals)
    by_end = sorted(arrivals, key=lambda x: x.at + within + x.work_seconds / slowest)
    came = [0.0, *accumulate(each.work_seconds / _HOUR for each in arrivals)]
    over = [0.0, *accumulate(each.work_seconds / _HOUR for each in by_end)]
    stock: list[tuple[float, float]] = []
    for begins, until, sold in prices.spans(starts[0], ends[-1]):
        wanted = came[bisect_left(starts, until)] - over[bisect_right(ends, begins)]
        # Cheapest first, a span sells at most what may be wanted in it.
        for price, hours in sorted(sold):
            taken = min(hours, wanted)
            if taken <= 0.0:
                break
            stock.append((price, taken))
            wanted -= taken
    left, dollars = came[-1], 0.0
    for price, hours in sorted(stock):
        taken = min(hours, left)
        dollars += taken * price
        left -= taken
    return dollars


def crowd_boots(
    arrivals: Sequence[Arrival], supply: Supply, extra: float, boot: float, within: float
) -> float:
    """Return the USD of the boots of as many machines as some jobs need side by side.

    Args:
        arrivals: in order of time.
        supply: what may run when.
        extra: USD per hour that every machine costs beside its price.
        boot: mean seconds of a boot.
        within: no start is later than this after the arrival.
    """
    best, count, fastest = 0.0, 2, supply.fastest
    while count <= len(arrivals):
        for first in range(0, len(arrivals) - count + 1, count // 2):
            jobs = arrivals[first : first + count]
            begins, until = jobs[0].at, jobs[-1].at + within
            shortest = min(job.work_seconds for job in jobs)
            starts = math.floor((until - begins) * fastest / max(shortest, 1e-9) + _ROUNDING) + 1
            starts *= supply.most_slots
            if starts >= count:
                continue
            left, dollars = float(math.ceil(count / starts)), 0.0
            offers = supply.within(begins, until)
            for price, machines in sorted((_hourly(each), each.machines) for each in offers):
                taken = min(machines, left)
                dollars += taken * (price + extra) * boot / _HOUR
                left -= taken
            best = max(best, dollars)
        count *= 2
    return best


def _hourly(offered: Offered) -> float:
    return offered.price * (1.0 - refund_share(offered.reclaims_per_hour))

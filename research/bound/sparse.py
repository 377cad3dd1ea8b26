"""What idling and boots cost at least when work comes thinly, beyond spans without any work.

Take jobs i and j whose spans [arrival, latest end] do not overlap, i before j. Whatever serves j
either became ready after i's latest end, and then its boot is paid for, or it is up all the time
from there to j's arrival, and then it idles for as long as there is no work to fill that gap.
Boots by the instant at which they are ready, and idle time by the gap in which it lies, are
counted once along a chain of such jobs; any chain gives a bound, the dearest the best.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from research.bound.price import Prices
from spindown.simulator.scenario import Arrival

_HOUR = 3600.0
#: How many jobs before the last one that must be over a chain looks back to.
_LOOKED_BACK = 48


def sparse_boots(
    arrivals: Sequence[Arrival], prices: Prices, boot: float, within: float, slowest: float
) -> float:
    """Return the USD of boots and idle time that no schedule avoids.

    Args:
        arrivals: in order of time.
        prices: of an hour.
        boot: mean seconds of a boot.
        within: no start is later than this after the arrival.
        slowest: the least speed on sale: it takes longest for a job.
    """
    if not arrivals:
        return 0.0
    starts = [each.at for each in arrivals]
    latest = [each.at + within + each.work_seconds / slowest for each in arrivals]
    order = sorted(range(len(arrivals)), key=latest.__getitem__)
    ends = [latest[index] for index in order]
    # Seconds of work of the jobs that have arrived by, and of those that must be over by then.
    came = [0.0, *accumulate(each.work_seconds / slowest for each in arrivals)]
    over = [0.0, *accumulate(arrivals[index].work_seconds / slowest for index in order)]
    best: list[float] = []
    #: The dearest chain among the first so many by latest end.
    dearest = [0.0]
    for at in starts:
        done = bisect_right(ends, at)
        first = boot / _HOUR * prices.hour(starts[0], at + within)
        here = max(first, dearest[min(done, len(dearest) - 1)])
        arrived = came[bisect_left(starts, at)]
        for place in range(max(done - _LOOKED_BACK, 0), done):
            # Nothing that is over by then, and nothing that has not come, can fill the gap.
            fill = arrived - over[place + 1]
            gap = min(at - ends[place] - max(fill, 0.0), boot)
            if gap > 0.0:
                hour = prices.hour(ends[place] - boot, at + within)
                here = max(here, best[order[place]] + gap / _HOUR * hour)
        best.append(here)
        while len(dearest) <= len(ends) and order[len(dearest) - 1] < len(best):
            dearest.append(max(dearest[-1], best[order[len(dearest) - 1]]))
    return max(best)

"""What work costs at the prices in force while it is done, each job on one pool.

The other bounds hop to whatever is cheapest at each moment, for nothing, and know which hours EC2
will not charge. Here a job stays where it began, and pays what that pool costs then. Who moves a
job that runs, or has luck with refunds, may pay less.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from spindown.domain.offer import extra_price_per_hour
from spindown.simulator.scenario import Arrival, SimScenario, Steps

_HOUR = 3600.0
_Floats = NDArray[np.float64]


def bought_work(scenario: SimScenario, *, start_within: float) -> float:
    """Return the USD of all work if each job has the best pool and the best start for itself.

    Args:
        scenario: a market without bounds of capacity.
        start_within: seconds from a job's arrival to its start, at most.
    """
    arrivals: Sequence[Arrival] = scenario.arrivals
    came = np.array([each.at for each in arrivals])
    work = np.array([each.work_seconds for each in arrivals])
    extra = extra_price_per_hour(scenario.root_volume_gib)
    best = np.full(len(arrivals), np.inf)
    for speed, slots, steps in _pools(scenario):
        last = float(came[-1] + start_within + (work / speed).max()) + 1.0
        found = _cheapest(came, work / speed, start_within, _paid_until(steps, extra, last))
        best = np.minimum(best, found / slots)
    return float(best.sum())


def _pools(scenario: SimScenario) -> Iterator[tuple[float, int, Steps]]:
    """Yield speed of a slot, slots and price over time of everything on sale."""
    for listing in scenario.listings:
        slots = scenario.slots_of(listing)
        if listing.on_demand is not None:
            yield listing.speed, slots, ((0.0, listing.on_demand),)
        for zone in listing.zones.values():
            if zone.spot:
                yield listing.speed, slots, zone.spot


def _paid_until(steps: Steps, extra: float, last: float) -> tuple[_Floats, _Floats]:
    """Return times, and the USD from second 0 until each of them."""
    first = steps[0][1]
    inner = [(at, price) for at, price in steps if 0.0 < at < last]
    begins = [price for at, price in steps if at <= 0.0]
    prices = np.array([begins[-1] if begins else first, *(price for _, price in inner)]) + extra
    times = np.array([0.0, *(at for at, _ in inner), last])
    paid = np.concatenate([[0.0], np.cumsum(np.diff(times) * prices / _HOUR)])
    return times, paid


def _cheapest(
    came: _Floats, takes: _Floats, within: float, pool: tuple[_Floats, _Floats]
) -> _Floats:
    """Return the least USD of each job: at an end of its span, or where a price changes."""
    times, paid = pool

    def cost(starts: _Floats, seconds: _Floats) -> _Floats:
        return np.interp(starts + seconds, times, paid) - np.interp(starts, times, paid)

    best = np.minimum(cost(came, takes), cost(came + within, takes))
    for change in times[1:-1]:
        for starts in (np.full_like(came, change), change - takes):
            here = (came <= starts) & (starts <= came + within)
            if here.any():
                best[here] = np.minimum(best[here], cost(starts[here], takes[here]))
    return best

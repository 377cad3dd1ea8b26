"""The cheapest way of one job through places that come and go, with a deadline (bound L3).

A dynamic program over (time, place): at each step the job runs in one place or in none, stays, or
moves to another after a boot there that is paid for. All prices and all capacity are known
beforehand, a move costs no time while another place still runs, and what a fall of capacity takes
within its first hour is free. How much has been done is not a state: work has a price instead,
and the dearest price gives the bound (Lagrange), which is below the true optimum at any price.
"""

import math
from dataclasses import dataclass
from itertools import accumulate

from research.bound.supply import Supply
from research.bound.wait import mean_boot
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator.scenario import SimScenario

#: Length of a step, seconds; a boot is whole steps, rounded down.
STEP = 30.0
_ROUNDS = 60
#: USD for a second of work: at this price all is done that can be.
_DEAREST = 100.0
_CLOSE = 1e-6


@dataclass(frozen=True, slots=True)
class _Place:
    """One way to run; both lists hold one value for each step, infinite where it is not there."""

    #: USD of running through the step.
    running: list[float]
    #: USD of a boot that ends with the beginning of the step.
    booting: list[float]
    #: Work done in a step, seconds on the reference GPU.
    work: float


def optimal_schedule(scenario: SimScenario, *, deadline: float, is_refunded: bool = True) -> float:
    """Return the least USD at which one machine at a time does all work by a deadline.

    Args:
        scenario: its work is taken as one job that is there from its first arrival on.
        deadline: seconds after that arrival; infinite if the work cannot be done by then.
        is_refunded: whether hours that will be free are sought out, which only a seer can; without
            it every hour costs its price, as in the optimum that the literature compares with.
    """
    steps = int(deadline // STEP) + 1
    places = _places(scenario, scenario.arrivals[0].at, steps, is_refunded=is_refunded)
    needed = scenario.work_seconds
    #: Two ways, the cheaper with too little work: USD and work.
    less, more = (0.0, 0.0), _cheapest(places, _DEAREST)
    if more[1] < needed:
        return math.inf
    best = 0.0
    for _ in range(_ROUNDS):
        # The price at which both ways are worth the same; what beats both there takes a place.
        price = (more[0] - less[0]) / (more[1] - less[1])
        dollars, work = way = _cheapest(places, price)
        best = max(best, dollars + price * (needed - work))
        if dollars - price * work >= less[0] - price * less[1] - _CLOSE:
            break
        less, more = (way, more) if work < needed else (less, way)
    return best


def _cheapest(places: list[_Place], price: float) -> tuple[float, float]:
    """Return USD and work of the way that is best where a second of work is worth ``price``."""
    nowhere = (0.0, 0.0)
    here = [(math.inf, 0.0)] * len(places)
    for step in range(len(places[0].running)):
        best = min(nowhere, *here)
        after = []
        for place, (stays, stay_work) in zip(places, here, strict=True):
            runs = place.running[step]
            if runs == math.inf:
                after.append((math.inf, 0.0))
                continue
            comes = best[0] + place.booting[step]
            worth = runs - price * place.work
            if comes < stays:
                after.append((comes + worth, best[1] + place.work))
            else:
                after.append((stays + worth, stay_work + place.work))
        here, nowhere = after, best
    value, work = min(nowhere, *here)
    return value + price * work, work


def _places(scenario: SimScenario, begins: float, steps: int, *, is_refunded: bool) -> list[_Place]:
    """Return every pool, and each pool of spot once more for the hours that will be free."""
    supply, hours = Supply(scenario), STEP / 3600.0
    extra = extra_price_per_hour(scenario.root_volume_gib) * hours
    boot = int(mean_boot(scenario.boot) // STEP)
    looks = [supply.by_pool(begins + step * STEP) for step in range(steps + 1)]
    found = []
    for pool in range(len(looks[0])):
        paid, free, throughput = [math.inf] * steps, [math.inf] * steps, 0.0
        for step in range(steps):
            # Generous: what is there at either end is there for the whole step.
            for each in (looks[step][pool], looks[step + 1][pool]):
                if each is None:
                    continue
                throughput = each.throughput
                paid[step] = min(paid[step], each.listed * hours + extra)
                if is_refunded and each.price < each.listed:
                    free[step] = extra
        found += [_Place(way, _boots(way, boot), throughput * STEP) for way in (paid, free)]
    return [place for place in found if min(place.running) < math.inf]


def _boots(running: list[float], boot: int) -> list[float]:
    """Return the cost of a boot of so many steps that ends with each step's beginning."""
    known = [0.0 if each == math.inf else each for each in running]
    sums = [0.0, *accumulate(known)]
    gone = [0, *accumulate(each == math.inf for each in running)]
    return [
        sums[step] - sums[step - boot]
        if step >= boot and gone[step] == gone[step - boot]
        else math.inf
        for step in range(len(running))
    ]

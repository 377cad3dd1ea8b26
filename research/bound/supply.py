"""When a market's capacity lets a spot instance run, and when its last hour will be free.

Clairvoyant and generous, as a bound must be: an instance may run on through its notice, one that
is to be taken for want of capacity may have been launched just late enough to cost nothing, and
one that works now may be in an hour that began at a price of up to an hour ago.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from spindown.domain.notice_time import NOTICE
from spindown.domain.offer import CapacityType
from spindown.simulator.scenario import Listing, SimScenario, Steps, Zone

_SPOT, _ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
_NOTICE = NOTICE.total_seconds()
#: An instance that EC2 takes within its first hour is not charged.
_FREE = 3600.0
#: An hour is sold at the price of its beginning.
_HOUR = 3600.0


class Track:
    """A piecewise constant value, looked up in the logarithm of its steps."""

    def __init__(self, steps: Steps, before: float | None) -> None:
        """Hold ``steps``; ``before`` is the value ahead of the first."""
        self._starts = [begins for begins, _ in steps]
        self._values = [before, *(value for _, value in steps)]

    def at(self, seconds: float) -> float | None:
        """Return the value in force."""
        return self._values[bisect_right(self._starts, seconds)]


@dataclass(frozen=True, slots=True)
class Offered:
    """One way to have machines for a while."""

    capacity_type: CapacityType
    #: USD per hour of the instance alone, 0 in an hour that will not be charged.
    price: float
    #: The same as it is listed.
    listed: float
    #: Of all slots together: work in a second, the reference GPU's being 1.
    throughput: float
    #: At the same time, at most; infinite: no end.
    machines: float
    #: How often EC2 takes one by chance, per hour.
    reclaims_per_hour: float = 0.0


class Supply:
    """What may run when: constant between two of ``starts``."""

    def __init__(self, scenario: SimScenario, *, is_refunded: bool = True) -> None:
        """Look at a market; without ``is_refunded`` every hour is charged."""
        self._stalls = [
            _Stall(listing, scenario.throughput(listing), zone, is_refunded=is_refunded)
            for listing in scenario.listings
            for zone in listing.zones.values()
        ]
        #: The greatest speed of a slot on sale, and the most slots of an instance.
        self.fastest = max(listing.speed for listing in scenario.listings)
        self.most_slots = max(map(scenario.slots_of, scenario.listings))
        self.starts: Sequence[float] = sorted(
            {0.0}.union(*(stall.changes for stall in self._stalls))
        )

    def at(self, seconds: float) -> list[Offered]:
        """Return everything that may run at a time."""
        return [offered for stall in self._stalls for offered in stall.at(seconds)]

    def by_pool(self, seconds: float) -> list[Offered | None]:
        """Return what may run at a time, with a place in the list for each pool; None: it may not.

        Pools come in the order of the scenario, spot before on demand.
        """
        found = []
        for stall in self._stalls:
            here = {each.capacity_type: each for each in stall.at(seconds)}
            found += [here.get(_SPOT), here.get(_ON_DEMAND)]
        return found

    def within(self, begins: float, ends: float) -> list[Offered]:
        """Return what may run within a span, each pool with its greatest capacity.

        Its price is the least since second 0, since a machine may have been up from then on.
        """
        first, last = bisect_left(self.starts, begins), bisect_right(self.starts, ends)
        cuts = [begins, *self.starts[first:last]]
        return [each for stall in self._stalls for each in stall.within(cuts)]


class _Stall:
    """One type in one zone, as spot and on demand."""

    def __init__(
        self, listing: Listing, throughput: float, zone: Zone, *, is_refunded: bool
    ) -> None:
        self._listing = listing
        self._throughput = throughput
        self._reclaims = zone.reclaims_per_hour if is_refunded else 0.0
        self._zone = zone
        self._spot = Track(spot := _paid(zone.spot), None)
        self._capacity = Track(_usable(zone.capacity), float("inf"))
        self._on_demand = Track(zone.on_demand_capacity, float("inf"))
        self._free = Track(_free(zone.capacity) if is_refunded else (), 0.0)
        self._cheapest: list[tuple[float, float]] = []
        steps = (spot, zone.on_demand_capacity, _usable(zone.capacity), _free(zone.capacity))
        #: When any of it changes, after second 0.
        self.changes = {begins for each in steps for begins, _ in each if begins > 0.0}

    def at(self, seconds: float) -> list[Offered]:
        listing, found = self._listing, []
        if listing.on_demand is not None:
            machines = self._on_demand.at(seconds) or 0.0
            if machines > 0.0:
                found.append(
                    Offered(
                        _ON_DEMAND,
                        listing.on_demand,
                        listing.on_demand,
                        self._throughput,
                        machines,
                    )
                )
        spot, machines = self._spot.at(seconds), self._capacity.at(seconds) or 0.0
        if spot is not None and machines > 0.0:
            price = 0.0 if self._free.at(seconds) else spot
            found.append(Offered(_SPOT, price, spot, self._throughput, machines, self._reclaims))
        return found

    def within(self, cuts: Sequence[float]) -> list[Offered]:
        """Return what of it may run at one of some times at least."""
        best: dict[CapacityType, Offered] = {}
        for each in chain.from_iterable(map(self.at, cuts)):
            known = best.setdefault(each.capacity_type, each)
            if each.machines > known.machines:
                best[each.capacity_type] = each
        if _SPOT in best:
            best[_SPOT] = replace(best[_SPOT], price=self._least(cuts[-1]))
        return list(best.values())

    def _least(self, until: float) -> float:
        """Return the least price of spot from second 0 to a time."""
        if not self._cheapest:
            least = math.inf
            for at in sorted({0.0} | self.changes):
                least = min([least, *(x.price for x in self.at(at) if x.capacity_type is _SPOT)])
                self._cheapest.append((at, least))
        place = bisect_right(self._cheapest, until, key=lambda step: step[0])
        return self._cheapest[place - 1][1]


def generous(scenario: SimScenario) -> SimScenario:
    """Return the scenario with spot at the least price that an hour at work may be paid at."""
    listings = tuple(
        replace(
            listing,
            zones={
                name: replace(zone, spot=_paid(zone.spot)) for name, zone in listing.zones.items()
            },
        )
        for listing in scenario.listings
    )
    return replace(scenario, listings=listings)


def _paid(spot: Steps) -> Steps:
    """Return the least price at which an hour can have begun that is not over.

    Worked: 0.10 until second 1,000 and then 0.40: 0.10 until second 4,600.
    """
    rises = deque((after[0], was[1]) for was, after in pairwise(spot) if was[1] < after[1])
    cuts = sorted({at for at, _ in spot} | {at + _HOUR for at, _ in rises})
    plain, found = Track(spot, None), []
    #: Lower prices of the last hour, with the second at which the last hour at them is over.
    held: deque[tuple[float, float]] = deque()
    for cut in cuts:
        while rises and rises[0][0] <= cut:
            at, price = rises.popleft()
            held.append((at + _HOUR, price))
        while held and held[0][0] <= cut:
            held.popleft()
        now = plain.at(cut)
        found.append((cut, min([price for _, price in held] + ([] if now is None else [now]))))
    return tuple(found)


def _falls(capacity: Steps) -> list[tuple[float, float]]:
    """Return when capacity falls, and from how much."""
    return [(after[0], before[1]) for before, after in pairwise(capacity) if after[1] < before[1]]


def _usable(capacity: Steps) -> Steps:
    """Return how many instances may run: for the length of a notice what was there before a fall.

    Worked: 2 machines, none from second 1,000 on: 2 until second 1,120.
    """
    falls = _falls(capacity)
    if not falls:
        return capacity
    plain = Track(capacity, float("inf"))
    cuts = sorted({at for at, _ in capacity} | {at + _NOTICE for at, _ in falls})
    found, first = [], 0
    for cut in cuts:
        while falls[first:] and falls[first][0] + _NOTICE <= cut:
            first += 1
        over = [was for at, was in falls[first:] if at <= cut]
        found.append((cut, max([plain.at(cut) or 0.0, *over])))
    return tuple(found)


def _free(capacity: Steps) -> Steps:
    """Return 1 while an instance that the next fall takes would be in its first hour, else 0."""
    spans: list[list[float]] = []
    for at, _ in _falls(capacity):
        begins, ends = at + _NOTICE - _FREE, at + _NOTICE
        if spans and begins <= spans[-1][1]:
            spans[-1][1] = ends
        else:
            spans.append([begins, ends])
    return tuple(step for begins, ends in spans for step in ((begins, 1.0), (ends, 0.0)))

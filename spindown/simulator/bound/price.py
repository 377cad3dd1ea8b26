"""The cheapest hour and the cheapest work that a market offers at a time, clairvoyantly."""

import math
from bisect import bisect_right

from spindown.domain.offer import extra_price_per_hour
from spindown.simulator.scenario import Listing, SimScenario, Zone, value_at


class Prices:
    """What the best buyer pays: piecewise constant over time.

    Capacity is taken to be without end. A spot instance that EC2 reclaims within its first hour
    is free, which lowers the mean price of an hour by at most the share that ``refund_share``
    gives; root volume and address are never free.
    """

    def __init__(self, scenario: SimScenario, *, boot: float = 0.0) -> None:
        """Look at a market.

        Args:
            scenario: what is sold.
            boot: seconds that each instance is paid for before it works, where an hour is to be
                one of work; 0 where boots are counted apart.
        """
        self._extra = extra_price_per_hour(scenario.root_volume_gib)
        self._boot = boot / 3600.0
        starts = {0.0}
        for listing in scenario.listings:
            for zone in listing.zones.values():
                starts.update(begins for begins, _ in zone.spot)
        self._starts = sorted(starts)
        self._hour: list[float] = []
        self._work: list[float] = []
        for begins in self._starts:
            offers = [
                (price, price / listing.speed)
                for listing in scenario.listings
                for zone in listing.zones.values()
                for price in self._of(listing, zone, begins)
            ]
            self._hour.append(min((hour for hour, _ in offers), default=math.inf))
            self._work.append(min((work for _, work in offers), default=math.inf))

    def hour(self, begins: float, ends: float) -> float:
        """Return the least USD per hour of an instance within a span of seconds."""
        return self._least(self._hour, begins, ends)

    def work(self, begins: float, ends: float) -> float:
        """Return the least USD per hour of work on the reference GPU within a span."""
        return self._least(self._work, begins, ends)

    def _of(self, listing: Listing, zone: Zone, at: float) -> list[float]:
        found = [] if listing.on_demand is None else [listing.on_demand + self._extra]
        spot = value_at(zone.spot, at)
        if spot is not None:
            free = refund_share(zone.reclaims_per_hour, self._boot)
            found.append(spot * (1.0 - free) + self._extra)
        return found

    def _least(self, values: list[float], begins: float, ends: float) -> float:
        first = max(bisect_right(self._starts, begins) - 1, 0)
        last = max(bisect_right(self._starts, ends) - 1, first)
        return min(values[first : last + 1])


def refund_share(reclaims_per_hour: float, boot_hours: float = 0.0) -> float:
    """Return the largest mean share of its working hours that a spot instance does not pay for.

    With reclaims at a rate of l an hour, an instance that its owner ends after an hour runs
    (1 - e^-l) / l hours in the mean, of which e^-l are paid; ending it sooner or later makes the
    free share smaller. A boot of b hours is paid like work and is none: then it is the share of
    (1 - e^-l) / l - b, and 0 if that is less, since an instance that lives for ever pays for all.
    Worked: l = 0.1 gives 0.049, and 0.024 with a boot of 90 s.
    """
    if reclaims_per_hour <= 0.0:
        return 0.0
    lives = math.exp(-reclaims_per_hour)
    works = (1.0 - lives) / reclaims_per_hour - boot_hours
    return max(0.0, 1.0 - lives / works) if works > 0.0 else 0.0

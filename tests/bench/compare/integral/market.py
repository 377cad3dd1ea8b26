"""What an hour costs at best, and where a trace falls into parts."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import Arrival, Listing, SimScenario
from spindown.simulator.bound import mean_boot
from spindown.simulator.bound.refund import refund_share
from spindown.simulator.scenario import value_at

_HOUR = 3600.0


class Market:
    """The cheapest hour of each speed, piecewise constant."""

    def __init__(self, scenario: SimScenario, *, is_refunded: bool) -> None:
        listings = scenario.listings
        self.boot = mean_boot(scenario.boot)
        self.starts = sorted(
            {0.0}.union(
                at for each in listings for zone in each.zones.values() for at, _ in zone.spot
            )
        )
        extra = extra_price_per_hour(scenario.root_volume_gib)
        every = {
            speed: [_cheapest(listings, speed, at, is_refunded) + extra for at in self.starts]
            for speed in sorted({each.speed for each in listings})
        }
        self.slowest = min(every)
        # A machine that is slower and never cheaper is of no use to anybody.
        self.hours = {
            speed: own
            for speed, own in every.items()
            if not any(
                other > speed and all(a <= b for a, b in zip(every[other], own, strict=True))
                for other in every
            )
        }

    def least(self, speed: float, begins: float, ends: float) -> float:
        """Return the least USD per hour within a span."""
        return min(self._within(self.hours[speed], begins, ends))

    def by_step(self, speed: float, first: float, step: float, count: int) -> Sequence[float]:
        """Return the least USD per hour within each of some steps."""
        return [self.least(speed, first + s * step, first + (s + 1) * step) for s in range(count)]

    def charge(self, speed: float, begins: float, ends: float) -> float:
        """Return the USD of a machine that is ready from one second to another, and its boot."""
        at, dollars, own = begins - self.boot, 0.0, self.hours[speed]
        while at < ends:
            place = bisect_right(self.starts, at)
            until = min(ends, self.starts[place]) if place < len(self.starts) else ends
            dollars += own[max(place - 1, 0)] * (until - at) / _HOUR
            at = until
        return dollars

    def swing(self, begins: float, ends: float) -> float:
        """Return the dearest over the cheapest price of a span, of the speed that moves most."""
        spans = (self._within(own, begins, ends) for own in self.hours.values())
        return max(max(span) / min(span) for span in spans)

    def _within(self, own: Sequence[float], begins: float, ends: float) -> Sequence[float]:
        first = max(bisect_right(self.starts, begins) - 1, 0)
        return own[first : max(bisect_right(self.starts, ends), first + 1)]


def _cheapest(listings: Sequence[Listing], speed: float, at: float, is_refunded: bool) -> float:
    sold = [listing for listing in listings if listing.speed == speed]
    prices = [listing.on_demand for listing in sold if listing.on_demand is not None]
    for zone in (zone for listing in sold for zone in listing.zones.values()):
        price = value_at(zone.spot, at)
        if price is not None:
            free = refund_share(zone.reclaims_per_hour) if is_refunded else 0.0
            prices.append(price * (1.0 - free))
    return min(prices, default=math.inf)


def parts(scenario: SimScenario, market: Market, within: float) -> Iterator[Sequence[Arrival]]:
    """Yield jobs between which and all others no machine is worth keeping, in order of time."""
    part: list[Arrival] = []
    over = -math.inf
    for each in sorted(scenario.arrivals, key=lambda each: each.at):
        if part and each.at - over > market.boot * market.swing(over, each.at):
            yield part
            part = []
        part.append(each)
        takes = each.work_seconds / market.slowest + scenario.delays.commit
        over = max(over, each.at + within + takes)
    if part:
        yield part

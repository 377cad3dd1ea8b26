"""What an hour costs at best, and where a trace falls into parts."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from research.bound import mean_boot
from research.compare.integral.age import fair_surcharge, long_hour, short_hour, spared
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import Arrival, Listing, SimScenario
from spindown.simulator.scenario import value_at

_HOUR = 3600.0
#: Hours of a life that is neither short nor long.
_USUAL = 0.5


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to be charged for machines of a speed."""

    #: USD per hour of the cheapest zone, from each of the market's starts on.
    hours: Sequence[float]
    #: USD of each launch besides.
    surcharge: float


class Market:
    """The cheapest hour of each speed, piecewise constant."""

    def __init__(self, scenario: SimScenario, *, is_refunded: bool) -> None:
        """Look at a market.

        Args:
            scenario: what is sold.
            is_refunded: whether what EC2 takes within an hour is free: each speed then has two
                kinds, for short lives and for long ones (``age``).
        """
        listings = scenario.listings
        self.boot = mean_boot(scenario.boot)
        self.starts = sorted(
            {0.0}.union(
                at for each in listings for zone in each.zones.values() for at, _ in zone.spot
            )
        )
        extra = extra_price_per_hour(scenario.root_volume_gib)
        every = {}
        for speed in sorted({each.speed for each in listings}):
            sold = _sold([each for each in listings if each.speed == speed], self.starts)
            every[speed] = _kinds(sold, extra, is_refunded=is_refunded)
        self.slowest = min(every)
        # A machine that is slower and never cheaper is of no use to anybody.
        self.kinds = {
            speed: own
            for speed, own in every.items()
            if not any(other > speed and _beats(every[other], own) for other in every)
        }
        #: Of the first kind of each speed.
        self.hours = {speed: own[0].hours for speed, own in self.kinds.items()}
        dearest = (kind.surcharge / min(kind.hours) for own in self.kinds.values() for kind in own)
        #: Seconds of idling that cost as much as another launch, at steady prices.
        self.launch = self.boot + max(dearest) * _HOUR

    def least(self, kind: Kind, begins: float, ends: float) -> float:
        """Return the least USD per hour within a span."""
        return min(self._within(kind.hours, begins, ends))

    def by_step(self, kind: Kind, first: float, step: float, count: int) -> Sequence[float]:
        """Return the least USD per hour within each of some steps."""
        return [self.least(kind, first + s * step, first + (s + 1) * step) for s in range(count)]

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
        kinds = (kind for own in self.kinds.values() for kind in own)
        spans = (self._within(kind.hours, begins, ends) for kind in kinds)
        return max(max(span) / min(span) for span in spans)

    def _within(self, own: Sequence[float], begins: float, ends: float) -> Sequence[float]:
        first = max(bisect_right(self.starts, begins) - 1, 0)
        return own[first : max(bisect_right(self.starts, ends), first + 1)]


def _sold(
    listings: Sequence[Listing], starts: Sequence[float]
) -> list[tuple[float, Sequence[float]]]:
    """Return reclaims per hour and the price from each start on, of each zone and on demand."""
    plain = [each.on_demand for each in listings if each.on_demand is not None]
    sold: list[tuple[float, Sequence[float]]] = [(0.0, [price] * len(starts)) for price in plain]
    for zone in (zone for each in listings for zone in each.zones.values()):
        spot = (value_at(zone.spot, at) for at in starts)
        prices = [math.inf if price is None else price for price in spot]
        sold.append((zone.reclaims_per_hour, prices))
    return sold


def _kinds(
    sold: Sequence[tuple[float, Sequence[float]]], extra: float, *, is_refunded: bool
) -> Sequence[Kind]:
    spans = range(len(sold[0][1]))

    def kind(hour: Callable[[float, float], float], surcharge: float = 0.0) -> Kind:
        hours = [min(hour(own[span], rate) for rate, own in sold) + extra for span in spans]
        return Kind(hours, surcharge)

    if not is_refunded:
        return [kind(lambda price, _: price)]
    # Any surcharge is as true as another; this one is fair to a zone that is cheap at half an hour.
    cheap = {rate: min(own) for rate, own in sold if math.isfinite(min(own))}
    best = min(cheap, key=lambda rate: cheap[rate] * (1.0 - rate * spared(_USUAL) / _USUAL))
    surcharge = fair_surcharge(cheap[best], best)
    long = kind(lambda price, rate: long_hour(price, rate, surcharge), surcharge)
    return [kind(short_hour), long] if surcharge > 0.0 else [kind(short_hour)]


def _beats(one: Sequence[Kind], other: Sequence[Kind]) -> bool:
    """Tell whether each kind of the other is never cheaper than some kind of the one."""
    return all(
        any(
            own.surcharge <= kind.surcharge
            and all(a <= b for a, b in zip(own.hours, kind.hours, strict=True))
            for own in one
        )
        for kind in other
    )


def parts(scenario: SimScenario, market: Market, within: float) -> Iterator[Sequence[Arrival]]:
    """Yield jobs between which and all others no machine is worth keeping, in order of time."""
    part: list[Arrival] = []
    over = -math.inf
    for each in sorted(scenario.arrivals, key=lambda each: each.at):
        if part and each.at - over > market.launch * market.swing(over, each.at):
            yield part
            part = []
        part.append(each)
        takes = each.work_seconds / market.slowest + scenario.delays.commit
        over = max(over, each.at + within + takes)
    if part:
        yield part

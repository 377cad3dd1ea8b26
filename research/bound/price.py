"""The cheapest hour and the cheapest work that a market offers at a time, clairvoyantly."""

import math
from bisect import bisect_right
from collections.abc import Iterator

from research.bound.refund import refund_share
from research.bound.supply import Offered, Supply
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator.scenario import SimScenario

#: From, to, and what is sold: USD per hour of work on the reference GPU, hours of it at most.
Sold = tuple[float, float, list[tuple[float, float]]]


class Prices:
    """What the best buyer pays: piecewise constant over time.

    What has no capacity at a time is not on sale then. A spot instance that EC2 reclaims within its
    first hour is free, which lowers the mean price of an hour by at most the share that
    ``refund_share`` gives, and to nothing where a fall of capacity can be foreseen; root volume
    and address are never free.
    """

    def __init__(
        self, scenario: SimScenario, *, boot: float = 0.0, is_refunded: bool = True
    ) -> None:
        """Look at a market.

        Args:
            scenario: what is sold.
            boot: seconds that each instance is paid for before it works, where an hour is to be
                one of work; 0 where boots are counted apart.
            is_refunded: whether hours that EC2 will not charge are counted as free.
        """
        self._extra = extra_price_per_hour(scenario.root_volume_gib)
        self._boot = boot / 3600.0
        supply = Supply(scenario, is_refunded=is_refunded)
        self._starts = supply.starts
        self._hour: list[float] = []
        self._work: list[float] = []
        #: Everything on sale in each span: USD per hour of work, and work per hour at most.
        self._sold: list[list[tuple[float, float]]] = []
        for begins in self._starts:
            offers = [(self._hourly(each), each) for each in supply.at(begins)]
            works = [(price / each.throughput, each) for price, each in offers]
            self._hour.append(min((price for price, _ in offers), default=math.inf))
            self._work.append(min((price for price, _ in works), default=math.inf))
            self._sold.append([(price, each.machines * each.throughput) for price, each in works])

    def hour(self, begins: float, ends: float) -> float:
        """Return the least USD per hour of an instance within a span of seconds."""
        return self._least(self._hour, begins, ends)

    def work(self, begins: float, ends: float) -> float:
        """Return the least USD per hour of work on the reference GPU within a span."""
        return self._least(self._work, begins, ends)

    def spans(self, begins: float, ends: float) -> Iterator[Sold]:
        """Yield what is sold from when to when, between two changes each."""
        first, last = self._span(begins, ends)
        for index in range(first, last + 1):
            until = self._starts[index + 1] if index + 1 < len(self._starts) else math.inf
            since, until = max(self._starts[index], begins), min(until, ends)
            hours = max(until - since, 0.0) / 3600.0
            yield since, until, [(price, hours * most) for price, most in self._sold[index]]

    def _hourly(self, offered: Offered) -> float:
        free = refund_share(offered.reclaims_per_hour, self._boot)
        return offered.price * (1.0 - free) + self._extra

    def _span(self, begins: float, ends: float) -> tuple[int, int]:
        first = max(bisect_right(self._starts, begins) - 1, 0)
        return first, max(bisect_right(self._starts, ends) - 1, first)

    def _least(self, values: list[float], begins: float, ends: float) -> float:
        first, last = self._span(begins, ends)
        return min(values[first : last + 1])

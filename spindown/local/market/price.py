"""Prices over time: what each pool costs at a moment, how it came there, and what a stay costs.

A spot price is a step function of time. Scripted moves and the random walk are drawn up front or
on demand from the seed, so the same scenario always has the same prices.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from spindown.domain.offer import CapacityType, Pool
from spindown.local.market.scenario import Scenario, TypeMarket

#: How long before the market's start the opening prices took effect.
_OPENED_BEFORE = timedelta(hours=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """From this moment a pool's spot price is this."""

    instance_type: str
    zone: str
    price_per_hour: float
    at: datetime


@dataclass(slots=True)
class _Steps:
    """One pool's step function; `drawn_until` bounds how far the walk has gone."""

    at: list[datetime]
    price: list[float]
    scripted: list[tuple[datetime, float]]
    walk: random.Random
    drawn_until: datetime
    bounds: tuple[float, float] = field(default=(0.0, math.inf))


class PriceBook:
    """Every price of one scenario, from the market's start on."""

    def __init__(self, scenario: Scenario, *, started_at: datetime) -> None:
        """Open the book at `started_at`; opening prices are six hours old by then."""
        self._scenario = scenario
        self._started_at = started_at
        self._steps = {
            (name, zone): self._open(name, market, zone, price)
            for name, market in scenario.type.items()
            for zone, price in market.spot.items()
        }

    def _open(self, name: str, market: TypeMarket, zone: str, price: float) -> _Steps:
        scripted = sorted(
            (self._started_at + move.at, move.spot)
            for move in self._scenario.price
            if move.covers(name, zone)
        )
        on_demand = market.on_demand_in(zone[:-1]) or price
        walk = self._scenario.walk
        bounds = (walk.floor * on_demand, walk.ceiling * on_demand) if walk else (0.0, math.inf)
        source = random.Random(f"{self._scenario.seed}/{name}/{zone}")
        opened_at = self._started_at - _OPENED_BEFORE
        return _Steps([opened_at], [price], scripted, source, self._started_at, bounds)

    def on_demand(self, instance_type: str, region: str) -> float | None:
        """Return the on-demand price in USD per hour, None where the scenario sells none."""
        market = self._scenario.type.get(instance_type)
        return market.on_demand_in(region) if market else None

    def spot(self, instance_type: str, zone: str, at: datetime) -> float | None:
        """Return the spot price at a moment, None where there is no spot market."""
        steps = self._drawn((instance_type, zone), at)
        return None if steps is None else steps.price[max(bisect_right(steps.at, at) - 1, 0)]

    def history(self, region: str, start: datetime, end: datetime) -> Iterator[PriceChange]:
        """Yield the changes in [start, end] of every pool, and the last one before `start`."""
        for instance_type, zone in sorted(self._steps):
            if zone[:-1] != region:
                continue
            steps = self._drawn((instance_type, zone), end)
            if steps is None:
                continue
            first = max(bisect_right(steps.at, start) - 1, 0)
            for at, price in zip(steps.at[first:], steps.price[first:], strict=True):
                if at <= end:
                    yield PriceChange(
                        instance_type=instance_type, zone=zone, price_per_hour=price, at=at
                    )

    def current(self, pool: Pool, at: datetime) -> float | None:
        """Return what an hour in the pool costs at a moment, None where nothing is sold."""
        if pool.capacity_type is CapacityType.ON_DEMAND:
            return self.on_demand(pool.instance_type, pool.zone[:-1])
        return self.spot(pool.instance_type, pool.zone, at)

    def cost(self, pool: Pool, start: datetime, end: datetime) -> float:
        """Return the dollars of a stay in a pool: the price at each moment, summed over time."""
        edges = [start, end]
        if pool.capacity_type is CapacityType.SPOT:
            steps = self._drawn((pool.instance_type, pool.zone), end)
            moves = steps.at if steps else []
            edges = [start, *(at for at in moves if start < at < end), end]
        return sum(
            (self.current(pool, left) or 0.0) * ((right - left) / timedelta(hours=1))
            for left, right in pairwise(edges)
        )

    def _drawn(self, pool: tuple[str, str], until: datetime) -> _Steps | None:
        """Return a pool's steps with the walk and the script carried out up to `until`."""
        steps = self._steps.get(pool)
        if steps is None:
            return None
        walk = self._scenario.walk
        while walk and steps.drawn_until + walk.step <= until:
            steps.drawn_until += walk.step
            self._play_script(steps, steps.drawn_until)
            low, high = steps.bounds
            factor = math.exp(steps.walk.gauss(0.0, walk.volatility))
            steps.at.append(steps.drawn_until)
            steps.price.append(round(min(max(steps.price[-1] * factor, low), high), 4))
        self._play_script(steps, until)
        return steps

    @staticmethod
    def _play_script(steps: _Steps, until: datetime) -> None:
        while steps.scripted and steps.scripted[0][0] <= until:
            at, price = steps.scripted.pop(0)
            steps.at.append(at)
            steps.price.append(price)

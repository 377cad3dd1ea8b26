"""What a scenario sells, as the listings of the EC2 model: types, zones, quotas, moving prices.

A spot price is a step function of time. Its moves come from the scenario's script and from its
random walk, drawn on demand from the seed, so that a scenario always has the same prices.
"""

import math
import random
from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta

from spindown.ec2sim import QUOTAS, Listings, PriceSteps
from spindown.local.market.catalogue import instance_types, offerings
from spindown.local.market.scenario import Scenario, TypeMarket

#: How long before the market's start the opening prices took effect.
_OPENED_BEFORE = timedelta(hours=6)


def open_listings(scenario: Scenario, *, started_at: datetime) -> Listings:
    """Return what the scenario sells from ``started_at`` on."""
    listings = Listings()
    listings.types.update(instance_types())
    opened_at = started_at - _OPENED_BEFORE
    for region in scenario.regions:
        zones = listings.offerings.setdefault(region, {})
        for name, zone in offerings(region, "availability-zone"):
            zones.setdefault(zone, set()).add(name)
        limits = {quota.code: scenario.quota.get(quota.code, quota.default) for quota in QUOTAS}
        listings.quotas[region] = limits
    for name, market in scenario.type.items():
        for region in scenario.regions:
            price = market.on_demand_in(region)
            if price is not None:
                listings.move_on_demand_price(name, region, price, at=opened_at)
        for zone, price in market.spot.items():
            moves = _moves(scenario, name, market, zone, started_at)
            listings.spot[name, zone] = PriceSteps(moves, opening=(opened_at, price))
    return listings


def _moves(
    scenario: Scenario, name: str, market: TypeMarket, zone: str, started_at: datetime
) -> Iterator[tuple[datetime, float]]:
    """Yield the moves of one spot price in order of time: scripted ones and, for ever, the walk."""
    scripted = deque(
        sorted(
            (started_at + move.at, move.spot) for move in scenario.price if move.covers(name, zone)
        )
    )
    walk, price = scenario.walk, market.spot[zone]
    if walk is not None:
        source = random.Random(f"{scenario.seed}/{name}/{zone}")
        on_demand = market.on_demand_in(zone[:-1]) or price
        low, high = walk.floor * on_demand, walk.ceiling * on_demand
        at = started_at
        while True:
            at += walk.step
            while scripted and scripted[0][0] <= at:
                price = scripted[0][1]
                yield scripted.popleft()
            factor = math.exp(source.gauss(0.0, walk.volatility))
            price = round(min(max(price * factor, low), high), 4)
            yield at, price
    yield from scripted

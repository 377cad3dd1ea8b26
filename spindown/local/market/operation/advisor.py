"""The spot advisor's file: how often the scenario reclaims each type, in AWS's own buckets."""

import json
import math
from typing import Any

from spindown.local.market.scenario import Scenario

#: Where the gateway serves it.
ADVISOR_PATH = "/spot-advisor-data.json"

#: Upper limits of the buckets, per cent a month, as in AWS's file.
_LIMITS = (5, 11, 16, 22, 100)
_LABELS = ("<5%", "5-10%", "10-15%", "15-20%", ">20%")
_HOURS_PER_MONTH = 730.0


def spot_advisor_data(scenario: Scenario) -> bytes:
    """Return the file: every spot type of every region of the scenario, with its bucket."""
    ranges = [
        {"index": index, "label": label, "dots": index, "max": limit}
        for index, (label, limit) in enumerate(zip(_LABELS, _LIMITS, strict=True))
    ]
    regions: dict[str, Any] = {}
    for name, market in scenario.type.items():
        for zone, price in market.spot.items():
            on_demand = market.on_demand_in(zone[:-1]) or price
            savings = round(100 * (1 - min(price / on_demand, 1.0)))
            linux = regions.setdefault(zone[:-1], {"Linux": {}, "Windows": {}})["Linux"]
            linux[name] = {"s": savings, "r": _bucket(_rate(scenario, name, zone[:-1]))}
    return json.dumps({"ranges": ranges, "spot_advisor": regions}, sort_keys=True).encode()


def _rate(scenario: Scenario, instance_type: str, region: str) -> float:
    """Return the reclaims an hour of a type in the zone of a region where there are most."""
    zones = [z for z in scenario.type[instance_type].spot if z[:-1] == region]
    return max(
        sum(
            rule.rate_per_hour or 0.0
            for rule in scenario.interruption
            if rule.covers(instance_type, zone)
        )
        for zone in zones
    )


def _bucket(per_hour: float) -> int:
    share = -100.0 * math.expm1(-per_hour * _HOURS_PER_MONTH)
    # The last bucket is open.
    return sum(share >= limit for limit in _LIMITS[:-1])

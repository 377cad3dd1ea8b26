"""What could be bought: instance types, where they are offered, spot prices, reclaim shares."""

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from spindown.local.market.catalogue import Location, described_types, offerings
from spindown.local.market.operation.call import (
    Answer,
    ApiCall,
    Operation,
    Readers,
    page,
    passes,
)
from spindown.local.market.scenario import Scenario
from spindown.local.market.wire.protocol import (
    ApiError,
    known_members,
    output_shape,
    timestamp,
)

_PRODUCT = "Linux/UNIX"
_MOST_NAMES = 100
_Raw = Mapping[str, Any]

_TYPES: Readers[_Raw] = {
    "instance-type": lambda raw: [raw["InstanceType"]],
    "bare-metal": lambda raw: [str(raw["BareMetal"]).lower()],
    "current-generation": lambda raw: [str(raw["CurrentGeneration"]).lower()],
    "processor-info.supported-architecture": lambda raw: raw["ProcessorInfo"][
        "SupportedArchitectures"
    ],
    "supported-usage-class": lambda raw: raw["SupportedUsageClasses"],
    "vcpu-info.default-vcpus": lambda raw: [str(raw["VCpuInfo"]["DefaultVCpus"])],
    "memory-info.size-in-mib": lambda raw: [str(raw["MemoryInfo"]["SizeInMiB"])],
}


def describe_instance_types(call: ApiCall) -> Answer:
    """Describe the types offered in the region, by name or by filter."""
    asked = call.parameters
    names = asked.get("InstanceTypes", [])
    if len(names) > _MOST_NAMES:
        message = f"The maximum number of instance types that can be described is {_MOST_NAMES}."
        raise ApiError("InvalidParameterValue", message)
    if names and asked.get("MaxResults"):
        message = "The parameter InstanceTypes cannot be used with the parameter MaxResults"
        raise ApiError("InvalidParameterCombination", message)
    offered = {name for name, _ in offerings(call.region, "region")} & set(described_types())
    missing = [name for name in names if name not in offered]
    if missing:
        message = f"The following supplied instance types do not exist: [{', '.join(missing)}]"
        raise ApiError("InvalidInstanceType", message)
    call.refuse_dry_run()
    found = [described_types()[name] for name in names or sorted(offered)]
    chosen = [raw for raw in found if passes(raw, asked.get("Filters", []), _TYPES)]
    rows, token = page(chosen, asked, largest=100)
    shape = output_shape("ec2", "DescribeInstanceTypes")
    answer: Answer = known_members(shape, {"InstanceTypes": rows})
    return {**answer, "NextToken": token}


_OFFERED: Readers[tuple[str, str]] = {
    "instance-type": lambda pair: [pair[0]],
    "location": lambda pair: [pair[1]],
}


def describe_instance_type_offerings(call: ApiCall) -> Answer:
    """List where types are offered; by region unless the request says zones or zone ids.

    Only those that the scenario sells: no other has a price, and work for it would wait for ever.
    """
    asked = call.parameters
    call.refuse_dry_run()
    location: Location = asked.get("LocationType", "region")
    sold = call.market.scenario.type
    pairs = sorted(pair for pair in offerings(call.region, location) if pair[0] in sold)
    chosen = [pair for pair in pairs if passes(pair, asked.get("Filters", []), _OFFERED)]
    rows, token = page(chosen, asked, largest=1000)
    return {
        "InstanceTypeOfferings": [
            {"InstanceType": name, "LocationType": location, "Location": place}
            for name, place in rows
        ],
        "NextToken": token,
    }


_PRICED: Readers[dict[str, Any]] = {
    "availability-zone": lambda row: [row["AvailabilityZone"]],
    "instance-type": lambda row: [row["InstanceType"]],
    "product-description": lambda row: [row["ProductDescription"]],
    "spot-price": lambda row: [row["SpotPrice"]],
    "timestamp": lambda row: [timestamp(row["Timestamp"])],
}


def describe_spot_price_history(call: ApiCall) -> Answer:
    """List price changes, newest first, with the last one before StartTime for every pool.

    Products are the two names of Linux; a request for others alone finds nothing. The last page
    has an empty token, as on EC2.
    """
    asked = call.parameters
    call.refuse_dry_run()
    now = call.market.now()
    products = asked.get("ProductDescriptions") or [_PRODUCT]
    start: datetime = asked.get("StartTime", call.market.started_at)
    end: datetime = min(asked.get("EndTime", now), now)
    with call.market.held():
        changes = call.market.listings.spot_changes(call.region, min(start, now), end)
    newest_first = sorted(changes, key=lambda change: change.seen_at, reverse=True)
    listed: list[Answer] = [
        {
            "AvailabilityZone": change.zone,
            "InstanceType": change.instance_type,
            "ProductDescription": _PRODUCT,
            "SpotPrice": f"{change.price:.6f}",
            "Timestamp": change.seen_at,
        }
        for change in newest_first
        if _PRODUCT in products
        and change.zone == asked.get("AvailabilityZone", change.zone)
        and change.instance_type in asked.get("InstanceTypes", [change.instance_type])
    ]
    chosen = [row for row in listed if passes(row, asked.get("Filters", []), _PRICED)]
    rows, token = page(chosen, asked, largest=1000)
    return {"SpotPriceHistory": list(rows), "NextToken": token or ""}


#: Upper limits of the buckets, per cent a month, as in AWS's file.
_LIMITS = (5, 11, 16, 22, 100)
_LABELS = ("<5%", "5-10%", "10-15%", "15-20%", ">20%")
_HOURS_PER_MONTH = 730.0


def spot_advisor_data(scenario: Scenario) -> bytes:
    """Return the spot advisor's file: every spot type of every region, with AWS's buckets."""
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


OPERATIONS: dict[str, Operation] = {
    "DescribeInstanceTypes": describe_instance_types,
    "DescribeInstanceTypeOfferings": describe_instance_type_offerings,
    "DescribeSpotPriceHistory": describe_spot_price_history,
}

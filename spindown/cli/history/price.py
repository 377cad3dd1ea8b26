"""Where a market comes from: a file of spot prices, EC2's own history, or a made-up one."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from spindown.cli.history.arrival import ArrivalHistory
from spindown.cli.history.option import RECLAIMS_PER_HOUR
from spindown.cli.history.row import HistoryRow, read_rows
from spindown.config.form import REGION_NAME
from spindown.domain.account_pricing import Pricing
from spindown.domain.learning import Knowledge, reference_throughput, throughput
from spindown.domain.offer import (
    CapacityType,
    InstanceRequirements,
    InstanceType,
    SpotPrice,
    slot_count,
)
from spindown.domain.policy import Policy
from spindown.domain.requirement import misfit
from spindown.error import BadInput
from spindown.port import Market, PriceHistory
from spindown.reason_text import say_count
from spindown.simulator import Listing, Zone
from spindown.simulator.hardware import find_type
from spindown.simulator.sample import CPU_TYPES, sample_market
from spindown.simulator.scenario import DAY, Steps

#: How long EC2 keeps prices (DescribeSpotPriceHistory).
HISTORY_DAYS = 90
#: Seconds after the traffic in which its last work is done.
OVERTIME = 4 * DAY
#: Names in the output of `aws ec2 describe-spot-price-history`.
_AWS_NAMES = {
    "Timestamp": "timestamp",
    "AvailabilityZone": "zone",
    "InstanceType": "type",
    "SpotPrice": "price",
}
#: Products whose price a worker pays: Linux without a licence.
_PRODUCTS = {"Linux/UNIX", "Linux/UNIX (Amazon VPC)"}
_REGION = re.compile(REGION_NAME)
#: Regions of a made-up market: each adds as many offers, and as much time to rank them.
_REGIONS_AT_MOST = 3
#: Names in a sentence.
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketHistory:
    """What is sold during the traffic, and at what price."""

    #: Where it comes from, for people.
    source: str
    listings: tuple[Listing, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Buyer:
    """What a workload may buy, and how it uses an instance."""

    requirements: InstanceRequirements
    #: ``run.slots``.
    slots: str
    #: Gives the throughput of a T4, and spot price over on-demand price where that is unknown.
    policy: Policy = field(default_factory=Policy)
    #: How fast the workload has been on what.
    knowledge: Knowledge = field(default_factory=Knowledge)
    reclaims_per_hour: float = RECLAIMS_PER_HOUR


def made_up_prices(
    seed: int, traffic: ArrivalHistory, buyer: Buyer, regions: Sequence[str] = ()
) -> MarketHistory:
    """Return the market that comes with Spindown, over the span of a traffic.

    Args:
        seed: of its prices.
        traffic: tells the span.
        buyer: what may be bought.
        regions: home first; with only one, its name does not matter.

    Raises:
        BadInput: it has no type that fits.
    """
    days = traffic.length / DAY
    places = tuple(regions[:_REGIONS_AT_MOST])
    sold: dict[str, Any] = {} if len(places) <= 1 else {"regions": places}
    if not buyer.requirements.allows_gpu:
        sold["instance_types"] = CPU_TYPES
    market = sample_market(seed=seed, days=days, **sold)
    listings = tuple(
        replace(listing, speed=_speed(listing.instance_type, buyer, listing.speed))
        for listing in market
        if _fits(listing.instance_type, buyer)
    )
    if not listings:
        known = ", ".join(dict.fromkeys(listing.instance_type.name for listing in market))
        remedy = f"[workload.NAME.requirements] allow none of its types ({known}); give a file"
        raise BadInput("--prices", "sample", remedy)
    names = ", ".join(dict.fromkeys(listing.instance_type.name for listing in listings))
    where = f" of each of {', '.join(places)}" if len(places) > 1 else ""
    left_out = [f"{region}: left out of the made-up market" for region in regions[len(places) :]]
    return MarketHistory(
        source=f"a made-up market of {names} in three zones{where}",
        listings=listings,
        notes=(*left_out, *_measured(listings, buyer)),
    )


def read_prices(path: Path, traffic: ArrivalHistory, buyer: Buyer) -> MarketHistory:
    """Return the market of a file: ``timestamp``, ``zone``, ``type`` and ``price`` of each change.

    Any order; the names of ``describe-spot-price-history`` will do too, and its rows of other
    products than Linux are passed over. A row whose zone is a region (``us-east-1``) is the
    on-demand price there; without one it is estimated. Prices of other days than the traffic's
    begin with the traffic.

    Raises:
        BadInput: names the line, the column and the remedy.
    """
    rows = read_rows(
        path,
        option="--prices",
        columns=("timestamp", "zone", "type", "price"),
        aliases=_AWS_NAMES,
    )
    spot, on_demand = _split(rows, path)
    names = {seen.instance_type for seen in spot}
    known = {name: kind for name in names if (kind := find_type(name)) is not None}
    types = {name: kind for name, kind in known.items() if _fits(kind, buyer)}
    fitting = [seen for seen in spot if seen.instance_type in types]
    found = _Found(spot=fitting, on_demand=on_demand, types=types)
    listings, notes = _list(found, traffic, buyer) if fitting else ((), [])
    if not listings:
        remedy = "give it types that [workload.NAME.requirements] allow, not"
        raise BadInput("--prices", str(path), f"{remedy} {_few(names)} alone")
    if names - known.keys():
        unknown = _few(names - known.keys())
        notes.append(f"{unknown}: left out, since Spindown knows no such type")
    return MarketHistory(source=str(path), listings=listings, notes=tuple(notes))


def _split(
    rows: Sequence[HistoryRow], path: Path
) -> tuple[list[SpotPrice], dict[tuple[str, str], float]]:
    """Return the changes of spot prices, and the newest on-demand price by (region, type)."""
    spot: list[SpotPrice] = []
    on_demand: dict[tuple[str, str], tuple[datetime, float]] = {}
    others: set[str] = set()
    for row in rows:
        product = row.cells.get("ProductDescription")
        if product not in {None, "", *_PRODUCTS}:
            others.add(str(product))
            continue
        at, zone, name = row.instant("timestamp"), row.text("zone"), row.text("type")
        price = row.amount("price")
        if zone[-1:].isalpha():
            spot.append(SpotPrice(instance_type=name, zone=zone, price=price, seen_at=at))
        elif (zone, name) not in on_demand or on_demand[zone, name][0] <= at:
            on_demand[zone, name] = at, price
    if not spot:
        remedy = "give it rows whose zone is one, such as us-east-1a"
        if others:
            remedy = f"give it rows of Linux/UNIX, not of {_few(others)} alone"
        raise BadInput("--prices", str(path), remedy)
    return spot, {key: price for key, (_, price) in on_demand.items()}


def read_live(
    market: Market,
    history: PriceHistory,
    zones: Mapping[str, Iterable[str]],
    traffic: ArrivalHistory,
    buyer: Buyer,
    *,
    now: datetime,
) -> MarketHistory:
    """Return EC2's market: types and on-demand prices of now, spot prices of the past.

    Args:
        market: EC2 in every region.
        history: its past spot prices.
        zones: region -> zones to buy in.
        traffic: gives the span; before EC2's history the first price of each pool holds.
        buyer: what may be bought.
        now: the present.

    Raises:
        BadInput: nothing fits, or more changes than can be used.
    """
    spot: list[SpotPrice] = []
    on_demand: dict[tuple[str, str], float] = {}
    types: dict[str, InstanceType] = {}
    since = now - timedelta(days=HISTORY_DAYS)
    if traffic.is_dated:
        since = max(since, min(traffic.start, now))
    for region, names in zones.items():
        fitting = {t.name: t for t in market.instance_types(region=region) if _fits(t, buyer)}
        types |= fitting
        prices = market.on_demand_prices(region=region)
        on_demand |= {(region, name): prices[name] for name in fitting if name in prices}
        seen = history.spot_history(region=region, instance_types=sorted(fitting), since=since)
        wanted = set(names)
        spot.extend(one for one in seen if one.zone in wanted)
    where = ", ".join(sorted(zone for names in zones.values() for zone in names))
    if not spot:
        raise BadInput("--prices live", where, "loosen [workload.NAME.requirements]")
    found = _Found(spot=spot, on_demand=on_demand, types=types, known_to=now)
    listings, notes = _list(found, traffic, buyer)
    return MarketHistory(source=f"EC2's prices in {where}", listings=listings, notes=tuple(notes))


def pay(market: MarketHistory, pricing: Pricing | None) -> MarketHistory:
    """Return the market at what the account pays: its discounts, not what is paid for already."""
    if pricing is None:
        return market
    notes = list(market.notes)
    if pricing.discounts:
        notes.append(f"prices after {say_count(len(pricing.discounts), 'discount')} of [pricing]")
    if pricing.paid:
        notes.append(
            "machines that [pricing] pays for already cost their full price here: "
            "all ways that use them are cheaper than this says"
        )
    listings = tuple(_pay(one, pricing) for one in market.listings)
    return replace(market, listings=listings, notes=tuple(notes))


def _pay(listing: Listing, pricing: Pricing) -> Listing:
    name, region = listing.instance_type.name, listing.region
    spot = pricing.factor(name, region, CapacityType.SPOT)
    on_demand = pricing.factor(name, region, CapacityType.ON_DEMAND)
    return replace(
        listing,
        on_demand=None if listing.on_demand is None else listing.on_demand * on_demand,
        zones={
            zone: replace(sold, spot=tuple((at, price * spot) for at, price in sold.spot))
            for zone, sold in listing.zones.items()
        },
    )


def _fits(instance_type: InstanceType, buyer: Buyer) -> bool:
    return misfit(instance_type, buyer.requirements) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """What has been read of a market."""

    spot: Sequence[SpotPrice]
    #: (region, type) -> USD per hour.
    on_demand: Mapping[tuple[str, str], float]
    types: Mapping[str, InstanceType]
    #: Until when no change is missing; None: the last that was seen.
    known_to: datetime | None = None


def _list(
    found: _Found, traffic: ArrivalHistory, buyer: Buyer
) -> tuple[tuple[Listing, ...], list[str]]:
    """Return what is sold, and what was assumed."""
    begin, notes = _begin(found, traffic)
    moves: dict[tuple[str, str], dict[str, list[SpotPrice]]] = {}
    for seen in found.spot:
        key = (_region(seen.zone), seen.instance_type)
        moves.setdefault(key, {}).setdefault(seen.zone, []).append(seen)
    estimated: list[str] = []
    listings = []
    for (region, name), zones in sorted(moves.items()):
        price = found.on_demand.get((region, name))
        if price is None:
            middle = median(seen.price for pool in zones.values() for seen in pool)
            price = round(middle / buyer.policy.spot_price_ratio_estimate, 4)
            estimated.append(name)
        listings.append(
            Listing(
                instance_type=found.types[name],
                region=region,
                on_demand=price,
                speed=_speed(found.types[name], buyer),
                zones={
                    zone: Zone(
                        spot=_steps(pool, begin, traffic.length),
                        reclaims_per_hour=buyer.reclaims_per_hour,
                    )
                    for zone, pool in sorted(zones.items())
                },
            )
        )
    notes.append(
        "EC2 is taken to reclaim a spot instance "
        f"{say_count(f'{buyer.reclaims_per_hour:g}', 'time')} an hour"
    )
    if estimated:
        share = f"{buyer.policy.spot_price_ratio_estimate:.0%} of on-demand"
        notes.append(f"on-demand prices of {_few(estimated)} are estimated: spot for {share}")
    return tuple(listings), [*notes, *_measured(listings, buyer)]


def _begin(found: _Found, traffic: ArrivalHistory) -> tuple[datetime, list[str]]:
    """Return the instant at which a simulation begins in the time of the prices."""
    times = [seen.seen_at for seen in found.spot]
    first, last = min(times), max(times)
    begin, notes = first, [f"prices of {first:%Y-%m-%d} to {last:%Y-%m-%d} begin with the traffic"]
    # By days: a price of the morning still holds when jobs come at noon.
    if traffic.is_dated and first.date() <= traffic.end.date() and last >= _midnight(traffic.start):
        begin, notes = traffic.start, []
    known_to = max(found.known_to or last, last)
    end = begin + timedelta(seconds=traffic.length)
    return begin, [*notes, *_uncovered(first - begin, end - known_to, first, known_to)]


def _uncovered(
    before: timedelta, after: timedelta, first: datetime, last: datetime
) -> Iterator[str]:
    """Say how much of the traffic has no price of its own, from a day on."""
    for length, which, known, at in (
        (before, "first", "from", first),
        (after, "last", "to", last),
    ):
        days = length.total_seconds() / DAY
        if days > 1.0:
            text = f"{days:,.1f}".removesuffix(".0")
            held = f"the {which} {text} days of the traffic have the {which} price of each pool"
            yield f"{held}, known {known} {at:%Y-%m-%d}"


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def _steps(pool: Sequence[SpotPrice], begin: datetime, length: float) -> Steps:
    """Return the price changes of one pool; its first price holds from the start."""
    steps: list[tuple[float, float]] = []
    for seen in sorted(pool, key=lambda seen: seen.seen_at):
        at = max((seen.seen_at - begin).total_seconds(), 0.0)
        if not steps or at <= 0.0:
            steps = [(0.0, seen.price)]
        elif seen.price != steps[-1][1] and at <= length + OVERTIME:
            steps.append((at, seen.price))
    return tuple(steps)


def _speed(instance_type: InstanceType, buyer: Buyer, made_up: float | None = None) -> float:
    """Return how fast one slot is, the T4 being 1: as measured, else as a plan expects it.

    ``made_up``: how fast the whole machine is until it is measured, in a made-up market.
    """
    known, policy = buyer.knowledge, buyer.policy
    expected = throughput(known, instance_type, policy)
    whole = made_up
    if whole is None or expected.measured:
        without_gpu = not buyer.requirements.allows_gpu
        reference = reference_throughput(known, policy, without_gpu=without_gpu)
        whole = expected.items_per_hour / reference
    return whole / slot_count(instance_type.gpu_count, buyer.slots)


def _measured(listings: Iterable[Listing], buyer: Buyer) -> Iterator[str]:
    """Say of how many types the speed is measured."""
    types = {each.instance_type.name: each.instance_type for each in listings}
    known, policy = buyer.knowledge, buyer.policy
    measured = [name for name, kind in types.items() if throughput(known, kind, policy).measured]
    if measured:
        count = f"{len(measured)} of {say_count(len(types), 'type')}"
        yield f"speeds of {count} are as measured ({_few(measured)}), of others they are estimated"


def _region(zone: str) -> str:
    found = _REGION.match(zone)
    return found[0] if found else zone.rstrip("abcdefghijklmnopqrstuvwxyz")


def _few(names: Iterable[str]) -> str:
    listed = sorted(set(names))
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more

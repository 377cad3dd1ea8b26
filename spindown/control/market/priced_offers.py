"""What is on sale now: the catalogue with live spot prices, as far as either can be believed.

An offer's price is that of its machine with its disk and address (``domain.offer.build_offers``),
less what the account pays by a discount or has paid already (``domain.account_pricing.adjust``).
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from spindown.contract.settings import WorkloadSettings
from spindown.control.market.catalogue import (
    Refreshed,
    current_catalogue,
    limited_catalogue,
    unstored_catalogue,
)
from spindown.control.unresponsive_region import ask
from spindown.domain.account_pricing import Pricing, adjust, unmatched_paid
from spindown.domain.fleet import Worker
from spindown.domain.offer import (
    GP3_PRICE_PER_GIB_MONTH,
    PUBLIC_IPV4_PRICE_PER_HOUR,
    CapacityType,
    Catalogue,
    Offer,
    Pool,
    SpotPrice,
    build_offers,
    trusted,
    volume_price_per_hour,
)
from spindown.domain.policy import Policy
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.requirement import misfit
from spindown.error import SpindownError, Unreachable
from spindown.port import SPOT_PRICES_FOR, AnswerKind, ControlPorts

#: Spot prices that could not be read again are used this long; EC2 moves them a few times a day.
SPOT_PRICES_TRUSTED_FOR = timedelta(minutes=30)

_SPOT: AnswerKind[tuple[SpotPrice, ...]] = AnswerKind("spot", SPOT_PRICES_FOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """What the market says, as far as it could be read and is believed."""

    catalogue: Catalogue
    #: When the oldest part of the catalogue was read.
    oldest: datetime
    #: The refresh that it was made from, if that is to be stored yet.
    unstored: Refreshed | None = None
    spot: tuple[SpotPrice, ...] = ()
    #: Region -> why its spot prices are not known, and were not a while ago.
    unknown: Mapping[str, Reason] = field(default_factory=dict)
    notes: tuple[Reason, ...] = ()
    #: Of the oldest spot prices; None: there are none.
    spot_price_age: timedelta | None = None
    _built: dict[Hashable, tuple[Offer, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def build(
        self, settings: WorkloadSettings, *, spot_price_ratio_estimate: float, home_region: str
    ) -> tuple[Offer, ...]:
        """Return the offers of ``build_offers``, built once for all shapes of a workload."""
        zones = {region: tuple(place.subnets) for region, place in settings.regions.items()}
        gib = settings.run.root_volume_gib
        asked = (tuple(zones.items()), gib, spot_price_ratio_estimate, home_region)
        if asked not in self._built:
            self._built[asked] = build_offers(
                self.catalogue,
                self.spot,
                zones=zones,
                spot_price_ratio_estimate=spot_price_ratio_estimate,
                volume_gib=gib,
                home_region=home_region,
            )
        return self._built[asked]


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedOffers:
    """All that a workload could be run on, priced, and what a person should know of the prices."""

    offers: tuple[Offer, ...]
    notes: tuple[Reason, ...] = ()
    #: Why nothing is on sale as spot anywhere: prices are unknown. NO_REASON: some are known.
    failure: Reason = NO_REASON


def read_prices(
    settings: WorkloadSettings, ports: ControlPorts, now: datetime, *, spot_in: Collection[str]
) -> PriceList:
    """Return the catalogue, and the spot prices of regions; both are a few minutes old.

    Where spot prices cannot be read, those of a while ago stand in.

    Raises:
        SpindownError: there is no catalogue.
    """
    wanted = settings.requirements
    known = current_catalogue(ports, now, regions=settings.regions, requirements=wanted)
    catalogue = trusted(limited_catalogue(settings.name, wanted, known, ports, now), now)
    notes = [
        Reason(
            ReasonCode.ON_DEMAND_PRICES_OLD,
            {"region": region, "read_at": known.read_at(f"{region}/on_demand").isoformat()},
        )
        for region in settings.regions
        if region in known.on_demand and region not in catalogue.on_demand
    ]
    spot: list[SpotPrice] = []
    ages: list[timedelta] = []
    unknown: dict[str, Reason] = {}
    # Home first: an outpost that hangs may leave no time for others.
    for region in sorted(spot_in, key=lambda name: (name in settings.outposts, name)):
        names = _wanted(region, settings, catalogue)
        if not names:
            continue
        key, said = f"{region} {' '.join(names)}", ""
        try:
            prices = ports.cache.recall(_SPOT, key, now, partial(_ask, ports, region, names, now))
        except SpindownError as exc:
            prices, said = (), str(exc)
        last = ports.cache.last(_SPOT, key)
        age = None if last is None else max(now - last[0], timedelta(0))
        if said and (last is None or age is None or age > SPOT_PRICES_TRUSTED_FOR):
            about = {"region": region, "said": said}
            unknown[region] = Reason(ReasonCode.SPOT_PRICES_UNKNOWN, about)
            continue
        if said and last is not None:
            about = {"region": region, "read_at": last[0].isoformat(), "said": said}
            notes.append(Reason(ReasonCode.SPOT_PRICES_OLD, about))
            prices = last[1]
        spot += prices
        ages += [] if age is None else [age]
    return PriceList(
        catalogue=catalogue,
        unstored=unstored_catalogue(ports),
        oldest=min([known.taken_at, *known.stale_since.values()]),
        spot=tuple(spot),
        unknown=unknown,
        notes=tuple(notes),
        spot_price_age=max(ages, default=None),
    )


def _ask(
    ports: ControlPorts, region: str, wanted: list[str], now: datetime
) -> tuple[SpotPrice, ...]:
    question = partial(ports.market.spot_prices, region=region, instance_types=wanted)
    return tuple(ask(ports, region, question, tick=now))


def _wanted(region: str, settings: WorkloadSettings, catalogue: Catalogue) -> list[str]:
    """Return the types that fit and are sold as spot where a region has a subnet of ours."""
    offerings, types = catalogue.offerings.get(region, {}), catalogue.instance_types
    zones = settings.regions[region].subnets
    names = sorted({name for zone in zones for name in offerings.get(zone, ())})
    return [
        name
        for name in names
        if name in types
        and CapacityType.SPOT in types[name].capacity_types
        and misfit(types[name], settings.requirements) is None
    ]


def price_offers(
    prices: PriceList,
    settings: WorkloadSettings,
    policy: Policy,
    *,
    home_region: str,
    is_late: bool = False,
    workers: Iterable[Worker] = (),
) -> PricedOffers:
    """Return all that a workload could be run on.

    Where spot prices are unknown, nothing of the region is on sale as spot, unless the work is
    late: then they are estimated from those on demand.

    Args:
        prices: what the market says.
        settings: of the workload.
        policy: how an unknown spot price is estimated.
        home_region: where queue and bucket are.
        is_late: the work has waited for as long as it may.
        workers: those of the workload; some may use what is paid already.
    """
    offers = prices.build(
        settings,
        spot_price_ratio_estimate=policy.spot_price_ratio_estimate,
        home_region=home_region,
    )
    offers = tuple(
        x for x in offers if x.instance_type.architecture in settings.regions[x.region].templates
    )
    notes: tuple[Reason, ...] = ()
    if settings.pricing is not None:
        notes = _say_pricing(settings, settings.pricing, offers, workers := tuple(workers))
        offers = tuple(adjust(offers, settings.pricing, workers))
    closed = frozenset[str]() if is_late else frozenset(prices.unknown)
    code = ReasonCode.SPOT_PRICES_ESTIMATED if is_late else ReasonCode.SPOT_PRICES_UNKNOWN
    failure = NO_REASON
    if closed and closed >= settings.regions.keys():
        first = next(iter(prices.unknown.values()))
        failure = Reason(ReasonCode.PRICES_UNREAD, {"said": first.about["said"]})
    return PricedOffers(
        offers=tuple(
            offer
            for offer in offers
            if not (offer.capacity_type is CapacityType.SPOT and offer.region in closed)
        ),
        notes=(
            *notes,
            *prices.notes,
            *(Reason(code, reason.about) for reason in prices.unknown.values()),
        ),
        failure=failure,
    )


def _say_pricing(
    settings: WorkloadSettings,
    pricing: Pricing,
    offers: Iterable[Offer],
    workers: Iterable[Worker],
) -> tuple[Reason, ...]:
    """Say that prices are others than EC2's, and what is paid for that no offer is."""
    if not pricing.discounts and not pricing.paid:
        return ()
    unmatched = unmatched_paid(pricing, offers, settings.requirements)
    about = {
        "discounts": len(pricing.discounts),
        "paid": sum(one.count for one in pricing.paid),
        "left": sum(left for one, left in pricing.left(workers) if one not in unmatched),
    }
    applied = Reason(ReasonCode.PRICING_APPLIED, about)
    if not unmatched:
        return (applied,)
    missed = {"workload": settings.name, "machines": " or ".join(map(str, unmatched))}
    return applied, Reason(ReasonCode.PAID_UNMATCHED, missed)


def current_offers(
    settings: WorkloadSettings,
    policy: Policy,
    *,
    home_region: str,
    ports: ControlPorts,
    now: datetime,
) -> PricedOffers:
    """Return all that a workload could be run on now.

    Raises:
        SpindownError: there is no catalogue, or the spot prices of no region could be read.
    """
    prices = read_prices(settings, ports, now, spot_in=settings.regions.keys())
    priced = price_offers(prices, settings, policy, home_region=home_region)
    if priced.failure:
        raise Unreachable(str(priced.failure.about["said"]))
    return priced


def price_of(
    pool: Pool, region: str, prices: PriceList, settings: WorkloadSettings
) -> float | None:
    """Return the whole price of an hour in a pool; None: it is not known, or it has none."""
    if region not in settings.regions:
        return None
    alone = prices.catalogue.on_demand.get(region, {}).get(pool.instance_type)
    if pool.capacity_type is CapacityType.SPOT:
        seen = [
            price
            for price in prices.spot
            if (price.instance_type, price.zone) == (pool.instance_type, pool.zone)
        ]
        alone = max(seen, key=lambda price: price.seen_at).price if seen else None
    if alone is None:
        return None
    if settings.pricing is not None:
        alone *= settings.pricing.factor(pool.instance_type, region, pool.capacity_type)
    gib_month = prices.catalogue.volume_price.get(region, GP3_PRICE_PER_GIB_MONTH)
    volume = volume_price_per_hour(settings.run.root_volume_gib, gib_month)
    if settings.pricing is not None and not settings.pricing.has_addresses:
        return alone + volume
    return alone + volume + PUBLIC_IPV4_PRICE_PER_HOUR

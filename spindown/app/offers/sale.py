"""What is on sale now: the catalogue with live spot prices, where both are recent enough."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.app.control import SPOT_PRICES_FOR, AnswerKind, ControlPorts
from spindown.app.offers.catalogue import current_catalogue
from spindown.contract.settings import Outpost, WorkloadSettings
from spindown.domain.offer import (
    GP3_PRICE_PER_GIB_MONTH,
    CapacityType,
    Catalogue,
    InstanceType,
    Offer,
    Pool,
    SpotPrice,
    build_offers,
    extra_price_per_hour,
    trusted,
)
from spindown.domain.policy import Policy
from spindown.domain.requirement import misfit
from spindown.error import SpindownError

#: How long old spot prices are used when a read fails; EC2 changes them a few times a day.
SPOT_PRICES_TRUSTED_FOR = timedelta(minutes=30)

_SPOT: AnswerKind[Sequence[SpotPrice]] = AnswerKind("spot", SPOT_PRICES_FOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sale:
    """All offers that a workload could run on, and what a person should know of their prices."""

    offers: tuple[Offer, ...]
    notes: tuple[str, ...] = ()
    #: Age of the oldest spot prices among them; None: there are none.
    spot_price_age: timedelta | None = None


def current_sale(
    settings: WorkloadSettings,
    policy: Policy,
    *,
    home_region: str,
    ports: ControlPorts,
    now: datetime,
    is_late: bool = False,
) -> Sale:
    """Return all offers that a workload could run on now; spot prices are a few minutes old.

    If a region's spot prices cannot be read, recent older ones are used. Without those the region
    sells no spot, unless the work is late: then its prices are estimated.

    Args:
        settings: the workload's settings.
        policy: how an unknown spot price is estimated.
        home_region: where queue and bucket are.
        ports: market, catalogue and cache.
        now: the time.
        is_late: the work has waited as long as it may.

    Raises:
        SpindownError: the spot prices of no region could be read.
    """
    known = current_catalogue(ports, now, regions=settings.outposts)
    catalogue = trusted(known, now)
    notes = [
        f"on-demand prices of {region} were last read at"
        f" {known.read_at(f'{region}/on_demand'):%Y-%m-%d %H:%M}: they are not trusted"
        for region in settings.outposts
        if region in known.on_demand and region not in catalogue.on_demand
    ]
    reading = _SaleReading(settings, catalogue, ports, now, is_late=is_late)
    prices = [price for region in sorted(settings.outposts) for price in reading.read(region)]
    if reading.first_error is not None and len(reading.closed) == len(settings.outposts):
        raise reading.first_error
    offers = build_offers(
        catalogue,
        prices,
        zones={region: tuple(outpost.subnets) for region, outpost in settings.outposts.items()},
        spot_price_ratio_estimate=policy.spot_price_ratio_estimate,
        volume_gib=settings.run.root_volume_gib,
        home_region=home_region,
    )
    return Sale(
        offers=tuple(offer for offer in offers if reading.is_on_sale(offer)),
        notes=(*notes, *reading.notes),
        spot_price_age=max(reading.ages, default=None),
    )


def price_now(
    pool: Pool, *, region: str, settings: WorkloadSettings, ports: ControlPorts, now: datetime
) -> float | None:
    """Return the full price of an hour in a pool, a few minutes old; None: it has none.

    Raises:
        SpindownError: it could not be read, and no recent older price is known.
    """
    if region not in settings.outposts:
        return None
    catalogue = trusted(current_catalogue(ports, now), now)
    alone = catalogue.on_demand.get(region, {}).get(pool.instance_type)
    if pool.capacity_type is CapacityType.SPOT:
        reading = _SaleReading(settings, catalogue, ports, now, is_late=False)
        seen = [
            price
            for price in reading.read(region)
            if (price.instance_type, price.zone) == (pool.instance_type, pool.zone)
        ]
        if reading.first_error is not None:
            raise reading.first_error
        alone = max(seen, key=lambda price: price.seen_at).price if seen else None
    if alone is None:
        return None
    gib_month = catalogue.volume_price.get(region, GP3_PRICE_PER_GIB_MONTH)
    return alone + extra_price_per_hour(settings.run.root_volume_gib, gib_month)


class _SaleReading:
    """The live prices of one workload's regions: read now, or a short time ago."""

    def __init__(
        self,
        settings: WorkloadSettings,
        catalogue: Catalogue,
        ports: ControlPorts,
        now: datetime,
        *,
        is_late: bool,
    ) -> None:
        self._settings = settings
        self._catalogue = catalogue
        self._ports = ports
        self._now = now
        self._is_late = is_late
        self.first_error: SpindownError | None = None
        #: Regions where no spot may be bought, because no price is known.
        self.closed: set[str] = set()
        self.notes: list[str] = []
        #: Age of the prices of each region that has some.
        self.ages: list[timedelta] = []

    def read(self, region: str) -> Sequence[SpotPrice]:
        """Return the prices of the types that fit, in one region."""
        wanted = self._wanted(region, self._settings.outposts[region])
        if not wanted:
            return ()
        key = f"{region} {' '.join(wanted)}"
        try:
            prices = self._ports.cache.recall(
                _SPOT,
                key,
                self._now,
                lambda: self._ports.market.spot_prices(region=region, instance_types=wanted),
            )
        except SpindownError as exc:
            return self._instead(region, key, exc)
        last = self._ports.cache.last(_SPOT, key)
        self.ages += [] if last is None else [self._now - last[0]]
        return prices

    def _instead(self, region: str, key: str, error: SpindownError) -> Sequence[SpotPrice]:
        last = self._ports.cache.last(_SPOT, key)
        age = None if last is None else max(self._now - last[0], timedelta(0))
        if last is not None and age is not None and age <= SPOT_PRICES_TRUSTED_FOR:
            at = f"{last[0]:%H:%M:%S}"
            self.notes.append(f"spot prices of {region} were last read at {at}: {error}")
            self.ages.append(age)
            return last[1]
        if self._is_late:
            self.notes.append(f"spot prices of {region} are estimated from on-demand: {error}")
            return ()
        self.first_error = self.first_error or error
        self.closed.add(region)
        self.notes.append(f"nothing is bought as spot in {region}, its prices are unknown: {error}")
        return ()

    def _wanted(self, region: str, outpost: Outpost) -> list[str]:
        offerings = self._catalogue.offerings.get(region, {})
        names = {name for zone in outpost.subnets for name in offerings.get(zone, ())}
        return [
            kind.name
            for kind in _known_types(names, self._catalogue)
            if CapacityType.SPOT in kind.capacity_types
            and misfit(kind, self._settings.requirements) is None
        ]

    def is_on_sale(self, offer: Offer) -> bool:
        """Tell whether an offer can be launched at a known price."""
        has_template = (
            offer.instance_type.architecture in self._settings.outposts[offer.region].templates
        )
        is_closed = offer.capacity_type is CapacityType.SPOT and offer.region in self.closed
        return has_template and not is_closed


def _known_types(names: Collection[str], catalogue: Catalogue) -> list[InstanceType]:
    types = catalogue.instance_types
    return [types[name] for name in sorted(names) if name in types]

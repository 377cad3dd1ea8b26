"""What EC2 sells, in memory: types, offerings, prices and quotas, all moved by hand."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from spindown.domain.offer import GP3_PRICE_PER_GIB_MONTH, InstanceType, Quota, SpotPrice
from spindown.ec2sim import Listings
from spindown.error import ContractError
from spindown.port import Clock


class MemoryMarket:
    """Market in memory. It offers nothing until ``offer`` is called."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        #: What is sold, also to ``MemoryCompute``.
        self.listings = Listings()
        #: Region -> other region -> USD per GiB.
        self._transfers: dict[str, dict[str, float]] = {}
        #: Region -> USD per GiB-month.
        self._volumes: dict[str, float] = {}

    def offer(
        self,
        instance_type: InstanceType,
        *,
        region: str,
        zones: Iterable[str],
        on_demand: float | None = None,
        spot: float | Mapping[str, float] | None = None,
    ) -> None:
        """Offer a type in zones of a region, at prices in USD per hour."""
        with self._lock:
            self.listings.offer(instance_type, region=region, zones=list(zones))
            if on_demand is not None:
                self.move_on_demand_price(instance_type.name, region, on_demand)
            for zone in zones:
                price = spot.get(zone) if isinstance(spot, Mapping) else spot
                if price is not None:
                    self.move_spot_price(instance_type.name, zone, price)

    def withdraw(self, instance_type: str, *, region: str, zone: str) -> None:
        """Offer a type no more in a zone."""
        with self._lock:
            self.listings.offerings[region][zone].discard(instance_type)

    def move_spot_price(self, instance_type: str, zone: str, price: float | None) -> None:
        """Change a spot price from now on; None: the zone has none any more."""
        with self._lock:
            self.listings.move_spot_price(instance_type, zone, price, at=self._clock.now())

    def move_on_demand_price(self, instance_type: str, region: str, price: float) -> None:
        """Change an on-demand price from now on."""
        with self._lock:
            self.listings.move_on_demand_price(instance_type, region, price, at=self._clock.now())

    def limit(self, code: str, vcpus: float, *, region: str) -> None:
        """Set a quota."""
        with self._lock:
            self.listings.quotas.setdefault(region, {})[code] = vcpus

    def set_transfer_price(self, origin: str, destination: str, price: float) -> None:
        """Price what leaves a region for another."""
        with self._lock:
            self._transfers.setdefault(origin, {})[destination] = price

    def transfer_prices(self, *, region: str) -> Mapping[str, float]:
        """Return other region -> USD per GiB that leaves this region for it."""
        with self._lock:
            return dict(self._transfers.get(region, {}))

    def instance_types(self, *, region: str) -> Sequence[InstanceType]:
        """Return every type that workers may be bought of in the region, by name."""
        with self._lock:
            offered = set[str]().union(*self.listings.offerings.get(region, {}).values())
            types = [self.listings.types[name] for name in sorted(offered)]
            return [found for found in types if found.is_sold]

    def offerings(self, *, region: str) -> Mapping[str, frozenset[str]]:
        """Return zone -> names of types offered there."""
        with self._lock:
            zones = self.listings.offerings.get(region, {})
            return {zone: frozenset(names) for zone, names in zones.items()}

    def on_demand_prices(self, *, region: str) -> Mapping[str, float]:
        """Return type -> USD per hour."""
        with self._lock:
            now = self._clock.now()
            prices = self.listings.on_demand.get(region, {})
            present = {name: steps.at(now) for name, steps in prices.items()}
            return {name: price for name, price in present.items() if price is not None}

    def spot_prices(self, *, region: str, instance_types: Sequence[str]) -> Sequence[SpotPrice]:
        """Return the present price of each type in each zone that has one."""
        with self._lock:
            now = self._clock.now()
            return self.listings.spot_changes(region, now, now, types=instance_types)

    def spot_history(
        self, *, region: str, instance_types: Sequence[str], since: datetime
    ) -> Sequence[SpotPrice]:
        """Return the price of each pool at ``since`` and every change up to now, oldest first."""
        with self._lock:
            now = self._clock.now()
            changes = self.listings.spot_changes(region, since, now, types=instance_types)
            return sorted(changes, key=lambda seen: seen.seen_at)

    def move_volume_price(self, region: str, price: float) -> None:
        """Change the price of a GiB-month of gp3."""
        self._volumes[region] = price

    def volume_price(self, *, region: str) -> float:
        """Return USD per GiB-month of gp3; that of us-east-1 until it is moved."""
        return self._volumes.get(region, GP3_PRICE_PER_GIB_MONTH)

    def quotas(self, *, region: str) -> Mapping[str, Quota]:
        """Return class -> quota, for those that are limited."""
        with self._lock:
            limits = self.listings.usage_quotas(region)
            return {q.usage_class: Quota(code=q.code, vcpus=v) for q, v in limits.items()}


class MemoryAdvisor:
    """The spot advisor in memory. It says nothing of a region until ``publish`` is called."""

    def __init__(self) -> None:
        self._shares: dict[str, dict[str, float]] = {}

    def publish(self, region: str, shares: Mapping[str, float]) -> None:
        """Publish type -> share reclaimed in a month."""
        self._shares[region] = dict(shares)

    def reclaim_shares(self, *, region: str) -> Mapping[str, float]:
        """Return type -> share reclaimed in a month (raises ContractError)."""
        if region not in self._shares:
            raise ContractError("spot advisor", region, "wait until it is published")
        return dict(self._shares[region])

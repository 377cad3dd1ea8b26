"""A market in memory: types, offerings, prices and quotas, all moved by hand.

Remembers every spot price with its time, so that compute can bill what was really due.
"""

import threading
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from spindown.app.port import Clock
from spindown.domain.offer import (
    GP3_PRICE_PER_GIB_MONTH,
    QUOTA_CODES,
    CapacityType,
    InstanceType,
    Pool,
    Quota,
    SpotPrice,
)
from spindown.error import ContractError

#: (first letters of the family, spot quota, on-demand quota), first match wins. Codes as AWS
#: publishes them; which spot quota P6 draws on is disputed, here it is P5's.
_QUOTA_CODES = (
    (("p5", "p6"), "L-C4BD4855", "L-417A185B"),
    (("p",), "L-7212CCBC", "L-417A185B"),
    (("g", "vt"), "L-3819A6DF", "L-DB2E81BA"),
)
_STANDARD_QUOTA_CODES = ("L-34B43A08", "L-1216C47A")
_CLASSES = {code: name for name, code in QUOTA_CODES.items()} | {
    "L-34B43A08": "Standard/Spot",
    "L-1216C47A": "Standard/OnDemand",
}


def quota_code(instance_type: str, capacity_type: CapacityType) -> str:
    """Return the code of the vCPU quota that a type draws on."""
    spot, on_demand = next(
        (codes for first, *codes in _QUOTA_CODES if instance_type.startswith(first)),
        _STANDARD_QUOTA_CODES,
    )
    return spot if capacity_type is CapacityType.SPOT else on_demand


class _History:
    """A price and all its changes; None: no price from then on."""

    def __init__(self) -> None:
        self._times: list[datetime] = []
        self._prices: list[float | None] = []

    def move(self, at: datetime, price: float | None) -> None:
        self._times.append(at)
        self._prices.append(price)

    def at(self, at: datetime) -> float | None:
        index = bisect_right(self._times, at) - 1
        return self._prices[index] if index >= 0 else None

    def last(self) -> tuple[datetime, float | None]:
        return self._times[-1], self._prices[-1]

    def since(self, at: datetime) -> Sequence[tuple[datetime, float]]:
        first = max(bisect_right(self._times, at) - 1, 0)
        moves = zip(self._times[first:], self._prices[first:], strict=True)
        return [(time, price) for time, price in moves if price is not None]


class MemoryMarket:
    """Market in memory. It offers nothing until ``offer`` is called."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._types: dict[str, InstanceType] = {}
        #: region -> zone -> names of types.
        self._offerings: dict[str, dict[str, set[str]]] = {}
        #: region -> type -> on-demand price; (type, zone) -> spot price.
        self._on_demand: dict[str, dict[str, _History]] = {}
        self._spot: dict[tuple[str, str], _History] = {}
        #: region -> quota code -> vCPUs; what is not there is not limited.
        self._quotas: dict[str, dict[str, float]] = {}
        #: region -> USD per GiB-month of gp3.
        self._volumes: dict[str, float] = {}
        #: region -> other region -> USD per GiB.
        self._transfers: dict[str, dict[str, float]] = {}

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
            self._types[instance_type.name] = instance_type
            if on_demand is not None:
                self.move_on_demand_price(instance_type.name, region, on_demand)
            for zone in zones:
                self._offerings.setdefault(region, {}).setdefault(zone, set()).add(
                    instance_type.name
                )
                price = spot.get(zone) if isinstance(spot, Mapping) else spot
                if price is not None:
                    self.move_spot_price(instance_type.name, zone, price)

    def withdraw(self, instance_type: str, *, region: str, zone: str) -> None:
        """Offer a type no more in a zone."""
        with self._lock:
            self._offerings[region][zone].discard(instance_type)

    def move_spot_price(self, instance_type: str, zone: str, price: float | None) -> None:
        """Change a spot price from now on; None: the zone has none any more."""
        with self._lock:
            history = self._spot.setdefault((instance_type, zone), _History())
            history.move(self._clock.now(), price)

    def move_on_demand_price(self, instance_type: str, region: str, price: float) -> None:
        """Change an on-demand price from now on."""
        with self._lock:
            prices = self._on_demand.setdefault(region, {})
            prices.setdefault(instance_type, _History()).move(self._clock.now(), price)

    def limit(self, code: str, vcpus: float, *, region: str) -> None:
        """Set a quota."""
        with self._lock:
            self._quotas.setdefault(region, {})[code] = vcpus

    def set_transfer_price(self, origin: str, destination: str, price: float) -> None:
        """Price what leaves a region for another."""
        with self._lock:
            self._transfers.setdefault(origin, {})[destination] = price

    def transfer_prices(self, *, region: str) -> Mapping[str, float]:
        """Return other region -> USD per GiB that leaves this region for it."""
        with self._lock:
            return dict(self._transfers.get(region, {}))

    def instance_types(self, *, region: str) -> Sequence[InstanceType]:
        """Return every type with a GPU that the region offers, by name."""
        with self._lock:
            offered = set[str]().union(*self._offerings.get(region, {}).values())
            return [found for name in sorted(offered) if (found := self._types[name]).gpu_count > 0]

    def offerings(self, *, region: str) -> Mapping[str, frozenset[str]]:
        """Return zone -> names of types offered there."""
        with self._lock:
            zones = self._offerings.get(region, {})
            return {zone: frozenset(names) for zone, names in zones.items()}

    def on_demand_prices(self, *, region: str) -> Mapping[str, float]:
        """Return type -> USD per hour."""
        with self._lock:
            last = {name: h.last()[1] for name, h in self._on_demand.get(region, {}).items()}
            return {name: price for name, price in last.items() if price is not None}

    def spot_prices(self, *, region: str, instance_types: Sequence[str]) -> Sequence[SpotPrice]:
        """Return the present price of each type in each zone that has one."""
        wanted = set(instance_types)
        found = []
        with self._lock:
            for zone, names in self._offerings.get(region, {}).items():
                for name in sorted(wanted & names):
                    history = self._spot.get((name, zone))
                    at, price = history.last() if history else (None, None)
                    if at is not None and price is not None:
                        found.append(
                            SpotPrice(instance_type=name, zone=zone, price=price, seen_at=at)
                        )
        return found

    def spot_history(
        self, *, region: str, instance_types: Sequence[str], since: datetime
    ) -> Sequence[SpotPrice]:
        """Return the price of each pool at ``since`` and every change up to now, oldest first."""
        with self._lock:
            found = [
                SpotPrice(instance_type=name, zone=zone, price=price, seen_at=at)
                for zone, names in self._offerings.get(region, {}).items()
                for name in sorted(names & set(instance_types))
                if (name, zone) in self._spot
                for at, price in self._spot[name, zone].since(since)
            ]
        return sorted(found, key=lambda seen: seen.seen_at)

    def move_volume_price(self, region: str, price: float) -> None:
        """Change the price of a GiB-month of gp3."""
        self._volumes[region] = price

    def volume_price(self, *, region: str) -> float:
        """Return USD per GiB-month of gp3; that of us-east-1 until it is moved."""
        return self._volumes.get(region, GP3_PRICE_PER_GIB_MONTH)

    def quotas(self, *, region: str) -> Mapping[str, Quota]:
        """Return class -> quota, for those that are limited."""
        with self._lock:
            limits = self._quotas.get(region, {})
            return {_CLASSES[code]: Quota(code=code, vcpus=v) for code, v in limits.items()}

    def limit_of(self, code: str, *, region: str) -> float | None:
        """Return the vCPUs of a quota; None: it is not limited."""
        with self._lock:
            return self._quotas.get(region, {}).get(code)

    def instance_type(self, name: str) -> InstanceType | None:
        """Return a type by name."""
        return self._types.get(name)

    def is_offered(self, instance_type: str, *, region: str, zone: str) -> bool:
        """Tell whether a zone offers a type."""
        return instance_type in self._offerings.get(region, {}).get(zone, ())

    def price_at(self, pool: Pool, *, region: str, at: datetime) -> float | None:
        """Return what an hour that begins at an instant costs; None: it has no price."""
        with self._lock:
            if pool.capacity_type is CapacityType.SPOT:
                history = self._spot.get((pool.instance_type, pool.zone))
            else:
                history = self._on_demand.get(region, {}).get(pool.instance_type)
            return None if history is None else history.at(at)


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

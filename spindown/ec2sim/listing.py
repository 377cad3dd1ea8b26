"""What EC2 sells in a region: types, zones, prices over time, and vCPU quotas."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from spindown.domain.offer import CapacityType, InstanceType, Pool, SpotPrice

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class VcpuQuota:
    """One vCPU quota of Service Quotas."""

    code: str
    name: str
    #: UsageMetric dimension Class, by which a client finds the quota of a type.
    usage_class: str
    #: vCPUs of a new AWS account.
    default: float


_STANDARD = "Standard (A, C, D, H, I, M, R, T, Z)"
#: Codes, names and defaults as AWS publishes them. Which spot quota P6 draws on is disputed in
#: public code; here it is P5's.
QUOTAS = tuple(
    VcpuQuota(*row)
    for row in (
        ("L-3819A6DF", "All G and VT Spot Instance Requests", "G/Spot", 0.0),
        ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", "P/Spot", 0.0),
        ("L-C4BD4855", "All P5 Spot Instance Requests", "P5/Spot", 0.0),
        ("L-34B43A08", f"All {_STANDARD} Spot Instance Requests", "Standard/Spot", 5.0),
        ("L-E3A00192", "All X Spot Instance Requests", "X/Spot", 0.0),
        ("L-B5D1601B", "All Inf Spot Instance Requests", "Inf/Spot", 0.0),
        ("L-6B0D517C", "All Trn Spot Instance Requests", "Trn/Spot", 0.0),
        ("L-DB2E81BA", "Running On-Demand G and VT instances", "G/OnDemand", 0.0),
        ("L-417A185B", "Running On-Demand P instances", "P/OnDemand", 0.0),
        ("L-1216C47A", f"Running On-Demand {_STANDARD} instances", "Standard/OnDemand", 5.0),
        ("L-7295265B", "Running On-Demand X instances", "X/OnDemand", 0.0),
        ("L-1945791B", "Running On-Demand Inf instances", "Inf/OnDemand", 0.0),
        ("L-2C3B7624", "Running On-Demand Trn instances", "Trn/OnDemand", 0.0),
        ("L-F7808C92", "Running On-Demand HPC instances", "HPC/OnDemand", 0.0),
    )
)
_BY_CLASS = {quota.usage_class: quota for quota in QUOTAS}
#: Families with a quota of their own, besides G and P.
_OWN_QUOTA = {"x": "X", "inf": "Inf", "trn": "Trn", "hpc": "HPC"}
_BY_CODE = {quota.code: quota for quota in QUOTAS}


def quota_of(instance_type: str, capacity_type: CapacityType) -> VcpuQuota:
    """Return the vCPU quota that an instance of a type draws on."""
    sold = "Spot" if capacity_type is CapacityType.SPOT else "OnDemand"
    if instance_type.startswith(("g", "vt")):
        family = "G"
    elif instance_type.startswith("p"):
        is_new = sold == "Spot" and instance_type.startswith(("p5", "p6"))
        family = "P5" if is_new else "P"
    else:
        letters = "".join(takewhile(str.isalpha, instance_type))
        family = _OWN_QUOTA.get(letters, "Standard")
    return _BY_CLASS.get(f"{family}/{sold}", _BY_CLASS[f"Standard/{sold}"])


class PriceSteps:
    """A price in USD per hour and all its changes; None: no price from then on."""

    def __init__(
        self,
        coming: Iterable[tuple[datetime, float]] = (),
        *,
        opening: tuple[datetime, float] | None = None,
    ) -> None:
        """Begin with an opening price, if any.

        Args:
            coming: the changes to come, in order of time; endless or not.
            opening: the first change.
        """
        self._times: list[datetime] = []
        self._prices: list[float | None] = []
        if opening is not None:
            self.move(*opening)
        self._coming = iter(coming)
        self._next = next(self._coming, None)

    def move(self, at: datetime, price: float | None) -> None:
        """Change the price from an instant on, which no earlier change may follow."""
        self._times.append(at)
        self._prices.append(price)

    def last_change(self, at: datetime) -> tuple[datetime, float | None] | None:
        """Return the last change up to an instant; None: there was none."""
        self._draw(at)
        index = bisect_right(self._times, at) - 1
        return (self._times[index], self._prices[index]) if index >= 0 else None

    def at(self, at: datetime) -> float | None:
        """Return the price at an instant."""
        change = self.last_change(at)
        return None if change is None else change[1]

    def between(self, start: datetime, end: datetime) -> list[tuple[datetime, float]]:
        """Return the price in force at ``start`` and every change up to ``end``."""
        self._draw(end)
        first = max(bisect_right(self._times, start) - 1, 0)
        changes = zip(self._times[first:], self._prices[first:], strict=True)
        return [(at, price) for at, price in changes if price is not None and at <= end]

    def cost(self, start: datetime, end: datetime, *, held_for: timedelta) -> float:
        """Return what a stay costs, USD.

        Each price that is met holds for ``held_for``; 0: until it changes. A price that is
        withdrawn during the stay remains what it was.
        """
        dollars, price, begins = 0.0, 0.0, start
        while begins < end:
            found = self.at(begins)
            price = price if found is None else found
            until = begins + held_for if held_for else self._next_change(begins, end)
            until = min(until, end)
            dollars += (until - begins) / _HOUR * price
            begins = until
        return dollars

    def _next_change(self, begins: datetime, end: datetime) -> datetime:
        self._draw(end)
        index = bisect_right(self._times, begins)
        return self._times[index] if index < len(self._times) else end

    def _draw(self, until: datetime) -> None:
        while self._next is not None and self._next[0] <= until:
            self.move(*self._next)
            self._next = next(self._coming, None)


class Listings:
    """What is sold, moved by whoever owns it; nothing until something is offered."""

    def __init__(self) -> None:
        self.types: dict[str, InstanceType] = {}
        #: Region -> zone -> names of types.
        self.offerings: dict[str, dict[str, set[str]]] = {}
        #: (type, zone) -> spot price.
        self.spot: dict[tuple[str, str], PriceSteps] = {}
        #: Region -> type -> on-demand price.
        self.on_demand: dict[str, dict[str, PriceSteps]] = {}
        #: Region -> quota code -> vCPUs; what is missing is not limited.
        self.quotas: dict[str, dict[str, float]] = {}

    def offer(self, instance_type: InstanceType, *, region: str, zones: Collection[str]) -> None:
        """Offer a type in zones of a region; it still needs a price."""
        self.types[instance_type.name] = instance_type
        for zone in zones:
            names = self.offerings.setdefault(region, {}).setdefault(zone, set())
            names.add(instance_type.name)

    def move_spot_price(
        self, instance_type: str, zone: str, price: float | None, *, at: datetime
    ) -> None:
        """Change a spot price from an instant on; None: the zone has none any more."""
        self.spot.setdefault((instance_type, zone), PriceSteps()).move(at, price)

    def move_on_demand_price(
        self, instance_type: str, region: str, price: float, *, at: datetime
    ) -> None:
        """Change an on-demand price from an instant on."""
        prices = self.on_demand.setdefault(region, {})
        prices.setdefault(instance_type, PriceSteps()).move(at, price)

    def is_offered(self, instance_type: str, *, region: str, zone: str) -> bool:
        """Tell whether a zone offers a type."""
        return instance_type in self.offerings.get(region, {}).get(zone, ())

    def prices(self, pool: Pool, *, region: str) -> PriceSteps | None:
        """Return the prices of a pool; None: it never had one."""
        if pool.capacity_type is CapacityType.SPOT:
            return self.spot.get((pool.instance_type, pool.zone))
        return self.on_demand.get(region, {}).get(pool.instance_type)

    def price_at(self, pool: Pool, *, region: str, at: datetime) -> float | None:
        """Return what an hour in a pool costs at an instant; None: nothing is sold there."""
        prices = self.prices(pool, region=region)
        return None if prices is None else prices.at(at)

    def spot_changes(
        self, region: str, start: datetime, end: datetime, *, types: Collection[str] | None = None
    ) -> list[SpotPrice]:
        """Return the price of each offered pool at ``start`` and every change up to ``end``.

        Pool by pool. ``types``: only these; None: all.
        """
        return [
            SpotPrice(instance_type=name, zone=zone, price=price, seen_at=at)
            for zone, names in self.offerings.get(region, {}).items()
            for name in sorted(names if types is None else names.intersection(types))
            if (name, zone) in self.spot
            for at, price in self.spot[name, zone].between(start, end)
        ]

    def usage_quotas(self, region: str) -> Mapping[VcpuQuota, float]:
        """Return quota -> vCPUs, for those that are limited."""
        limits = self.quotas.get(region, {})
        return {_BY_CODE[code]: vcpus for code, vcpus in limits.items()}

"""What can be bought: instance types, quotas, the catalogue, and offers at a whole price."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache


class CapacityType(StrEnum):
    """How EC2 sells an instance."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One vCPU quota of the account in a region."""

    #: Service Quotas' own name of it, for example "L-3819A6DF".
    code: str
    vcpus: float


#: Class of EC2's vCPU quotas -> quota code (Amazon EC2 User Guide, "On-Demand Instance quotas" and
#: "Spot Instance limits"). HPC types are not sold as spot, and have no quota for it.
QUOTA_CODES = {
    "Standard/Spot": "L-34B43A08",
    "X/Spot": "L-E3A00192",
    "F/Spot": "L-88CF9481",
    "Inf/Spot": "L-B5D1601B",
    "Trn/Spot": "L-6B0D517C",
    "DL/Spot": "L-85EED4F7",
    "G/Spot": "L-3819A6DF",
    "P/Spot": "L-7212CCBC",
    "P5/Spot": "L-C4BD4855",
    "Standard/OnDemand": "L-1216C47A",
    "X/OnDemand": "L-7295265B",
    "F/OnDemand": "L-74FC7D96",
    "Inf/OnDemand": "L-1945791B",
    "Trn/OnDemand": "L-2C3B7624",
    "DL/OnDemand": "L-6E869C2A",
    "HPC/OnDemand": "L-F7808C92",
    "G/OnDemand": "L-DB2E81BA",
    "P/OnDemand": "L-417A185B",
}
#: Letters before the generation -> class; all others are "Standard" (A, C, D, H, I, M, R, T, Z).
_QUOTA_LETTERS = {
    "g": "G",
    "gr": "G",
    "vt": "G",
    "x": "X",
    "f": "F",
    "inf": "Inf",
    "trn": "Trn",
    "dl": "DL",
    "hpc": "HPC",
}
_LETTERS = re.compile(r"[a-z]+")


def quota_class(instance_type: str, region: str, capacity_type: CapacityType) -> str:
    """Return ``{region}/{class}``: quotas are counted in vCPUs, per region and capacity type.

    The classes are those of CloudWatch's usage metrics: G and VT types share one; P2 to P4
    share one as spot, newer P generations have their own; all P share one on demand.
    """
    found = _LETTERS.match(instance_type)
    letters = found[0] if found else ""
    name = _QUOTA_LETTERS.get(letters, "Standard")
    if letters == "p":
        generation = instance_type[1:2]
        shared = capacity_type is CapacityType.ON_DEMAND or generation in {"2", "3", "4"}
        name = "P" if shared else f"P{generation}"
    return f"{region}/{name}/{'Spot' if capacity_type is CapacityType.SPOT else 'OnDemand'}"


#: What computes in an instance, by which its throughput is learned: GPU name and count, or, without
#: a GPU, family and vCPUs: ("c7i vCPU", 8.0).
Processor = tuple[str, float]

#: Ends the name of what computes in a type without a GPU.
VCPU = " vCPU"
#: Who makes Inferentia and Trainium, as EC2 says it.
NEURON_MAKER = "AWS"
#: Families without a GPU that are bought: those that the EC2 User Guide ("Amazon EC2 instance
#: types") does not list as of a previous generation. Burstable types (t) are left out, since their
#: speed depends on credits.
_CPU_FAMILY = re.compile(r"[cmr]([5-9]|\d\d)|i([3-9]|\d\d)|i[ms]\d|x\d|hpc\d")


def is_cpu_family(family: str) -> bool:
    """Tell whether machines without a GPU of a family are bought: c, m, r, x, i and hpc."""
    return _CPU_FAMILY.match(family) is not None


@lru_cache(maxsize=4096)
def processor_of(instance_type: str, gpu_name: str, gpu_count: float, vcpus: float) -> Processor:
    """Return what computes in an instance of a type."""
    if gpu_name or gpu_count > 0.0:
        return gpu_name, gpu_count
    return instance_type.partition(".")[0] + VCPU, float(vcpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """The hardware facts of an EC2 instance type, as DescribeInstanceTypes gives them."""

    name: str
    vcpus: int
    memory_mib: int
    #: "x86_64" or "arm64".
    architecture: str
    #: EC2's name of the GPU ("T4", "A10G", ...); "" when there is none.
    gpu_name: str = ""
    gpu_manufacturer: str = ""
    #: GPUs; a fraction for partitioned types (g6f: 0.125), whose EC2 ``Count`` is 0.
    gpu_count: float = 0.0
    #: VRAM of one GPU, or of the partition for a fractional type.
    gpu_memory_mib: int = 0
    capacity_types: frozenset[CapacityType] = frozenset(CapacityType)
    bare_metal: bool = False

    @property
    def family(self) -> str:
        """Return the part before the dot: ``g5`` of ``g5.xlarge``."""
        return self.name.partition(".")[0]

    @property
    def processor(self) -> Processor:
        """Return what computes in it."""
        return processor_of(self.name, self.gpu_name, self.gpu_count, self.vcpus)

    @property
    def is_without_gpu(self) -> bool:
        """Tell whether it computes with its vCPUs alone."""
        return not self.gpu_name and self.gpu_count <= 0.0

    @property
    def is_sold(self) -> bool:
        """Tell whether workers may be bought of it: it has an accelerator, or a usual CPU."""
        return not self.is_without_gpu or is_cpu_family(self.family)

    @property
    def is_neuron(self) -> bool:
        """Tell whether its accelerators are Inferentia or Trainium, which run Neuron code alone."""
        return self.gpu_manufacturer == NEURON_MAKER


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A capacity pool inside EC2: what runs dry, and what is reclaimed."""

    instance_type: str
    zone: str
    capacity_type: CapacityType

    def __str__(self) -> str:
        """Return the key under which a pool's memory is kept."""
        return f"{self.instance_type}/{self.zone}/{self.capacity_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One way to buy an instance: a type, in a zone, as a capacity type, at a price."""

    instance_type: InstanceType
    region: str
    zone: str
    capacity_type: CapacityType
    #: USD per hour for the instance alone. Spot: the latest price seen. 0: no price is known.
    instance_price: float
    #: USD per hour for what comes with it: root volume and public IPv4.
    extra_price: float = 0.0
    #: The part of ``extra_price`` that is the root volume's.
    volume_price: float = 0.0
    #: True when a spot price was not known and estimated from on-demand.
    estimated: bool = False
    #: The on-demand price of the same type and region, USD per hour; None when unknown.
    on_demand_price: float | None = None
    #: Share of such instances that EC2 reclaims in a month (0 to 1); None when unpublished.
    reclaim_share: float | None = None
    #: USD per GiB that comes from home, and that goes there; 0 at home.
    inbound_price_per_gib: float = 0.0
    outbound_price_per_gib: float = 0.0
    #: Machines that may be had at this price, since their hours are paid already; 0: any number.
    paid_left: int = 0

    @property
    def price(self) -> float:
        """Return the whole price, USD per hour: instance, root volume, public IPv4."""
        return self.instance_price + self.extra_price

    @property
    def address_price(self) -> float:
        """Return what the public IPv4 address costs, USD per hour."""
        return self.extra_price - self.volume_price

    @property
    def pool(self) -> Pool:
        """Return the capacity pool that this offer draws from."""
        return Pool(
            instance_type=self.instance_type.name,
            zone=self.zone,
            capacity_type=self.capacity_type,
        )

    @property
    def quota_class(self) -> str:
        """Return the quota that an instance of this offer counts against."""
        return quota_class(self.instance_type.name, self.region, self.capacity_type)

    def __str__(self) -> str:
        """Return a short name for logs and tables."""
        return f"{self.instance_type.name}/{self.zone}/{self.capacity_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRequirements:
    """What an instance must have to run a workload; None means no bound."""

    gpu_names: frozenset[str] | None = None
    gpu_names_denied: frozenset[str] = frozenset()
    gpu_manufacturer: str | None = "NVIDIA"
    gpu_count_min: float = 1.0
    gpu_count_max: float | None = None
    gpu_memory_mib_min: int = 0
    gpu_memory_total_mib_min: int = 0
    #: Jobs that share the GPUs, spread evenly, and what each needs of its one.
    gpu_jobs: int = 1
    gpu_memory_mib_each: int = 0
    vcpus_min: int = 0
    memory_mib_min: int = 0
    architectures: frozenset[str] = frozenset({"x86_64"})
    families_denied: frozenset[str] = frozenset()
    #: Instance types by exact name; None allows all that fit.
    instance_types: frozenset[str] | None = None
    allow_fractional_gpu: bool = False
    allow_bare_metal: bool = False

    @property
    def allows_no_gpu(self) -> bool:
        """Tell whether a machine without a GPU may do."""
        return self.gpu_count_min <= 0.0

    @property
    def allows_gpu(self) -> bool:
        """Tell whether a machine with a GPU may do."""
        return self.gpu_count_max is None or self.gpu_count_max > 0.0


def slot_count(gpu_count: float, slots: str) -> int:
    """Return how many jobs an instance holds at once.

    Args:
        gpu_count: GPUs of the instance; a partition, or none, still makes one slot.
        slots: "per-gpu", "per-instance" or a number, as the workload's ``run.slots`` says.
    """
    if slots == "per-instance":
        return 1
    if slots == "per-gpu":
        return max(1, int(gpu_count))
    return max(1, int(slots))


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What the market offers, without live spot prices: written by the offers use case."""

    taken_at: datetime
    instance_types: Mapping[str, InstanceType]
    #: region -> zone -> names of the types offered there.
    offerings: Mapping[str, Mapping[str, frozenset[str]]]
    #: region -> type -> USD per hour.
    on_demand: Mapping[str, Mapping[str, float]]
    #: region -> type -> share of instances reclaimed per month (0 to 1), as published.
    reclaim_share: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: region -> USD per GiB-month of gp3; a region that is missing has the price of us-east-1.
    volume_price: Mapping[str, float] = field(default_factory=dict)
    #: ``{region}/{class}`` (``quota_class``) -> vCPUs that the account may run; missing: unknown.
    quotas: Mapping[str, float] = field(default_factory=dict)
    #: region -> other region -> USD per GiB that leaves the first for the second.
    transfer_price: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    #: source name -> when its part was last read, for parts older than ``taken_at``.
    stale_since: Mapping[str, datetime] = field(default_factory=dict)

    def read_at(self, source: str) -> datetime:
        """Return when a part was read."""
        return self.stale_since.get(source, self.taken_at)

    def age(self, source: str, now: datetime) -> timedelta:
        """Return how long ago a part was read; never negative, whatever the clocks say."""
        return max(now - self.read_at(source), timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPrice:
    """One spot price as seen at a moment."""

    instance_type: str
    zone: str
    #: USD per hour.
    price: float
    seen_at: datetime


#: USD per GiB-month of gp3 in us-east-1 (aws.amazon.com/ebs/pricing), where no price is known.
GP3_PRICE_PER_GIB_MONTH = 0.08
#: USD per hour of one public IPv4 address in use, the same in every region
#: (aws.amazon.com/vpc/pricing, since 2024-02).
PUBLIC_IPV4_PRICE_PER_HOUR = 0.005
#: USD per GiB between two regions of AWS, the usual rate (aws.amazon.com/ec2/pricing).
REGION_TRANSFER_PRICE_PER_GIB = 0.02
HOURS_PER_MONTH = 730.0

#: On-demand prices that were read longer ago count as unknown. A list price stays for months, so a
#: week without an answer means that something is broken.
LIST_PRICES_TRUSTED_FOR = timedelta(days=7)
#: Quotas that were read longer ago are ignored: they may have been raised, and EC2 refuses anyway.
QUOTAS_TRUSTED_FOR = timedelta(days=1)


def trusted(catalogue: Catalogue, now: datetime) -> Catalogue:
    """Return the catalogue without the prices and quotas that are too old to be trusted."""

    def is_fresh(region: str, part: str, longest: timedelta) -> bool:
        return catalogue.age(f"{region}/{part}", now) <= longest

    fresh = {
        region: prices
        for region, prices in catalogue.on_demand.items()
        if is_fresh(region, "on_demand", LIST_PRICES_TRUSTED_FOR)
    }
    binding = {
        name: vcpus
        for name, vcpus in catalogue.quotas.items()
        if is_fresh(name.partition("/")[0], "quotas", QUOTAS_TRUSTED_FOR)
    }
    if len(fresh) == len(catalogue.on_demand) and len(binding) == len(catalogue.quotas):
        return catalogue
    return replace(catalogue, on_demand=fresh, quotas=binding)


def extra_price_per_hour(
    volume_gib: float, gib_month_price: float = GP3_PRICE_PER_GIB_MONTH
) -> float:
    """Return USD per hour of what an instance needs besides: gp3 root volume and public IPv4.

    100 GiB: 100 x 0.08 / 730 + 0.005 = 0.01596.
    """
    return volume_price_per_hour(volume_gib, gib_month_price) + PUBLIC_IPV4_PRICE_PER_HOUR


def volume_price_per_hour(volume_gib: float, gib_month_price: float) -> float:
    """Return USD per hour of a gp3 volume; EBS bills by the second, for months of 730 hours."""
    return volume_gib * gib_month_price / HOURS_PER_MONTH


def build_offers(
    catalogue: Catalogue,
    spot_prices: Iterable[SpotPrice],
    *,
    zones: Mapping[str, Collection[str]],
    spot_price_ratio_estimate: float,
    volume_gib: float,
    home_region: str | None = None,
) -> tuple[Offer, ...]:
    """Return everything that can be bought with its price, in an order set by the input alone.

    A price that is missing, zero, negative or not a number is unknown. So is a spot price below a
    hundredth of the on-demand price. An unknown spot price is estimated from the on-demand price.
    If that is unknown too, the offer has the price 0, and the ranking rejects it with that reason.

    Args:
        catalogue: types, where they are offered, and on-demand prices.
        spot_prices: the latest price of each pool; the newest wins.
        zones: region -> zones that have a subnet of ours.
        spot_price_ratio_estimate: spot over on-demand where the spot price is unknown.
        volume_gib: size of the root volume.
        home_region: where queue and bucket are; elsewhere transfer is paid. None: everywhere.
    """
    latest: dict[tuple[str, str], SpotPrice] = {}
    for seen in spot_prices:
        known = latest.get((seen.zone, seen.instance_type))
        if _is_price(seen.price) and (known is None or seen.seen_at >= known.seen_at):
            latest[seen.zone, seen.instance_type] = seen
    prices = {key: seen.price for key, seen in latest.items()}
    return tuple(
        offer
        for region in sorted(zones)
        for offer in _offers_of_region(
            catalogue,
            region,
            sorted(zones[region]),
            prices,
            ratio=spot_price_ratio_estimate,
            volume_gib=volume_gib,
            home_region=home_region,
        )
    )


def _offers_of_region(
    catalogue: Catalogue,
    region: str,
    zones: list[str],
    spot: Mapping[tuple[str, str], float],
    *,
    ratio: float,
    volume_gib: float,
    home_region: str | None,
) -> Iterator[Offer]:
    offerings = catalogue.offerings.get(region, {})
    on_demand = catalogue.on_demand.get(region, {})
    shares = catalogue.reclaim_share.get(region, {})
    inbound = transfer_price(catalogue, home_region or region, region)
    outbound = transfer_price(catalogue, region, home_region or region)
    volume = _volume_price(catalogue, region, volume_gib)
    extra = volume + PUBLIC_IPV4_PRICE_PER_HOUR
    types = catalogue.instance_types
    # Offers of one type follow each other, so that the ranking works a type out once.
    names = {name for zone in zones for name in offerings.get(zone, ()) if name in types}
    for name in sorted(names):
        instance_type = types[name]
        listed = on_demand.get(name, 0.0)
        base = listed if _is_price(listed) else None
        capacity_types = sorted(instance_type.capacity_types)
        for zone in (zone for zone in zones if name in offerings.get(zone, ())):
            for capacity_type in capacity_types:
                is_spot = capacity_type is CapacityType.SPOT
                seen = _believed(spot.get((zone, name)), base) if is_spot else base
                price = base * ratio if seen is None and base is not None else seen
                yield Offer(
                    instance_type=instance_type,
                    region=region,
                    zone=zone,
                    capacity_type=capacity_type,
                    instance_price=price or 0.0,
                    extra_price=extra,
                    volume_price=volume,
                    estimated=seen is None and base is not None,
                    on_demand_price=base,
                    reclaim_share=shares.get(name) if is_spot else None,
                    inbound_price_per_gib=inbound,
                    outbound_price_per_gib=outbound,
                )


def transfer_price(catalogue: Catalogue, origin: str, destination: str) -> float:
    """Return USD per GiB that leaves one region for another; the usual rate if none is known."""
    if origin == destination:
        return 0.0
    known = catalogue.transfer_price.get(origin, {}).get(destination)
    is_known = known is not None and math.isfinite(known) and known >= 0.0
    return known if known is not None and is_known else REGION_TRANSFER_PRICE_PER_GIB


def _volume_price(catalogue: Catalogue, region: str, volume_gib: float) -> float:
    gib_month = catalogue.volume_price.get(region, GP3_PRICE_PER_GIB_MONTH)
    known = gib_month if _is_price(gib_month) else GP3_PRICE_PER_GIB_MONTH
    return volume_price_per_hour(volume_gib, known)


#: EC2's discount is "up to 90 %" (aws.amazon.com/ec2/spot). A tenth of the rest is a mistake.
_LEAST_SPOT_SHARE = 0.01


def _believed(seen: float | None, on_demand: float | None) -> float | None:
    """Return a spot price, or None if it is too low for its type to be real."""
    if seen is not None and on_demand is not None and seen < on_demand * _LEAST_SPOT_SHARE:
        return None
    return seen


def _is_price(price: float) -> bool:
    return math.isfinite(price) and price > 0.0


#: The Price List answers in few regions, and there for all. First part of a home region's name ->
#: the region that is asked from there; any other home asks us-east-1.
_PRICING_REGIONS = {"eu": "eu-central-1", "ap": "ap-south-1"}


def pricing_region(home: str) -> str:
    """Return the region whose Price List a deployment asks: one of its own part of the world.

    Worked: eu-west-1 asks eu-central-1. An account that may use Europe alone can ask there.
    """
    return _PRICING_REGIONS.get(home.partition("-")[0], "us-east-1")

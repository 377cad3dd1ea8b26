"""Instance types, offers at a price, and what a workload requires of them."""

from dataclasses import dataclass

from spindown.domain.offer.quota import CapacityType, quota_class


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
class Requirements:
    """What an instance must have to run a workload; None means no bound."""

    gpu_names: frozenset[str] | None = None
    gpu_names_denied: frozenset[str] = frozenset()
    gpu_manufacturer: str | None = "NVIDIA"
    gpu_count_min: float = 1.0
    gpu_count_max: float | None = None
    gpu_memory_mib_min: int = 0
    gpu_memory_total_mib_min: int = 0
    vcpus_min: int = 0
    memory_mib_min: int = 0
    architectures: frozenset[str] = frozenset({"x86_64"})
    families_denied: frozenset[str] = frozenset()
    #: Instance types by exact name; None allows all that fit.
    instance_types: frozenset[str] | None = None
    allow_fractional_gpu: bool = False
    allow_bare_metal: bool = False


def slot_count(gpu_count: float, slots: str) -> int:
    """Return how many leases an instance holds at once.

    Args:
        gpu_count: GPUs of the instance; a partition, or none, still makes one slot.
        slots: "per-gpu", "per-instance" or a number, as the workload's ``run.slots`` says.
    """
    if slots == "per-instance":
        return 1
    if slots == "per-gpu":
        return max(1, int(gpu_count))
    return max(1, int(slots))

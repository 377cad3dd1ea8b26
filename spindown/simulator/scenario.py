"""What a simulation is given: work that arrives, a market that sells, and a world's delays.

Times are seconds since the scenario's start. Work is measured in seconds on one slot of the
reference GPU, a T4: an item of 10 s takes 10 / speed on another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import fsum

from spindown.domain.offer import VCPU, InstanceRequirements, InstanceType, slot_count
from spindown.domain.policy import JobNeeds
from spindown.domain.relative_throughput import relative_throughput
from spindown.simulator.boot import BOOTS, Boot
from spindown.simulator.fault import Faults, Spans

#: Piecewise constant: (from this second on, value), in order of time.
Steps = tuple[tuple[float, float], ...]

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueNeed:
    """What a job needs in truth, which nobody is told: it has a machine for itself."""

    #: The most GiB of memory, and of VRAM, that it uses.
    memory_gib: float = 0.0
    vram_gib: float = 0.0
    #: Share of its work that all vCPUs of a machine do together; one of them does the rest
    #: (Amdahl's law). None: a GPU does it.
    parallel: float | None = None
    #: Share of an item's work after which it has taken its memory, and fails if that is too much.
    peaks_at: float = 0.5

    def speed(self, machine: InstanceType, listed: float) -> float:
        """Return how fast a machine does its work, the reference GPU being 1.

        vCPUs are as fast as the ranking takes them before anything is measured, GPUs as listed.
        """
        if self.parallel is None:
            return listed
        name = machine.family + VCPU
        return relative_throughput(name, 1.0) * self.cores(machine.vcpus)

    def cores(self, vcpus: float) -> float:
        """Return the mean number of vCPUs that are at work."""
        if self.parallel is None:
            return 1.0
        return 1.0 / (1.0 - self.parallel + self.parallel / vcpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One job that is sent to the queue."""

    at: float
    items: int = 1
    #: Seconds that one item takes on the reference GPU.
    item_seconds: float
    #: Whether its code keeps a checkpoint, so that an item goes on where its last worker saved it.
    keeps_state: bool = False
    #: Whether that checkpoint is of use; otherwise each worker begins the item anew all the same.
    uses_state: bool = True
    #: Of the policy's types; "": none.
    job_type: str = ""
    #: What its message asks for; None: nothing, so what its type says counts.
    requirements: JobNeeds | None = None
    #: None: any machine will do, and as fast as its speed says.
    need: TrueNeed | None = None

    @property
    def work_seconds(self) -> float:
        """Return the work of the whole job on the reference GPU."""
        return self.items * self.item_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """What one zone sells of one instance type."""

    #: USD per hour; empty: not sold as spot.
    spot: Steps
    #: Spot instances that may run at once; empty: no end. A fall takes instances away.
    capacity: Steps = ()
    #: Likewise on demand, where a fall only refuses new ones.
    on_demand_capacity: Steps = ()
    #: How often EC2 takes a spot instance away.
    reclaims_per_hour: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One instance type in one region."""

    instance_type: InstanceType
    region: str
    #: USD per hour; None: not sold on demand.
    on_demand: float | None
    #: Of one slot; the reference GPU is 1.
    speed: float
    zones: Mapping[str, Zone]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimDelays:
    """How slow the world is, in seconds."""

    #: From what happens to an instance to the function that EventBridge invokes.
    event: float = 1.0
    #: An instance is shutting down, during which its quota is still used.
    ending: float = 30.0
    #: From ``poweroff`` to EC2's end of billing.
    power_off: float = 5.0
    #: Until EC2 describes a new instance.
    described: float = 5.0
    #: One commit: parts and manifest in S3.
    commit: float = 0.3
    #: How often a worker looks at its metadata.
    metadata: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimScenario:
    """Everything but the policy and the seed."""

    name: str
    arrivals: tuple[Arrival, ...]
    listings: tuple[Listing, ...]
    #: Seconds; the fleet may then finish what is left.
    length: float
    #: Its time of day decides nothing but the days of the account.
    start: datetime = datetime(2026, 1, 5, tzinfo=UTC)
    boot: Boot = BOOTS["bootstrap"]
    delays: SimDelays = field(default_factory=SimDelays)
    #: Share of reclaims that come without a notice.
    notice_missing: float = 0.0
    #: SQS keeps order only roughly: a receive takes one of so many oldest messages.
    disorder: int = 10
    #: Whether the sender wakes the scaler at once, as ``spindown submit`` does.
    nudged: bool = False
    #: (from, to): the functions do not run.
    control_down: Spans = ()
    faults: Faults = field(default_factory=Faults)
    requirements: InstanceRequirements = field(default_factory=InstanceRequirements)
    budget_per_month: float | None = None
    #: How many jobs an instance works on at once, as ``run.slots`` says.
    slots: str = "per-gpu"
    root_volume_gib: int = 100
    #: Seconds after ``length`` at which the run is broken off.
    overtime: float = 4 * DAY

    @property
    def items(self) -> int:
        """Return how many items arrive."""
        return sum(arrival.items for arrival in self.arrivals)

    @property
    def work_seconds(self) -> float:
        """Return how much work arrives, in seconds on the reference GPU."""
        return fsum(arrival.work_seconds for arrival in self.arrivals)

    @property
    def has_types(self) -> bool:
        """Tell whether any job states what machine it needs."""
        return any(each.job_type or each.requirements is not None for each in self.arrivals)

    def slots_of(self, listing: Listing) -> int:
        """Return how many jobs an instance of a type works on at once."""
        return slot_count(listing.instance_type.gpu_count, self.slots)

    def throughput(self, listing: Listing) -> float:
        """Return the work of all slots of an instance in a second, the reference GPU's being 1."""
        return listing.speed * self.slots_of(listing)


def value_at(steps: Steps, seconds: float) -> float | None:
    """Return the value in force; None before the first."""
    found = None
    for begins, value in steps:
        if begins > seconds:
            break
        found = value
    return found

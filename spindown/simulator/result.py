"""What came of a simulation: work, waits, money by cause, and a digest of all that happened."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

#: What a bill is made of.
CAUSES = ("boot", "work", "redo", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The queue and the fleet at one tick."""

    seconds: float
    visible: int
    in_flight: int
    booting: int
    idle: int
    busy: int
    #: USD that EC2 has billed up to here, each instance's bill spread evenly over its life.
    dollars: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """A distribution, in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimResult:
    """One run. Money is what EC2 bills, USD; instance seconds count an instance once.

    Busy, idle and redone seconds of an instance with several slots are those of its slots, each
    for its share.
    """

    scenario: str
    seed: int
    jobs: int
    jobs_done: int
    items: int
    items_done: int
    dead_letters: int
    #: Seconds on the reference GPU that arrived.
    work_seconds: float
    dollars: float
    #: Cause -> USD; they add up to ``dollars``: boot, work, redo, idle.
    bill: Mapping[str, float]
    on_demand_dollars: float
    #: What the deployment's own account says that it cost.
    accounted_dollars: float
    #: Instance time that was charged; what EC2 took within an hour is not.
    billed_seconds: float
    boot_seconds: float
    busy_seconds: float
    idle_seconds: float
    #: Of the busy ones: computed, and never committed.
    redo_seconds: float
    #: From a job's arrival to its first claim, and to its end.
    wait: Quantiles
    sojourn: Quantiles
    #: From the moment at which a begun job had no worker any more to its next claim.
    stood: Quantiles
    #: Mean number of jobs present: waiting, or worked on (for Little's law).
    mean_jobs: float
    seconds: float
    launches: int
    refusals: int
    interruptions: int
    #: Instances at the same time, at most.
    peak: int
    #: Instance type -> launches.
    types: Mapping[str, int]
    ticks: int
    events: int
    #: Of everything that happened, in its order.
    digest: str
    samples: tuple[Sample, ...] = field(default=(), repr=False)

    @property
    def dollars_per_item(self) -> float:
        """Return USD per item done; infinite if none is."""
        return self.dollars / self.items_done if self.items_done else math.inf

    @property
    def has_started(self) -> bool:
        """Tell whether any job was begun: without one there is no wait."""
        return self.busy_seconds > 0.0

    def to_json(self) -> str:
        """Return it as JSON; two runs of one seed give the same bytes."""
        return json.dumps(asdict(self), sort_keys=True)


def spread(values: Sequence[float]) -> Quantiles:
    """Return mean and quantiles; all 0 of nothing."""
    ordered = sorted(values)
    if not ordered:
        return Quantiles(mean=0.0, p50=0.0, p95=0.0, p99=0.0, most=0.0)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    mean = math.fsum(ordered) / len(ordered)
    return Quantiles(mean=mean, p50=at(0.5), p95=at(0.95), p99=at(0.99), most=ordered[-1])

"""Rows that add up: what was learned, what was spent, how often EC2 was asked."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class RateRow:
    """A learned quantity as sums, so that every report is one atomic addition.

    Throughput: ``count`` items, ``hours`` of busy slot time, ``reports``, ``lives`` of workers that
    they are from; ``moved`` of the items had their bytes
    counted, ``gib_in`` taken and ``gib_out`` given. Pool: ``count`` interruptions, ``hours`` lived.
    Boot, gap, job, checkpoint: ``samples``, the last ones.
    """

    count: float = 0.0
    hours: float = 0.0
    reports: int = 0
    lives: int = 0
    moved: float = 0.0
    gib_in: float = 0.0
    gib_out: float = 0.0
    #: The newest last; at most 50. Seconds, or items for JOB_RATE.
    samples: tuple[float, ...] = ()
    updated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class SpendRow:
    """What a workload has spent and done in a day; dollars at the prices stamped at launches."""

    dollars: float = 0.0
    on_demand_dollars: float = 0.0
    boot_seconds: float = 0.0
    busy_seconds: float = 0.0
    idle_seconds: float = 0.0
    items: int = 0
    items_failed: int = 0
    items_redone: int = 0
    jobs: int = 0
    launches: int = 0
    instances: int = 0
    refusals: int = 0
    interruptions: int = 0
    #: Busy seconds of which heartbeats told how the GPU was used, and percent times seconds: of
    #: its time, and of its memory at the most within each heartbeat.
    gpu_seconds: float = 0.0
    gpu_percent_seconds: float = 0.0
    vram_percent_seconds: float = 0.0
    #: Most memory of one worker's GPUs that any heartbeat told; 0: none told.
    vram_gib_max: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """A month of the whole deployment, in USD: what is spent and what launches have set aside."""

    dollars: float = 0.0
    #: Spent and set aside together: what a launch's reservation is checked against.
    committed: float = 0.0


#: Launch requests that all workloads together make in a region and minute. EC2 fills a bucket
#: for each API, account and region: of RunInstances it takes 5 at once and 2 a second (EC2
#: developer guide, "Request throttling"). A quarter of that leaves others in the account theirs.
CALLS_PER_MINUTE = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsRow:
    """The launch requests of all workloads in one region, in the minute that it names."""

    minute: str = ""
    count: int = 0

"""The thresholds that a person may change while the system runs, as one frozen value."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from spindown.domain.offer import CapacityType


class RankBy(StrEnum):
    """What the candidate list is sorted by."""

    COST_PER_ITEM = "cost_per_item"
    PRICE = "price"


class Rightsize(StrEnum):
    """What becomes of the sizes that are learned for types of jobs (``rightsizing.type_size``)."""

    #: Nothing is learned.
    OFF = "off"
    #: ``spindown rightsize`` tells them.
    ADVISE = "advise"
    #: New jobs get them.
    APPLY = "apply"


class Dispatch(StrEnum):
    """How jobs come to machines."""

    #: Machines work on whatever waits, one job after the other, until they are idle.
    POOL = "pool"
    #: Each job gets a machine that is launched for it and ends with it.
    DEDICATED = "dedicated"
    #: Several small jobs run side by side on one machine, each within its share of it.
    SHARED = "shared"


class WhenSpent(StrEnum):
    """What happens to machines that run once the month's budget is used up; none is launched."""

    #: They go on with whatever waits until they are idle.
    STOP_LAUNCHES = "stop launches"
    #: They take no further job, and end after those in hand.
    FINISH_JOBS = "finish jobs in hand"
    #: They commit, put their jobs back and end at once.
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One step of the price ladder: what may be bought once work has waited this long."""

    after: timedelta
    capacity_types: frozenset[CapacityType]
    #: USD per hour, whole price; None: only the policy's own ceiling holds.
    max_price_per_hour: float | None = None


class Weekday(StrEnum):
    """A day of the week, Monday first."""

    MONDAY = "mon"
    TUESDAY = "tue"
    WEDNESDAY = "wed"
    THURSDAY = "thu"
    FRIDAY = "fri"
    SATURDAY = "sat"
    SUNDAY = "sun"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmSpan:
    """Some hours of some days at which workers are kept warm (``domain.warm``)."""

    days: frozenset[Weekday]
    #: Since midnight. An end at or before the start is that of the next day.
    start: timedelta
    end: timedelta
    workers: int
    #: By IANA's name, such as "Europe/Berlin".
    time_zone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNeeds:
    """What a job needs; None: nothing is said, so what the workload requires is enough."""

    vcpus: int | None = None
    memory_gib: float | None = None
    gpus: int | None = None
    #: Of one GPU.
    gpu_memory_gib: float | None = None
    disk_gib: float | None = None
    #: Any of these will do.
    architectures: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """A kind of job of a workload (``domain.shape``)."""

    name: str
    needs: JobNeeds = JobNeeds()
    #: None: as the workload says.
    dispatch: Dispatch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Every live threshold of one workload. Defaults are those of spindown.toml."""

    # When to launch, and how many.
    #: Visible messages from which a launch is due at once; fewer wait for ``start_within``. None:
    #: all do.
    scale_up_threshold: int | None = None
    #: Longest time that work may wait for its start.
    start_within: timedelta = timedelta(minutes=5)
    #: Time within which the present backlog should be worked off.
    drain_within: timedelta = timedelta(hours=1)
    #: Time from a job's sending to its end; None: no deadline.
    finish_within: timedelta | None = None
    max_workers: int = 4
    warm_workers: int = 0
    #: When more than ``warm_workers`` are kept warm.
    warm_schedule: tuple[WarmSpan, ...] = ()
    max_requests_per_tick: int = 10
    # What may be bought.
    rank_by: RankBy = RankBy.COST_PER_ITEM
    #: Offers within this share of the best cost are left to EC2's choice of capacity.
    band: float = 0.05
    #: USD per hour and instance, whole price.
    max_price_per_hour: float = 2.0
    max_price_per_gpu_hour: float | None = None
    #: Least probability that a spot instance lives one hour.
    min_reliability: float = 0.0
    ladder: tuple[Rung, ...] = field(
        default=(
            Rung(after=timedelta(0), capacity_types=frozenset({CapacityType.SPOT})),
            Rung(after=timedelta(minutes=5), capacity_types=frozenset(CapacityType)),
        )
    )
    spot_price_ratio_estimate: float = 0.5
    #: USD per hour for the whole workload; None: no cap.
    max_dollars_per_hour: float | None = None
    #: What else happens once the deployment's budget of the month is used up.
    when_spent: WhenSpent = WhenSpent.FINISH_JOBS
    #: Regions in which to launch; None: every one of the deployment's.
    regions: frozenset[str] | None = None
    # Which kinds of jobs there are.
    #: Empty: all jobs are alike, and no message names a type.
    types: tuple[JobType, ...] = ()
    #: The most that a message may ask for, where its type does not say more.
    requirements_at_most: JobNeeds = JobNeeds()
    rightsize: Rightsize = Rightsize.ADVISE
    # How jobs come to machines.
    dispatch: Dispatch = Dispatch.POOL
    #: Jobs side by side on one machine, of those that are ``shared``.
    shared_slots: int = 8
    # How long an answer is remembered.
    pool_cooldown: timedelta = timedelta(minutes=3)
    pool_cooldown_at_most: timedelta = timedelta(minutes=30)
    quota_blocked_for: timedelta = timedelta(minutes=15)
    scale_up_timeout: timedelta = timedelta(minutes=10)
    # When workers end.
    #: None: learned from the workload's own gaps and boot time ("auto").
    idle_timeout: timedelta | None = None
    scale_down_delay: timedelta = timedelta(minutes=2)
    max_lifetime: timedelta = timedelta(hours=24)
    lifetime_grace: timedelta = timedelta(minutes=15)
    heartbeat_stale_after: timedelta = timedelta(minutes=10)
    # Lease and checkpoint.
    heartbeat_interval: timedelta = timedelta(seconds=60)
    lease_duration: timedelta = timedelta(minutes=5)
    #: Results are committed this long before an interruption's deadline.
    commit_margin: timedelta = timedelta(seconds=20)
    checkpoint_items: int | None = None
    #: None: "auto", Young's interval from measured cost and interruption rate.
    checkpoint_interval: timedelta | None = None
    # Failures.
    max_losses: int = 3
    max_failures: int = 5
    #: Failures on at least two instances from which a job goes to the DLQ.
    max_failures_on_two: int = 3
    failures_to_quarantine: int = 3
    #: Slot time of all attempts at one item from which on no further is begun: state that is saved
    #: again and again may be of no use to anybody.
    max_item_time: timedelta = timedelta(days=7)
    # Estimates until measurements take over.
    boot_estimate: timedelta = timedelta(minutes=3)
    items_per_job_estimate: float = 100.0
    #: Items per hour of one T4-class GPU.
    throughput_estimate: float = 1000.0
    #: MiB of input an item.
    mib_per_item_estimate: float = 1.0
    # What a person is told of.
    #: Times the usual cost of an item: the last week beside the weeks before.
    alarm_cost_rise: float = 1.25
    # Over the last day; None: a person is not told.
    #: USD, all in.
    alarm_max_cost_per_item: float | None = None
    #: Share of the paid time, unless workers are kept warm.
    alarm_max_idle_share: float | None = 0.6
    #: USD.
    alarm_max_dollars_without_items: float | None = 10.0
    # Limits of the contract.
    max_items_per_job: int = 1000
    #: The tick's period, which bounds how late anything can start.
    tick: timedelta = timedelta(minutes=1)

    def gathers(self, visible: int) -> bool:
        """Tell whether so many visible messages wait as long as ``start_within`` allows."""
        return self.scale_up_threshold is None or visible < self.scale_up_threshold

"""The ledger's rows: where each lies in the table, and how a row becomes a domain value.

What a workload's workers write lies in the partition ``w#{workload}``, what the control plane obeys
in ``c#{workload}``: workers may read that and not write it. Finished rows lie in ``h#{workload}``,
what belongs to the account in ``d#``. Values are the dataclasses of
``spindown.domain.fleet`` through ``contract.codec``; rows that have no dataclass there are defined
here.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import lru_cache

from spindown.contract.codec import encode_instant
from spindown.contract.decision import DecisionSummary, Outcome
from spindown.domain.batch import BatchTally
from spindown.domain.offer import Pool
from spindown.domain.reason import NO_REASON, Reason
from spindown.domain.useless_trait import UselessTrait
from spindown.domain.value_range import Amount, Dollars, Margin, Sample, Tally

# Where each row of the ledger lies: partitions and sort keys.


#: The partition of what the whole deployment shares.
DEPLOYMENT_PARTITION = "d#"


def worker_partition(workload: str) -> str:
    """Return the partition of the live rows that a workload's workers may write."""
    return f"w#{workload}"


def control_partition(workload: str) -> str:
    """Return the partition of a workload's live rows that only the control plane writes."""
    return f"c#{workload}"


def history_partition(workload: str) -> str:
    """Return the partition of a workload's finished rows."""
    return f"h#{workload}"


WORKER = "worker#"
#: What the control plane knows of an instance that a launch gave, whatever its own row says.
MACHINE = "machine#"
LEASE = "lease#"
LAUNCH = "launch#"
POOL_COOLDOWN = "pool-cooldown#"
RATE = "rate#"
SPEND = "spend#"
BACKLOG = "backlog"
LOCK = "lock"
POLICY = "policy"
QUOTA = "quota#"
BREAKER = "breaker"
DECISION = "decision"
BUDGET = "budget#"
CALLS = "calls#"
#: Where a region stands otherwise.
REHEARSED = f"{CALLS}rehearsed"
ALERT = "alert#"
REQUEUED = "requeued#"
#: The rise of the cost of an item that stands (``domain.cost_rise.CostRise``).
COST_RISE = "cost-rise"
ACCEPTED = "accepted#"
#: A shape of machine that has a queue of its own, and what ticks have seen of that queue.
SHAPE = "shape#"
SHAPE_BACKLOG = "shape-backlog#"
#: What was baked for an architecture (``domain.bake_or_bootstrap.ImageHistory``).
IMAGE = "image#"
NEWER_MESSAGE = "newer#"
#: A batch that is not over (``BatchRow``), and the looks at all of them (``BatchesRow``).
BATCH = "batch#"
BATCHES = "batches"
DONE = "done#"
CLAIMS = "claims"


#: Fields of a worker that the control plane decides: what its launch gave, and what it is charged.
DECIDED = (
    "launch_id",
    "shape",
    "instance_type",
    "region",
    "zone",
    "capacity_type",
    "price_per_hour",
    "extra_price",
    "on_demand_price",
    "launched_at",
    "accrued_until",
    "charged_usd",
    "refunded_usd",
    "ended_at",
)


#: Fields of a worker that only EC2's word makes, by an event or an answer; what
#: the instance itself says of its end lies in its own row. Ticks have counted what they say.
REPORTED_BY_EC2 = ("noticed_at", "gone_at", "interruption_counted")


def worker_sort_key(instance_id: str) -> str:
    """Return the sort key of a worker row."""
    return f"{WORKER}{instance_id}"


def machine_sort_key(instance_id: str) -> str:
    """Return the sort key of what the control plane itself knows of an instance."""
    return f"{MACHINE}{instance_id}"


def lease_sort_key(instance_id: str, slot: int) -> str:
    """Return the sort key of a lease row."""
    return f"{LEASE}{instance_id}#{slot}"


def launch_sort_key(launch_id: str) -> str:
    """Return the sort key of a launch row."""
    return f"{LAUNCH}{launch_id}"


def pool_cooldown_sort_key(pool: Pool) -> str:
    """Return the sort key of the cooldown of a pool."""
    return f"{POOL_COOLDOWN}{pool}"


def processor_kind(name: str, count: float) -> str:
    """Return the name of what computes in an instance: GPU or vCPU, and count."""
    return f"{name}#{count:g}"


@lru_cache(maxsize=256)
def parse_processor_kind(text: str) -> tuple[str, float] | None:
    """Return name and count of what computes; None if it is no such text."""
    name, mark, text = text.rpartition("#")
    try:
        count = float(text)
    except ValueError:
        return None
    return (name, count) if mark and 0.0 <= count <= _PROCESSORS_MOST else None


#: vCPUs of one instance, or its GPUs: more than any has.
_PROCESSORS_MOST = 10_000.0


def throughput_sort_key(name: str, count: float, job_type: str = "") -> str:
    """Return the sort key of the learned throughput of what computes: GPU or vCPU, and count.

    Jobs of each type have one of their own; "": they have none.
    """
    kind = processor_kind(name, count)
    return f"{TYPE_THROUGHPUT}{job_type}#{kind}" if job_type else f"{THROUGHPUT}{kind}"


def job_sort_key(job_type: str) -> str:
    """Return the sort key of how large jobs of a type are; "": those without one."""
    return f"{TYPE_JOB}{job_type}" if job_type else JOB_RATE


def alert_sort_key(name: str) -> str:
    """Return the sort key of what is remembered of an alert (``domain.alert.AlertState``)."""
    return f"{ALERT}{name}"


def accepted_sort_key(at: datetime) -> str:
    """Return the sort key of a cost that a person has accepted (``domain.cost_rise``)."""
    return f"{ACCEPTED}{encode_instant(at)}"


def requeued_sort_key(job_id: str) -> str:
    """Return the sort key of what is a job that was requeued."""
    return f"{REQUEUED}{job_id}"


def shape_sort_key(shape: str) -> str:
    """Return the sort key of a shape that has a queue (``domain.shape.Shape.name``)."""
    return f"{SHAPE}{shape}"


def shape_backlog_sort_key(shape: str) -> str:
    """Return the sort key of what ticks have seen of a shape's queue (``BacklogRow``)."""
    return f"{SHAPE_BACKLOG}{shape}"


def image_sort_key(architecture: str) -> str:
    """Return the sort key of what was baked for an architecture."""
    return f"{IMAGE}{architecture}"


def newer_message_sort_key(message_id: str) -> str:
    """Return the sort key of a message that only a later version reads."""
    return f"{NEWER_MESSAGE}{message_id}"


def pool_sort_key(pool: Pool) -> str:
    """Return the sort key of a pool's learned interruption rate."""
    return f"{RATE}pool#{pool}"


#: Learned boot times and their phases, idle gaps, items a job, checkpoint cost.
BOOT_RATE = f"{RATE}boot"
#: Before the name of a phase of boots.
BOOT_PHASE = f"{BOOT_RATE}#"
#: The same of instances that started from a baked image.
BAKED_RATE = f"{RATE}baked"
BAKED_PHASE = f"{BAKED_RATE}#"
#: From the launch to the check-in, of all images.
CHECK_IN_RATE = f"{RATE}check-in"
GAP_RATE = f"{RATE}gap"
JOB_RATE = f"{RATE}job"
CHECKPOINT_RATE = f"{RATE}checkpoint"

THROUGHPUT = f"{RATE}throughput#"
#: The same of jobs of a type.
TYPE_THROUGHPUT = f"{RATE}type-throughput#"
TYPE_JOB = f"{RATE}type-job#"
#: How the sort keys of rows begin that workers write.
OF_WORKERS = (
    WORKER,
    LEASE,
    REQUEUED,
    NEWER_MESSAGE,
    DONE,
    CLAIMS,
    THROUGHPUT,
    TYPE_THROUGHPUT,
    TYPE_JOB,
    JOB_RATE,
    CHECKPOINT_RATE,
)


#: How the sort keys of these rows begin -> as many as are read, the first ones: an honest workload
#: has fewer. Those of workers and leases are read by the instances that were launched.
READ_AT_MOST: Mapping[str, int] = {
    CLAIMS: 1,
    DONE: 200,
    NEWER_MESSAGE: 10_000,
    CHECKPOINT_RATE: 1,
    JOB_RATE: 1,
    THROUGHPUT: 500,
    TYPE_THROUGHPUT: 2_000,
    TYPE_JOB: 500,
    REQUEUED: 10_000,
}
#: Leases of instances that nobody knows whose jobs are given back; others return by themselves.
LOST_LEASES_READ = 30
#: Rows of a workload that are read by one request; if there are more, each kind is read by itself.
ROWS_AT_MOST = 30_000


def is_of_workers(sort: str) -> bool:
    """Tell whether workers write the rows under a sort key."""
    return sort.startswith(OF_WORKERS)


def live_partition(workload: str, sort: str) -> str:
    """Return the partition in which a live row lies."""
    return worker_partition(workload) if is_of_workers(sort) else control_partition(workload)


@lru_cache(maxsize=64)
def spend_sort_key(at: datetime) -> str:
    """Return the sort key of the spend of the UTC day that ``at`` lies in."""
    return f"{SPEND}{at.year:04d}-{at.month:02d}-{at.day:02d}"


@lru_cache(maxsize=64)
def done_sort_key(at: datetime) -> str:
    """Return the sort key of what workers did in the UTC day that ``at`` lies in."""
    return f"{DONE}{at.year:04d}-{at.month:02d}-{at.day:02d}"


@lru_cache(maxsize=64)
def budget_sort_key(at: datetime) -> str:
    """Return the sort key of the budget of the UTC month that ``at`` lies in."""
    return f"{BUDGET}{at.year:04d}-{at.month:02d}"


def breaker_sort_key(region: str = "") -> str:
    """Return the sort key of the breaker of a region; the home region is not named."""
    return f"{BREAKER}#{region}" if region else BREAKER


def calls_sort_key(region: str) -> str:
    """Return the sort key of the launch requests of a region in the last minute of any."""
    return f"{CALLS}{region}"


def minute_of(at: datetime) -> str:
    """Return the UTC minute that ``at`` lies in, for a CallsRow."""
    return f"{at:%Y-%m-%dT%H:%M}"


def quota_sort_key(quota_class: str) -> str:
    """Return the sort key of a full quota class (``domain.offer.quota_class``)."""
    return f"{QUOTA}{quota_class}"


# Rows that say how things stand: the lock, the backlog, a quota, a breaker, the policy.


#: The lock frees itself after this; longer than the scaler may run (``SCALER_TIMEOUT``).
LOCK_LEASE = timedelta(seconds=180)

#: Timeout of the scaler function; longer than a tick's own bound on its calls.
SCALER_TIMEOUT = timedelta(seconds=150)

#: Nobody takes the lock for longer: a teardown keeps it for 16 minutes, and clocks differ a little.
LOCK_HELD_AT_MOST = timedelta(minutes=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """How far a batch was when it was last looked at, or the batch that it waits for."""

    since: datetime
    #: The batch that it waits for, as in its index; "": it waits for none.
    after: str = ""
    #: The first job that is not over: its place among the jobs, of a split one the place of the
    #: child below it, and so on; empty: all are over.
    path: tuple[int, ...] = (0,)
    #: What the jobs before it have come to.
    tally: BatchTally = field(default_factory=BatchTally)
    #: Whether these were counted one after the other, without a stop at one that was not over.
    is_in_one_go: bool = False
    #: Messages that were sent, or jobs that were cancelled, once the other batch is over.
    done: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchesRow:
    """When the batches were last looked for, and until when somebody is at it."""

    until: datetime | None = None
    listed_at: datetime | None = None
    #: When a submit last asked while somebody was at it.
    asked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRow:
    """Who may tick: a fence that only grows, and until when."""

    fence: Tally
    holder: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """EC2's calls are counted by region: no launch there before this, and how often in a row."""

    until: datetime
    throttles: Tally = 1


@dataclass(frozen=True, kw_only=True)
class ClaimsRow:
    """What workers say that they have taken off the queue."""

    #: Raised by every claim; a change between two ticks is progress.
    claims: Tally = 0
    #: Claims of jobs that had waited for longer than ``start_within``.
    late: Tally = 0


@dataclass(frozen=True, kw_only=True)
class QueueRow:
    """What the ticks have seen of one queue; of a shape's queue this is all that is stored."""

    #: First tick that saw visible work and no claim since; None while there is none.
    backlog_since: datetime | None = None
    #: First tick that saw the queue empty without a break.
    empty_since: datetime | None = None
    #: First tick that saw it filled after it had been empty for long: no message is older.
    filled_since: datetime | None = None
    visible: Tally = 0
    in_flight: Tally = 0
    seen_at: datetime | None = None
    #: Visible messages by the tick that saw them first, oldest first: when, and how many.
    waiting_since: tuple[datetime, ...] = ()
    waiting_jobs: tuple[Tally, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BacklogRow(ClaimsRow, QueueRow):
    """What the ticks remember; the claims lie in a row of the workers' own."""

    #: When to look again for messages that must be sent anew (``job.old_message``).
    resend_at: datetime | None = None
    #: When to count again the jobs without a message (``control.alert.lost_message``).
    count_lost_at: datetime | None = None
    #: Since when ticks have reached the ledger without a break (``domain.termination.watch_from``).
    watched_since: datetime | None = None
    #: ``claims`` and ``late`` as the last tick saw them.
    claims_seen: Tally = 0
    late_seen: Tally = 0
    #: Seconds by which launches are planned to be earlier than the promise asks for; None: not
    #: learned yet.
    margin: Margin | None = None
    #: When EC2 was last asked for our instances, and for spot requests that end.
    described_at: datetime | None = None
    reclaims_seen_at: datetime | None = None
    #: When every region was last asked for instances that no row knows.
    swept_at: datetime | None = None
    #: Instances that EC2 described when it was last asked, and that no row accounts for.
    workers_elsewhere: Tally = 0
    #: What must end at once -> the first tick that found it (``domain.termination.find_due``).
    ends_due: Mapping[str, datetime] = field(default_factory=dict)
    #: Region -> since EC2 asked there to slow down.
    backoffs: Mapping[str, Backoff] = field(default_factory=dict)


#: Fields of the backlog row that say when somebody else looks again: they write them, and these
#: instants alone lie ahead.
NEXT_LOOKS = frozenset({"resend_at", "count_lost_at"})


def names_of(kind: type, *, but: Collection[str] = (), instants: bool = False) -> tuple[str, ...]:
    """Return the fields of a row, or only those that may hold an instant or nothing."""
    found = (x for x in fields(kind) if not instants or x.type == datetime | None)
    return tuple(each.name for each in found if each.name not in but)


def queue_fields(row: QueueRow) -> dict[str, object]:
    """Return what a row says of its queue."""
    return {name: getattr(row, name) for name in _OF_QUEUE}


_OF_QUEUE = names_of(QueueRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewerMessage:
    """A message that only a later version reads: hidden until that is deployed, or for hours.

    A worker writes it that was bought for the message and cannot read it.
    """

    message_id: str
    #: What has a later schema, as ``NewerSchema`` names it, and which: ``READS`` says what a
    #: version reads.
    field: str
    schema: Tally
    #: Shows the message again before its time.
    receipt_handle: str
    #: How often it had been received.
    receives: Tally
    sent_at: datetime
    #: Until when it is hidden.
    until: datetime
    #: In whose queue it lies; "": the workload's own.
    shape: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRow:
    """A shape of machine for which there is, or is about to be, a queue."""

    shape: str
    url: str
    #: When a message was last routed there, to a day.
    used_at: datetime
    #: Types of the jobs that were routed there since then; "": without one.
    types: tuple[str, ...] = ()
    #: Whether senders alone have asked for it: no type gets it, as declared or learned.
    is_made_up: bool = False
    #: Since when nobody has used it for long: it is removed if that stays so.
    closing_at: datetime | None = None
    #: Since when its queue is being removed: nobody sends to it.
    removing_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """A quota class that EC2 said is full."""

    quota_class: str
    code: str
    until: datetime
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRow:
    """Useless launches in a row of one launch version, or an account error."""

    #: Instances that never checked in.
    silent: Tally = 0
    #: Instances that checked in and ended without a job, though work waited.
    unclaimed: Tally = 0
    #: Instances that ended since all their last jobs had failed, while no item was done.
    failed: Tally = 0
    #: Launches in a row of which the account may have no pool that was asked for.
    forbidden: Tally = 0
    #: Items of the days at hand that were done when the last of those was counted, or when the
    #: launch version was new.
    items_done: Tally = 0
    #: When an instance of no use was last counted before which items of the version were done.
    proven_at: datetime | None = None
    #: Trait of pools -> its useless machines (``domain.useless_trait``).
    useless_traits: Mapping[str, UselessTrait] = field(default_factory=dict)
    open_until: datetime | None = None
    reason: Reason = NO_REASON
    #: Template versions, subnets and code digest that the strikes belong to.
    launch_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """The last policy that was valid, so that an invalid edit changes nothing."""

    #: JSON of the edit; empty: the policy as deployed.
    text: str = ""
    #: JSON of the codec's row of the whole ``domain.policy.Policy`` in force: what workers read.
    effective: str = ""
    #: The same for the last valid edit, without ``warm_schedule``'s present number: in force while
    #: the edit does not go with what is deployed. "": there is no edit.
    good: str = ""
    #: What ``idle_timeout = "auto"`` has come to; None: not learned yet.
    idle_timeout: timedelta | None = None
    #: Digest of the code as deployed; "": not known. Workers of other code take no new job.
    code_digest: str = ""
    #: ``RunSpec.version`` of it. Workers of another version leave jobs that this one has begun.
    code_version: str = ""
    version: Tally = 0
    refusal: str = ""
    #: Raised by every edit, so that a tick knows that what it remembers is out of date.
    edits: Tally = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """The last decision, small; the whole of it lies in S3 under ``key``."""

    at: datetime
    digest: str
    key: str
    outcome: Outcome
    summary: DecisionSummary = field(default_factory=DecisionSummary)
    notes: tuple[Reason, ...] = ()
    held_until: datetime | None = None
    counts: Mapping[str, float] = field(default_factory=dict)


#: Finished rows are swept by TTL this long after their end.
HISTORY_FOR = timedelta(days=90)


# Rows that add up: what was learned, what was spent, how often EC2 was asked.


@dataclass(frozen=True, kw_only=True)
class RateRow:
    """A learned quantity as sums, so that every report is one atomic addition.

    Throughput: ``count`` items, ``hours`` of busy slot time, ``reports``, ``lives`` of workers that
    they are from; of these ``longest_`` and ``largest_`` the reports of most hours and of most
    items; ``moved`` of the items had their bytes counted, ``gib_in`` taken and ``gib_out``
    given. Pool: ``count`` interruptions, ``hours`` lived. Job: ``count`` items of ``jobs``; older
    jobs fade. Boot, gap, job, checkpoint: the last ``samples``.
    """

    count: Amount = 0.0
    hours: Amount = 0.0
    jobs: Amount = 0.0
    reports: Tally = 0
    lives: Tally = 0
    moved: Amount = 0.0
    gib_in: Amount = 0.0
    gib_out: Amount = 0.0
    longest_hours: Amount = 0.0
    longest_items: Amount = 0.0
    largest_hours: Amount = 0.0
    largest_items: Amount = 0.0
    #: The newest last; at most 50. Seconds, or items of a large job.
    samples: tuple[Sample, ...] = ()
    updated_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class DoneRow:
    """What workers say that they did in a day."""

    items: Tally = 0
    items_failed: Tally = 0
    items_redone: Tally = 0
    jobs: Tally = 0
    #: The job of the item that failed last, and its error in a line; "": none has failed.
    failed_job: str = ""
    failed_with: str = ""
    #: Failed items, and jobs that were given up, of jobs that belong to no batch.
    failed_alone: Tally = 0


@dataclass(frozen=True, kw_only=True)
class SpendRow(DoneRow):
    """What a workload has spent and done in a day; dollars at the prices stamped at launches.

    Live, what was done lies in a row of the workers' own.
    """

    dollars: Dollars = 0.0
    on_demand_dollars: Dollars = 0.0
    boot_seconds: Amount = 0.0
    busy_seconds: Amount = 0.0
    idle_seconds: Amount = 0.0
    #: Of the idle seconds: past the end of instances, up to EC2's minimum.
    minimum_seconds: Amount = 0.0
    #: Of all seconds: of instances that EC2 reclaimed in their first hour and does not charge.
    refunded_seconds: Amount = 0.0
    launches: Tally = 0
    instances: Tally = 0
    refusals: Tally = 0
    interruptions: Tally = 0
    #: Busy seconds of which heartbeats told how the GPU was used, and percent times seconds: of
    #: its time, and of its memory at the most within each heartbeat.
    gpu_seconds: Amount = 0.0
    gpu_percent_seconds: Amount = 0.0
    vram_percent_seconds: Amount = 0.0
    #: Most memory of one worker's GPUs that any heartbeat told; 0: none told.
    vram_gib_max: Amount = 0.0

    @property
    def paid_seconds(self) -> float:
        """Return all seconds that were paid for."""
        return self.boot_seconds + self.busy_seconds + self.idle_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """A month of the whole deployment, in USD: what is spent and what launches have set aside."""

    dollars: Dollars = 0.0
    #: Spent and set aside together: what a launch's reservation is checked against.
    committed: Dollars = 0.0


#: Launch requests that all workloads together make in a region and minute. EC2 fills a bucket
#: for each API, account and region: of RunInstances it takes 5 at once and 2 a second (EC2
#: developer guide, "Request throttling"). A quarter of that leaves others in the account theirs.
CALLS_PER_MINUTE = 30

#: Launches that all rehearsals together have EC2 check in a minute, out of the same bucket.
REHEARSED_PER_MINUTE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsRow:
    """The launch requests of all workloads in one region, in the minute that it names.

    Those that are only rehearsed have a row of their own, for all regions.
    """

    minute: str = ""
    count: Tally = 0

"""The fleet as the ledger knows it: workers, leases, launches, and the backlog they serve."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from spindown.domain.offer import CapacityType, Pool, Processor, processor_of
from spindown.domain.reason import NO_REASON, Reason
from spindown.domain.relative_throughput import relative_throughput
from spindown.domain.value_range import (
    RATE_MOST,
    Amount,
    GpuCount,
    ItemCount,
    LaunchCount,
    NotZero,
    Percent,
    Price,
    Reserved,
    SlotCount,
    SlotIndex,
    Tally,
    VcpuCount,
)
from spindown.domain.wasted_work import STABLE_WITHIN, SpotTerms, WastedWork

_HOUR = timedelta(hours=1)


class WorkerState(StrEnum):
    """Where a worker is in its life; a later state never returns, except between idle and busy."""

    #: EC2 has given the instance; the worker has not checked in.
    BOOTING = "booting"
    IDLE = "idle"
    BUSY = "busy"
    #: Ended its work by itself; about to power off.
    DRAINED = "drained"
    #: The scaler has decided to terminate it.
    CONDEMNED = "condemned"
    #: EC2 says that the instance is gone.
    ENDED = "ended"


_LIVE = frozenset({WorkerState.BOOTING, WorkerState.IDLE, WorkerState.BUSY})


@dataclass(frozen=True, kw_only=True)
class Worker:
    """One instance of ours. All money is USD, all prices whole (instance, volume, IPv4)."""

    instance_id: str
    launch_id: str
    #: Name of the shape whose queue it serves (``domain.shape``); "": the workload's own queue.
    shape: str = ""
    instance_type: str
    region: str
    zone: str
    capacity_type: CapacityType
    gpu_name: str
    gpu_count: GpuCount
    #: 0: not known, for an instance that no offer of its launch names.
    vcpus: VcpuCount = 0
    #: Jobs that it can hold at once.
    slots: SlotCount
    #: The price of its pool when it was last charged, since spot prices move; until then, at its
    #: launch.
    price_per_hour: Price
    #: The part of it for root volume and public IPv4: EC2 never refunds that.
    extra_price: Price = 0.0
    #: Whole price of the same type on demand at the launch, USD per hour; None when unknown.
    on_demand_price: Price | None = None
    state: WorkerState
    launched_at: datetime
    checked_in_at: datetime | None = None
    heartbeat_at: datetime | None = None
    #: When its code was given the first item, and the seconds of each phase of the boot up to then;
    #: None, too, of one that had to wait for work.
    first_item_at: datetime | None = None
    boot_phases: Mapping[str, Amount] = field(default_factory=dict)
    #: Since when every slot has been without a job; None while one is busy.
    idle_since: datetime | None = None
    #: Slots that hold a job now.
    busy_slots: Tally = 0
    #: When it last took a job, or ended one of several; None: it never had any.
    claimed_at: datetime | None = None
    #: When it first met a message that is no work of its version's; None: it has met none.
    declined_at: datetime | None = None
    #: Since when AWS has given its claims no answer, or refused them; None: the last was answered.
    unanswered_at: datetime | None = None
    #: Percent of the time in which its GPUs computed, over the last heartbeat's interval, and
    #: percent of their memory that was used at the most; None: none were seen at work.
    gpu_percent: Percent | None = None
    vram_percent: Percent | None = None
    #: The memory that was used at the most, of one GPU.
    vram_gib: Amount | None = None
    #: When EC2 takes it away, by its notice. Its jobs go by it, also where only the worker says so.
    interrupted_at: datetime | None = None
    #: When EC2 gave that notice, as EC2 itself has told: what is counted and charged goes by it.
    noticed_at: datetime | None = None
    #: When the instance ended, as EC2 itself has told; the next tick sees to it.
    gone_at: datetime | None = None
    #: When EC2 saw a higher risk that it takes it away: it saves its state then, and goes on.
    rebalance_at: datetime | None = None
    #: Since when it takes no new job, whatever the reason; it ends after those in hand.
    draining_at: datetime | None = None
    #: Since when the machine is known to be unfit; ``reason`` says why.
    unfit_at: datetime | None = None
    #: Until when it stays although it is idle; the scaler renews it for warm workers.
    warm_until: datetime | None = None
    #: Since when another worker is there to continue its jobs: it gives them back and ends.
    migrating_at: datetime | None = None
    #: Since when the month's budget leaves nothing for it; ``when_spent`` says how it ends.
    spent_at: datetime | None = None
    #: Since when the policy's limits leave no room for it: it ends after the jobs in hand.
    surplus_at: datetime | None = None
    #: Whether the reclaim has been counted against its pool.
    interruption_counted: bool = False
    #: Up to where its cost has been added to the day's spend, and how much that was, USD.
    accrued_until: datetime | None = None
    charged_usd: Amount = 0.0
    #: USD that it would have cost besides by its end, had EC2 not reclaimed it within the hour that
    #: is free then; 0: it was not refunded.
    refunded_usd: Amount = 0.0
    condemned_at: datetime | None = None
    #: Whether its end before the check-in, or before any job, has been counted against it.
    miss_counted: bool = False
    #: Why it was condemned or ended.
    reason: Reason = NO_REASON
    ended_at: datetime | None = None
    #: Every conditional change of ``state`` raises it.
    version: Tally = 0

    @property
    def processor(self) -> Processor:
        """Return what computes in it."""
        return processor_of(self.instance_type, self.gpu_name, self.gpu_count, self.vcpus)

    @property
    def pool(self) -> Pool:
        """Return the capacity pool that it came from."""
        return Pool(
            instance_type=self.instance_type, zone=self.zone, capacity_type=self.capacity_type
        )

    @property
    def boot(self) -> float:
        """Return how long it took to boot, hours; 0: it has not checked in."""
        return max(((self.checked_in_at or self.launched_at) - self.launched_at) / _HOUR, 0.0)

    def spot_terms(self, rate: float = 0.0) -> SpotTerms | None:
        """Return what it costs, and how surely it stays; None: EC2 takes no such machine back."""
        if self.capacity_type is not CapacityType.SPOT:
            return None
        return SpotTerms(
            price=self.price_per_hour,
            listed=self.on_demand_price,
            speed=relative_throughput(*self.processor),
            slots=self.slots,
            gpus=self.gpu_count,
            rate=rate,
        )

    @property
    def is_live(self) -> bool:
        """Tell whether it bills and may still do work."""
        return self.state in _LIVE

    @property
    def last_sign(self) -> datetime:
        """Return when it last gave a sign of life; its launch counts as one."""
        signs = (self.heartbeat_at, self.checked_in_at, self.launched_at)
        return max(at for at in signs if at is not None)

    @property
    def is_lost(self) -> bool:
        """Tell whether it has ended and had not said that it would."""
        return self.state is WorkerState.ENDED and self.draining_at is None

    @property
    def is_interrupting(self) -> bool:
        """Tell whether EC2 takes the instance away, as EC2 or the worker itself has said."""
        return self.interrupted_at is not None

    @property
    def holds_place(self) -> bool:
        """Tell whether it counts against ``max_workers``.

        Until the control plane ends it, or EC2 says that it takes or has taken it: what the worker
        says of its own end makes no room for another.
        """
        if self.noticed_at is not None or self.gone_at is not None:
            return False
        return self.state in _LIVE or self.state is WorkerState.DRAINED

    @property
    def takes_jobs(self) -> bool:
        """Tell whether work that waits now may go to it."""
        # Asked of each worker several times a tick: other properties would be further calls.
        is_leaving = (
            self.interrupted_at
            or self.gone_at
            or self.draining_at
            or self.migrating_at
            or self.spent_at
            or self.surplus_at
        )
        return self.state in _LIVE and not is_leaving

    @property
    def ends_after_jobs(self) -> bool:
        """Tell whether it ends by itself once the jobs in hand are over, and takes no other.

        Not told of one that EC2 takes, or that gives its jobs to another machine.
        """
        gives_back = self.interrupted_at or self.gone_at or self.migrating_at
        return self.is_live and not gives_back and not self.takes_jobs

    @property
    def useless_since(self) -> datetime | None:
        """Return since when it is idle and not kept warm; None: it is busy."""
        if self.idle_since is None:
            return None
        return max(self.idle_since, self.warm_until or self.idle_since)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUse:
    """How the GPUs of a worker were used over a span of time."""

    #: Percent of the time in which they computed, mean over all.
    percent: float
    #: Percent of their memory that was used at the most.
    vram_percent: float
    #: The same of one GPU, in GiB.
    vram_gib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeProgress:
    """How far the code of a job says that it is."""

    done: Tally
    of: Tally
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """What one slot holds: a job, under an epoch, until a deadline."""

    instance_id: str
    slot: SlotIndex
    job_id: str
    epoch: Tally
    receipt_handle: str
    #: The message that the handle is of; "": not known.
    message_id: str = ""
    #: Until when nobody else may claim the job.
    deadline: datetime
    #: The heartbeat never extends past this: an interruption's deadline, or SQS's 12-hour cap.
    not_after: datetime
    claimed_at: datetime
    #: When the job was sent.
    sent_at: datetime
    items: ItemCount = 0
    items_done: ItemCount = 0
    #: Items that were done when it was claimed.
    first_item: ItemCount = 0
    #: Whether interruptions have wasted so much of its work that it may not move back to spot.
    is_pinned: bool = False
    #: The shape of its worker: the queue that its message lies in.
    shape: str = ""
    #: What the code of the present attempt says of its progress; None: nothing.
    progress: CodeProgress | None = None

    def pace(self, items_done: int, at: datetime) -> float | None:
        """Return items an hour since the claim, the present one counted as done; None: unknown."""
        hours, items = (at - self.claimed_at) / _HOUR, items_done - self.first_item
        # Times that a worker has written may lie next to each other.
        return min((items + 1) / hours, RATE_MOST) if items > 0 and hours > 0.0 else None

    def age(self, now: datetime) -> timedelta:
        """Return for how long the item in hand has been so, by the mean of those since the claim.

        Of a job whose first item is in hand it is exact.
        """
        began = max(now - self.claimed_at, timedelta(0))
        return began / (max(self.items_done - self.first_item, 0) + 1)

    def requeued(self, items_done: int, at: datetime) -> "RequeuedJob":
        """Return what to remember of the job as it leaves the slot."""
        return RequeuedJob(
            job_id=self.job_id,
            sent_at=self.sent_at,
            items=self.items,
            items_done=items_done,
            items_per_hour=self.pace(items_done, at),
            at=at,
            shape=self.shape,
        )

    def left_behind(self, now: datetime) -> "RequeuedJob":
        """Return what to remember of the job when its holder is gone: what it last reported."""
        return self.requeued(self.items_done, min(now, self.deadline))


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeuedJob:
    """What is remembered of a job that has started, from one holder to the next."""

    job_id: str
    sent_at: datetime
    #: 0: not known.
    items: ItemCount
    items_done: ItemCount
    #: The pace of its last holder; None: it held the job too briefly to tell.
    items_per_hour: NotZero | None = None
    #: When its last holder gave it up or was lost.
    at: datetime
    #: Failures and losses that count so far, if its last holder gave it up itself.
    failures: int = 0
    #: What the last of them said, in a line; "": nothing.
    error: str = ""
    #: What interruptions have cost it, if it must go on on a stable machine.
    wasted_work: WastedWork | None = None
    #: The shape in whose queue its message lies.
    shape: str = ""
    #: Before then nobody gets it; None: at once.
    next_try_at: datetime | None = None

    def waits_for_stable(self, now: datetime) -> bool:
        """Tell whether it waits for a stable machine, rather than for any."""
        return self.wasted_work is not None and now - self.at < STABLE_WITHIN


class LaunchState(StrEnum):
    """What became of a launch intent."""

    INTENDED = "intended"
    LAUNCHED = "launched"
    #: EC2 refused, or gave nothing.
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What a pool of a launch request offered then; its workers keep these values."""

    price_per_hour: Price
    extra_price: Price = 0.0
    on_demand_price: Price | None = None
    gpu_name: str = ""
    gpu_count: GpuCount = 0.0
    vcpus: VcpuCount = 0
    slots: SlotCount = 1


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One launch: an intent, written before the call, and completed after it."""

    launch_id: str
    client_token: str
    fence: int
    state: LaunchState
    intended_at: datetime
    #: The exact request in JSON, as the compute port takes it; a retry sends it unchanged.
    request: str
    #: USD set aside from the budget until the workers are charged themselves.
    reserved_usd: Reserved = 0.0
    #: When that was moved to the month that had begun; None: it is in the month of the intent.
    moved_at: datetime | None = None
    instance_ids: tuple[str, ...] = ()
    reason: Reason = NO_REASON
    #: Instances asked for.
    count: LaunchCount = 1
    #: Expected throughput of one of them, so that an open intent counts as capacity.
    items_per_hour: Amount = 0.0
    #: Jobs that each of them can hold at once.
    slots: SlotCount = 1
    #: Whether it is for particular jobs, which move from a running worker or wait for a stable one:
    #: so it stays until it has them.
    is_for_particular_jobs: bool = False
    #: Whether more jobs waited than machines were to be had, each of which is launched for one job:
    #: it may take another as long as it is paid for anyway.
    may_take_over: bool = False
    #: The shape whose queue its workers serve; "": the workload's own queue.
    shape: str = ""
    #: Pool as text -> what it was at the launch.
    offered: Mapping[str, Offered] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Tell whether nobody knows yet what EC2 has answered."""
        return self.state is LaunchState.INTENDED

    @property
    def reserved_at(self) -> datetime:
        """Return an instant of the month whose budget it has set something aside of."""
        return self.moved_at or self.intended_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What the queue says now. All three are SQS's approximations."""

    visible: int
    in_flight: int
    delayed: int = 0

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is waiting or being worked on."""
        return self.visible + self.in_flight + self.delayed == 0


#: A queue in which nothing is.
NOTHING_WAITS = Backlog(visible=0, in_flight=0)


def all_of(backlogs: Iterable[Backlog]) -> Backlog:
    """Return what several queues hold together."""
    each = list(backlogs)
    return Backlog(
        visible=sum(one.visible for one in each),
        in_flight=sum(one.in_flight for one in each),
        delayed=sum(one.delayed for one in each),
    )

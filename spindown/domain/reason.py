"""Why something was decided, as data: a code and its numbers.

Decisions read codes. Words for people are made in ``spindown.reason_text`` and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ReasonCode(StrEnum):
    """What a reason is about; stored in rows, records and logs."""

    #: No reason is known, or none is needed.
    NONE = ""

    # Why a worker takes no new job and ends.
    IDLE = "idle"
    #: The job is over that it was launched for.
    JOB_OVER = "job-over"
    #: Idle, and the ledger did not answer when it asked to end.
    IDLE_UNHEARD = "idle-unheard"
    LIFETIME = "lifetime"
    INTERRUPTED = "interrupted"
    #: The operating system asked it to stop.
    STOPPED = "stopped"
    CONDEMNED = "condemned"
    #: The deployed code is not the code that it runs.
    OTHER_CODE = "other-code"
    #: ``max_workers`` is 0.
    NO_ROOM = "no-room"
    #: Another worker goes on with its jobs.
    MIGRATED = "migrated"
    #: The month's budget is used up.
    BUDGET_SPENT = "budget-spent"
    #: The machine is not fit for the workload's jobs; ``fault`` says what is wrong.
    UNFIT = "unfit"
    #: Fault after fault of the machine or of our own code.
    FAULTY = "faulty"
    #: Its last jobs all failed.
    JOBS_FAILED = "jobs-failed"

    # How an instance was found to have ended.
    #: EC2 says why: ``state_reason`` is its StateReason.Code.
    EC2_SAID = "ec2-said"
    #: EC2 says only that it is gone: ``state``.
    EC2_STATE = "ec2-state"
    EC2_RECLAIMED = "ec2-reclaimed"
    #: EC2 does not describe it any more.
    UNKNOWN_TO_EC2 = "unknown-to-ec2"

    # Why the scaler ended an instance.
    #: A row said what cannot be, and was corrected.
    ROW_FALSE = "row-false"
    #: Its row says that it has ended, and EC2 that it runs.
    NOT_ENDED = "not-ended"
    #: ``within_seconds``.
    NEVER_CHECKED_IN = "never-checked-in"
    NEVER_POWERED_OFF = "never-powered-off"
    #: ``age_seconds``.
    TOO_OLD = "too-old"
    #: ``due`` (``termination.DueKind``), ``seconds`` since then.
    OUTSTAYED = "outstayed"
    #: ``idle_seconds``.
    IDLE_TOO_LONG = "idle-too-long"
    #: ``silent_seconds``.
    SILENT = "silent"
    #: An instance of ours that no row knows.
    NO_ROW = "no-row"

    # What became of a launch.
    #: Its answer was lost; its instances were found by their tag.
    ADOPTED = "adopted"
    #: Likewise, but some of those asked for may have ended before anybody looked.
    ADOPTED_IN_PART = "adopted-in-part"
    NEVER_REACHED_EC2 = "never-reached-ec2"
    #: Nobody asked EC2 while it would still have told.
    FATE_UNKNOWN = "fate-unknown"
    #: ``said``: EC2's codes and messages.
    REFUSED = "refused"
    REQUEST_UNREADABLE = "request-unreadable"
    #: Its request is not one that the scaler would make as things are deployed now.
    REQUEST_ALTERED = "request-altered"
    #: Nothing is deployed in ``region`` any more.
    REGION_REMOVED = "region-removed"

    # Why a job becomes a dead letter.
    #: ``failures`` in all.
    FAILED_TOO_OFTEN = "failed-too-often"
    #: ``failures`` on so many ``instances``.
    FAILED_ON_SEVERAL = "failed-on-several"
    #: ``attempts`` that interruptions ended without progress, the longest of ``hours`` on a T4;
    #: ``dollars`` that they cost. Nothing that the policy allows is sure enough, or
    #: nothing such could be had for a day (``has_waited_in_vain``).
    NEVER_DONE = "never-done"
    #: Attempts at one item have taken ``hours`` of slots, of ``most`` that the policy allows;
    #: ``dollars`` that the job has cost.
    ITEM_TOO_LONG = "item-too-long"
    #: An attempt had a worker's whole lifetime, of ``hours``, and brought neither item nor state.
    OUTLIVES_WORKER = "outlives-worker"

    #: A message asks for other items or parameters than the one with which ``job`` was claimed.
    OTHER_BODY = "other-body"
    #: Likewise, and the job is over: ``state``.
    JOB_ID_REUSED = "job-id-reused"
    #: ``job`` was cancelled before any worker had claimed it, and sent after that.
    SENT_AFTER_CANCEL = "sent-after-cancel"
    #: A message of ``job`` names a body by its digest, and none is stored under it.
    BODY_NOT_STORED = "body-not-stored"

    #: A batch has waited for ``batch`` for ``days``, and its messages are kept no longer.
    WAITED_TOO_LONG = "waited-too-long"
    #: ``batch``, for which a batch has waited, came to ``end``.
    BEFORE_DID_NOT_SUCCEED = "before-did-not-succeed"
    #: A batch is not over after ``days``: nobody looks whether it is any more.
    NOT_OVER = "not-over"

    #: So many ``messages`` of a workload with types wait to be routed.
    TO_BE_ROUTED = "to-be-routed"
    #: A message has a ``field``, "type" or "requirements", and its workload declares no types.
    NO_TYPES = "no-types"
    #: A message names a ``type`` that is none of the ``known``.
    TYPE_UNKNOWN = "type-unknown"
    #: A message asks for more of ``field`` than may be: ``asked``, of ``most``.
    REQUIREMENT_FORBIDDEN = "requirement-forbidden"
    #: No machine that is sold and that the workload may have is as large as ``shape``: of ``field``
    #: it has ``asked``, and the most that goes with the rest is ``most``.
    NO_SUCH_SIZE = "no-such-size"

    # Why jobs of a type get another size than their type asks for: ``size`` after ``before``, in
    # GiB or vCPUs of the ``need``.
    #: ``jobs`` have used ``used`` at the most; with ``room`` times that, ``chance`` to run out.
    SIZE_LOWERED = "size-lowered"
    SIZE_RAISED = "size-raised"
    #: It went back after ``jobs``: their ``share`` that failed or ran out of memory was
    #: ``share_before``; an item costs ``cost`` USD after ``cost_before``. Until ``until`` it stays.
    SIZE_BACK_FAILURES = "size-back-failures"
    SIZE_BACK_COST = "size-back-cost"
    #: Of ``jobs`` attempts at the size before, the ``share`` ran out of memory.
    SIZE_RAN_OUT = "size-ran-out"
    #: In this ``hour`` of the week, from Monday 00:00 UTC, jobs have needed more each week.
    SIZE_OF_HOUR = "size-of-hour"
    #: An item has cost ``cost`` USD with so many vCPUs, and ``cost_before`` with those before.
    CORES_FEWER = "cores-fewer"
    CORES_MORE = "cores-more"
    #: It is not known yet: ``jobs`` have used ``used`` cores on average.
    CORES_FEWER_TRIED = "cores-fewer-tried"
    CORES_MORE_TRIED = "cores-more-tried"

    # Why a pool cools down.
    #: EC2 took an instance of it back.
    POOL_INTERRUPTED = "pool-interrupted"
    #: EC2 refused: ``refusal`` is its code.
    POOL_REFUSED = "pool-refused"
    #: EC2 refuses it to this account, or with this configuration: ``refusal`` is its code.
    POOL_FORBIDDEN = "pool-forbidden"
    #: An instance of it never checked in; ``ended`` is the code of its end and the rest of the
    #: parameters are those of that code; "": it was ended for its silence.
    POOL_NEVER_CHECKED_IN = "pool-never-checked-in"

    # Which requirement an instance type does not meet; each has the name of the setting.
    INSTANCE_TYPES = "instance_types"
    FAMILIES_DENIED = "families_denied"
    ALLOW_BARE_METAL = "allow_bare_metal"
    ARCHITECTURES = "architectures"
    GPU_MANUFACTURER = "gpu_manufacturer"
    GPU_NAMES = "gpu_names"
    GPU_NAMES_DENIED = "gpu_names_denied"
    ALLOW_FRACTIONAL_GPU = "allow_fractional_gpu"
    GPU_COUNT_MIN = "gpu_count_min"
    GPU_COUNT_MAX = "gpu_count_max"
    GPU_MEMORY_MIB_MIN = "gpu_memory_mib_min"
    GPU_MEMORY_TOTAL_MIB_MIN = "gpu_memory_total_mib_min"
    VCPUS_MIN = "vcpus_min"
    MEMORY_MIB_MIN = "memory_mib_min"

    # Why an offer may not be bought now; prices are USD an hour.
    #: ``price``.
    PRICE_UNKNOWN = "price-unknown"
    PRICE_ABSURD = "price-absurd"
    #: ``price``, ``most``.
    OVER_MAX_PRICE = "over-max-price"
    OVER_GPU_PRICE = "over-gpu-price"
    #: ``price``, ``left``: by which the fleet may still grow.
    OVER_HEADROOM = "over-headroom"
    #: ``capacity_type``, ``price``; ``at``: when a rung opens that allows it.
    NO_RUNG = "no-rung"
    RUNG_OPENS_LATER = "rung-opens-later"
    #: ``spot``, ``on_demand``.
    ABOVE_ON_DEMAND = "above-on-demand"
    #: ``survives``: the probability to live an hour; ``least``.
    UNRELIABLE = "unreliable"
    #: ``until``; ``why`` is a code, whose parameters are the others.
    POOL_COOLING_DOWN = "pool-cooling-down"
    #: ``quota``, ``until``.
    QUOTA_FULL = "quota-full"
    #: ``quota``, ``vcpus`` that it takes, ``left``.
    QUOTA_SHORT = "quota-short"

    # Why so many workers are launched now.
    #: The fleet works the backlog off in time.
    IN_TIME = "in-time"
    NOTHING_WAITS = "nothing-waits"
    #: Every waiting job has a slot that is free or boots.
    SLOTS_FREE = "slots-free"
    #: ``messages``: hidden for a while, or with a worker that ends.
    ALL_IN_FLIGHT = "all-in-flight"
    #: Each of so many ``jobs`` gets a machine that is launched for it.
    MACHINE_EACH = "machine-each"
    #: So many ``jobs`` get none now: another machine may take one in its first ``seconds``.
    MAY_TAKE_OVER = "may-take-over"
    #: ``items_per_hour``, ``jobs``.
    THROUGHPUT_MISSING = "throughput-missing"
    NO_SLOT_IN_TIME = "no-slot-in-time"
    #: ``jobs`` that a launch of the next tick would start too late.
    TOO_LATE_NEXT_TICK = "too-late-next-tick"
    #: ``jobs`` for which fewer ``slots`` do now than would be needed later.
    FEWEST_NOW = "fewest-now"
    #: ``jobs`` of unknown length: a first machine shows it.
    TO_MEASURE = "to-measure"
    #: ``jobs`` and the ``slots`` that they want.
    OVER_CAPACITY = "over-capacity"
    #: ``messages`` of ``threshold``; ``until``.
    HELD_FOR_MORE = "held-for-more"
    #: ``jobs``; ``until``.
    CAN_WAIT = "can-wait"
    #: ``jobs`` that run, and move.
    #: ``jobs`` that interruptions keep from any progress want stable machines; ``attempts``,
    #: ``hours`` and ``dollars`` as of ``NEVER_DONE``, of the job that has cost most.
    TO_STABLE = "to-stable"
    TO_SPOT = "to-spot"
    OFF_SPOT = "off-spot"
    #: ``workers``.
    KEPT_WARM = "kept-warm"
    #: ``bound`` allows ``allowed`` of ``wanted``; ``why`` is the code of the need.
    CUT_BY_BOUND = "cut-by-bound"

    # What a deadline lets a waiting job be bought (``domain.spot_or_on_demand.PurchaseMode``).
    WAIT_FOR_SPOT = "wait-for-spot"
    TAKE_ANY = "take-any"
    ON_DEMAND_ONLY = "on-demand-only"

    # Why an item costs more than it used to; ``cost`` and ``usual`` are USD an item, ``now`` and
    # ``before`` are of the cause.
    #: USD of a paid hour.
    COST_PRICE = "cost-price"
    #: Minutes from a launch to the first job.
    COST_BOOT = "cost-boot"
    #: Idle minutes of a launch.
    COST_IDLE = "cost-idle"
    #: Percent of the computing that is done again.
    COST_REDO = "cost-redo"
    #: Items of a paid hour of work.
    COST_THROUGHPUT = "cost-throughput"
    #: Items of a launch.
    COST_SPARSE_QUEUE = "cost-sparse-queue"
    #: ``gpu`` and ``vram`` are used, percent; ``offer`` would do, for ``price`` USD an hour.
    COST_OVERKILL = "cost-overkill"

    # When not to use Spindown; money is USD a month.
    #: ``boot`` and ``wait`` seconds, ``warm_workers``, ``month``, ``more``; ``each`` USD a job.
    CASE_LATENCY = "case-latency"
    #: ``machines`` of type ``machine``, ``month``; ``share`` of their hours; ``tips``: from which.
    CASE_CONSTANT_LOAD = "case-constant-load"
    #: ``month`` by hand, ``saving``, ``least``; from ``tips`` jobs, now ``jobs``.
    CASE_SMALL_BILL = "case-small-bill"
    #: ``longest`` item without a checkpoint, hours; from ``tips`` hours on ``spot`` costs more than
    #: ``on_demand``, both USD an hour, at ``rate`` reclaims an hour.
    CASE_LONG_ITEMS = "case-long-items"
    #: ``interruptions``, ``redone_hours``, ``month``, ``more``; ``each`` USD an interruption.
    CASE_NO_INTERRUPTION = "case-no-interruption"

    # What termination leaves alone for now.
    #: ``stale`` of ``workers`` that report.
    MOST_ARE_STALE = "most-are-stale"
    #: ``stale`` more than one tick may end.
    STALE_NEXT_TICK = "stale-next-tick"
    #: ``silent`` workers; nobody listened before ``since``.
    NOBODY_LISTENED = "nobody-listened"

    # Why nothing at all may be bought.
    NOTHING_ON_SALE = "nothing-on-sale"
    #: ``constraint`` rules out the ``last`` of all ``offers``.
    LAST_RULED_OUT = "last-ruled-out"

    # Why nothing is asked for in a region.
    #: ``region``.
    REGION_LEFT_OUT = "region-left-out"
    #: ``why`` is the code of the breaker's reason, whose parameters are the others.
    BREAKER_OPEN = "breaker-open"
    #: Likewise; the instance ``tested_by`` is to show whether launches are of use again.
    LAUNCH_VERSION_ON_TEST = "launch-version-on-test"
    SLOW_DOWN = "slow-down"
    NO_REGION_READ = "no-region-read"

    # Why launching is stopped in a region.
    #: ``refusal`` is EC2's code, ``message`` its text; ``types`` were asked for.
    ACCOUNT_REFUSED = "account-refused"
    #: ``count`` instances in a row were of no use, the last one ``instance_id``; ``fault`` is what
    #: is known of why.
    STRIKES_SILENT = "strikes-silent"
    STRIKES_UNCLAIMED = "strikes-unclaimed"
    STRIKES_FAILED = "strikes-failed"
    #: Likewise, while others were: the messages are at fault, and launching goes on slowly.
    STRIKES_OF_MESSAGES = "strikes-of-messages"

    # What could not be asked or done: ``asked`` names it, ``said`` is the error's text, and
    # ``region``, ``launch_id`` or ``subject`` may say of what.
    NO_ANSWER = "no-answer"
    GRANT_MISSING = "grant-missing"
    CALL_THROTTLED = "call-throttled"
    CALL_FAILED = "call-failed"

    # Why nothing may be launched, or no more.
    #: ``max_workers``.
    MAX_WORKERS = "max-workers"
    #: ``said``.
    PRICES_UNREAD = "prices-unread"
    #: ``budget_per_month``, what is ``left`` of it, and the ``least`` that a launch sets aside, all
    #: USD; ``when_spent`` is the policy's. Nothing is left; too little; the whole is too little.
    BUDGET_USED_UP = "budget-used-up"
    BUDGET_TOO_LOW = "budget-too-low"
    BUDGET_BELOW_LAUNCH = "budget-below-launch"
    #: ``dollars_per_hour`` of ``max_dollars_per_hour``.
    FLEET_AT_CEILING = "fleet-at-ceiling"
    #: The month's ``row`` cannot be read, so that nothing can be set aside in it.
    MONTH_UNREADABLE = "month-unreadable"
    LEDGER_BUSY = "ledger-busy"
    LOCK_DAMAGED = "lock-damaged"
    #: The queue at ``url`` does not exist.
    QUEUE_MISSING = "queue-missing"
    #: Workers have written ``rows`` at least that nobody reads.
    ROWS_FLOODED = "rows-flooded"
    #: EC2 was asked ``calls`` times this minute in ``region``.
    CALLS_USED_UP = "calls-used-up"
    #: ``requests`` were made in this tick.
    TRIES_USED_UP = "tries-used-up"
    TIME_IS_UP = "time-is-up"
    #: ``said``: whether EC2 has launched anything the next tick finds out.
    LAUNCH_UNANSWERED = "launch-unanswered"

    # What a person should know of a tick.
    #: ``region`` could not be read: ``said``.
    REGION_UNREAD = "region-unread"
    #: EC2's answer in ``region`` missed ``workers`` that are heard; asked by id, it knows them, or
    #: it did not answer.
    ANSWER_DOUBTED = "answer-doubted"
    #: The launch ``launch_id`` waits, since ``region`` asked to slow down.
    LAUNCH_WAITS = "launch-waits"
    #: ``launch_id`` was asked for again, and answered with ``codes``.
    REPLAY_REFUSED = "replay-refused"
    #: ``instance_id`` is busy past its lifetime.
    WORKER_OVERDUE = "worker-overdue"
    #: ``jobs`` of an instance that is gone.
    JOBS_LEFT_BEHIND = "jobs-left-behind"
    #: ``messages`` are hidden until ``until`` at least: ``field`` is ``schema`` in the oldest, and
    #: the deployed version ``reads`` less.
    NEWER_MESSAGES = "newer-messages"
    #: ``regions`` have not answered a launch.
    REGIONS_SILENT = "regions-silent"
    #: Instances of ``traits`` never checked in, left work alone or were faulty.
    TRAITS_ASKED_LAST = "traits-asked-last"
    #: Instances start from the base image: none was baked yet; ``image`` was baked with other
    #: things; its base is ``days`` old; it is not in ``region``.
    IMAGE_NOT_BAKED = "image-not-baked"
    IMAGE_STALE = "image-stale"
    IMAGE_OLD = "image-old"
    IMAGE_ELSEWHERE = "image-elsewhere"
    #: ``count`` instances of ``image`` in a row never checked in; EC2 refused it by ``refusal``;
    #: a build ended as ``state``: ``said``.
    IMAGE_SILENT = "image-silent"
    IMAGE_REFUSED = "image-refused"
    IMAGE_BUILD_FAILED = "image-build-failed"
    #: Instances start from ``image``.
    IMAGE_USED = "image-used"
    #: USD a month with ``boots`` as of late: ``bootstrap``, ``bake``, ``auto``, ``ami``.
    IMAGE_MODES = "image-modes"
    #: ``quota_class`` has ``left`` vCPUs, and the smallest offer takes ``smallest``.
    NO_QUOTA_LEFT = "no-quota-left"
    #: ``quota_class`` is full while an instance of ours in it is ending.
    QUOTA_GIVEN_BACK_SOON = "quota-given-back-soon"
    #: Every rung of the ladder is open, or what has not started would start too late.
    LADDER_OPENED_EARLY = "ladder-opened-early"
    #: ``read_at``.
    CATALOGUE_OLD = "catalogue-old"
    #: ``region``, ``read_at``, ``said``.
    ON_DEMAND_PRICES_OLD = "on-demand-prices-old"
    SPOT_PRICES_OLD = "spot-prices-old"
    SPOT_PRICES_ESTIMATED = "spot-prices-estimated"
    SPOT_PRICES_UNKNOWN = "spot-prices-unknown"
    #: Prices by ``[pricing]``: ``discounts``, ``paid`` machines and how many of them are ``left``.
    PRICING_APPLIED = "pricing-applied"
    #: No offer of ``workload`` is one of ``machines``, which ``[[pricing.paid]]`` names.
    PAID_UNMATCHED = "paid-unmatched"
    #: No offer fits; the nearest is ``offer``. ``ruled_out_by`` is why not, and the rest its
    #: parameters.
    NEAREST_OFFER = "nearest-offer"
    #: ``writes`` lost a race.
    WRITES_LOST = "writes-lost"
    #: The whole decision could not be stored: ``said``.
    DECISION_UNSTORED = "decision-unstored"
    #: What is left of ``budget_per_month`` pays for no further work of a worker; ``spent`` is, USD.
    BUDGET_ENDS_WORKER = "budget-ends-worker"
    #: There are ``workers``, and ``max_workers`` allows fewer: a worker ends after its jobs.
    SURPLUS_WORKER = "surplus-worker"
    #: All cost ``dollars_per_hour``, more than ``max_dollars_per_hour``: so does this one.
    SURPLUS_DOLLARS = "surplus-dollars"
    #: A worker costs ``price_per_hour`` by now, more than ceilings and ladder allow: so does it.
    TOO_DEAR_BY_NOW = "too-dear-by-now"
    #: A worker gives its jobs to one on ``to``.
    JOBS_MOVE = "jobs-move"
    #: ``jobs`` must leave spot, and nothing on demand is to be had.
    NOTHING_ON_DEMAND = "nothing-on-demand"


#: Why a job that is sent again fails again, as long as nobody has changed what the reason names.
UNTIL_CHANGED = frozenset(
    {
        ReasonCode.NO_TYPES,
        ReasonCode.TYPE_UNKNOWN,
        ReasonCode.REQUIREMENT_FORBIDDEN,
        ReasonCode.NO_SUCH_SIZE,
    }
)

#: Parameters of a reason, by name.
About = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Reason:
    """A code with its parameters, by name; instants are ISO 8601 text."""

    code: ReasonCode = ReasonCode.NONE
    about: About = field(default_factory=dict, hash=False)

    def __bool__(self) -> bool:
        return self.code is not ReasonCode.NONE

    def within(self, code: ReasonCode, **about: str | float) -> "Reason":
        """Return a reason of another code that holds this one: its code as ``why``."""
        return Reason(code, {**self.about, "why": self.code.value, **about})


NO_REASON = Reason()

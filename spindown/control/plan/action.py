"""What a tick is going to do, as values: a draft grows action by action, and ends as a plan.

Nothing here reads or writes. A plan takes every conditional write to succeed: an action that has
lost a race is left out by the executor, and the next tick plans anew.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from spindown.contract.codec import replace_fields
from spindown.contract.decision import LaunchRequestRecord
from spindown.control.market import Refreshed
from spindown.control.observe.fleet import Fleet, fleet_of
from spindown.control.observe.observation import TickFacts
from spindown.control.plan.launch_allowance import LaunchAllowance, PlannedRequest
from spindown.control.spend import Charge
from spindown.domain.fleet import (
    Launch,
    Lease,
    Worker,
)
from spindown.domain.machine_count import Sizing
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.price_ladder import PurchaseMode
from spindown.domain.ranking import Candidate, CandidateList
from spindown.domain.reason import NO_REASON, Reason
from spindown.domain.schedule import Capacity, DeadlineForecast, Demand, StartPlan
from spindown.domain.wasted_work import WastedWork
from spindown.ledger import RowWrites
from spindown.port import LaunchedInstance, LaunchRequest, Write


class ActionKind(StrEnum):
    """What an action does."""

    # What a decision tells of.
    #: Correct a row that says what cannot be.
    REPAIR = "repair"
    #: End the row of an instance that is gone, and charge the rest.
    END = "end"
    #: Give jobs of an instance that is gone back to the queue.
    FREE = "free"
    CONDEMN = "condemn"
    TERMINATE = "terminate"
    #: Note that EC2 takes an instance away.
    INTERRUPT = "interrupt"
    #: Complete a launch whose answer was lost.
    ADOPT = "adopt"
    #: Make the very same request again, to learn its answer.
    REPLAY = "replay"
    GIVE_UP = "give-up"
    #: Show a message that was hidden until a later version is deployed.
    SHOW = "show"
    #: Have the messages in the entry queue routed to the queues of their shapes.
    ROUTE = "route"
    #: Tell a worker to give its jobs to another.
    MIGRATE = "migrate"
    #: Tell a worker that budget or limits leave no further work for it.
    WIND_DOWN = "wind-down"
    LAUNCH = "launch"

    # Bookkeeping.
    CHARGE = "charge"
    #: Give back what a launch had set aside and no longer needs, or move it to the new month.
    RELEASE = "release"
    KEEP_WARM = "keep-warm"
    #: Ask a pool for nothing for a while.
    COOL_DOWN = "cool-down"
    #: Start nothing from a baked image for a while.
    GIVE_UP_IMAGE = "give-up-image"
    #: Count an instance that was of no use, or forget such.
    COUNT = "count"
    LEARN = "learn"
    CLEAN_UP = "clean-up"
    STORE_CATALOGUE = "store-catalogue"


#: Kinds that only keep the books.
BOOKKEEPING = frozenset(
    {
        ActionKind.CHARGE,
        ActionKind.RELEASE,
        ActionKind.KEEP_WARM,
        ActionKind.COOL_DOWN,
        ActionKind.GIVE_UP_IMAGE,
        ActionKind.COUNT,
        ActionKind.LEARN,
        ActionKind.CLEAN_UP,
        ActionKind.STORE_CATALOGUE,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do: a few rows to write together, all of them or none."""

    kind: ActionKind
    #: What it is about: an instance, a launch, a pool or a region.
    subject: str
    reason: Reason = NO_REASON
    writes: tuple[Write, ...] = ()
    #: Instance of which an earlier action must have succeeded; "": of none.
    depends_on: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRow(Action):
    """End the row of an instance that is gone."""

    charge: Charge
    #: Whether it is counted as an interruption of its pool.
    is_interruption: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReopenRow(Action):
    """Take back the end of a row, and the refund with it: its instance runs."""

    charge: Charge


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkInterrupted(Action):
    """Note that EC2 takes an instance away; let no lease outlive it."""

    deadline: datetime
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeJobs(Action):
    """Give jobs back to the queue whose instance is gone."""

    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowMessage(Action):
    """Show a message that the deployed version reads by now."""

    receipt_handle: str
    #: In whose queue it lies; "": the workload's own.
    shape: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate(Action):
    """Terminate instances of a region, again if they were condemned before."""

    instance_ids: tuple[str, ...]
    #: Those of them that no row knows.
    orphans: tuple[str, ...] = ()
    #: Instance -> why it is ended whatever its row says, and becomes meanwhile.
    outstayed: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt(Action):
    """Complete a launch by the instances that carry its tag."""

    record: LaunchRequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay(Action):
    """Make a request again under the same client token."""

    launch: Launch
    request: LaunchRequest
    #: Instances that are known to be its own.
    found: tuple[LaunchedInstance, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeWorker(Action):
    """Charge a worker for what it has cost since it was last charged."""

    charge: Charge


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCatalogue(Action):
    """Store a catalogue that was read from the market, since there was none."""

    refreshed: Refreshed


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchWorkers(Action):
    """Launch workers: try the offers of a list until the need is met."""

    choice: "LaunchChoice"
    #: Regions in which a single launch tests the launch version.
    regions_on_test: frozenset[str] = frozenset()
    #: Regions that are asked after all others, since they have not answered a launch.
    asked_last: frozenset[str] = frozenset()
    #: Pools that are asked later than others -> how much later (``domain.doubt``).
    doubted: Mapping[Pool, int] = field(default_factory=dict)
    #: The requests that it makes if EC2 gives all that it is asked for. The executor goes by
    #: ``choice`` once EC2 has refused something.
    requests: tuple[PlannedRequest, ...] = ()
    #: Why these do not meet the whole need; NO_REASON: nothing ends it early.
    ends_early: Reason = NO_REASON

    @property
    def count(self) -> int:
        """Return how many workers it asks for if EC2 refuses nothing."""
        return sum(request.count for request in self.requests)

    @property
    def first(self) -> Candidate | None:
        """Return the offer that is asked for first; None: there is none."""
        return self.requests[0].band[0] if self.requests else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchNeed:
    """How many workers are missing, and which may come: what is known without prices."""

    demand: Demand
    capacity: Capacity
    #: None: so many messages are visible that a launch is due at once.
    start_plan: StartPlan | None
    #: Without the bounds that prices set.
    unpriced_sizing: Sizing
    #: What deadlines ask for; None: there are none, or nothing is known of how long work takes.
    forecast: DeadlineForecast | None = None
    #: What of the ladder is open, whatever has waited how long; None: what the wait has opened.
    ladder_override: PurchaseMode | CapacityType | None = None
    #: When the price ladder opens at the latest, so that what has not started yet starts in time.
    ladder_opens_at: datetime | None = None
    #: Workers that may be bought on demand; None: as many as are wanted.
    on_demand_at_most: int | None = None
    #: Whether it is for particular jobs alone: such as move from running workers, or wait for a
    #: stable machine. What an item may cost there in USD; None: whatever it costs.
    is_for_particular_jobs: bool = False
    item_at_most: float | None = None
    #: What interruptions have cost the jobs that it is for; None: it is for any job.
    wasted_work: WastedWork | None = None
    #: The shape of its workers (``domain.job_type``); "": the workload has no types.
    shape: str = ""
    #: What keeps any launch from being made now; NO_REASON: nothing known.
    blocked_by: Reason = NO_REASON
    #: When that, or the hold, may end.
    retry_at: datetime | None = None

    @property
    def may_launch(self) -> bool:
        """Tell whether workers are wanted now and nothing known prevents them."""
        return self.unpriced_sizing.is_wanted and not self.blocked_by


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchChoice:
    """How many workers to launch for a need, from which offers, and why not now."""

    need: LaunchNeed
    #: Within all bounds, by the best offer.
    sizing: Sizing
    #: None: prices were not looked at, since no launch is due, or could not be read.
    candidates: CandidateList | None = None
    #: What keeps the launch from being made, though one may be due; NO_REASON: nothing.
    blocked_by: Reason = NO_REASON
    #: When that, the hold or the pool cooldown may end.
    retry_at: datetime | None = None
    #: Quota class without room for what fits -> vCPUs left, and what the smallest offer takes.
    quotas_short: Mapping[str, tuple[float, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDraft:
    """A plan being made: the facts, what is to be done so far, and the fleet after that."""

    facts: TickFacts
    fleet: Fleet
    actions: tuple[Action, ...] = ()
    notes: tuple[Reason, ...] = ()

    @property
    def now(self) -> datetime:
        """Return the time of the tick."""
        return self.facts.now

    @property
    def rows(self) -> RowWrites:
        """Return what makes the writes of the workload's rows."""
        return self.facts.rows

    def act(
        self, actions: Iterable[Action] = (), *, notes: Iterable[Reason] = (), **changes: object
    ) -> "PlanDraft":
        """Return the draft with more actions, and the fields of the fleet that they change."""
        return replace(
            self,
            fleet=replace_fields(self.fleet, changes) if changes else self.fleet,
            actions=(*self.actions, *actions),
            notes=(*self.notes, *notes),
        )

    def remember(self, **changes: object) -> "PlanDraft":
        """Return the draft with fields changed of what the ticks remember."""
        return self.act(remembered=replace_fields(self.fleet.remembered, changes))

    def with_workers(
        self, workers: Iterable[Worker], actions: Iterable[Action] = ()
    ) -> "PlanDraft":
        """Return the draft with workers as actions leave them."""
        changed = {worker.instance_id: worker for worker in workers}
        return self.act(actions, workers={**self.fleet.workers, **changed})


def new_draft(facts: TickFacts) -> PlanDraft:
    """Return a draft in which nothing is planned yet."""
    return PlanDraft(facts=facts, fleet=fleet_of(facts), notes=facts.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a tick is going to do, in order, and what explains it."""

    actions: tuple[Action, ...]
    #: Rows and queue once all actions but the launches have succeeded.
    fleet: Fleet
    choice: LaunchChoice
    #: What its launches may take together.
    allowance: LaunchAllowance
    #: What is wanted of other shapes than that of ``choice``.
    others: tuple[LaunchChoice, ...] = ()
    #: Launches for particular jobs: those that move, or need a stable machine.
    for_particular_jobs: tuple[LaunchChoice, ...] = ()
    notes: tuple[Reason, ...] = ()

    @property
    def quotas_short(self) -> frozenset[str]:
        """Return quota classes that have no room for what would fit."""
        return frozenset(n for each in self.choices for n in each.quotas_short)

    @property
    def choices(self) -> tuple[LaunchChoice, ...]:
        """Return all that is wanted, or might be."""
        return (self.choice, *self.others, *self.for_particular_jobs)

"""What a tick is going to do, as values: a draft grows action by action, and ends as a plan.

The action that launches is in ``launch_request``, what it is for in ``launch_need``, the finished
plan in ``plan``. Nothing here reads or writes. A plan takes every conditional write to succeed: an
action that has lost a race is left out by the executor, and the next tick plans anew.
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
from spindown.control.spend import Charge
from spindown.domain.fleet import (
    Launch,
    Lease,
    Worker,
)
from spindown.domain.reason import NO_REASON, Reason
from spindown.ledger import RowWrites
from spindown.port import LaunchedInstance, LaunchRequest, Write


class ActionKind(StrEnum):
    """What an action does."""

    # What a decision tells of.
    #: Correct a row that says what cannot be.
    REPAIR = "repair"
    #: End the row of an instance that is gone, and charge the rest.
    END = "end"
    #: Return to the queue the jobs of an instance that is gone.
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
    """Return to the queue the jobs of an instance that is gone."""

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
    #: What has no row before.
    workers: tuple[Worker, ...]


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

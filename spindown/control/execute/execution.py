"""How far the execution of a plan has come: the executor's memory."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from spindown.contract.decision import LaunchRequestRecord
from spindown.contract.row import Backoff, BreakerRow
from spindown.control.execute.journal import Journal
from spindown.control.observe.observation import Observation, TickFacts
from spindown.control.plan.action import Action
from spindown.control.plan.launch_allowance import LaunchAllowance, calls_made, used
from spindown.control.plan.launch_request import LaunchWorkers
from spindown.control.plan.throttling import next_backoff
from spindown.control.unresponsive_region import ACT_WITHIN, ask
from spindown.domain.bake_or_bootstrap import ImageHistory
from spindown.domain.fleet import Launch, Worker
from spindown.domain.offer import Pool
from spindown.domain.pool_cooldown import PoolCooldown
from spindown.domain.reason import NO_REASON, Reason
from spindown.ledger import AccountView
from spindown.port import ControlPorts, Write

T = TypeVar("T")

RequestRecords = tuple[LaunchRequestRecord, ...]


@dataclass(slots=True, kw_only=True)
class Execution:
    """A plan under way: what it has come to so far."""

    seen: Observation
    ports: ControlPorts
    journal: Journal
    workers: dict[str, Worker]
    launches: dict[str, Launch]
    pool_cooldowns: dict[Pool, PoolCooldown]
    breakers: dict[str, BreakerRow]
    images: dict[str, ImageHistory]
    backoffs: dict[str, Backoff]
    account: AccountView | None
    #: What launches may still take.
    allowance: LaunchAllowance
    quotas_met: set[str]
    done: list[Action] = field(default_factory=list)
    requests: list[LaunchRequestRecord] = field(default_factory=list)
    #: Each launch that was begun, and the requests that were made for it.
    launched: list[tuple[LaunchWorkers, tuple[LaunchRequestRecord, ...]]] = field(
        default_factory=list
    )
    notes: list[Reason] = field(default_factory=list)
    ended_early: Reason = NO_REASON
    #: When the first launch began; None: none has.
    launching_since: datetime | None = None
    leases_freed: int = 0
    #: Workers without a row when the tick began, as their launch left them.
    adopted: dict[str, Worker] = field(default_factory=dict)
    #: Instances of which an action has lost a race, or has had no answer.
    lost: set[str] = field(default_factory=set)

    @property
    def facts(self) -> TickFacts:
        """Return the facts of the tick."""
        return self.seen.facts

    @property
    def now(self) -> datetime:
        """Return the time of the tick."""
        return self.seen.facts.now

    def lose(self, instance_id: str) -> None:
        """Take an action to have had no effect: its worker is as it was seen."""
        self.lost.add(instance_id)
        seen = self.facts.view.workers.get(instance_id) or self.adopted.get(instance_id)
        if seen is None:
            return
        planned = self.workers.get(instance_id, seen)
        if seen.holds_place and not planned.holds_place:
            self.allowance = self.allowance.with_alive(seen, planned)
        self.workers[instance_id] = seen

    def read_account_again(self) -> None:
        """Read what other workloads have left of budget and calls."""
        self.account = self.journal.ledger.read_account()
        self.allowance = self.allowance.with_account(
            used(self.account, self.now), calls_made(self.facts, self.account)
        )

    def ask(self, region: str, call: Callable[[], T]) -> T:
        """Ask EC2 to do something, unless that would keep the tick from its launches.

        Raises:
            Unreachable: it was not asked.
            SpindownError: what the call raises.
        """
        return ask(self.ports, region, call, tick=self.now, within=ACT_WITHIN)

    def write_later(self, *unit: Write) -> None:
        """Let a unit wait for the next transaction."""
        self.journal.write_later(unit)

    def note(self, reason: Reason) -> None:
        """Note something for a person, once."""
        if reason not in self.notes:
            self.notes.append(reason)

    def back_off(self, region: str) -> None:
        """Leave a region alone for a while, since EC2 asks to slow down."""
        jitter = self.ports.random.random()
        self.backoffs[region] = next_backoff(self.backoffs.get(region), self.now, jitter)

"""What one reconcile knows, what it has done so far, and what waits to be written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from spindown.app.alarm.tell import Untold
from spindown.app.control import CATALOGUE_FOR, SETTINGS_FOR, AnswerKind, ControlPorts
from spindown.app.knowledge import read_knowledge
from spindown.app.ledger import AccountView, FencingToken, Ledger, LedgerView
from spindown.app.policy import EffectivePolicy, effective_policy
from spindown.app.port import JobQueue, LiveEdit, Write
from spindown.app.reconcile.journal import Journal
from spindown.app.spend import Charge
from spindown.contract import row as rows
from spindown.contract.decision import AttemptRecord, EndingRecord
from spindown.contract.row import BacklogRow, BreakerRow
from spindown.contract.settings import DeploymentSettings, WorkloadSettings
from spindown.domain.alert import Review
from spindown.domain.fleet import (
    Backlog,
    Launch,
    LaunchState,
    Lease,
    RequeuedJob,
    Unavailable,
    Worker,
)
from spindown.domain.idle import idle_timeout, is_about
from spindown.domain.learning import Knowledge
from spindown.domain.offer import Pool
from spindown.domain.policy import Policy
from spindown.domain.warm import at_hour
from spindown.error import SpindownError

_WORKLOAD: AnswerKind[tuple[WorkloadSettings, LiveEdit | None, int]] = AnswerKind(
    "workload", SETTINGS_FOR
)

#: How old the rows may be that all workloads share, for metrics; a launch reads its own.
ACCOUNT: AnswerKind[AccountView] = AnswerKind("account", timedelta(minutes=15))

#: Older than this the catalogue is worth a note.
CATALOGUE_STALE_AFTER = 12 * CATALOGUE_FOR


@dataclass(slots=True, kw_only=True)
class Tally:
    """Numbers of this tick that no row tells, for its metrics."""

    #: What was charged, each with the first write of the unit that does it.
    charged: list[tuple[Write, Charge]] = field(default_factory=list)
    #: Sort key of a learned quantity -> its samples as this tick leaves them.
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)
    interruptions: int = 0
    check_ins_missed: int = 0
    leases_freed: int = 0


@dataclass(slots=True, kw_only=True)
class Tick:
    """One reconcile under way. Rows as read, and then as this tick has changed them."""

    now: datetime
    workload: str
    source: str
    ports: ControlPorts
    ledger: Ledger
    journal: Journal
    deployment: DeploymentSettings
    settings: WorkloadSettings
    effective: EffectivePolicy
    view: LedgerView
    queue: JobQueue
    backlog: Backlog
    knowledge: Knowledge
    #: By instance id; ended ones leave.
    workers: dict[str, Worker]
    launches: dict[str, Launch]
    leases: tuple[Lease, ...]
    #: Jobs that nobody holds, though somebody has, by id.
    requeued_jobs: dict[str, RequeuedJob]
    unavailable: dict[Pool, Unavailable]
    #: The row of the backlog as this tick leaves it.
    seen: BacklogRow
    #: Region -> breaker; a missing one has never opened.
    breakers: dict[str, BreakerRow]
    #: What all workloads share; read only when a launch is due.
    account: AccountView | None = None
    attempts: list[AttemptRecord] = field(default_factory=list)
    condemned: list[EndingRecord] = field(default_factory=list)
    ended: list[EndingRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    held_back: bool = False
    budget_stopped: bool = False
    #: Quota classes that have no room for what this workload asked for.
    quotas_met: set[str] = field(default_factory=set)
    catalogue_age: timedelta | None = None
    spot_price_age: timedelta | None = None
    tally: Tally = field(default_factory=Tally)
    #: What people are told, and what could not be told.
    alerts: Review = field(default_factory=Review)
    untold: Untold | None = None

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.effective.policy

    @property
    def idle_timeout(self) -> timedelta:
        """Return the idle timeout that workers go by.

        What is learned they are told anew only when it is no longer about what they were told.
        """
        told, timeout = self.view.policy.idle_timeout, idle_timeout(self.knowledge, self.policy)
        if told is None or self.policy.idle_timeout is not None:
            return timeout
        return told if is_about(told, timeout) else timeout

    def image(self, region: str) -> str:
        """Return what a launch is made of there, for the breaker: templates, subnets, code."""
        outpost = self.settings.outposts.get(region)
        if outpost is None:
            return self.settings.run.code_digest
        templates = sorted(f"{one.id}@{one.version}" for one in outpost.templates.values())
        subnets = sorted(outpost.subnets.values())
        return " ".join([*templates, *subnets, self.settings.run.code_digest])

    def breaker(self, region: str) -> BreakerRow:
        """Return a region's breaker, closed if it speaks of another image than the present one."""
        known = self.breakers.get(region, BreakerRow())
        return known if known.image == self.image(region) else BreakerRow()

    @property
    def budget(self) -> float | None:
        """Return the month's USD less what launches of earlier months have still to spend of it.

        Those of this workload; None: there is no budget.
        """
        whole, month = self.deployment.budget_per_month, rows.budget_sort(self.now)
        if whole is None:
            return None
        # As read, since what this tick charges them is not in the account's rows yet either.
        known = self.view.launches.values()
        earlier = (launch for launch in known if rows.budget_sort(launch.intended_at) != month)
        return whole - sum(launch.reserved_usd for launch in earlier)

    @property
    def charges(self) -> Sequence[Charge]:
        """Return what this tick has charged, once it is written: what is lost the next charges."""
        lost = {id(write) for unit in self.journal.dropped for write in unit}
        return [due for write, due in self.tally.charged if id(write) not in lost]

    @property
    def open_breakers(self) -> Mapping[str, BreakerRow]:
        """Return the breakers that stop launches, by their region."""
        found = {region: self.breaker(region) for region in sorted(self.breakers)}
        return {r: b for r, b in found.items() if b.open_until and b.open_until > self.now}

    def set_breaker(self, region: str, breaker: BreakerRow) -> None:
        """Let the journal write a region's breaker."""
        self.breakers[region] = breaker
        named = "" if region == self.deployment.region else region
        self.journal.note(self.ledger.put(rows.breaker_sort(named), breaker))

    @property
    def grounds(self) -> tuple[object, ...]:
        """Return what sizing goes by, as far as a tick changes it: on the same it is the same."""
        seen = self.seen
        return (
            self.backlog,
            dict(self.workers),
            self.leases,
            [x for x in self.launches.values() if x.state is LaunchState.INTENDED],
            dict(self.breakers),
            (seen.backlog_since, seen.waiting_since, seen.waiting_jobs, seen.margin, seen.backoffs),
        )

    def leases_of(self, instance_id: str) -> tuple[Lease, ...]:
        """Return what the slots of one instance hold."""
        return tuple(lease for lease in self.leases if lease.instance_id == instance_id)

    def launch_of(self, worker: Worker) -> Launch | None:
        """Return the live launch row that a worker came from."""
        return self.launches.get(worker.launch_id)


def gather(
    workload: str,
    ports: ControlPorts,
    *,
    fence: FencingToken,
    ledger: Ledger,
    source: str,
    now: datetime,
) -> Tick:
    """Read the world as far as every tick needs it: the ledger, the settings, the queue."""
    view = ledger.read()
    deployment = ports.deployment()
    settings, edit = _read_settings(workload, ports, view, now)
    effective = effective_policy(settings, edit, view.policy)
    effective = replace(effective, policy=at_hour(effective.policy, now))
    queue = ports.queue(settings.queue_url)
    return Tick(
        now=now,
        workload=workload,
        source=source,
        ports=ports,
        ledger=ledger,
        journal=Journal(ledger, fence, damaged=view.bad_rows),
        deployment=deployment,
        settings=settings,
        effective=effective,
        view=view,
        queue=queue,
        backlog=queue.backlog(),
        knowledge=read_knowledge(
            view.rates,
            slots=settings.run.slots,
            workers=view.workers.values(),
        ),
        workers=dict(view.workers),
        launches=dict(view.launches),
        leases=view.leases,
        requeued_jobs=dict(view.requeued_jobs),
        unavailable=dict(view.unavailable),
        seen=view.backlog,
        notes=[f"{region} is left out: {why}" for region, why in settings.unread.items()],
        breakers={region or deployment.region: row for region, row in view.breakers.items()},
    )


def _read_settings(
    workload: str, ports: ControlPorts, view: LedgerView, now: datetime
) -> tuple[WorkloadSettings, LiveEdit | None]:
    """Recall the settings, unless the ledger says that they were edited since."""

    def read() -> tuple[WorkloadSettings, LiveEdit | None, int]:
        return (*ports.settings.workload(workload), view.policy.edits)

    found = ports.cache.recall(_WORKLOAD, workload, now, read)
    if found[2] != view.policy.edits:
        ports.cache.forget(_WORKLOAD, workload)
        found = ports.cache.recall(_WORKLOAD, workload, now, read)
    if found[0].unread:
        # An outpost that is just being deployed, or does not answer, is asked again at once.
        ports.cache.forget(_WORKLOAD, workload)
    return found[0], found[1]


def deployed_regions(tick: Tick) -> frozenset[str]:
    """Return where outposts are, those that could not be read included."""
    return frozenset(tick.settings.outposts.keys() | set(tick.settings.regions))


def forget_settings(tick: Tick) -> None:
    """Have the next tick read the settings anew: what is remembered may be minutes old."""
    tick.ports.cache.forget(_WORKLOAD, tick.workload)


def outpost_stands(tick: Tick, region: str) -> bool:
    """Ask whether an outpost is still there: what is remembered may be minutes old.

    An outpost that is being destroyed withdraws its settings before it ends its instances.
    """
    if region == tick.deployment.region:
        return True
    try:
        settings, _ = tick.ports.settings.workload(tick.workload)
    except SpindownError:
        return True
    if region in settings.outposts:
        return True
    forget_settings(tick)
    tick.notes.append(f"{region} is left out: its outpost is gone")
    return False

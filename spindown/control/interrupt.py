"""Act on what EventBridge says of an instance: taken away soon, at risk, or gone.

Each of the three can run twice without harm. An instance that is not ours, or whose row has ended,
is ignored. The worker sees the same through its metadata; whichever comes first acts. The message
of a job is never touched before its instance is gone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from spindown.contract import row as rows
from spindown.contract.decision import Decision
from spindown.contract.event import (
    InstanceEvent,
    InterruptionWarning,
    RebalanceRecommendation,
    StateChange,
)
from spindown.contract.metric import DEPLOYMENT, WORKLOAD
from spindown.contract.row import PolicyRow
from spindown.contract.settings import WorkloadSettings
from spindown.control.ending import bound_leases, end_worker, free_leases, note_interruption
from spindown.control.observation import assumed
from spindown.control.policy import effective_policy
from spindown.control.spend import Charge
from spindown.control.tick import reconcile
from spindown.domain.fleet import Launch, Lease, Unavailable, Worker, WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reaping import UNSEEN_FOR, ending_of
from spindown.error import (
    ContractError,
    NotFound,
    PreconditionFailed,
    Throttled,
    Unreachable,
    WriteConflict,
)
from spindown.ledger import Ledger, decode_at, read_worker
from spindown.port import ControlPorts, Datum, InstanceView, Key, When

T = TypeVar("T")


#: Others may come between our read and our write: a worker's heartbeat, a tick.
_TRIES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What came of an event."""

    instance_id: str
    #: "" when the instance is none of ours, or its row is gone.
    workload: str = ""
    #: Whether this event was the first to say it.
    acted: bool = False
    leases_freed: int = 0
    #: The reconcile that followed at once; None when there was no need.
    decision: Decision | None = None


def react(event: InstanceEvent, ports: ControlPorts, *, holder: str) -> Reaction:
    """Act on one event of EC2's.

    Args:
        event: as ``contract.event`` read it.
        ports: the world.
        holder: who takes the lock if a reconcile follows.
    """
    nothing = Reaction(instance_id=event.instance_id)
    ours = _find(event.instance_id, ports)
    if ours is None:
        return nothing
    match event:
        case InterruptionWarning():
            return notice(event, ours, holder=holder)
        case RebalanceRecommendation():
            return rebalance(event, ours)
        case StateChange() if event.is_end:
            return state_change(event, ours, holder=holder)
    return nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class OurInstance:
    """One instance of ours, and the rows that hang on it."""

    key: Key
    workload: str
    worker: Worker
    ledger: Ledger
    ports: ControlPorts

    def read_again(self) -> Worker | None:
        """Return the worker as it is now."""
        return read_worker(self.ports.table, self.key)

    def leases(self) -> tuple[Lease, ...]:
        """Return what its slots hold now; a row that cannot be read is left to the tick."""
        found = self.ports.table.query(
            self.key.partition, f"{rows.LEASE}{self.worker.instance_id}#"
        )
        leases = []
        for sort, row in found.items():
            try:
                leases.append(decode_at(Lease, sort, row))
            except ContractError:
                continue
        return tuple(leases)

    def unavailable(self) -> Unavailable | None:
        """Return what is remembered of its pool."""
        return self._read(Unavailable, rows.unavailable_sort(self.worker.pool))

    def launch(self) -> Launch | None:
        """Return the launch that it came from."""
        return self._read(Launch, rows.launch_sort(self.worker.launch_id))

    @property
    def is_launched(self) -> bool:
        """Tell whether a launch of its workload has brought it."""
        launch = self.launch()
        return launch is not None and self.worker.instance_id in launch.instance_ids

    def policy(self) -> tuple[WorkloadSettings, Policy]:
        """Return the workload's settings, and the policy in force."""
        settings, edit = self.ports.settings.workload(self.workload)
        known = self._read(PolicyRow, rows.POLICY) or PolicyRow()
        return settings, effective_policy(settings, edit, known).policy

    def _read(self, cls: type[T], sort: str) -> T | None:
        row = self.ports.table.get(self.ledger.key(sort))
        try:
            return None if row is None else decode_at(cls, sort, row)
        except ContractError:
            return None


def _find(instance_id: str, ports: ControlPorts) -> OurInstance | None:
    """Return an instance and its rows; None if it is not ours or has ended."""
    keys = ports.table.find_instance(instance_id)
    found = [ours for key in keys if (ours := _read_instance(key, ports)) is not None]
    if len(found) < 2:  # noqa: PLR2004 - a choice needs two
        return next(iter(found), None)
    # A worker may write a row of any instance for its workload. A launch is the scaler's word.
    return next((ours for ours in found if ours.is_launched), None)


def _read_instance(key: Key, ports: ControlPorts) -> OurInstance | None:
    if not key.partition.startswith(_LIVE):
        return None
    worker = read_worker(ports.table, key)
    if worker is None or worker.state is WorkerState.ENDED:
        return None
    workload = key.partition.removeprefix(_LIVE)
    ledger = Ledger(ports.table, workload)
    return OurInstance(key=key, workload=workload, worker=worker, ledger=ledger, ports=ports)


_LIVE = rows.worker_partition("")


def notice(event: InterruptionWarning, ours: OurInstance, *, holder: str) -> Reaction:
    """Stop counting a worker that EC2 takes away; bound its leases; replace it at once."""
    _, policy = ours.policy()
    now = ours.ports.clock.now()

    def attempt(worker: Worker) -> bool:
        if worker.interruption_counted or worker.state is WorkerState.ENDED:
            return False
        deadline = worker.interrupted_at or event.deadline
        ours.ledger.transact(
            note_interruption(
                worker,
                deadline,
                unavailable=ours.unavailable(),
                now=now,
                policy=policy,
                ledger=ours.ledger,
            )
        )
        return True

    acted = _try(ours, attempt)
    bound_leases([(lease, event.deadline) for lease in ours.leases()], ours.ledger)
    _emit(ours, {"Interruptions": float(acted)})
    return Reaction(
        instance_id=event.instance_id,
        workload=ours.workload,
        acted=acted,
        decision=_reconcile(ours, holder, "notice") if acted else None,
    )


def rebalance(event: RebalanceRecommendation, ours: OurInstance) -> Reaction:
    """Write down that an instance is at risk; the worker takes no new job then."""
    when = When(exists=True, absent=frozenset({"rebalance_at"}))
    sort = rows.worker_sort(event.instance_id)
    try:
        ours.ledger.write(ours.ledger.change(sort, {"rebalance_at": event.at}, when=when))
    except PreconditionFailed:
        return Reaction(instance_id=event.instance_id, workload=ours.workload)
    return Reaction(instance_id=event.instance_id, workload=ours.workload, acted=True)


def state_change(event: StateChange, ours: OurInstance, *, holder: str) -> Reaction:
    """End the row of an instance that is gone, charge the rest, and requeue its jobs."""
    settings, policy = ours.policy()
    view = _described(event, ours)
    charged: list[Charge] = []

    def attempt(worker: Worker) -> bool:
        if worker.state is WorkerState.ENDED or view is None:
            return False
        ending = ending_of(worker, view)
        end = end_worker(
            worker,
            # No clock of another may have it booked for years.
            at=max(min(event.at, ours.ports.clock.now()), worker.launched_at),
            reason=ending.reason,
            reclaimed=ending.reclaimed,
            launch=ours.launch(),
            unavailable=ours.unavailable(),
            policy=policy,
            ledger=ours.ledger,
        )
        ours.ledger.transact(end.writes)
        charged.append(end.charge)
        counted = ending.reclaimed and not worker.interruption_counted
        _emit(ours, {"Interruptions": float(counted)})
        return True

    acted = _try(ours, attempt)
    queue, now = ours.ports.queue(settings.queue_url), ours.ports.clock.now()
    freed = len(free_leases(ours.leases(), ours.ledger, queue, now=now))
    _emit(ours, {"LeasesFreed": freed, **_sum_charges(charged)})
    return Reaction(
        instance_id=event.instance_id,
        workload=ours.workload,
        acted=acted,
        leases_freed=freed,
        decision=_reconcile(ours, holder, "state-change") if freed else None,
    )


def _sum_charges(charged: Sequence[Charge]) -> dict[str, float]:
    return {
        "Spend": sum(c.dollars for c in charged),
        "SpendOnDemand": sum(c.on_demand_dollars for c in charged),
        "IdleSeconds": sum(c.idle_seconds for c in charged),
    }


def _try(ours: OurInstance, attempt: Callable[[Worker], bool]) -> bool:
    """Carry out a conditional change, over a fresh read as often as another write comes between.

    After the last try the tick takes over, which sees the same from the spot request and from EC2.
    """
    worker: Worker | None = ours.worker
    for _ in range(_TRIES):
        if worker is None:
            return False
        try:
            return attempt(worker)
        except (PreconditionFailed, WriteConflict):
            worker = ours.read_again()
    return False


def _described(event: StateChange, ours: OurInstance) -> InstanceView | None:
    """Return EC2's description, in which the event's state holds.

    None without an answer, or with one from before the event (EC2's descriptions lag): whether
    the instance was reclaimed, and so what it costs, is then left to the tick that can ask.
    """
    try:
        view = ours.ports.compute.instance(region=ours.worker.region, instance_id=event.instance_id)
    except NotFound:
        lived = ours.ports.clock.now() - ours.worker.launched_at
        return None if lived <= UNSEEN_FOR else replace(assumed(ours.worker), state=event.state)
    except (Throttled, Unreachable):
        return None
    return None if view.state in _BEFORE else replace(view, state=event.state)


#: States in which EC2 does not say yet why an instance ends.
_BEFORE = frozenset({"pending", "running"})


def _reconcile(ours: OurInstance, holder: str, source: str) -> Decision:
    return reconcile(ours.workload, ours.ports, holder=holder, source=source)


def _emit(ours: OurInstance, values: Mapping[str, float]) -> None:
    deployment = {DEPLOYMENT: ours.ports.deployment().name}
    dimensions = {**deployment, WORKLOAD: ours.workload}
    data = [
        Datum(name=name, value=value, dimensions=dimensions)
        for name, value in values.items()
        if value
    ]
    data += [
        replace(d, name="SpendOfAll", dimensions=deployment) for d in data if d.name == "Spend"
    ]
    ours.ports.metrics.emit(data)

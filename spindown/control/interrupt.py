"""Note what EventBridge says of an instance: taken away soon, at risk, or gone.

An event writes only to rows of its own instance, and wakes a tick, which counts, charges and frees
under the lock. When EC2 takes a thousand instances, two thousand events come at once: none waits
for another's rows, reads settings or asks EC2. An event that finds a tick under way leaves all to
the next one.

Each event can come twice without harm. An instance that is not ours, or whose row has ended, is
ignored. The worker sees the same through its metadata; whichever comes first acts. The message of
a job is never touched before its instance is gone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from spindown.contract import row as rows
from spindown.contract.decision import Decision
from spindown.contract.event import (
    InstanceEvent,
    InterruptionWarning,
    RebalanceRecommendation,
    StateChange,
)
from spindown.control.ending import bound_leases
from spindown.control.tick import reconcile
from spindown.domain.fleet import Launch, Lease, Worker, WorkerState
from spindown.error import ContractError, PreconditionFailed
from spindown.ledger import Ledger, decode_at, read_worker
from spindown.port import ControlPorts, Key, When

#: The worker may write the same between our read and our write.
_TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What came of an event."""

    instance_id: str
    #: "" when the instance is none of ours, or its row is gone.
    workload: str = ""
    #: Whether this event was the first to say it.
    acted: bool = False
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

    @property
    def is_launched(self) -> bool:
        """Tell whether a launch of its workload has brought it."""
        sort = rows.launch_sort(self.worker.launch_id)
        row = self.ports.table.get(self.ledger.key(sort))
        try:
            launch = None if row is None else decode_at(Launch, sort, row)
        except ContractError:
            return False
        return launch is not None and self.worker.instance_id in launch.instance_ids


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
    """Note that EC2 takes a worker away; bound its leases; have it counted and replaced at once."""
    marks = {"noticed_at": event.at, "interrupted_at": event.deadline}
    acted = not ours.worker.interruption_counted and _mark(ours, marks, is_new="noticed_at")
    bound_leases([(lease, event.deadline) for lease in ours.leases()], ours.ledger)
    return Reaction(
        instance_id=event.instance_id,
        workload=ours.workload,
        acted=acted,
        decision=_reconcile(ours, holder, "notice") if acted else None,
    )


def rebalance(event: RebalanceRecommendation, ours: OurInstance) -> Reaction:
    """Note that an instance is at risk; the worker saves its state then."""
    acted = _mark(ours, {"rebalance_at": event.at}, is_new="rebalance_at")
    return Reaction(instance_id=event.instance_id, workload=ours.workload, acted=acted)


def state_change(event: StateChange, ours: OurInstance, *, holder: str) -> Reaction:
    """Note that an instance is gone; have its jobs requeued at once.

    Without jobs its row is left to the next tick. The second event of an end, "terminated" after
    "shutting-down", wakes a tick again if the first one found another under way.
    """
    acted = _mark(ours, {"gone_at": event.at}, is_new="gone_at")
    return Reaction(
        instance_id=event.instance_id,
        workload=ours.workload,
        acted=acted,
        decision=_reconcile(ours, holder, "state-change") if ours.leases() else None,
    )


def _mark(ours: OurInstance, marks: Mapping[str, datetime], *, is_new: str) -> bool:
    """Note something in the worker's row; False: ``is_new`` is there already, or it has ended.

    What else is there already stays: the worker may know it better.
    """
    sort, worker = rows.worker_sort(ours.worker.instance_id), ours.worker
    for _ in range(_TRIES):
        if getattr(worker, is_new) is not None or worker.ended_at is not None:
            return False
        changes = {name: at for name, at in marks.items() if getattr(worker, name) is None}
        when = When(exists=True, absent=frozenset(changes) | {"ended_at"})
        try:
            ours.ledger.write(ours.ledger.change(sort, changes, when=when))
        except PreconditionFailed:
            found = ours.read_again()
            if found is None:
                return False
            worker = found
        else:
            return True
    return False


def _reconcile(ours: OurInstance, holder: str, source: str) -> Decision:
    return reconcile(ours.workload, ours.ports, holder=holder, source=source)

"""Note what EventBridge says of an instance: taken away soon, at risk, or gone.

An event writes only to rows of its own instance, and wakes a tick, which under the lock counts the
interruption and lets its pool rest (``plan.terminate``), charges and ends the row
(``machine_gone``), and frees its jobs (``plan.requeue``). When EC2 takes a thousand instances, two
thousand events come at once: none waits for another's rows, reads settings or asks EC2. An event
that finds a tick under way leaves all to the next one.

Each event can come twice without harm. An instance that is not ours, or whose row has ended, is
ignored. The worker sees the same through its metadata, and ``domain.worker_lifecycle`` decides what
it does: give its jobs back, or finish them. Whichever comes first acts. The message of
a job is never touched before its instance is gone: then ``control.free_lease`` shows it.
"""

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
from spindown.control.free_lease import bound_leases
from spindown.control.tick import run_tick
from spindown.domain.fleet import Lease, Worker
from spindown.error import ContractError, PreconditionFailed
from spindown.ledger import Ledger, decode_at, read_worker
from spindown.port import ControlPorts, When


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """What came of an event."""

    instance_id: str
    #: "" when the instance is none of ours, or its row is gone.
    workload: str = ""
    #: Whether this event was the first to say it.
    acted: bool = False
    #: The tick that followed at once; None when there was no need.
    decision: Decision | None = None


def react(event: InstanceEvent, ports: ControlPorts, *, holder: str) -> Reaction:
    """Act on one event of EC2's."""
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

    workload: str
    #: What the control plane knows of it, whatever its own row says.
    machine: Worker
    ledger: Ledger
    ports: ControlPorts

    def leases(self) -> tuple[Lease, ...]:
        """Return what its slots hold now; a row that cannot be read is left to the tick."""
        name, slots = self.machine.instance_id, range(self.machine.slots)
        keys = [self.ledger.key(rows.lease_sort_key(name, slot)) for slot in slots]
        leases = []
        for key, row in self.ports.table.get_each(keys).items():
            try:
                leases.append(decode_at(Lease, key.sort, row))
            except ContractError:
                continue
        return tuple(leases)


def _find(instance_id: str, ports: ControlPorts) -> OurInstance | None:
    """Return an instance and its rows; None if it is not ours or has ended."""
    decided = rows.control_partition("")
    for key in ports.table.find_machine(instance_id):
        if not key.partition.startswith(decided):
            # A worker of any workload may write a row of this name where workers write.
            continue
        machine = read_worker(ports.table, key)
        if machine is not None and machine.ended_at is None:
            workload = key.partition.removeprefix(decided)
            ledger = Ledger(ports.table, workload)
            return OurInstance(workload=workload, machine=machine, ledger=ledger, ports=ports)
    return None


def notice(event: InterruptionWarning, ours: OurInstance, *, holder: str) -> Reaction:
    """Note that EC2 takes a worker away; bound its leases; have it counted and replaced at once."""
    acted = _write_machine(ours, "noticed_at", event.at)
    _write_worker(ours, "interrupted_at", event.deadline)
    bound_leases([(lease, event.deadline) for lease in ours.leases()], ours.ledger)
    return Reaction(
        instance_id=event.instance_id,
        workload=ours.workload,
        acted=acted,
        decision=_run_tick(ours, holder, "notice") if acted else None,
    )


def rebalance(event: RebalanceRecommendation, ours: OurInstance) -> Reaction:
    """Note that an instance is at risk; the worker saves its state then."""
    acted = _write_worker(ours, "rebalance_at", event.at)
    return Reaction(instance_id=event.instance_id, workload=ours.workload, acted=acted)


def state_change(event: StateChange, ours: OurInstance, *, holder: str) -> Reaction:
    """Note that an instance is gone; have its jobs requeued at once.

    Without jobs its row is left to the next tick. The second event of an end, "terminated" after
    "shutting-down", wakes a tick again if the first one found another under way.
    """
    acted = _write_machine(ours, "gone_at", event.at)
    return Reaction(
        instance_id=event.instance_id,
        workload=ours.workload,
        acted=acted,
        decision=_run_tick(ours, holder, "state-change") if ours.leases() else None,
    )


def _write_machine(ours: OurInstance, name: str, at: datetime) -> bool:
    """Note what EC2 says, where no worker writes; False: it is there already, or it has ended."""
    return _write_once(ours, rows.machine_sort_key(ours.machine.instance_id), name, at)


def _write_worker(ours: OurInstance, name: str, at: datetime) -> bool:
    """Tell a worker by its own row; False: it knows it already, or has ended."""
    return _write_once(ours, rows.worker_sort_key(ours.machine.instance_id), name, at)


def _write_once(ours: OurInstance, sort: str, name: str, at: datetime) -> bool:
    when = When(exists=True, absent=frozenset({name, "ended_at"}))
    try:
        ours.ledger.write(ours.ledger.change(sort, {name: at}, when=when))
    except PreconditionFailed:
        return False
    return True


def _run_tick(ours: OurInstance, holder: str, source: str) -> Decision:
    return run_tick(ours.workload, ours.ports, holder=holder, source=source)

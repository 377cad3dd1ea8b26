"""Carry out a plan under the fence: the only part of a tick that changes the fleet.

Actions go in their order. One whose condition no longer holds has lost a race against a worker or
an event: it is left out, with what needs it, and the next tick plans anew.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from spindown.contract import row as rows
from spindown.contract.queue import queue_of_shape
from spindown.contract.row import Backoff, BreakerRow
from spindown.control.execute.execution import Execution, RequestRecords
from spindown.control.execute.journal import FenceLost, Journal
from spindown.control.execute.launch import replay, try_offers
from spindown.control.free_lease import LEASES_FREED_AT_ONCE, bound_leases, free_leases
from spindown.control.market import store
from spindown.control.observe.observation import Observation, failure_of
from spindown.control.plan.action import (
    Action,
    ActionKind,
    Adopt,
    FreeJobs,
    MarkInterrupted,
    Replay,
    ShowMessage,
    StoreCatalogue,
    Terminate,
)
from spindown.control.plan.launch_request import LaunchWorkers
from spindown.control.plan.plan import Plan
from spindown.domain.fleet import Lease, Worker
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.pool_cooldown import PoolCooldown
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.termination import GONE, UNSEEN_FOR
from spindown.error import SpindownError, Throttled
from spindown.ledger import AccountView
from spindown.port import ControlPorts, JobQueue, When

#: Actions that must be durable before the next: each is committed at once.
_COMMITTED = frozenset(
    {ActionKind.REPAIR, ActionKind.END, ActionKind.CONDEMN, ActionKind.INTERRUPT}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """What came of a plan."""

    done: tuple[Action, ...]
    requests: RequestRecords
    #: Each launch that was begun, and the requests that were made for it.
    launched: tuple[tuple[LaunchWorkers, RequestRecords], ...]
    #: Why launching ended before the need was met; NO_REASON: nothing ended it early.
    ended_early: Reason
    notes: tuple[Reason, ...]
    leases_freed: int
    #: The fleet and the market as they are now, as far as the ledger knows.
    workers: dict[str, Worker]
    pool_cooldowns: dict[Pool, PoolCooldown]
    breakers: dict[str, BreakerRow]
    backoffs: dict[str, Backoff]
    account: AccountView | None
    #: Quota classes that have no room for what this workload asked for.
    quotas_met: frozenset[str]


def execute(plan: Plan, seen: Observation, ports: ControlPorts, journal: Journal) -> TickRecord:
    """Carry out a plan.

    Raises:
        FenceLost: another tick is at work.
    """
    fleet = plan.fleet
    run = Execution(
        seen=seen,
        ports=ports,
        journal=journal,
        workers=dict(fleet.workers),
        launches=dict(fleet.launches),
        pool_cooldowns=dict(fleet.pool_cooldowns),
        breakers=dict(fleet.breakers),
        images=dict(fleet.images),
        backoffs=dict(fleet.remembered.backoffs),
        account=seen.account,
        allowance=plan.allowance,
        quotas_met={*plan.quotas_short},
    )
    for group in _action_groups(plan.actions):
        due = [action for action in group if action.depends_on not in run.lost]
        if not due:
            continue
        if isinstance(due[0], LaunchWorkers):
            _launch(run, due[0])
            continue
        try:
            _carry_out(run, due)
        except FenceLost:
            raise
        except SpindownError as exc:
            for action in due:
                run.lose(action.subject)
            run.note(failure_of(exc, due[0].kind.value, subject=due[0].subject))
    return TickRecord(
        done=tuple(run.done),
        requests=tuple(run.requests),
        launched=tuple(run.launched),
        ended_early=run.ended_early,
        notes=tuple(run.notes),
        leases_freed=run.leases_freed,
        workers=run.workers,
        pool_cooldowns=run.pool_cooldowns,
        breakers=run.breakers,
        backoffs=run.backoffs,
        account=run.account,
        quotas_met=frozenset(run.quotas_met),
    )


def _action_groups(actions: Iterable[Action]) -> Iterator[Sequence[Action]]:
    """Yield the actions in their order; together what a few calls carry out for many."""
    group: list[Action] = []
    for action in actions:
        if group and not _goes_with(group, action):
            yield group
            group = []
        group.append(action)
    if group:
        yield group


def _goes_with(group: Sequence[Action], action: Action) -> bool:
    if isinstance(action, FreeJobs):
        leases = [lease for x in (*group, action) if isinstance(x, FreeJobs) for lease in x.leases]
        return isinstance(group[0], FreeJobs) and len(leases) <= LEASES_FREED_AT_ONCE
    return group[0].kind in _COMMITTED and action.kind in _COMMITTED


def _carry_out(run: Execution, group: Sequence[Action]) -> None:
    first = group[0]
    if first.kind in _COMMITTED:
        _commit(run, group)
    elif isinstance(first, FreeJobs):
        _free(run, group)
    else:
        _carry_out_one(run, first)


def _commit(run: Execution, group: Sequence[Action]) -> None:
    """Make actions durable; each that has lost its race is left out."""
    won = run.journal.commit([action.writes for action in group])
    bounds: list[tuple[Lease, datetime]] = []
    for action, is_done in zip(group, won, strict=True):
        if not is_done:
            run.lose(action.subject)
            continue
        run.done.append(action)
        if isinstance(action, MarkInterrupted):
            bounds += [(lease, action.deadline) for lease in action.leases]
    bound_leases(bounds, run.journal.ledger)


def _free(run: Execution, group: Sequence[Action]) -> None:
    """Free as many leases as one transaction takes; after a failure the next tick does."""
    leases = [lease for x in group if isinstance(x, FreeJobs) for lease in x.leases]
    for shape in sorted({lease.shape for lease in leases}):
        held = [lease for lease in leases if lease.shape == shape]
        freed = free_leases(held, run.journal.ledger, _queue_of(run, shape), now=run.now)
        run.leases_freed += len(freed)
    run.done += group


def _carry_out_one(run: Execution, action: Action) -> None:
    match action:
        case Terminate():
            _terminate(run, action)
            return
        case ShowMessage():
            # Without its handle it is visible already, or somebody has received it.
            _queue_of(run, action.shape).show([action.receipt_handle])
            run.journal.write_later(action.writes)
        case Replay():
            replay(run, action)
        case Action(kind=ActionKind.ROUTE):
            run.ports.router.wake(run.facts.workload)
        case StoreCatalogue():
            store(action.refreshed, run.ports)
        case _:
            run.journal.write_later(action.writes)
            if isinstance(action, Adopt):
                run.requests.append(action.record)
                run.adopted |= {worker.instance_id: worker for worker in action.workers}
    run.done.append(action)


def _queue_of(run: Execution, shape: str) -> JobQueue:
    """Return the queue of a shape that has one, else the workload's own."""
    own = run.facts.settings.queue_url
    return run.ports.queue(queue_of_shape(own, shape if shape in run.facts.view.shapes else ""))


def _terminate(run: Execution, action: Terminate) -> None:
    region, ids = (
        action.subject,
        tuple(i for i in action.instance_ids if i not in run.lost or i in action.outstayed),
    )
    if not ids:
        return
    try:
        call = partial(run.ports.compute.terminate, region=region, instance_ids=ids)
        states = run.ask(region, call)
    except SpindownError as exc:
        if isinstance(exc, Throttled):
            run.back_off(region)
        run.note(failure_of(exc, action.kind.value, region=region))
        return
    run.done.append(replace(action, instance_ids=ids))
    for instance_id in _gone(run, states):
        # As an event would note it: EC2 may soon describe the instance no more.
        sort, once = rows.machine_sort_key(instance_id), frozenset({"gone_at", "ended_at"})
        when = When(exists=True, absent=once)
        run.write_later(run.facts.rows.change(sort, {"gone_at": run.now}, when=when))


def _gone(run: Execution, states: Mapping[str, str]) -> list[str]:
    """Return the machines of ours that bill no more, as EC2 says now and has not said before.

    EC2 may not know an instance for a while after its launch.
    """
    known = run.facts.view.machines
    return [
        instance_id
        for instance_id, state in states.items()
        if (machine := known.get(instance_id)) is not None
        and machine.gone_at is None
        and (state in GONE or (not state and run.now - machine.launched_at > UNSEEN_FOR))
    ]


def _launch(run: Execution, action: LaunchWorkers) -> None:
    """Make the requests of a launch; it counts as done if EC2 was asked at all."""
    before, ended = len(run.requests), NO_REASON
    is_for_particular_jobs = action.choice.need.is_for_particular_jobs
    try:
        ended = try_offers(run, action)
    except FenceLost:
        raise
    except SpindownError as exc:
        if not is_for_particular_jobs:
            raise
        run.note(failure_of(exc, action.kind.value))
    made = tuple(run.requests[before:])
    run.launched.append((action, made))
    if made:
        run.done.append(action)
    if not is_for_particular_jobs:
        # Of several shapes, the first that did not get all that it needs.
        run.ended_early = run.ended_early or ended
    elif ended.code is ReasonCode.MAX_WORKERS:
        run.note(ended)
    elif action.choice.need.ladder_override is CapacityType.ON_DEMAND and not any(
        a.instances for a in made
    ):
        run.note(Reason(ReasonCode.NOTHING_ON_DEMAND, action.reason.about))

"""Carry out a plan under the fence: the only part of a tick that changes the fleet.

Actions go in their order. One whose condition no longer holds has lost a race against a worker or
an event: it is left out, with what needs it, and the next tick plans anew.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from spindown.contract.row import Backoff, BreakerRow
from spindown.control.ending import bound_leases, free_leases
from spindown.control.execution import Execution, RequestRecords
from spindown.control.journal import FenceLost, Journal
from spindown.control.launch import replay, try_offers
from spindown.control.market import store
from spindown.control.observation import Observation, failure_of
from spindown.control.plan import (
    Action,
    ActionKind,
    Adopt,
    FreeJobs,
    LaunchWorkers,
    MarkInterrupted,
    Plan,
    Replay,
    ShowMessage,
    StoreCatalogue,
    Terminate,
)
from spindown.domain.fleet import Unavailable, Worker
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.error import SpindownError, StaleHandle, Throttled
from spindown.ledger import AccountView
from spindown.port import ControlPorts

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
    unavailable: dict[Pool, Unavailable]
    breakers: dict[str, BreakerRow]
    backoffs: dict[str, Backoff]
    account: AccountView | None
    #: Quota classes that have no room for what this workload asked for.
    quotas_met: frozenset[str]


def execute(plan: Plan, seen: Observation, ports: ControlPorts, journal: Journal) -> TickRecord:
    """Carry out a plan.

    Raises:
        FenceLost: another reconcile is at work.
    """
    fleet = plan.fleet
    run = Execution(
        seen=seen,
        ports=ports,
        journal=journal,
        workers=dict(fleet.workers),
        launches=dict(fleet.launches),
        unavailable=dict(fleet.unavailable),
        breakers=dict(fleet.breakers),
        backoffs=dict(fleet.backlog.backoffs),
        account=seen.account,
        allowance=plan.allowance,
        quotas_met={*plan.quotas_short},
    )
    for action in plan.actions:
        if action.needs in run.lost:
            continue
        if isinstance(action, LaunchWorkers):
            _launch(run, action)
            continue
        try:
            _carry_out(run, action)
        except FenceLost:
            raise
        except SpindownError as exc:
            run.lose(action.subject)
            run.tell(failure_of(exc, action.kind.value, subject=action.subject))
    return TickRecord(
        done=tuple(run.done),
        requests=tuple(run.requests),
        launched=tuple(run.launched),
        ended_early=run.ended_early,
        notes=tuple(run.notes),
        leases_freed=run.leases_freed,
        workers=run.workers,
        unavailable=run.unavailable,
        breakers=run.breakers,
        backoffs=run.backoffs,
        account=run.account,
        quotas_met=frozenset(run.quotas_met),
    )


def _carry_out(run: Execution, action: Action) -> None:
    match action:
        case FreeJobs():
            queue = run.ports.queue(run.facts.settings.queue_url)
            freed = free_leases(action.leases, run.journal.ledger, queue, now=run.now)
            run.leases_freed += len(freed)
        case Terminate():
            _terminate(run, action)
            return
        case ShowMessage():
            # Without its handle it is visible already, or somebody has received it.
            with suppress(StaleHandle):
                queue = run.ports.queue(run.facts.settings.queue_url)
                queue.extend(action.receipt_handle, timedelta(0))
            run.journal.note(action.writes)
        case Replay():
            replay(run, action)
        case StoreCatalogue():
            store(action.refreshed, run.ports)
        case _ if action.kind in _COMMITTED:
            if not run.journal.commit(action.writes):
                run.lose(action.subject)
                return
            if isinstance(action, MarkInterrupted):
                bound_leases(action.leases, action.deadline, run.journal.ledger)
        case _:
            run.journal.note(action.writes)
            if isinstance(action, Adopt):
                run.requests.append(action.record)
    run.done.append(action)


def _terminate(run: Execution, action: Terminate) -> None:
    region, ids = action.subject, tuple(i for i in action.instance_ids if i not in run.lost)
    if not ids:
        return
    try:
        run.ports.compute.terminate(region=region, instance_ids=ids)
    except SpindownError as exc:
        if isinstance(exc, Throttled):
            run.back_off(region)
        run.tell(failure_of(exc, action.kind.value, region=region))
        return
    run.done.append(replace(action, instance_ids=ids))


def _launch(run: Execution, action: LaunchWorkers) -> None:
    """Make the requests of a launch; it counts as done if EC2 was asked at all."""
    before, ended = len(run.requests), NO_REASON
    is_takeover = action.choice.is_takeover
    try:
        ended = try_offers(run, action)
    except FenceLost:
        raise
    except SpindownError as exc:
        if not is_takeover:
            raise
        run.tell(failure_of(exc, action.kind.value))
    made = tuple(run.requests[before:])
    run.launched.append((action, made))
    if made:
        run.done.append(action)
    if not is_takeover:
        run.ended_early = ended
    elif ended.code is ReasonCode.MAX_WORKERS:
        run.tell(ended)
    elif action.choice.opens is CapacityType.ON_DEMAND and not any(a.instances for a in made):
        run.tell(Reason(ReasonCode.NOTHING_ON_DEMAND, action.reason.about))

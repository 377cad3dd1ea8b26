"""Correct rows of workers that say what cannot be true.

A worker writes its own row, by its own clock, and its role may write the rows of all workers of its
workload. Three rules follow. What EC2 says is believed rather than a row. Nothing has happened
later than now. An instance that runs is counted, whatever its row says.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from operator import attrgetter

from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.control.plan.action import Action, ActionKind, PlanDraft, ReopenRow
from spindown.control.spend import take_back_refund
from spindown.domain.fleet import Launch, Worker, WorkerState
from spindown.domain.notice_time import NOTICE, RECLAIM_GRACE
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.termination import ASKED_FOR, UNSEEN_FOR
from spindown.port import InstanceView, When

#: Clocks differ by so much.
_SKEW = timedelta(minutes=1)
#: A tick that was held up for so long may find a launch that another tick made meanwhile.
_STOOD_STILL = timedelta(hours=1)
#: EC2 may describe an instance as running for so long after its end was told.
_DESCRIBED_LATE = timedelta(minutes=2)
#: A worker is never told to stay warm for longer than this from now.
_WARM_AT_MOST = timedelta(hours=1)
_RUNNING = frozenset({"pending", "running"})
#: Instants of a worker's row that may lie ahead, are checked by themselves, or by which nothing is
#: decided: all others have happened.
_CHECKED_APART = frozenset({"interrupted_at", "warm_until", "accrued_until", "first_item_at"})
_PAST = rows.names_of(Worker, but=_CHECKED_APART, instants=True)
_past_of = attrgetter(*_PAST)


def correct_workers(draft: PlanDraft) -> PlanDraft:
    """Correct the rows of workers, and count instances that no live row counts.

    Most corrections hold for this tick only, since the worker writes the field again. Those that
    later ticks need are written to the ledger: since when it runs, that it has not ended, and when
    it checked in, if its row names a time to come. A missing row is written again, so that its
    instance is ended.
    """
    described = _described(draft)
    changed, actions, found_running = [], [], 0
    for worker in draft.fleet.workers.values():
        launch, instance = draft.fleet.launch_of(worker), described.get(worker.instance_id)
        changes = _corrections_of_tick(draft, worker, instance)
        written = _corrections_to_write(draft, worker, launch, instance)
        if written:
            actions.append(_repair(draft, worker, written))
            found_running += "state" in written
        if changes or written:
            changed.append(replace_fields(worker, {**changes, **written}))
    if changed:
        draft = draft.with_workers(changed, actions)
    draft = _put_missing(draft)
    return _count_workers_elsewhere(draft, described, found_running)


def _described(draft: PlanDraft) -> Mapping[str, InstanceView]:
    found = draft.facts.ec2.instances
    return {} if found is None else {x.instance_id: x for here in found.values() for x in here}


def _corrections_of_tick(
    draft: PlanDraft, worker: Worker, instance: InstanceView | None
) -> dict[str, object]:
    now = draft.facts.now
    latest, past = now + _SKEW, zip(_PAST, _past_of(worker), strict=True)
    changes: dict[str, object] = {x: now for x, at in past if at is not None and at > latest}
    taken_at, noticed_at = worker.interrupted_at, worker.noticed_at
    if worker.is_live and (taken_at is not None or noticed_at is not None):
        # A worker that is gone keeps its notice: it says when the end was.
        answers = draft.facts.ec2.instances
        is_asked = answers is not None and worker.region in answers
        is_there = not is_asked if instance is None else instance.state in _RUNNING
        if taken_at and (taken_at > latest + NOTICE or (is_there and _is_over(taken_at, now))):
            changes["interrupted_at"] = None
        # Only EC2's own answer takes back EC2's notice, not what the worker says of itself.
        if noticed_at and is_there and _is_over(noticed_at + NOTICE, now):
            changes["noticed_at"] = None
    if worker.warm_until is not None and worker.warm_until > now + _WARM_AT_MOST:
        changes["warm_until"] = None
    if instance is not None and instance.region != worker.region:
        changes["region"] = instance.region
    return changes


def _is_over(taken_at: datetime, now: datetime) -> bool:
    return now > taken_at + RECLAIM_GRACE


def _launched_at(
    draft: PlanDraft, worker: Worker, launch: Launch | None, instance: InstanceView | None
) -> datetime:
    """Return since when it runs: not before its intent, nor later than EC2 says."""
    now, said = draft.facts.now, worker.launched_at
    least = _oldest(draft) if launch is None else min(launch.intended_at, now)
    most = now + _STOOD_STILL if instance is None else instance.launched_at + UNSEEN_FOR
    if least - _SKEW <= said <= most:
        return said
    if instance is not None:
        return instance.launched_at
    return least if launch is not None or said < least else now - ASKED_FOR


def _oldest(draft: PlanDraft) -> datetime:
    policy = draft.facts.policy
    return draft.facts.now - 2 * (policy.max_lifetime + policy.lifetime_grace)


def _corrections_to_write(
    draft: PlanDraft, worker: Worker, launch: Launch | None, instance: InstanceView | None
) -> dict[str, object]:
    now, changes = draft.facts.now, dict[str, object]()
    if worker.checked_in_at is not None and worker.checked_in_at > now + _SKEW:
        # In truth the worker checked in after the last tick.
        last = draft.facts.view.backlog.seen_at
        changes["checked_in_at"] = worker.launched_at if last is None else min(last, now)
    if worker.first_item_at is not None and worker.first_item_at > now + _SKEW:
        # Left alone it would come true in hours, and a boot of hours would be learned.
        changes["first_item_at"] = None
    launched_at = _launched_at(draft, worker, launch, instance)
    if launched_at != worker.launched_at:
        changes["launched_at"] = launched_at
    if instance is None or instance.state not in _RUNNING:
        return changes
    if worker.gone_at is not None and now - worker.gone_at > _DESCRIBED_LATE:
        # It is billed, so it runs, whoever said that it has ended.
        changes["gone_at"] = None
    if _is_ended_falsely(worker, now):
        changes |= {
            "state": WorkerState.CONDEMNED,
            "condemned_at": now,
            "ended_at": None,
            "noticed_at": None,
            "reason": Reason(ReasonCode.NOT_ENDED),
            "version": worker.version + 1,
        }
        if worker.refunded_usd:
            changes |= {
                "charged_usd": worker.charged_usd + worker.refunded_usd,
                "refunded_usd": 0.0,
            }
    return changes


def _is_ended_falsely(worker: Worker, now: datetime) -> bool:
    """Tell whether the row of an instance that EC2 still runs says that it has ended."""
    if worker.state is WorkerState.ENDED:
        ended_at = worker.ended_at
        return ended_at is None or not timedelta(0) <= now - ended_at <= _DESCRIBED_LATE
    return _says_it_ended(worker) and worker.condemned_at is None


def _put_missing(draft: PlanDraft) -> PlanDraft:
    """Write missing rows again: every instance that a launch has given is counted and charged."""
    view, known = draft.facts.view, draft.fleet.workers.keys()
    missing = [
        replace_fields(machine, {"state": WorkerState.CONDEMNED, "condemned_at": draft.now})
        for name, machine in view.machines.items()
        if machine.ended_at is None and name not in known and name not in view.unreadable_workers
    ]
    actions = [
        Action(
            kind=ActionKind.REPAIR,
            subject=worker.instance_id,
            reason=Reason(ReasonCode.ROW_FALSE),
            writes=(draft.rows.put(rows.worker_sort_key(worker.instance_id), worker),),
        )
        for worker in missing
    ]
    return draft.with_workers(missing, actions) if missing else draft


def _repair(draft: PlanDraft, worker: Worker, changes: Mapping[str, object]) -> Action:
    is_there, name = When(exists=True), worker.instance_id
    writes = [draft.rows.change(rows.worker_sort_key(name), changes, when=is_there)]
    kept = (*rows.DECIDED, *rows.REPORTED_BY_EC2)
    decided = {field: changes[field] for field in kept if field in changes}
    is_kept = name in draft.facts.view.machines
    # A refund is taken back once: only if the row still shows it.
    is_refunded = is_kept and "refunded_usd" in changes
    as_read = {"refunded_usd": worker.refunded_usd}
    when = replace(is_there, equals=as_read) if is_refunded else is_there
    if decided and is_kept:
        writes.append(draft.rows.change(rows.machine_sort_key(name), decided, when=when))
    reason = Reason(ReasonCode.NOT_ENDED) if "state" in changes else Reason(ReasonCode.ROW_FALSE)
    if not is_refunded:
        return Action(kind=ActionKind.REPAIR, subject=name, reason=reason, writes=tuple(writes))
    due = take_back_refund(worker, draft.rows)
    return ReopenRow(
        kind=ActionKind.REPAIR,
        subject=name,
        reason=reason,
        writes=(*writes, *due.writes),
        charge=due,
    )


def _count_workers_elsewhere(
    draft: PlanDraft, described: Mapping[str, InstanceView], found_running: int
) -> PlanDraft:
    """Count the instances that run, or may run, and that are counted in no other way.

    These are the instances whose rows cannot be read, unless EC2 does not know them, and those
    whose rows were false. Of the instances that are about to end, ``max_workers`` are left out,
    since there cannot be more; any others are counted. Where EC2 was not asked, the last count
    holds.
    """
    unread, known = draft.facts.view.unreadable_workers, draft.fleet.remembered.workers_elsewhere
    if draft.facts.ec2.instances is not None:
        running = {i for i, x in described.items() if x.state in _RUNNING}
        unread &= running
        counted = len([w for w in draft.fleet.present if w.holds_place])
        ending = len(running) - counted - len(unread) - found_running
        workers_elsewhere = found_running + max(ending - draft.facts.policy.max_workers, 0)
        if workers_elsewhere != known:
            write = draft.rows.change(rows.BACKLOG, {"workers_elsewhere": workers_elsewhere})
            action = Action(kind=ActionKind.COUNT, subject=rows.BACKLOG, writes=(write,))
            draft, known = (
                draft.act([action]).remember(workers_elsewhere=workers_elsewhere),
                workers_elsewhere,
            )
    # A worker that says falsely that it has ended is counted until EC2 says that it is gone.
    alive = len([w for w in draft.fleet.workers.values() if _says_it_ended(w)]) - found_running
    workers_elsewhere = known + len(unread) + max(alive, 0)
    return (
        draft
        if workers_elsewhere == draft.fleet.workers_elsewhere
        else draft.act(workers_elsewhere=workers_elsewhere)
    )


def _says_it_ended(worker: Worker) -> bool:
    """Tell whether a worker itself has said that it has ended; only EC2 is believed in this."""
    is_condemned = worker.state is WorkerState.CONDEMNED
    return is_condemned and worker.reason.code is ReasonCode.NOT_ENDED

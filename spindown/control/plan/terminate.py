"""Plan the ends that ``domain.termination`` decides, and what follows when machines are gone.

Their jobs are put back in ``control.plan.requeue``.

A worker is condemned under the version of its row that was read. That fails if it has just taken a
job or begun to leave. Once it has succeeded, its instance is terminated, and again in every tick
until EC2 says that it is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.contract import row as rows
from spindown.contract.codec import encode, replace_fields
from spindown.control.machine_gone import (
    cool_down_after_interruption,
    end_worker,
    note_interruption,
)
from spindown.control.observe.observation import assumed
from spindown.control.plan.action import (
    Action,
    ActionKind,
    EndRow,
    MarkInterrupted,
    PlanDraft,
    Terminate,
)
from spindown.control.plan.breaker import count_silence
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.notice_time import deadline_after
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.shape import own_shape
from spindown.domain.termination import (
    DRAINED_FOR,
    UNSEEN_FOR,
    Condemnation,
    Terminations,
    find_due,
    find_terminations,
    outstayed,
)
from spindown.domain.warm import kept_warm_of
from spindown.port import InstanceView, When, Write

#: Why a row has ended whose instance EC2 does not describe.
UNKNOWN = Reason(ReasonCode.UNKNOWN_TO_EC2)
#: Ticks that may be missed before a worker that is kept warm ends by itself.
_WARM_TICKS = 5


def mark_interrupted(draft: PlanDraft) -> PlanDraft:
    """Plan for instances that EC2 takes away, as an event or their spot request says."""
    workers, pool_cooldowns = [], dict(draft.fleet.pool_cooldowns)
    known = {
        w.instance_id for w in draft.fleet.present if w.noticed_at and not w.interruption_counted
    }
    actions = []
    for instance_id in sorted(known | (draft.facts.ec2.reclaimed or frozenset())):
        worker = draft.fleet.workers[instance_id]
        policy, cooldown = draft.facts.policy, pool_cooldowns.get(worker.pool)
        noticed_at = worker.noticed_at or draft.now
        deadline = worker.interrupted_at or deadline_after(noticed_at)
        actions.append(
            MarkInterrupted(
                kind=ActionKind.INTERRUPT,
                subject=instance_id,
                reason=Reason(ReasonCode.INTERRUPTED),
                writes=note_interruption(
                    worker,
                    deadline,
                    noticed_at=noticed_at,
                    cooldown=cooldown,
                    now=draft.now,
                    policy=policy,
                    ledger=draft.rows,
                ),
                deadline=deadline,
                leases=draft.fleet.leases_of(instance_id),
            )
        )
        # The launch of this very tick must not ask the same pool again.
        pool_cooldowns[worker.pool] = cool_down_after_interruption(
            worker, cooldown, draft.now, policy
        )
        changes = {
            "interrupted_at": deadline,
            "noticed_at": noticed_at,
            "interruption_counted": True,
        }
        workers.append(replace_fields(worker, changes))
    return (
        draft.with_workers(workers, actions).act(pool_cooldowns=pool_cooldowns)
        if actions
        else draft
    )


def keep_warm(draft: PlanDraft, left: float | None) -> PlanDraft:
    """Let the workers that ``warm_workers`` keeps stay until well past the next tick.

    Not for good: should the ticks end, so do they. And only as long as the budget pays for all.

    Args:
        draft: with the ends that are planned.
        left: USD of the month's budget beyond what the workers need to end; None: no limit.
    """
    # Of a workload with types those for jobs that state no needs.
    own = own_shape(draft.facts.policy).name if draft.fleet.shapes else ""
    workers = draft.fleet.workers
    could = [worker for worker in workers.values() if worker.shape == own]
    kept = kept_warm_of(could, draft.facts.policy)
    span = _WARM_TICKS * draft.facts.policy.tick
    dollars = sum(workers[i].price_per_hour for i in kept) * (span / timedelta(hours=1))
    is_paid = left is None or dollars <= left
    return keep_warm_until(draft, sorted(kept), draft.now + span) if kept and is_paid else draft


def keep_warm_until(draft: PlanDraft, instance_ids: Sequence[str], until: datetime) -> PlanDraft:
    """Let workers stay until then, idle as they may be."""
    return draft.with_workers(
        [replace(draft.fleet.workers[i], warm_until=until) for i in instance_ids],
        [
            Action(
                kind=ActionKind.KEEP_WARM,
                subject=instance_id,
                writes=(change_worker(draft, instance_id, {"warm_until": until}),),
                depends_on=instance_id,
            )
            for instance_id in instance_ids
        ],
    )


def change_worker(draft: PlanDraft, instance_id: str, changes: Mapping[str, object]) -> Write:
    """Return the change of a worker's row, if it is still there."""
    return draft.rows.change(rows.worker_sort_key(instance_id), changes, when=When(exists=True))


def find_ends(draft: PlanDraft) -> Terminations:
    """Return what is to be ended; where EC2 has said nothing every row is taken as running."""
    return find_terminations(
        workers=list(draft.fleet.workers.values()),
        instances=_instances(draft),
        launches=list(draft.fleet.launches.values()),
        leases=draft.fleet.leases,
        unreadable=draft.facts.view.unreadable_workers,
        # By the timeout that workers were told, not by what has been learned since.
        policy=replace_fields(draft.facts.policy, {"idle_timeout": draft.facts.idle_timeout}),
        knowledge=draft.facts.knowledge,
        now=draft.now,
        watched_since=draft.fleet.remembered.watched_since,
    )


def _instances(draft: PlanDraft) -> list[InstanceView]:
    """Return our instances as EC2 describes them; what it did not say is taken from the rows."""
    found, workers = draft.facts.ec2.instances, draft.fleet.workers.values()
    if found is None:
        return [assumed(worker) for worker in workers]
    # Where nothing is deployed any more, nothing runs: the outpost's end saw to that.
    unseen = draft.facts.settings.deployed_regions.difference(found)
    described = [instance for here in found.values() for instance in here]
    silent = [worker for worker in workers if worker.region in unseen]
    return [*described, *(_as_known(worker, draft.now) for worker in silent)]


def _as_known(worker: Worker, now: datetime) -> InstanceView:
    """Return a worker's instance where EC2 does not describe it: running, if nothing else was told.

    An event may have told of its end. That counts only after a while: until then a description,
    which also says why it ended, may still come.
    """
    instance = assumed(worker)
    is_gone = worker.gone_at is not None and now - worker.gone_at > UNSEEN_FOR
    return replace(instance, state="terminated") if is_gone else instance


def end_gone_rows(draft: PlanDraft, terminations: Terminations) -> PlanDraft:
    """End the rows of instances that are gone."""
    for ending in terminations.ended:
        draft = _end(draft, ending.instance_id, ending.reason, reclaimed=ending.reclaimed)
    for instance_id in terminations.lost_rows:
        worker = draft.fleet.workers[instance_id]
        # What EC2 had announced is what happened, unless we were quicker.
        reclaimed = worker.noticed_at is not None and worker.state is not WorkerState.CONDEMNED
        draft = _end(draft, instance_id, UNKNOWN, reclaimed=reclaimed)
    return draft


def _end(draft: PlanDraft, instance_id: str, reason: Reason, *, reclaimed: bool) -> PlanDraft:
    fleet, policy = draft.fleet, draft.facts.policy
    worker = fleet.workers[instance_id]
    launch, known = fleet.launch_of(worker), fleet.pool_cooldowns.get(worker.pool)
    at = _ended_at(worker, policy, draft.now, draft.facts.view.backlog.described_at)
    end = end_worker(
        worker,
        at=at,
        reason=reason,
        reclaimed=reclaimed,
        launch=launch,
        cooldown=known,
        policy=policy,
        ledger=draft.rows,
    )
    is_interruption = reclaimed and not worker.interruption_counted
    action = EndRow(
        kind=ActionKind.END,
        subject=instance_id,
        reason=end.worker.reason,
        writes=end.writes,
        charge=end.charge,
        is_interruption=is_interruption,
    )
    ended = draft.with_workers([end.worker], [action])
    if launch is not None:
        left = replace(launch, reserved_usd=launch.reserved_usd - end.charge.released_usd)
        ended = ended.act(launches={**fleet.launches, launch.launch_id: left})
    if is_interruption:
        memory = cool_down_after_interruption(worker, known, at, policy)
        ended = ended.act(pool_cooldowns={**fleet.pool_cooldowns, worker.pool: memory})
    return ended


def _ended_at(
    worker: Worker, policy: Policy, now: datetime, described_at: datetime | None
) -> datetime:
    """Return when an instance that is found gone has ended, as far as that can be told.

    At its deadline, if EC2 named one. Nobody may have looked for hours: one that has checked in has
    not outlived its last sign of life by more than it may be silent for, or takes to power off.
    A condemned one ran until it was ended, whatever it said; so did each, whatever it said, until
    EC2 last described it. What an event has told is exact.

    Args:
        worker: as it was found.
        policy: in force.
        now: the present.
        described_at: when EC2 was last asked before, and it was there; None: never.
    """
    if worker.gone_at is not None:
        return max(min(worker.gone_at, now), worker.launched_at)
    known = [now]
    if worker.noticed_at is not None:
        known.append(deadline_after(worker.noticed_at))
    if worker.checked_in_at is not None and worker.condemned_at is None:
        is_drained = worker.state is WorkerState.DRAINED
        silent = DRAINED_FOR if is_drained else policy.heartbeat_stale_after
        known.append(worker.last_sign + silent)
    least = max(worker.accrued_until or worker.launched_at, described_at or worker.launched_at)
    return max(min(known), least)


def condemn_and_terminate(draft: PlanDraft, terminations: Terminations) -> PlanDraft:
    """Condemn what breaks its contract; terminate what is condemned, and what no row knows."""
    doomed = list(terminations.terminate)
    for condemnation in terminations.condemn:
        # One that was adopted in this very tick could not check in before it had a row.
        if condemnation.instance_id in draft.facts.view.workers:
            draft = _condemn(draft, condemnation)
            doomed.append(condemnation.instance_id)
    described = {each.instance_id: each for each in _instances(draft)}
    orphans = [described[i] for i in terminations.orphans]
    by_region: dict[str, list[str]] = {}
    places = [(draft.fleet.workers[i].region, i) for i in doomed]
    for region, instance_id in (*places, *((o.region, o.instance_id) for o in orphans)):
        by_region.setdefault(region, []).append(instance_id)
    notes = [
        *filter(None, (terminations.held_back, terminations.doubt)),
        *(Reason(ReasonCode.WORKER_OVERDUE, {"instance_id": i}) for i in terminations.overdue),
    ]
    no_row = {orphan.instance_id for orphan in orphans}
    return draft.act(
        (
            Terminate(
                kind=ActionKind.TERMINATE,
                subject=region,
                instance_ids=tuple(ids),
                orphans=tuple(i for i in ids if i in no_row),
            )
            for region, ids in sorted(by_region.items())
        ),
        notes=notes,
    )


def end_outstayed(draft: PlanDraft) -> PlanDraft:
    """Terminate what should have ended long ago, whatever its row says, and whoever writes it."""
    policy, workers, answers = draft.facts.policy, draft.fleet.workers, draft.facts.ec2.instances
    if answers is None:
        return draft
    instances = [instance for here in answers.values() for instance in here]
    known = draft.fleet.remembered.ends_due
    due = find_due(
        instances,
        spent={i for i, worker in workers.items() if worker.spent_at is not None},
        surplus={i for i, worker in workers.items() if worker.surplus_at is not None},
        drained={i for i, worker in workers.items() if worker.state is WorkerState.DRAINED},
        known=known,
        policy=policy,
        now=draft.now,
    )
    if not draft.facts.settings.deployed_regions <= answers.keys():
        # Where nobody was asked, what was found stays.
        seen = {instance.instance_id for instance in instances}
        due |= {key: since for key, since in known.items() if key.partition("#")[2] not in seen}
    if due != known:
        draft = draft.remember(ends_due=due)
    doomed = outstayed(due, policy, draft.now)
    if not doomed:
        return draft
    condemned = [worker for i in doomed if (worker := workers.get(i)) and worker.is_live]
    draft = draft.with_workers(
        [replace(worker, state=WorkerState.CONDEMNED) for worker in condemned],
        [
            Action(
                kind=ActionKind.CONDEMN,
                subject=worker.instance_id,
                reason=doomed[worker.instance_id],
                writes=(
                    change_worker(
                        draft,
                        worker.instance_id,
                        {
                            "state": WorkerState.CONDEMNED,
                            "condemned_at": draft.now,
                            "reason": doomed[worker.instance_id],
                            "version": worker.version + 1,
                        },
                    ),
                ),
            )
            for worker in condemned
        ],
    )
    by_region: dict[str, list[str]] = {}
    for instance in instances:
        if instance.instance_id in doomed:
            by_region.setdefault(instance.region, []).append(instance.instance_id)
    return draft.act(
        Terminate(
            kind=ActionKind.TERMINATE,
            subject=region,
            instance_ids=tuple(ids),
            outstayed={i: doomed[i] for i in ids},
        )
        for region, ids in sorted(by_region.items())
    )


def _condemn(draft: PlanDraft, condemnation: Condemnation) -> PlanDraft:
    worker = draft.fleet.workers[condemnation.instance_id]
    # As it is stored, by whatever clock.
    row = draft.facts.view.workers[condemnation.instance_id]
    changes = {
        "state": WorkerState.CONDEMNED,
        "condemned_at": draft.now,
        "reason": condemnation.reason,
        "version": worker.version + 1,
    }
    # A heartbeat since the row was read shows that it lives, though it changes no version.
    seen = {"version": worker.version, "state": worker.state, "heartbeat_at": row.heartbeat_at}
    when = When(exists=True, equals=encode(seen))
    action = Action(
        kind=ActionKind.CONDEMN,
        subject=worker.instance_id,
        reason=condemnation.reason,
        writes=(draft.rows.change(rows.worker_sort_key(worker.instance_id), changes, when=when),),
    )
    condemned = draft.with_workers([replace_fields(worker, changes)], [action])
    return count_silence(condemned, worker) if condemnation.never_checked_in else condemned

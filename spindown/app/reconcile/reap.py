"""End what breaks its own contract, and clear up after what is gone.

Two steps: a worker is condemned under the version of its row that was read, which fails if it
has just taken a job or begun to leave; only then its instance is terminated, and again in every
tick until EC2 says that it is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from spindown.app.ending import end_worker, free_leases, remember_interruption
from spindown.app.port import InstanceView, When
from spindown.app.reconcile.breaker import count_failures, count_silence, forget_other_images
from spindown.app.reconcile.look import assumed, each_region
from spindown.app.reconcile.tick import Tick
from spindown.contract import row as rows
from spindown.contract.codec import encode, replace_fields
from spindown.contract.decision import EndingRecord
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reaping import DRAINED_FOR, Condemnation, reap
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.warm import kept_warm_of
from spindown.wording import say

#: Why a row has ended whose instance EC2 does not describe.
UNKNOWN = Reason(ReasonCode.UNKNOWN_TO_EC2)
#: Ticks that may be missed before a worker that is kept warm ends by itself.
_WARM_TICKS = 5


def reap_fleet(tick: Tick, instances: Sequence[InstanceView] | None) -> None:
    """Condemn, terminate, end and requeue; without a look at EC2 every row is taken as running."""
    forget_other_images(tick)
    _keep_warm(tick)
    seen = [assumed(w) for w in tick.workers.values()] if instances is None else instances
    reaping = reap(
        workers=list(tick.workers.values()),
        instances=seen,
        launches=list(tick.launches.values()),
        leases=tick.leases,
        # By the timeout that workers were told, not by what has been learned since.
        policy=replace(tick.policy, idle_timeout=tick.idle_timeout),
        knowledge=tick.knowledge,
        now=tick.now,
        watched_since=tick.seen.watched_since,
    )
    by_id = {instance.instance_id: instance for instance in seen}
    for ending in reaping.ended:
        _end(tick, ending.instance_id, reason=ending.reason, reclaimed=ending.reclaimed)
    for instance_id in reaping.lost_rows:
        worker = tick.workers[instance_id]
        # What EC2 had announced is what happened, unless we were quicker.
        reclaimed = worker.is_interrupting and worker.state is not WorkerState.CONDEMNED
        _end(tick, instance_id, reason=UNKNOWN, reclaimed=reclaimed)
    _free_abandoned(tick)
    count_failures(tick)
    condemned = [c.instance_id for c in reaping.condemn if _condemn(tick, c)]
    doomed = [tick.workers[i] for i in (*reaping.terminate, *condemned)]
    orphans = [by_id[i] for i in reaping.orphans if not _may_be_at_work(tick, by_id[i])]
    tick.condemned += [
        EndingRecord(instance_id=i.instance_id, reason=Reason(ReasonCode.NO_ROW)) for i in orphans
    ]
    if reaping.held_back:
        tick.held_back = True
        tick.notes.append(say(reaping.held_back))
    if reaping.doubt:
        tick.notes.append(say(reaping.doubt))
    tick.notes += [f"{i} is busy past its lifetime: left alone" for i in reaping.overdue]
    over: list[Worker | InstanceView] = [*doomed, *orphans]
    # All at once: a region that does not answer hides only its own.
    _terminate(tick, [(each.region, each.instance_id) for each in over])


def _keep_warm(tick: Tick) -> None:
    """Let the workers that ``warm_workers`` keeps stay until well past the next tick.

    Not for good: should the ticks end, so do they.
    """
    until = tick.now + _WARM_TICKS * tick.policy.tick
    for instance_id in sorted(kept_warm_of(list(tick.workers.values()), tick.policy)):
        tick.workers[instance_id] = replace(tick.workers[instance_id], warm_until=until)
        sort = rows.worker_sort(instance_id)
        stay = tick.ledger.change(sort, {"warm_until": until}, when=When(exists=True))
        tick.journal.note(stay)


def _may_be_at_work(tick: Tick, instance: InstanceView) -> bool:
    """Tell whether an instance may be a worker whose row cannot be read, within its lifetime."""
    longest = tick.policy.max_lifetime + tick.policy.lifetime_grace
    is_young = tick.now - instance.launched_at <= longest
    return is_young and instance.instance_id in tick.view.unreadable_workers


def _condemn(tick: Tick, condemnation: Condemnation) -> bool:
    worker = tick.workers[condemnation.instance_id]
    if worker.instance_id not in tick.view.workers:
        # Adopted in this very tick: it could not check in before it had a row.
        return False
    changes = {
        "state": WorkerState.CONDEMNED,
        "condemned_at": tick.now,
        "reason": condemnation.reason,
        "version": worker.version + 1,
    }
    # A heartbeat since the row was read shows that it lives, though it changes no version.
    seen = {"version": worker.version, "state": worker.state, "heartbeat_at": worker.heartbeat_at}
    when = When(exists=True, equals=encode(seen))
    row = tick.ledger.change(rows.worker_sort(worker.instance_id), changes, when=when)
    if not tick.journal.commit(row):
        return False
    tick.workers[worker.instance_id] = replace(
        worker,
        state=WorkerState.CONDEMNED,
        condemned_at=tick.now,
        reason=condemnation.reason,
        version=worker.version + 1,
    )
    tick.condemned.append(EndingRecord(instance_id=worker.instance_id, reason=condemnation.reason))
    if condemnation.never_checked_in:
        count_silence(tick, worker)
    return True


def _terminate(tick: Tick, instances: Sequence[tuple[str, str]]) -> None:
    by_region: dict[str, list[str]] = {}
    for region, instance_id in instances:
        by_region.setdefault(region, []).append(instance_id)
    each_region(
        tick,
        by_region,
        lambda region: tick.ports.compute.terminate(region=region, instance_ids=by_region[region]),
    )


def _end(tick: Tick, instance_id: str, *, reason: Reason, reclaimed: bool) -> None:
    worker = tick.workers[instance_id]
    launch = tick.launch_of(worker)
    end = end_worker(
        worker,
        at=_ended_at(worker, tick.policy, tick.now),
        reason=reason,
        reclaimed=reclaimed,
        launch=launch,
        unavailable=tick.unavailable.get(worker.pool),
        policy=tick.policy,
        ledger=tick.ledger,
    )
    # Even where its answer is lost, so that nobody charges the fleet as though this one lived.
    raised = tick.ledger.add(rows.BACKLOG, {"charges": 1})
    if not tick.journal.commit(*end.writes, raised):
        return
    tick.seen = replace_fields(tick.seen, {"charges": tick.seen.charges + 1})
    tick.workers[instance_id] = end.worker
    if launch is not None:
        left = launch.reserved_usd - end.charge.released_usd
        tick.launches[launch.launch_id] = replace(launch, reserved_usd=left)
    tick.ended.append(EndingRecord(instance_id=instance_id, reason=end.worker.reason))
    tick.tally.charged.append((end.writes[0], end.charge))
    if reclaimed and not worker.interruption_counted:
        tick.tally.interruptions += 1
        known = tick.unavailable.get(worker.pool)
        memory = remember_interruption(worker, known, tick.now, tick.policy)
        tick.unavailable[worker.pool] = memory


def _ended_at(worker: Worker, policy: Policy, now: datetime) -> datetime:
    """Return when an instance that is found gone has ended, as far as that can be told.

    At its deadline, if it had one. Nobody may have looked for hours: one that has checked in has
    not outlived its last sign of life by more than it may be silent for, or takes to power off.
    A condemned one ran until it was ended, whatever it said.
    """
    known = [now]
    if worker.interrupted_at is not None:
        known.append(worker.interrupted_at)
    if worker.checked_in_at is not None and worker.condemned_at is None:
        is_drained = worker.state is WorkerState.DRAINED
        silent = DRAINED_FOR if is_drained else policy.heartbeat_stale_after
        known.append(worker.last_sign + silent)
    return max(min(known), worker.accrued_until or worker.launched_at)


def _free_abandoned(tick: Tick) -> None:
    """Requeue what the slots of instances without a live row still hold."""
    unreadable = tick.view.unreadable_workers
    gone = [
        lease
        for lease in tick.leases
        if lease.instance_id not in unreadable and _is_gone(tick.workers, lease.instance_id)
    ]
    if not gone:
        return
    freed = free_leases(tuple(gone), tick.ledger, tick.queue, now=tick.now)
    for lease in freed:
        due = lease.left_behind(tick.now)
        if due is not None:
            tick.requeued_jobs[lease.job_id] = due
    tick.tally.leases_freed += len(freed)
    tick.leases = tuple(lease for lease in tick.leases if lease not in gone)
    # The queue was read before: what has just become visible is work for this very tick. What has
    # lapsed was visible then.
    hidden = sum(lease.deadline > tick.now for lease in freed)
    tick.backlog = replace(
        tick.backlog,
        visible=tick.backlog.visible + hidden,
        in_flight=max(0, tick.backlog.in_flight - hidden),
    )


def _is_gone(workers: Mapping[str, Worker], instance_id: str) -> bool:
    worker = workers.get(instance_id)
    return worker is None or worker.state is WorkerState.ENDED

"""Move jobs with a deadline while they run: back to spot, or away from it for good.

First another machine is launched; once it has checked in and is idle, the one that runs is told
to give its jobs back, and the other takes them up where they were committed. Nothing of this is
remembered but that order: each tick looks at who could move and who is idle, so that a move that
fails anywhere is begun anew, or left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spindown.app.port import When
from spindown.app.reconcile.launch.adopt import decode_request
from spindown.app.reconcile.launch.choose import choose
from spindown.app.reconcile.launch.outcome import RELIEF_STAYS_TICKS
from spindown.app.reconcile.launch.walk import launch
from spindown.app.reconcile.launch.weigh import Choice, weigh_demand
from spindown.app.reconcile.tick import Tick
from spindown.contract import row as rows
from spindown.domain.deadline import DeadlineForecast, JobForecast, allows, pays_at, reserve_of
from spindown.domain.fleet import LaunchState, Worker, WorkerState
from spindown.domain.learning import items_per_job, usual_throughput, worker_throughput
from spindown.domain.offer import CapacityType
from spindown.domain.reason import Reason, ReasonCode
from spindown.wording import say

_AWAY = {
    CapacityType.SPOT: ReasonCode.TO_SPOT,
    CapacityType.ON_DEMAND: ReasonCode.OFF_SPOT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mover:
    """A worker whose jobs should be elsewhere."""

    worker: Worker
    #: USD an item below which that is worth it; infinite: it must be.
    item_at_most: float

    @property
    def slots(self) -> int:
        return self.worker.busy_slots


def relieve(tick: Tick, choice: Choice) -> Choice:
    """Tell workers to leave for whom another is there; launch what is wanted for the rest.

    Returns what the decision should tell of: the launch of a relief, if only that gave something.
    """
    if choice.forecast is None:
        return choice
    for kind in (CapacityType.ON_DEMAND, CapacityType.SPOT):
        movers = _movers(tick, choice.forecast, kind) if allows(tick.policy, kind) else []
        if movers:
            choice = _move(tick, choice, movers, kind)
    return choice


def _movers(tick: Tick, forecast: DeadlineForecast, kind: CapacityType) -> list[_Mover]:
    """Return the workers whose jobs should move to a capacity type, the most urgent or dearest.

    First those to on demand, of which any job may say so; to spot only all of a worker together,
    since it gives back all that it holds.
    """
    found: dict[str, list[JobForecast]] = {}
    for job in forecast.jobs:
        if job.job.on is not None:
            found.setdefault(job.job.instance_id, []).append(job)
    movers = []
    for instance_id, jobs in found.items():
        worker = tick.workers[instance_id]
        wish = [job.moves_to is kind for job in jobs]
        is_wanted = any(wish) if kind is CapacityType.ON_DEMAND else all(wish)
        if not is_wanted or not worker.takes_jobs or worker.busy_slots != len(jobs):
            continue
        most = math.inf if kind is CapacityType.ON_DEMAND else _pays_at(tick, worker, jobs)
        movers.append(_Mover(worker=worker, item_at_most=most))
    return sorted(movers, key=lambda mover: -mover.item_at_most)


def _pays_at(tick: Tick, worker: Worker, jobs: Sequence[JobForecast]) -> float:
    reserve = reserve_of(tick.knowledge, tick.policy)
    item = _item_on(tick, worker)
    return min(pays_at(job, item, reserve, tick.policy) for job in jobs)


def _item_on(tick: Tick, worker: Worker) -> float:
    """Return what an item costs on a worker with all its slots busy, USD."""
    speed = worker_throughput(tick.knowledge, worker, tick.policy).items_per_hour
    return worker.price_per_hour / speed


def _move(tick: Tick, choice: Choice, movers: list[_Mover], kind: CapacityType) -> Choice:
    ready = sorted(_ready(tick, kind), key=lambda worker: _item_on(tick, worker))
    # What waits in the queue goes to whoever is idle before anything is handed over.
    waiting = tick.backlog.visible
    coming = _intended(tick, kind)
    left = list(movers)
    for relief in ready:
        taken = min(waiting, relief.slots)
        waiting -= taken
        free, takes = relief.slots - taken, []
        for mover in left:
            if mover.slots <= free and _item_on(tick, relief) < mover.item_at_most:
                free -= mover.slots
                takes.append(mover)
        if takes or taken:
            _keep(tick, relief)
        if relief.state is WorkerState.IDLE:
            for mover in takes:
                _order(tick, mover.worker, kind)
        left = [mover for mover in left if mover not in takes]
    group = [m for m in left if m.worker.pool == left[0].worker.pool]
    missing = sum(mover.slots for mover in group) - max(coming - waiting, 0)
    return _launch(tick, choice, group, missing, kind) if missing > 0 else choice


def _ready(tick: Tick, kind: CapacityType) -> list[Worker]:
    """Return the workers that could take over, now or once they are up."""
    return [
        worker
        for worker in tick.workers.values()
        if worker.state in {WorkerState.IDLE, WorkerState.BOOTING}
        and worker.takes_jobs
        and worker.capacity_type is kind
    ]


def _intended(tick: Tick, kind: CapacityType) -> int:
    """Return the slots of launches whose answer is not known."""
    slots = 0
    for each in tick.launches.values():
        request = decode_request(each) if each.state is LaunchState.INTENDED else None
        if request is not None and request.capacity_type is kind:
            slots += each.count * each.slots
    return slots


def _keep(tick: Tick, relief: Worker) -> None:
    """Let it stay, idle as it is, until well past the next tick."""
    until = tick.now + RELIEF_STAYS_TICKS * tick.policy.tick
    tick.workers[relief.instance_id] = replace(relief, warm_until=until)
    sort = rows.worker_sort(relief.instance_id)
    tick.journal.note(tick.ledger.change(sort, {"warm_until": until}, when=When(exists=True)))


def _order(tick: Tick, worker: Worker, kind: CapacityType) -> None:
    """Tell a worker to give its jobs back; its next heartbeat hears it."""
    tick.workers[worker.instance_id] = replace(worker, relieved_at=tick.now)
    sort = rows.worker_sort(worker.instance_id)
    tick.journal.note(tick.ledger.change(sort, {"relieved_at": tick.now}, when=When(exists=True)))
    tick.notes.append(f"{worker.instance_id} gives its jobs to a worker on {kind}")


def _launch(
    tick: Tick, choice: Choice, movers: Sequence[_Mover], slots: int, kind: CapacityType
) -> Choice:
    usual = usual_throughput(tick.knowledge, tick.policy)
    demand = replace(
        choice.demand,
        need_items_per_hour=slots * usual,
        backlog_items=slots * items_per_job(tick.knowledge, tick.policy),
        jobs=slots,
        slots=slots,
    )
    most = min(mover.item_at_most for mover in movers)
    weighed = weigh_demand(
        tick,
        demand,
        opens=kind,
        forecast=choice.forecast,
        item_at_most=None if math.isinf(most) else most,
    )
    reason = Reason(_AWAY[kind], {"jobs": sum(mover.slots for mover in movers)})
    before = len(tick.attempts)
    wish = choose(tick, weighed)
    launch(tick, wish)
    if not any(attempt.instances for attempt in tick.attempts[before:]):
        if kind is CapacityType.ON_DEMAND:
            tick.notes.append(f"{say(reason)}, and nothing on demand is to be had")
        return choice
    if any(attempt.instances for attempt in tick.attempts[:before]):
        tick.notes.append(say(reason))
        return choice
    return replace(wish, sizing=replace(wish.sizing, reason=reason))

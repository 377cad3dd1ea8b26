"""Move jobs with a deadline while they run: back to spot, or away from it to be done in time.

When a job should move, and where to, is decided in ``domain.schedule.finish_within``.

First another worker is launched; once it has checked in and is idle, the one that runs is told to
give its jobs back, and the other takes them up where they were committed. Only the order to the
worker is stored. Each tick looks again at who should move and who is idle. So a move that fails is
started again, or dropped if it no longer pays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from spindown.control.observe.fleet import open_launches
from spindown.control.observe.observation import decode_request
from spindown.control.plan.action import Action, ActionKind, PlanDraft
from spindown.control.plan.launch_need import LaunchNeed, need_for_jobs
from spindown.control.plan.launch_outcome import PARTICULAR_JOBS_WARM_TICKS
from spindown.control.plan.terminate import change_worker, keep_warm_until
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.learning import worker_throughput
from spindown.domain.offer import CapacityType
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.schedule import DeadlineForecast, JobForecast, pays_at, reserve_of
from spindown.domain.spot_or_on_demand import allows

_SPOT, _ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mover:
    """A worker whose jobs should be elsewhere."""

    worker: Worker
    #: USD an item below which that is worth it; infinite: it must be.
    item_at_most: float

    @property
    def slots(self) -> int:
        return self.worker.busy_slots


@dataclass(frozen=True, slots=True, kw_only=True)
class Moves:
    """Which workers give their jobs to which others."""

    #: Workers that stay until they have taken jobs over, or such as wait in the queue.
    kept: tuple[str, ...] = ()
    #: Instance that is told now to give its jobs back -> where they go.
    leaving: Mapping[str, CapacityType] = field(default_factory=dict)
    #: What is launched for jobs that nobody can take yet, each of one capacity type.
    for_particular_jobs: tuple[LaunchNeed, ...] = ()

    def __add__(self, other: Self) -> Self:
        """Return both, of two shapes."""
        return replace(
            self,
            kept=(*self.kept, *other.kept),
            leaving={**self.leaving, **other.leaving},
            for_particular_jobs=(*self.for_particular_jobs, *other.for_particular_jobs),
        )


def plan_moves(draft: PlanDraft, need: LaunchNeed) -> Moves:
    """Return who leaves for whom, and what is wanted for the rest."""
    moves = Moves()
    if need.forecast is None:
        return moves
    for kind in (_ON_DEMAND, _SPOT):
        if allows(draft.facts.policy, kind):
            movers = _movers(draft, need.forecast, kind)
            moves = _move(draft, need, movers, kind, moves) if movers else moves
    return moves


def _movers(draft: PlanDraft, forecast: DeadlineForecast, kind: CapacityType) -> list[_Mover]:
    """Return the workers whose jobs should move to a capacity type, most urgent or expensive first.

    To on demand any of a worker's jobs may say so; to spot only all of them together, since it
    gives back all that it holds.
    """
    held: dict[str, list[JobForecast]] = {}
    for job in forecast.jobs:
        if job.job.on is not None:
            held.setdefault(job.job.instance_id, []).append(job)
    movers = []
    for instance_id, jobs in held.items():
        worker = draft.fleet.workers[instance_id]
        wish = [job.moves_to is kind for job in jobs]
        is_wanted = (
            any(wish) if kind is _ON_DEMAND else all(wish) and not _holds_pinned(draft, worker)
        )
        if is_wanted and worker.takes_jobs and worker.busy_slots == len(jobs):
            most = math.inf if kind is _ON_DEMAND else _pays_at(draft, worker, jobs)
            movers.append(_Mover(worker=worker, item_at_most=most))
    return sorted(movers, key=lambda mover: -mover.item_at_most)


def _holds_pinned(draft: PlanDraft, worker: Worker) -> bool:
    """Tell whether a worker holds a job that has been interrupted too often to go back to spot."""
    return any(lease.is_pinned for lease in draft.fleet.leases_of(worker.instance_id))


def _pays_at(draft: PlanDraft, worker: Worker, jobs: Sequence[JobForecast]) -> float:
    """Return the USD an item below which a worker's jobs had better be elsewhere."""
    policy = draft.facts.policy
    reserve, item = reserve_of(draft.facts.knowledge, policy), _item_on(draft, worker)
    return min(pays_at(job, item, reserve, policy) for job in jobs)


def _item_on(draft: PlanDraft, worker: Worker) -> float:
    """Return what an item costs on a worker with all its slots busy, USD."""
    speed = worker_throughput(draft.facts.knowledge, worker, draft.facts.policy).items_per_hour
    return worker.price_per_hour / speed


def _move(
    draft: PlanDraft, need: LaunchNeed, movers: list[_Mover], kind: CapacityType, moves: Moves
) -> Moves:
    # What waits in the queue goes to whoever is idle before anything is handed over.
    waiting = draft.fleet.queue.visible
    kept, leaving = list(moves.kept), dict(moves.leaving)
    left = list(movers)
    for worker in _ready(draft, kind):
        taken = min(waiting, worker.slots)
        waiting -= taken
        free, taken_over = worker.slots - taken, []
        for mover in left:
            if mover.slots <= free and _item_on(draft, worker) < mover.item_at_most:
                free -= mover.slots
                taken_over.append(mover)
        if taken_over or taken:
            kept.append(worker.instance_id)
        if worker.state is WorkerState.IDLE:
            leaving |= {mover.worker.instance_id: kind for mover in taken_over}
        left = [mover for mover in left if mover not in taken_over]
    group = [mover for mover in left if mover.worker.pool == left[0].worker.pool]
    missing = sum(mover.slots for mover in group) - max(_coming(draft, kind) - waiting, 0)
    for_particular_jobs = moves.for_particular_jobs
    if missing > 0:
        for_particular_jobs += (_takeover(draft, need, group, missing, kind),)
    return Moves(kept=tuple(kept), leaving=leaving, for_particular_jobs=for_particular_jobs)


def tell_movers(draft: PlanDraft, moves: Moves) -> PlanDraft:
    """Tell workers to give their jobs back; their next heartbeat hears it."""
    draft = keep_warm_until(
        draft, moves.kept, draft.now + PARTICULAR_JOBS_WARM_TICKS * draft.facts.policy.tick
    )
    change = {"migrating_at": draft.now}
    return draft.with_workers(
        [replace(draft.fleet.workers[i], migrating_at=draft.now) for i in moves.leaving],
        [
            Action(
                kind=ActionKind.MIGRATE,
                subject=instance_id,
                reason=Reason(ReasonCode.JOBS_MOVE, {"to": kind.value}),
                writes=(change_worker(draft, instance_id, change),),
            )
            for instance_id, kind in moves.leaving.items()
        ],
    )


def _ready(draft: PlanDraft, kind: CapacityType) -> list[Worker]:
    """Return the workers that could take over, now or once they are up, the cheapest first."""
    found = [
        worker
        for worker in draft.fleet.workers.values()
        if worker.state in {WorkerState.IDLE, WorkerState.BOOTING}
        and worker.takes_jobs
        and worker.capacity_type is kind
    ]
    return sorted(found, key=lambda worker: _item_on(draft, worker))


def _coming(draft: PlanDraft, kind: CapacityType) -> int:
    """Return the slots of launches whose answer is not known."""
    slots = 0
    for launch in open_launches(draft.fleet.launches.values()):
        request = decode_request(launch)
        if request is not None and request.capacity_type is kind:
            slots += launch.count * launch.slots
    return slots


def _takeover(
    draft: PlanDraft, need: LaunchNeed, movers: Sequence[_Mover], slots: int, kind: CapacityType
) -> LaunchNeed:
    sized = need_for_jobs(draft, need, slots)
    most = min(mover.item_at_most for mover in movers)
    is_urgent = kind is _ON_DEMAND
    code = ReasonCode.OFF_SPOT if is_urgent else ReasonCode.TO_SPOT
    reason = Reason(code, {"jobs": sum(mover.slots for mover in movers)})
    return replace(
        sized,
        unpriced_sizing=replace(sized.unpriced_sizing, reason=reason),
        ladder_override=kind,
        forecast=need.forecast,
        is_for_particular_jobs=True,
        item_at_most=None if math.isinf(most) else most,
    )

"""Find stable machines for jobs that interruptions keep from any progress.

Such a job says so in its row (``domain.wasted_work``), and workers on spot leave it to others. Here
it is taken out of what waits for any worker, and a launch of its own is planned: whatever the price
ladder ever allows, without its waits, ranked by what going on there is expected to cost.
"""

from collections.abc import Sequence
from dataclasses import replace

from spindown.control.observe.fleet import open_launches
from spindown.control.plan.action import PlanDraft
from spindown.control.plan.launch_need import LaunchNeed, need_for_jobs, work_waiting_for_stable
from spindown.control.plan.migrate import Moves, plan_moves
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.learning import Knowledge, interruption_rate
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.spot_or_on_demand import PurchaseMode
from spindown.domain.wasted_work import WastedWork, may_be_risked, numbers_of, pays_here


def plan_all_moves(draft: PlanDraft, need: LaunchNeed) -> Moves:
    """Return who leaves for whom, and a machine for what must go on at a stable one."""
    moves, stable = plan_moves(draft, need), plan_stable_machine(draft, need)
    return moves if stable is None else moves + Moves(for_particular_jobs=(stable,))


def plan_stable_machine(draft: PlanDraft, need: LaunchNeed) -> LaunchNeed | None:
    """Return what is wanted for jobs that need a stable machine; None: nothing."""
    jobs = work_waiting_for_stable(draft)
    if not jobs:
        return None
    most = _most(jobs)
    missing = len(jobs) - _slots_for(draft, most)
    if missing <= 0:
        return None
    sized = need_for_jobs(draft, need, missing)
    about = {"jobs": len(jobs), **numbers_of(most)}
    return replace(
        sized,
        unpriced_sizing=replace(sized.unpriced_sizing, reason=Reason(ReasonCode.TO_STABLE, about)),
        ladder_override=PurchaseMode.ANY,
        is_for_particular_jobs=True,
        wasted_work=most,
    )


def _most(jobs: Sequence[WastedWork]) -> WastedWork:
    """Return what the job has cost that leaves the least room; a machine must suit all."""
    return max(jobs, key=lambda each: (each.decisive.dollars, each.decisive.hours))


def _slots_for(draft: PlanDraft, most: WastedWork) -> int:
    """Return the slots that are free for such jobs, or soon will be.

    A worker that came for one may have been given another job first: it is asked again after that.
    Otherwise a busy queue would get one such worker after the other.
    """
    there = sum(
        _open_slots(worker, draft)
        for worker in draft.fleet.workers.values()
        if worker.takes_jobs and _suits(worker, most, draft)
    )
    launches = open_launches(draft.fleet.launches.values())
    return there + sum(x.count * x.slots for x in launches if x.is_for_particular_jobs)


def _open_slots(worker: Worker, draft: PlanDraft) -> int:
    if worker.state is not WorkerState.BUSY:
        return worker.slots
    if worker.warm_until is None:
        return 0
    return worker.slots - sum(x.is_pinned for x in draft.fleet.leases_of(worker.instance_id))


def _suits(worker: Worker, most: WastedWork, draft: PlanDraft) -> bool:
    terms = worker.spot_terms(_rate(worker, draft.facts.knowledge))
    return may_be_risked(most, terms, draft.facts.policy) and pays_here(most, terms)


def _rate(worker: Worker, knowledge: Knowledge) -> float:
    return interruption_rate(knowledge.pools.get(worker.pool), None)

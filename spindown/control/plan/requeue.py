"""Whose jobs the scaler requeues: those of machines that are gone, once their rows say so.

Which machine is gone, a silent one among them, is decided in ``domain.termination`` (``_stale``).
Carried out in ``control.free_lease``. A worker that lives gives its jobs back itself
(``job.release``).
"""

from dataclasses import replace

from spindown.control.plan.action import ActionKind, FreeJobs, PlanDraft
from spindown.domain.fleet import Backlog, Lease, WorkerState
from spindown.domain.reason import Reason, ReasonCode


def requeue_jobs(draft: PlanDraft) -> PlanDraft:
    """Give back to the queue what the slots of instances without a live row still hold."""
    fleet, unreadable = draft.fleet, draft.facts.view.unreadable_workers
    gone: dict[str, list[Lease]] = {}
    for lease in fleet.leases:
        worker = fleet.workers.get(lease.instance_id)
        # EC2's descriptions lag behind its events.
        is_gone = worker is None or worker.state is WorkerState.ENDED or worker.gone_at is not None
        if is_gone and lease.instance_id not in unreadable:
            gone.setdefault(lease.instance_id, []).append(lease)
    if not gone:
        return draft
    freed = [lease for held in gone.values() for lease in held]
    left = {lease.job_id: lease.left_behind(draft.now) for lease in freed}
    # The queue was read before: what has just become visible is work for this very tick. What has
    # lapsed was visible then.
    hidden = sum(x.deadline > draft.now for x in freed)
    return draft.act(
        (
            FreeJobs(
                kind=ActionKind.FREE,
                subject=instance_id,
                reason=Reason(ReasonCode.JOBS_LEFT_BEHIND, {"jobs": len(held)}),
                leases=tuple(held),
                depends_on=instance_id,
            )
            for instance_id, held in gone.items()
        ),
        leases=tuple(lease for lease in fleet.leases if lease.instance_id not in gone),
        requeued_jobs={**fleet.requeued_jobs, **left},
        queue=_shown(fleet.queue, hidden),
        shapes={
            name: replace(
                known,
                queue=_shown(
                    known.queue, sum(x.shape == name and x.deadline > draft.now for x in freed)
                ),
            )
            for name, known in fleet.shapes.items()
        },
    )


def _shown(queue: Backlog, messages: int) -> Backlog:
    """Return a queue of which so many hidden messages have become visible."""
    shown = min(messages, queue.in_flight)
    return replace(queue, visible=queue.visible + shown, in_flight=queue.in_flight - shown)

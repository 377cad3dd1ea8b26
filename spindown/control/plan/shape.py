"""The fleet of each shape: a workload with types has a queue, and so a fleet, for each.

A plan of the whole workload ends workers, charges them and keeps the ceilings. What is missing is
found shape by shape: ``of_shape`` gives the draft that a workload of this shape alone would have.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest

from spindown.contract.codec import replace_fields
from spindown.contract.row import BacklogRow, queue_fields
from spindown.control.observe.fleet import ShapeQueue
from spindown.control.plan.action import Action, ActionKind, PlanDraft
from spindown.control.plan.backlog import next_backlog
from spindown.domain.fleet import NOTHING_WAITS
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.shape import (
    Shape,
    of_dispatch,
    own_shape,
    parse_shape,
    requirements_of,
    slots_of,
)


def shapes_of(draft: PlanDraft) -> Sequence[str]:
    """Return the shapes whose fleets are sized, in the order in which they get places; "": none.

    That first whose work waits longest. But those that types get, as declared or learned, take
    turns with those that senders have made up: however many these are, each second place is left
    to the others. Of those with no work and no workers there is one at most: a type whose size is
    learned leaves many.
    """
    if not draft.fleet.shapes:
        return ("",)
    in_use = _in_use(draft)

    def turn(name: str) -> tuple[datetime, str]:
        since = draft.fleet.shapes[name].remembered.backlog_since
        return since or draft.now, name

    found = sorted(draft.fleet.shapes, key=turn)
    return _by_turns([name for name in found if name in in_use], draft) or found[:1]


def _by_turns(names: Sequence[str], draft: PlanDraft) -> Sequence[str]:
    """Return shapes of types and shapes that were made up by turns, first those not served last."""
    rows = draft.facts.view.shapes
    made_up = {name for name, row in rows.items() if row.is_made_up}
    workers = draft.fleet.workers.values()
    last = max(workers, key=lambda w: (w.launched_at, w.instance_id), default=None)
    is_turn = last is not None and last.shape not in made_up
    first = [name for name in names if (name in made_up) is is_turn]
    second = [name for name in names if (name in made_up) is not is_turn]
    return [name for pair in zip_longest(first, second) for name in pair if name is not None]


def _in_use(draft: PlanDraft) -> frozenset[str]:
    """Return the shapes of whatever waits, works, is launched or is kept warm."""
    fleet = draft.fleet
    waiting = (name for name, known in fleet.shapes.items() if not known.queue.is_empty)
    held = (
        *(worker.shape for worker in fleet.workers.values()),
        *(launch.shape for launch in fleet.launches.values()),
        *(lease.shape for lease in fleet.leases),
        *(job.shape for job in fleet.requeued_jobs.values()),
    )
    return frozenset((own_shape(draft.facts.policy).name, *waiting, *held))


def of_shape(draft: PlanDraft, shape: str) -> PlanDraft:
    """Return a draft as if there were only the work and the workers of one shape.

    Workers and launches of the others are set apart: they count for what all shapes share.
    """
    if not shape:
        return draft
    facts, fleet = draft.facts, draft.fleet
    known = fleet.shapes.get(shape) or ShapeQueue(queue=NOTHING_WAITS, remembered=BacklogRow())
    policy = of_dispatch(facts.policy, shape)
    if shape != own_shape(facts.policy).name:
        # Who keeps workers warm does so for jobs that state no needs.
        policy = replace(policy, warm_workers=0, warm_schedule=())
    requirements = requirements_of(
        parse_shape(shape) or Shape(), facts.settings.requirements, policy.shared_slots
    )
    listed = facts.view.shapes.get(shape)
    return PlanDraft(
        facts=replace(
            facts,
            shape=shape,
            queue=known.queue,
            shapes={},
            settings=replace(facts.settings, requirements=requirements),
            effective=replace_fields(facts.effective, {"policy": policy}),
            knowledge=replace(
                facts.knowledge.of_types(listed.types if listed else ()),
                slots=slots_of(policy, facts.settings.run.slots),
            ),
        ),
        fleet=replace(
            fleet,
            workers={i: w for i, w in fleet.workers.items() if w.shape == shape},
            launches={i: x for i, x in fleet.launches.items() if x.shape == shape},
            leases=tuple(x for x in fleet.leases if x.shape == shape),
            requeued_jobs={i: x for i, x in fleet.requeued_jobs.items() if x.shape == shape},
            queue=known.queue,
            remembered=replace_fields(fleet.remembered, queue_fields(known.remembered)),
            other_workers=tuple(w for w in fleet.workers.values() if w.shape != shape),
            other_launches=tuple(x for x in fleet.launches.values() if x.shape != shape),
            shapes={},
        ),
    )


def remember_shapes(draft: PlanDraft) -> PlanDraft:
    """Bring up to date what the ticks remember of the queue of each shape."""
    if not draft.fleet.shapes:
        return draft
    known = draft.fleet.shapes.items()
    return draft.act(shapes={name: _next_shape(name, queue, draft) for name, queue in known})


def _next_shape(name: str, known: ShapeQueue, draft: PlanDraft) -> ShapeQueue:
    """Remember one queue. Workers count claims for the whole workload, so here leases tell."""
    fleet, since = draft.fleet, known.remembered.seen_at
    leases = [x for x in fleet.leases if x.shape == name]
    claims = sum(since is None or x.claimed_at > since for x in leases)
    busy = sum(
        w.claimed_at is not None and (since is None or w.claimed_at > since)
        for w in fleet.workers.values()
        if w.shape == name
    )
    before = replace_fields(known.remembered, {"claims": max(claims, busy), "claims_seen": 0})
    row = next_backlog(before, known.queue, draft.now, leases)
    return ShapeQueue(queue=known.queue, remembered=replace_fields(row, {"claims_seen": 0}))


def ask_for_routing(draft: PlanDraft) -> PlanDraft:
    """Have the messages routed in the entry queue."""
    facts = draft.facts
    if not facts.policy.types or not facts.entry_backlog.visible:
        return draft
    reason = Reason(ReasonCode.TO_BE_ROUTED, {"messages": facts.entry_backlog.visible})
    route = Action(kind=ActionKind.ROUTE, subject=facts.workload, reason=reason)
    return draft.act([route])

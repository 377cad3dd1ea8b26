"""Find what launches are needed for, by the queue and the ledger alone.

How many machines that takes is decided in ``domain.machine_count``, when they start in
``domain.schedule``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.control.plan.action import PlanDraft
from spindown.control.plan.backlog import waiting_of
from spindown.control.plan.breaker import breaker_of, is_on_test, tests_launch_version
from spindown.control.plan.shape import of_shape, shapes_of
from spindown.control.plan.throttling import backing_off_until
from spindown.domain.budget import ROUNDING
from spindown.domain.fleet import Backlog, Worker, WorkerState
from spindown.domain.learning import items_per_job, usual_throughput
from spindown.domain.machine_count import Sizing, count_machines
from spindown.domain.offer import CapacityType
from spindown.domain.past_cost import dollars_per_hour
from spindown.domain.ranking import RegionBlock
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode
from spindown.domain.schedule import (
    Capacity,
    DeadlineForecast,
    Demand,
    StartPlan,
    Unfinished,
    Waiting,
    capacity,
    forecast_deadlines,
    headroom_slots,
    held_job,
    is_measured,
    make_schedule,
    mark_requeued,
    never_claimed,
    places,
    plan_starts,
    requeued,
    reserve_of,
    unanswered_dollars,
)
from spindown.domain.spot_or_on_demand import PurchaseMode
from spindown.domain.wasted_work import WastedWork


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchNeed:
    """How many workers are missing, and which may come: what is known without prices."""

    demand: Demand
    capacity: Capacity
    #: None: so many messages are visible that a launch is due at once.
    start_plan: StartPlan | None
    #: Without the bounds that prices set.
    unpriced_sizing: Sizing
    #: What deadlines ask for; None: there are none, or nothing is known of how long work takes.
    forecast: DeadlineForecast | None = None
    #: What of the ladder is open, whatever has waited how long; None: what the wait has opened.
    ladder_override: PurchaseMode | CapacityType | None = None
    #: When the price ladder opens at the latest, so that what has not started yet starts in time.
    ladder_opens_at: datetime | None = None
    #: Workers that may be bought on demand; None: as many as are wanted.
    on_demand_at_most: int | None = None
    #: Whether it is for particular jobs alone: such as move from running workers, or wait for a
    #: stable machine. What an item may cost there in USD; None: whatever it costs.
    is_for_particular_jobs: bool = False
    item_at_most: float | None = None
    #: What interruptions have cost the jobs that it is for; None: it is for any job.
    wasted_work: WastedWork | None = None
    #: The shape of its workers (``domain.shape``); "": the workload has no types.
    shape: str = ""
    #: What keeps any launch from being made now; NO_REASON: nothing known.
    blocked_by: Reason = NO_REASON
    #: When that, or the hold, may end.
    retry_at: datetime | None = None

    @property
    def may_launch(self) -> bool:
        """Tell whether workers are wanted now and nothing known prevents them."""
        return self.unpriced_sizing.is_wanted and not self.blocked_by


def launch_need_of(draft: PlanDraft) -> LaunchNeed:
    """Return what is needed beside the workers that there are."""
    knowledge, policy = draft.facts.knowledge, draft.facts.policy
    work, present = waiting_work(draft), _present(draft)
    schedule = make_schedule(
        _plan_starts(draft, work, present),
        _forecast(draft, work),
        backlog=work,
        capacity=present,
        knowledge=knowledge,
        policy=policy,
    )
    return replace(
        need_for(draft, schedule.demand, schedule.start_plan, present),
        forecast=schedule.forecast,
        ladder_opens_at=schedule.ladder_opens_at,
        ladder_override=schedule.ladder_override,
        on_demand_at_most=schedule.on_demand_at_most,
    )


def launch_needs(draft: PlanDraft) -> tuple[LaunchNeed, ...]:
    """Return what each shape needs, those first in which a launch is due; one, without types."""
    found = [launch_need_of(of_shape(draft, shape)) for shape in shapes_of(draft)]
    return tuple(
        sorted(found, key=lambda need: (not need.may_launch, not need.unpriced_sizing.is_wanted))
    )


def launch_needs_again(
    draft: PlanDraft, before: PlanDraft, needs: tuple[LaunchNeed, ...]
) -> tuple[LaunchNeed, ...]:
    """Return ``launch_needs`` of a draft; ``needs`` are those of ``before``.

    In most ticks nothing has changed that they are made of.
    """
    return (
        needs
        if draft.fleet.need_depends_on == before.fleet.need_depends_on
        else launch_needs(draft)
    )


def need_for(
    draft: PlanDraft, demand: Demand, start_plan: StartPlan | None, present: Capacity | None = None
) -> LaunchNeed:
    """Return what is needed for a demand."""
    present = present or _present(draft)
    # Without prices, to learn whether any is missing: most ticks need none, and then no price.
    # ``offers.choose_offers`` counts again, by the best offer and within all bounds.
    sizing = count_machines(
        backlog=waiting_work(draft),
        backlog_since=draft.fleet.remembered.backlog_since,
        demand=demand,
        capacity=present,
        best=None,
        knowledge=draft.facts.knowledge,
        policy=draft.facts.policy,
        now=draft.now,
        start_plan=start_plan,
    )
    blocked_by, until = _block_all(draft, present) if sizing.is_wanted else (NO_REASON, None)
    return LaunchNeed(
        demand=demand,
        capacity=present,
        start_plan=start_plan,
        unpriced_sizing=sizing,
        shape=draft.facts.shape,
        blocked_by=blocked_by,
        retry_at=until or sizing.hold_until,
    )


def need_for_jobs(draft: PlanDraft, need: LaunchNeed, jobs: int) -> LaunchNeed:
    """Return what so many jobs need beside ``need``, each in a slot of its own."""
    knowledge, policy = draft.facts.knowledge, draft.facts.policy
    demand = replace(
        need.demand,
        need_items_per_hour=jobs * usual_throughput(knowledge, policy),
        backlog_items=jobs * items_per_job(knowledge, policy),
        jobs=jobs,
        slots=jobs,
    )
    return need_for(draft, demand, None)


def _present(draft: PlanDraft) -> Capacity:
    fleet, watched_since = draft.fleet, draft.fleet.remembered.watched_since
    found = capacity(
        workers=list(fleet.workers.values()),
        leases=fleet.leases,
        launches=list(fleet.launches.values()),
        knowledge=draft.facts.knowledge,
        policy=draft.facts.policy,
        now=draft.now,
        watched_since=watched_since,
    )
    others = places(fleet.other_workers, fleet.other_launches, draft.now, watched_since)
    workers = found.workers + fleet.workers_elsewhere + others
    return replace(found, workers=workers, of_other_shapes=others)


def _plan_starts(draft: PlanDraft, work: Backlog, present: Capacity) -> StartPlan:
    """Return what must be launched now so that everything starts in time, and what can wait."""
    knowledge, policy, fleet = draft.facts.knowledge, draft.facts.policy, draft.fleet
    return plan_starts(
        _waiting_groups(draft, work),
        present,
        knowledge=knowledge,
        policy=policy,
        now=draft.now,
        margin=timedelta(seconds=fleet.remembered.margin or 0.0),
        headroom_slots=headroom_slots(
            present,
            knowledge=knowledge,
            policy=policy,
            headroom_per_hour=fleet_headroom(draft),
            price_per_hour=_price_of_late(draft),
        ),
    )


def _waiting_groups(draft: PlanDraft, work: Backlog) -> tuple[Waiting, ...]:
    """Return what waits, oldest first, and which of it had started once."""
    now, fleet = draft.now, draft.fleet
    waiting = _without(waiting_of(fleet.remembered), _apart(draft))
    returning = work.visible - sum(group.jobs for group in waiting)
    if returning > 0:
        waiting = (*waiting, Waiting(since=now, jobs=returning))
    leaving = _leaving(fleet.workers)
    dates = {x.job_id: x.at for x in fleet.requeued_jobs.values() if not x.waits_for_stable(now)}
    held = set()
    for lease in fleet.leases:
        if lease.deadline <= now:
            dates.setdefault(lease.job_id, lease.deadline)
        elif lease.instance_id in leaving:
            dates[lease.job_id] = now
        else:
            held.add(lease.job_id)
    return mark_requeued(waiting, [at for job_id, at in dates.items() if job_id not in held])


def _without(waiting: Sequence[Waiting], jobs: int) -> tuple[Waiting, ...]:
    """Return what waits without so many jobs: the last, since they came back."""
    left = []
    for group in reversed(waiting):
        taken = min(group.jobs, jobs)
        jobs -= taken
        if group.jobs > taken:
            left.append(replace(group, jobs=group.jobs - taken))
    return tuple(reversed(left))


def _price_of_late(draft: PlanDraft) -> float | None:
    """Return what an hour of a worker has cost in the mean of the last day with any."""
    for _, day in sorted(draft.facts.view.spend.items(), reverse=True):
        paid = day.paid_seconds
        # Refunds of the day before may outweigh what a young day has cost.
        if paid > 0.0 and day.dollars > 0.0:
            return 3600.0 * day.dollars / paid
    return None


def fleet_headroom(draft: PlanDraft) -> float | None:
    """Return the USD an hour that the fleet may grow by; None: any."""
    fleet, most = draft.fleet, draft.facts.policy.max_dollars_per_hour
    if most is None:
        return None
    present = dollars_per_hour(fleet.all_workers)
    present += unanswered_dollars(fleet.all_launches, draft.now, fleet.remembered.watched_since)
    return max(most * (1.0 + ROUNDING) - present, 0.0)


def waiting_work(draft: PlanDraft) -> Backlog:
    """Return the queue, with what interrupted workers hold counted as visible already.

    Their jobs come back within two minutes, about as long as a boot takes. So the replacement
    starts at the notice, not at the deadline.
    """
    queue, leaving = draft.fleet.queue, _leaving(draft.fleet.workers)
    # What has lapsed is visible again, and counted.
    soon = sum(x.instance_id in leaving and x.deadline > draft.now for x in draft.fleet.leases)
    apart = _apart(draft)
    if not soon and not apart:
        return queue
    visible = max(queue.visible - apart, 0) + soon
    return replace(queue, visible=visible, in_flight=max(0, queue.in_flight - soon))


def work_waiting_for_stable(draft: PlanDraft) -> list[WastedWork]:
    """Return what interruptions have cost each job that waits for a stable machine."""
    if not draft.fleet.requeued_jobs:
        return []
    now = draft.now
    jobs = [job for job in draft.fleet.requeued_jobs.values() if job.waits_for_stable(now)]
    held = {lease.job_id for lease in draft.fleet.leases if lease.deadline > now}
    found = [job.wasted_work for job in jobs if job.wasted_work and job.job_id not in held]
    # A row may outlive its message.
    return found[: draft.fleet.queue.visible + _hidden(draft)]


def _apart(draft: PlanDraft) -> int:
    """Return how many visible messages wait for stable machines, and for no other."""
    jobs = len(work_waiting_for_stable(draft))
    return max(jobs - _hidden(draft), 0) if jobs else 0


def _hidden(draft: PlanDraft) -> int:
    """Return how many messages are hidden and held by nobody, such as workers leave to others."""
    now = draft.now
    held = sum(lease.deadline > now for lease in draft.fleet.leases)
    return max(draft.fleet.queue.in_flight - held, 0)


def _leaving(workers: Mapping[str, Worker]) -> frozenset[str]:
    """Return the workers that EC2 is taking away."""
    return frozenset(w.instance_id for w in workers.values() if w.is_interrupting and w.is_live)


def _forecast(draft: PlanDraft, work: Backlog) -> DeadlineForecast | None:
    """Return what deadlines ask for.

    None: there are none, or nothing has shown yet how long work takes; an estimate that nobody
    has measured is no reason to wait.
    """
    knowledge, policy = draft.facts.knowledge, draft.facts.policy
    if policy.finish_within is None or not is_measured(knowledge):
        return None
    reserve = reserve_of(knowledge, policy)
    slots = max((worker.slots for worker in draft.fleet.workers.values()), default=1)
    jobs = list(_unfinished(draft, work, policy.finish_within))
    return forecast_deadlines(jobs, reserve, draft.now, slots=policy.max_workers * slots)


def _unfinished(draft: PlanDraft, work: Backlog, within: timedelta) -> Iterator[Unfinished]:
    knowledge, policy = draft.facts.knowledge, draft.facts.policy
    fleet, now = draft.fleet, draft.now
    claimed, held, waiting = 0, set(), dict(fleet.requeued_jobs)
    for lease in fleet.leases:
        worker = fleet.workers.get(lease.instance_id)
        if worker is None or worker.state is WorkerState.ENDED:
            continue
        if lease.deadline <= now:
            # Nobody has taken it up since, or its row would be gone.
            waiting[lease.job_id] = lease.left_behind(now)
            continue
        found = held_job(lease, worker, within=within, knowledge=knowledge, policy=policy, now=now)
        held.add(lease.job_id)
        claimed += found.on is None
        yield found
    for job in waiting.values():
        if job.job_id not in held and not job.waits_for_stable(now):
            claimed += 1
            yield requeued(job, within=within, knowledge=knowledge, policy=policy)
    yield from never_claimed(
        waiting_of(fleet.remembered),
        max(work.visible - claimed, 0),
        items=max(
            [*(x.items for x in fleet.leases), *(x.items for x in waiting.values())], default=0
        ),
        within=within,
        knowledge=knowledge,
        policy=policy,
    )


def _block_all(draft: PlanDraft, present: Capacity) -> tuple[Reason, datetime | None]:
    most, workload = draft.facts.policy.max_workers, draft.facts.settings.name
    if draft.facts.queue_missing:
        return draft.facts.queue_missing, None
    if present.workers >= most:
        deployed = draft.facts.settings.policy.max_workers
        about: About = {"max_workers": most, "workload": workload, "deployed": deployed}
        return Reason(ReasonCode.MAX_WORKERS, about), None
    blocks = blocked_regions(draft)
    if blocks.keys() >= draft.facts.settings.regions.keys():
        first = next(iter(blocks.values()), RegionBlock(reason=Reason(ReasonCode.NO_REGION_READ)))
        return first.reason, min((c.until for c in blocks.values() if c.until), default=None)
    return NO_REASON, None


def blocked_regions(draft: PlanDraft) -> Mapping[str, RegionBlock]:
    """Return the regions in which nothing may be launched now, home first, and why."""
    home = draft.facts.deployment.region
    return {
        region: block
        for region in sorted(draft.facts.settings.regions, key=lambda name: (name != home, name))
        if (block := _block(draft, region)) is not None
    }


def _block(draft: PlanDraft, region: str) -> RegionBlock | None:
    facts, fleet = draft.facts, draft.fleet
    allowed, breaker = facts.policy.regions, breaker_of(facts, fleet, region)
    if allowed is not None and region not in allowed:
        return RegionBlock(reason=Reason(ReasonCode.REGION_LEFT_OUT, {"region": region}))
    if breaker.open_until is not None and breaker.open_until > draft.now:
        reason = breaker.reason.within(ReasonCode.BREAKER_OPEN)
        return RegionBlock(reason=reason, until=breaker.open_until)
    unproven = [
        worker
        for worker in fleet.all_workers
        if worker.region == region
        and tests_launch_version(
            worker, breaker, draft.now, is_other=worker.instance_id not in fleet.workers
        )
    ]
    if unproven and is_on_test(facts, fleet, region):
        tester = unproven[0].instance_id
        return RegionBlock(
            reason=breaker.reason.within(ReasonCode.LAUNCH_VERSION_ON_TEST, tested_by=tester)
        )
    until = backing_off_until(fleet, region, draft.now)
    if until is None:
        return None
    return RegionBlock(reason=Reason(ReasonCode.SLOW_DOWN), until=until)

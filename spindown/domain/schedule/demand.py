"""What new workers are wanted for: what is missing, and what deadlines ask for.

Three settings meet here. ``drain_within`` asks for throughput, ``start_within`` for slots that are
up in time, and ``finish_within`` for slots at once, and it says what may be bought.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.domain.fleet import Backlog
from spindown.domain.learning import Knowledge, items_per_job, traffic, usual_throughput
from spindown.domain.policy import Dispatch, Policy
from spindown.domain.schedule.finish_within import DeadlineForecast
from spindown.domain.schedule.slots import Capacity, window
from spindown.domain.schedule.start_within import StartPlan
from spindown.domain.spot_or_on_demand import PurchaseMode

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What new workers are wanted for."""

    #: Throughput that is missing.
    need_items_per_hour: float
    #: Items left for new workers.
    backlog_items: float
    #: Jobs that no slot of ours is free for.
    jobs: int
    items_per_job: float
    #: Slots that are wanted however fast each is, since jobs start side by side.
    slots: int = 0
    #: GiB of input and of output an item, paid for where they cross regions.
    gib_in_per_item: float = 0.0
    gib_out_per_item: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What start and finish deadlines ask for together."""

    demand: Demand
    #: None: as many messages are visible as make a launch due at once.
    start_plan: StartPlan | None
    #: None: there is no finish deadline, or nothing is known yet of how long work takes.
    forecast: DeadlineForecast | None
    #: What may be bought, however long work has waited; None: what the wait has opened.
    ladder_override: PurchaseMode | None
    #: When the price ladder opens at the latest, so that all starts in time.
    ladder_opens_at: datetime | None
    #: Workers that may be bought on demand; None: as many as are wanted.
    on_demand_at_most: int | None


def make_schedule(
    start: StartPlan,
    finish: DeadlineForecast | None,
    *,
    backlog: Backlog,
    capacity: Capacity,
    knowledge: Knowledge,
    policy: Policy,
) -> Schedule:
    """Return what start and finish deadlines ask for together.

    The larger number of slots counts. A finish deadline also says what may be bought; without one,
    the wait opens the price ladder. Once every urgent job has a slot, all others wait for spot.
    Until then, workers on demand are bought only for urgent jobs that have no slot. Where each job
    has a machine of its own nothing is gained by waiting for more of them, so each gets its slot.

    Args:
        start: what ``plan_starts`` found.
        finish: what ``forecast_deadlines`` found; None: nothing must be finished by a time.
        backlog: the queue.
        capacity: what ``capacity`` found.
        knowledge: throughput and sizes of jobs.
        policy: ``scale_up_threshold`` and ``drain_within``.
    """
    demand = missing(backlog=backlog, capacity=capacity, knowledge=knowledge, policy=policy)
    each = demand.jobs if policy.dispatch is Dispatch.DEDICATED else 0
    start_plan = start if each or _start_decides(start, demand, backlog, policy) else None
    if start_plan is not None:
        demand = limit_to_plan(demand, start_plan, knowledge, policy)
    short = 0 if finish is None else min(finish.urgent, backlog.visible) - capacity.free_slots
    if max(short, each) > 0:
        usual = usual_throughput(knowledge, policy)
        demand, start_plan = hurry(demand, start_plan, max(short, each), usual=usual)
    override = None if finish is None else finish.mode
    return Schedule(
        demand=demand,
        start_plan=start_plan,
        forecast=finish,
        ladder_override=PurchaseMode.SPOT if override and short <= 0 else override,
        ladder_opens_at=start.ladder_opens_at,
        on_demand_at_most=short if short > 0 else None,
    )


def _start_decides(start: StartPlan, demand: Demand, backlog: Backlog, policy: Policy) -> bool:
    """Tell whether start deadlines say how many workers, as while few messages are visible.

    Jobs that take longer than a launch can be held share no slot, so they wait for no others: what
    time there is serves to try spot again, before the ladder opens for them. For these, and from
    ``scale_up_threshold`` on, ``drain_within`` does, unless start deadlines ask for more: a
    worker that is in time for ``drain_within`` may be far too late for a start.
    """
    asked = start.slots * start.items_per_hour
    gathers = policy.gathers(backlog.visible) and not start.is_for_one
    return gathers or asked > demand.need_items_per_hour


def missing(
    *,
    backlog: Backlog,
    capacity: Capacity,
    knowledge: Knowledge,
    policy: Policy,
) -> Demand:
    """Return what the fleet lacks to work the backlog off within ``drain_within``.

    need = visible items / window - sum of r_i a_i (see ``capacity``). Worked: 20 jobs of 100 items,
    drain within 1 h, boot 6 min: 2000 / 0.9 = 2222 an hour; one idle worker of 1000 an hour leaves
    1222.
    """
    hours = window(knowledge, policy) / _HOUR
    per_job = items_per_job(knowledge, policy)
    moved = traffic(knowledge, policy)
    visible = backlog.visible * per_job
    need = visible / hours - capacity.items_per_hour
    return Demand(
        need_items_per_hour=need,
        backlog_items=min(visible, max(need, 0.0) * hours),
        jobs=max(0, backlog.visible - capacity.free_slots),
        items_per_job=per_job,
        gib_in_per_item=moved.gib_in,
        gib_out_per_item=moved.gib_out,
    )


def limit_to_plan(
    demand: Demand, start_plan: StartPlan, knowledge: Knowledge, policy: Policy
) -> Demand:
    """Return the demand for what must be launched now, without what can wait for a later tick."""
    return replace(
        demand,
        need_items_per_hour=start_plan.slots * start_plan.items_per_hour,
        backlog_items=start_plan.late_jobs * items_per_job(knowledge, policy),
        jobs=start_plan.late_jobs if start_plan.slots else 0,
        slots=start_plan.side_by_side,
    )


def hurry(
    demand: Demand, start_plan: StartPlan | None, slots: int, *, usual: float
) -> tuple[Demand, StartPlan | None]:
    """Return demand and start plan with at least so many slots at once, for urgent jobs.

    Args:
        demand: what is wanted so far.
        start_plan: what start deadlines ask for; None: nothing can wait a tick.
        slots: how many urgent jobs have no slot, above 0.
        usual: items an hour of one slot.
    """
    asked = replace(
        demand,
        need_items_per_hour=max(demand.need_items_per_hour, slots * usual),
        backlog_items=max(demand.backlog_items, slots * demand.items_per_job),
        jobs=max(demand.jobs, slots),
        slots=max(demand.slots, slots),
    )
    if start_plan is not None:
        start_plan = replace(
            start_plan,
            slots=max(start_plan.slots, slots),
            side_by_side=max(start_plan.side_by_side, slots),
            late_jobs=max(start_plan.late_jobs, slots),
        )
    return asked, start_plan

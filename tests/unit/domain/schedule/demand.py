"""A backlog and a fleet of T4s, sized as one tick does it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from spindown.domain.fleet import Launch, Lease, Worker, WorkerState
from spindown.domain.learning import Knowledge
from spindown.domain.machine_count import Sizing, count_machines
from spindown.domain.policy import Policy
from spindown.domain.schedule import (
    Capacity,
    Waiting,
    capacity,
    limit_to_plan,
    missing,
    plan_starts,
)
from tests.builders import (
    NOW,
    a_backlog,
    a_lease,
    a_policy,
    a_ranking,
    a_worker,
    an_offer,
    job_sizes,
    minutes,
)

#: Boot 6 min, 100 items a job, a T4 does 1000 an hour, drain within an hour.
KNOWLEDGE = Knowledge(boots=(360.0,), check_ins=(360.0,), jobs=job_sizes(100.0))
POLICY = a_policy(max_workers=50, throughput_estimate=1000.0)


def present(
    workers: list[Worker] | None = None,
    leases: list[Lease] | None = None,
    launches: list[Launch] | None = None,
    policy: Policy = POLICY,
) -> Capacity:
    return capacity(
        workers=workers or [],
        leases=leases or [],
        launches=launches or [],
        knowledge=KNOWLEDGE,
        policy=policy,
        now=NOW,
    )


def sized(
    visible: int,
    workers: list[Worker] | None = None,
    leases: list[Lease] | None = None,
    launches: list[Launch] | None = None,
    policy: Policy = POLICY,
    waited: timedelta = timedelta(0),
    **changes: Any,
) -> Sizing:
    """Size a fleet of T4s at 0.22 USD/h as one tick does: missing, rank, size."""
    found = present(workers, leases, launches, policy)
    backlog = a_backlog(visible)
    knowledge = changes.get("knowledge", KNOWLEDGE)
    demand = missing(backlog=backlog, capacity=found, knowledge=knowledge, policy=policy)
    start_plan = None
    if policy.gathers(visible):
        waiting = [Waiting(since=NOW - waited, jobs=visible)] if visible else []
        start_plan = plan_starts(waiting, found, knowledge=knowledge, policy=policy, now=NOW)
        demand = limit_to_plan(demand, start_plan, knowledge, policy)
    ranking = a_ranking([an_offer()], demand=demand, knowledge=knowledge, policy=policy)
    return count_machines(
        **{
            "start_plan": start_plan,
            "backlog": backlog,
            "backlog_since": NOW - waited if visible else None,
            "demand": demand,
            "capacity": found,
            "best": ranking.best,
            "knowledge": KNOWLEDGE,
            "policy": policy,
            "now": NOW,
            **changes,
        }
    )


def busy(items_done: int = 0, items: int = 100) -> tuple[Worker, Lease]:
    worker = a_worker(state=WorkerState.BUSY, busy_slots=1)
    return worker, a_lease(items=items, items_done=items_done)


HELD = replace(POLICY, scale_up_threshold=10, start_within=minutes(30))

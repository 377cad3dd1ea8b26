"""How many machines: how many of an offer the work takes, and how many are launched now.

From a queue's depth to a number, step by step:

1. what the present machines do, and will do soon: ``schedule.capacity``;
2. what must start now, and what can wait: ``schedule.plan_starts`` (``start_within``), and what
   deadlines ask for: ``schedule.forecast_deadlines`` (``finish_within``);
3. what is missing, as throughput and as slots: ``schedule.make_schedule``, whose result has a
   ``Demand``;
4. how many machines of one speed share that: ``share_work``, for each offer that is ranked;
5. how many of the best offer are launched now: ``count_machines``. The work and the machines to be
   kept warm ask for a number, and the tightest of the ``Bounds`` cuts it;
6. what each shape of machine gets of the places left: ``share_places``;
7. how many of another offer stand in for the best one: ``count_instead``.

Who calls them: ``control.plan.launch_need`` steps 1 to 3 for a workload, and step 5 without prices,
to learn whether any machine is missing; ``ranking.terms`` step 4; ``control.plan.offers`` step 5
again, for the best offer and within all bounds, and step 6; ``control.plan.launch_request`` step 7.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from spindown.domain.fleet import Backlog, Worker, WorkerState
from spindown.domain.learning import Knowledge, surely_up
from spindown.domain.offer import InstanceType, Offer, quota_class
from spindown.domain.policy import Dispatch, Policy
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode
from spindown.domain.schedule import Capacity, Demand, StartPlan

_IN_TIME = Reason(ReasonCode.IN_TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one new worker would do on one kind of instance."""

    #: Throughput of the whole instance, r.
    items_per_hour: float
    #: How many such workers share the backlog, n.
    workers: int
    #: Items of each, W.
    items: float
    #: Throughput of one slot: turns a checkpoint every N items into a time.
    slot_items_per_hour: float

    @property
    def work_hours(self) -> float:
        """Return the hours of useful work of each worker, W/r."""
        return self.items / self.items_per_hour


def share_work(
    demand: Demand, items_per_hour: float, slots: int, *, is_tried: bool = False
) -> Load:
    """Return how many workers of a throughput share the backlog, and the items of each.

    n = min(jobs, ceil(need / r)), W = max(backlog left / n, one job's items). n counts instances,
    and an instance takes one job for each of its slots. With fewer jobs than slots, only that share
    of its throughput is used. ``demand.slots`` are wanted however fast they are. Of a kind that is
    tried, one worker is taken, with the items that each of all would have.
    """
    jobs = max(1, demand.jobs)
    useful = items_per_hour * min(1.0, jobs / slots)
    needed = math.ceil(demand.need_items_per_hour / useful)
    needed = max(1, needed, math.ceil(demand.slots / slots))
    workers = min(math.ceil(jobs / slots), needed)
    return Load(
        items_per_hour=useful,
        workers=1 if is_tried else workers,
        items=max(demand.backlog_items / workers, demand.items_per_job, 1.0),
        slot_items_per_hour=items_per_hour / slots,
    )


class CountedOffer(Protocol):
    """An offer with the number of machines that it takes (``ranking.Candidate``)."""

    @property
    def offer(self) -> Offer:
        """What is bought."""
        ...

    @property
    def workers(self) -> int:
        """How many such workers share the work (``share_work``)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """How many workers to launch now, and why that many."""

    need_items_per_hour: float
    #: Launches now, within all bounds; 0 while holding.
    allowed: int
    #: Until when a launch waits for more work to gather; None: nothing is held.
    hold_until: datetime | None
    reason: Reason
    #: How long the backlog has been waiting.
    waited: timedelta
    #: Launches without bounds, for the alarm that says that a bound was hit.
    wanted: int = 0
    #: Name of the bound that cut ``wanted`` to ``allowed``: "max_workers", "budget", "test" (one
    #: machine is to show whether the version is of use), "shape" (others have places too), ...; ""
    #: for none.
    bound: str = ""

    @property
    def is_wanted(self) -> bool:
        """Tell whether workers are wanted now, whatever may prevent them."""
        return self.wanted > 0

    @property
    def left(self) -> int:
        """Return how many workers a bound keeps from being launched now."""
        return max(self.wanted - self.allowed, 0)


def count_instead(offer: CountedOffer, best: CountedOffer | None, sizing: Sizing) -> int:
    """Return how many machines of an offer meet the whole need that was sized by the best one.

    A slower offer needs more; machines to be kept warm are counted as such.
    """
    kept_warm = sizing.wanted if best is None or sizing.wanted > best.workers else 0
    return max(offer.workers, kept_warm, 1)


def waited_for(backlog_since: datetime | None, now: datetime) -> timedelta:
    """Return how long visible work has been waiting without a claim."""
    return timedelta(0) if backlog_since is None else max(now - backlog_since, timedelta(0))


def in_turn(wanted: Sequence[int], places: int) -> list[int]:
    """Return how many of some places each gets that wants them: one after the other in turn.

    Worked: of 4 places, 9 are wanted, 1 and 0: they get 3, 1 and 0.
    """
    given = [0] * len(wanted)
    left = min(max(places, 0), sum(wanted))
    while left > 0:
        for index, most in enumerate(wanted):
            if left > 0 and given[index] < most:
                given[index] += 1
                left -= 1
    return given


def share_places(sizings: Sequence[Sizing], places: int) -> list[Sizing]:
    """Return the sizings of all shapes so that each gets a place before any gets all."""
    asked = [each.allowed for each in sizings]
    if sum(map(bool, asked)) <= 1 or sum(asked) <= places:
        return list(sizings)
    # What bounds the number holds for each offer, however slow.
    return [
        replace(each, allowed=share, bound="shape") if 0 < share < each.allowed else each
        for each, share in zip(sizings, in_turn(asked, places), strict=True)
    ]


def latest_launch(backlog_since: datetime, knowledge: Knowledge, policy: Policy) -> datetime:
    """Return until when a launch may be held while ``start_within`` is still kept.

    start_within - p95 boot - two ticks, one of them for a retry; never before the work came.
    Worked: 30 min, boot 6 min, tick 1 min: 22 min after the work came.
    """
    slack = policy.start_within - surely_up(knowledge, policy, ticks=2)
    return backlog_since + max(slack, timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What else limits the fleet besides ``max_workers``; None: no such limit."""

    #: Workers of the best offer that the budget pays for.
    budget_workers: float | None = None
    #: USD per hour that the fleet may grow by.
    headroom_per_hour: float | None = None
    #: vCPUs left in the quota of the best offer; unknown: EC2 will say.
    quota_vcpus_left: float | None = None
    #: Whether one machine is to show whether the version is of use, since its last ones were not.
    is_on_test: bool = False


_NO_BOUNDS = Bounds()


def count_machines(  # noqa: PLR0913 - the whole situation, each part with its own name
    *,
    backlog: Backlog,
    backlog_since: datetime | None,
    demand: Demand,
    capacity: Capacity,
    best: CountedOffer | None,
    knowledge: Knowledge,
    policy: Policy,
    now: datetime,
    start_plan: StartPlan | None = None,
    bounds: Bounds = _NO_BOUNDS,
) -> Sizing:
    """Decide how many workers of the best offer to launch now.

    Args:
        backlog: the queue.
        backlog_since: since when visible work waits without a claim; None: since now.
        demand: what they are wanted for.
        capacity: what ``capacity`` found.
        best: first of the candidate list for that demand; None: nothing may be bought.
        knowledge: boot times.
        policy: threshold, promise, ``max_workers``, ``warm_workers``.
        now: the present.
        start_plan: what can wait, if fewer messages are visible than ``scale_up_threshold``.
        bounds: budget, dollars per hour, quota.
    """
    since = now if backlog_since is None else backlog_since
    due = latest_launch(since, knowledge, policy)
    asked = _wanted(demand, capacity, best, policy, now=now, due=due, since=since)
    for_work, why_work = asked[0], asked[1] or _why_none(backlog, capacity)
    if start_plan is not None:
        for_work, why_work = _planned(start_plan, best, backlog, policy) or (0, why_work)
    if for_work and policy.dispatch is Dispatch.DEDICATED and demand.jobs > 0:
        why_work = Reason(ReasonCode.MACHINE_EACH, {"jobs": demand.jobs})
    # A warm worker is wanted with or without work, so no hold applies to it.
    for_warm = policy.warm_workers - (capacity.workers - capacity.of_other_shapes)
    why_warm = Reason(ReasonCode.KEPT_WARM, {"workers": policy.warm_workers})
    wanted, why = (for_warm, why_warm) if for_warm > for_work else (for_work, why_work)
    allowed, bound = _bounded(wanted, capacity, best, policy, bounds)
    # Without an offer the number stands for "some", and something else says why none is launched.
    if bound and best is not None:
        why = why.within(ReasonCode.CUT_BY_BOUND, bound=bound, allowed=allowed, wanted=wanted)
    if bounds.is_on_test and allowed > 1:
        allowed, bound = 1, "test"
    return Sizing(
        need_items_per_hour=demand.need_items_per_hour,
        allowed=allowed,
        hold_until=None if start_plan is None or for_work else start_plan.launch_by,
        reason=why,
        waited=_waited(backlog_since, start_plan, now),
        wanted=wanted,
        bound=bound,
    )


def _planned(
    start_plan: StartPlan, best: CountedOffer | None, backlog: Backlog, policy: Policy
) -> tuple[int, Reason] | None:
    """Return what a start plan asks for now, and why that or why it is held; None: nothing."""
    if start_plan.slots:
        return (best.workers if best else min(start_plan.slots, 1)), _why_now(start_plan)
    if start_plan.launch_by is not None:
        return 0, _why_held(backlog, policy, start_plan.launch_by)
    return None


def _why_none(backlog: Backlog, capacity: Capacity) -> Reason:
    """Return why no job asks for another worker."""
    if backlog.visible > capacity.free_slots:
        return _IN_TIME
    if backlog.visible:
        return Reason(ReasonCode.SLOTS_FREE)
    if capacity.workers > capacity.of_other_shapes or not backlog.in_flight:
        return Reason(ReasonCode.NOTHING_WAITS)
    return Reason(ReasonCode.ALL_IN_FLIGHT, {"messages": backlog.in_flight})


def _why_now(start_plan: StartPlan) -> Reason:
    about: About = {"jobs": start_plan.late_jobs}
    if start_plan.why in {ReasonCode.OVER_CAPACITY, ReasonCode.FEWEST_NOW}:
        about = {**about, "slots": start_plan.slots}
    return Reason(start_plan.why, about)


def _why_held(backlog: Backlog, policy: Policy, until: datetime) -> Reason:
    at, visible = until.isoformat(), backlog.visible
    if policy.scale_up_threshold is not None and policy.gathers(visible):
        about: About = {"messages": visible, "threshold": policy.scale_up_threshold, "until": at}
        return Reason(ReasonCode.HELD_FOR_MORE, about)
    return Reason(ReasonCode.CAN_WAIT, {"jobs": visible, "until": at})


def _waited(
    backlog_since: datetime | None, start_plan: StartPlan | None, now: datetime
) -> timedelta:
    """Return the wait that opens rungs of the price ladder.

    A claim ends the wait of the backlog, but the rest may still be late. So while the present slots
    do not start all jobs in time, the wait of the oldest job counts. Worked: 1,000 jobs of 100 s
    come at once, and 16 spot machines claim one each. Without this rule no rung would ever open.
    """
    waited = waited_for(backlog_since, now)
    if start_plan is not None and start_plan.late_jobs:
        return max(waited, waited_for(start_plan.oldest_since, now))
    return waited


def _wanted(
    demand: Demand,
    capacity: Capacity,
    best: CountedOffer | None,
    policy: Policy,
    *,
    now: datetime,
    due: datetime,
    since: datetime,
) -> tuple[int, Reason]:
    """Return the launches without bounds or hold, and why; no reason: no job asks for one."""
    if demand.jobs <= 0:
        return 0, NO_REASON
    need = demand.need_items_per_hour
    if need > 0.0:
        count = 1 if best is None else best.workers
        about: About = {"items_per_hour": need, "jobs": demand.jobs}
        return count, Reason(ReasonCode.THROUGHPUT_MISSING, about)
    free_in = capacity.next_free
    late = free_in is None or now + free_in > since + policy.start_within
    if capacity.free_slots == 0 and now >= due and late:
        return 1, Reason(ReasonCode.NO_SLOT_IN_TIME)
    return 0, _IN_TIME


def _bounded(
    wanted: int, capacity: Capacity, best: CountedOffer | None, policy: Policy, bounds: Bounds
) -> tuple[int, str]:
    """Return what the tightest bound leaves of ``wanted``, and its name if it takes some away."""
    limits: dict[str, float] = {"max_workers": policy.max_workers - capacity.workers}
    if best is None:
        limits["offers"] = 0.0
    else:
        if bounds.budget_workers is not None:
            limits["budget"] = bounds.budget_workers
        if bounds.headroom_per_hour is not None:
            limits["max_dollars_per_hour"] = bounds.headroom_per_hour / best.offer.price
        if bounds.quota_vcpus_left is not None:
            limits["quota"] = bounds.quota_vcpus_left / best.offer.instance_type.vcpus
    name, limit = min(limits.items(), key=lambda item: item[1])
    allowed = max(0, math.floor(limit + _ROUNDING))
    return (allowed, name) if allowed < wanted else (wanted, "")


#: 0.3 USD are enough for three workers at 0.1 USD, despite binary fractions.
_ROUNDING = 1e-9


def vcpus_left(
    quotas: Mapping[str, float],
    workers: Sequence[Worker],
    instance_types: Mapping[str, InstanceType],
) -> Mapping[str, float]:
    """Return the vCPUs that are left of each quota class; below 0: more are in use than allowed.

    Workers count until they have ended, interrupted and condemned ones too. What others run in
    the account is not known here; EC2 refuses a launch that does not fit.
    """
    left = dict(quotas)
    for worker in workers:
        name = quota_class(worker.instance_type, worker.region, worker.capacity_type)
        known = instance_types.get(worker.instance_type)
        if worker.state is not WorkerState.ENDED and name in left:
            left[name] -= worker.vcpus if known is None else known.vcpus
    return left

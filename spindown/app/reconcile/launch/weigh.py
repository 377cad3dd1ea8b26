"""Decide how many workers are missing, by the queue and the ledger alone."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.app.reconcile.deadline import look_ahead
from spindown.app.reconcile.launch.closure import closed_regions
from spindown.app.reconcile.tick import Tick
from spindown.app.reconcile.track import waiting_of
from spindown.domain.cost import dollars_per_hour
from spindown.domain.deadline import DeadlineForecast, PurchaseMode, hurry
from spindown.domain.fleet import Backlog
from spindown.domain.learning import usual_throughput
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy
from spindown.domain.ranking import CandidateList, Demand, RegionBlock
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.sizing import (
    Capacity,
    Sizing,
    StartPlan,
    Waiting,
    capacity,
    headroom_slots,
    limit_to_plan,
    mark_requeued,
    missing,
    plan_starts,
    size,
    unanswered_dollars,
)
from spindown.wording import say


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How many, of what, and why not now."""

    demand: Demand
    capacity: Capacity
    #: None: as many messages are visible as make a launch due at once.
    start_plan: StartPlan | None
    sizing: Sizing
    #: What deadlines ask for; None: there are none, or nothing is known of how long work takes.
    forecast: DeadlineForecast | None = None
    #: What of the ladder is open, whatever has waited how long; None: what the wait has opened.
    opens: PurchaseMode | CapacityType | None = None
    #: When the price ladder opens at the latest, so that what has not started yet starts in time.
    ladder_opens_at: datetime | None = None
    #: Workers that may be bought on demand; None: as many as are wanted.
    on_demand_at_most: int | None = None
    #: Whether it is for workers that take over from others, and what an item may cost on them in
    #: USD; None: whatever it costs.
    is_relief: bool = False
    item_at_most: float | None = None
    #: None: prices were not looked at, since no launch is due.
    candidates: CandidateList | None = None
    #: Why no launch may happen although one is due; "": it may.
    stopped: str = ""
    #: When the stop, the hold or the dry spell may end.
    retry_at: datetime | None = None

    @property
    def is_due(self) -> bool:
        """Tell whether workers are wanted now, whatever may prevent them."""
        return self.sizing.unbounded > 0

    @property
    def is_open(self) -> bool:
        """Tell whether workers are wanted now and nothing known prevents them."""
        return self.is_due and not self.stopped


def weigh(tick: Tick) -> Choice:
    """Size the fleet by the queue and the ledger alone."""
    work = waiting_work(tick)
    present = _present(tick)
    demand = missing(backlog=work, capacity=present, knowledge=tick.knowledge, policy=tick.policy)
    promised = _start_plan(tick, work, present)
    start_plan = promised if _rules(promised, demand, work, tick.policy) else None
    if start_plan is not None:
        demand = limit_to_plan(demand, start_plan, tick.knowledge, tick.policy)
    forecast = look_ahead(tick, work)
    short = 0 if forecast is None else min(forecast.urgent, work.visible) - present.free_slots
    if short > 0:
        usual = usual_throughput(tick.knowledge, tick.policy)
        demand, start_plan = hurry(demand, start_plan, short, usual=usual)
    weighed = _sized(tick, demand, present, start_plan)
    opens = None if forecast is None else forecast.mode
    return replace(
        weighed,
        forecast=forecast,
        ladder_opens_at=promised.opens_at,
        # What is urgent has its slot already, or else is all that on demand is bought for.
        opens=PurchaseMode.SPOT if opens and short <= 0 else opens,
        on_demand_at_most=short if short > 0 else None,
    )


def weigh_demand(
    tick: Tick,
    demand: Demand,
    *,
    opens: CapacityType,
    forecast: DeadlineForecast | None,
    item_at_most: float | None,
) -> Choice:
    """Size the fleet for a demand of its own, of one capacity type: workers that take over."""
    return replace(
        _sized(tick, demand, _present(tick), None),
        opens=opens,
        forecast=forecast,
        is_relief=True,
        item_at_most=item_at_most,
    )


def _present(tick: Tick) -> Capacity:
    return capacity(
        workers=list(tick.workers.values()),
        leases=tick.leases,
        launches=list(tick.launches.values()),
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
    )


def _sized(tick: Tick, demand: Demand, present: Capacity, start_plan: StartPlan | None) -> Choice:
    sizing = size(
        backlog=waiting_work(tick),
        backlog_since=tick.seen.backlog_since,
        demand=demand,
        capacity=present,
        best=None,
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
        start_plan=start_plan,
    )
    stopped, until = _stop(tick, present) if sizing.unbounded > 0 else ("", None)
    return Choice(
        demand=demand,
        capacity=present,
        start_plan=start_plan,
        sizing=sizing,
        stopped=stopped,
        retry_at=until or sizing.hold_until,
    )


def _start_plan(tick: Tick, work: Backlog, present: Capacity) -> StartPlan:
    """Return what can wait."""
    return plan_starts(
        _told_apart(tick, work),
        present,
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
        margin=timedelta(seconds=tick.seen.margin or 0.0),
        headroom_slots=headroom_slots(
            present,
            knowledge=tick.knowledge,
            policy=tick.policy,
            headroom_per_hour=headroom(tick),
            price_per_hour=_price_of_late(tick),
        ),
    )


def _told_apart(tick: Tick, work: Backlog) -> tuple[Waiting, ...]:
    """Return what waits, oldest first, and which of it had started once."""
    waiting = waiting_of(tick.seen)
    returning = work.visible - sum(group.jobs for group in waiting)
    if returning > 0:
        waiting = (*waiting, Waiting(since=tick.now, jobs=returning))
    leaving = _leaving(tick)
    dates = {due.job_id: due.at for due in tick.requeued_jobs.values()}
    held = set()
    for lease in tick.leases:
        if lease.deadline <= tick.now:
            dates.setdefault(lease.job_id, lease.deadline)
        elif lease.instance_id in leaving:
            dates[lease.job_id] = tick.now
        else:
            held.add(lease.job_id)
    return mark_requeued(waiting, [at for job_id, at in dates.items() if job_id not in held])


def _rules(promised: StartPlan, demand: Demand, work: Backlog, policy: Policy) -> bool:
    """Tell whether the promise says how many, as it does while few messages are visible.

    From ``scale_up_threshold`` on the backlog is sized by ``drain_within``, or by the promise of a
    start where that asks for more: what is on its way for the one may be far too late for the
    other.
    """
    asked = promised.slots * promised.items_per_hour
    return work.visible < policy.scale_up_threshold or asked > demand.need_items_per_hour


def headroom(tick: Tick) -> float | None:
    """Return the USD an hour by which the fleet may still grow; None: there is no such ceiling."""
    most = tick.policy.max_dollars_per_hour
    if most is None:
        return None
    present = dollars_per_hour(list(tick.workers.values()))
    present += unanswered_dollars(list(tick.launches.values()), tick.now)
    return max(0.0, most * (1.0 + _ROUNDING) - present)


#: So that 0.3 USD are room for three of 0.1, whatever binary fractions make of it.
_ROUNDING = 1e-9


def _price_of_late(tick: Tick) -> float | None:
    """Return what an hour of a worker has cost in the mean of the last day with any."""
    for _, day in sorted(tick.view.spend.items(), reverse=True):
        paid = day.boot_seconds + day.busy_seconds + day.idle_seconds
        # Refunds of the day before may outweigh what a young day has cost.
        if paid > 0.0 and day.dollars > 0.0:
            return 3600.0 * day.dollars / paid
    return None


def waiting_work(tick: Tick) -> Backlog:
    """Return the queue, with what interrupted workers hold counted as visible already.

    Their jobs come back within two minutes, less than any boot takes: the replacement is due
    at the notice, not at the deadline.
    """
    leaving = _leaving(tick)
    if not leaving:
        return tick.backlog
    # What has lapsed is visible again, and counted.
    soon = sum(x.instance_id in leaving and x.deadline > tick.now for x in tick.leases)
    return replace(
        tick.backlog,
        visible=tick.backlog.visible + soon,
        in_flight=max(0, tick.backlog.in_flight - soon),
    )


def _leaving(tick: Tick) -> frozenset[str]:
    """Return the workers that EC2 is taking away."""
    found = (w.instance_id for w in tick.workers.values() if w.is_interrupting and w.is_live)
    return frozenset(found)


def _stop(tick: Tick, present: Capacity) -> tuple[str, datetime | None]:
    if present.workers >= tick.policy.max_workers:
        return f"max_workers is {tick.policy.max_workers}", None
    closed = closed_regions(tick)
    if closed.keys() >= tick.settings.outposts.keys():
        first = next(iter(closed.values()), RegionBlock(reason=Reason(ReasonCode.NO_OUTPOST_READ)))
        return say(first.reason), min((c.until for c in closed.values() if c.until), default=None)
    return "", None

"""What a reconcile would do now, and why: the same steps, without a lock and without a write."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.app.control import ControlPorts
from spindown.app.ledger import FencingToken, Ledger
from spindown.app.offers import current_catalogue
from spindown.app.policy import effective_policy
from spindown.app.reconcile.launch.choose import choose, rank_offers
from spindown.app.reconcile.launch.weigh import weigh
from spindown.app.reconcile.tick import Tick, gather
from spindown.app.reconcile.track import follow_backlog
from spindown.domain.fleet import Backlog
from spindown.domain.ranking import CandidateList, Demand
from spindown.domain.sizing import Sizing, window
from spindown.domain.warm import warm_hours_per_month

#: A plan holds no lock, and nothing of it is ever written.
_NO_FENCE = FencingToken(fence=0, holder="plan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be launched now, and the candidate list that it would come from."""

    workload: str
    at: datetime
    #: The backlog that it is made for: the queue's own, or one that was asked for.
    backlog: Backlog
    demand: Demand
    sizing: Sizing
    #: Why nothing may be launched although it is due; "": it may.
    stopped: str
    candidates: CandidateList
    #: When the next try is due; None: nothing waits, so the next message decides.
    next_try_at: datetime | None = None
    #: What a person should know of prices, quotas and regions.
    notes: tuple[str, ...] = ()
    #: Worker-hours that a usual month keeps warm; 0: none.
    warm_hours: float = 0.0


def plan(workload: str, ports: ControlPorts, *, jobs: int | None = None) -> Plan:
    """Return what a reconcile would decide.

    Args:
        workload: whose.
        ports: the world; only read.
        jobs: a backlog to plan for instead of the queue's own; its offers are ranked even when
            the fleet would manage it by itself.
    """
    now = ports.clock.now()
    current_catalogue(ports, now, is_kept=False)
    ledger = Ledger(ports.table, workload)
    tick = gather(workload, ports, fence=_NO_FENCE, ledger=ledger, source="plan", now=now)
    if jobs is not None:
        tick.backlog = replace(tick.backlog, visible=jobs)
    follow_backlog(tick)
    weighed = weigh(tick)
    choice = choose(tick, weighed)
    candidates = choice.candidates
    if candidates is None:
        tick.account = ledger.read_account()
        hours = window(tick.knowledge, tick.policy) / timedelta(hours=1)
        candidates = rank_offers(tick, replace(weighed, demand=_of_a_job(weighed.demand, hours)))
    return Plan(
        workload=workload,
        at=now,
        backlog=tick.backlog,
        demand=choice.demand,
        sizing=choice.sizing,
        stopped=choice.stopped,
        candidates=candidates,
        notes=tuple(tick.notes),
        warm_hours=_warm_hours(tick),
        next_try_at=None if tick.backlog.is_empty else choice.retry_at or now + tick.policy.tick,
    )


def _warm_hours(tick: Tick) -> float:
    """Return what a month keeps warm by the policy as written, not as its schedule has it now."""
    _, edit = tick.ports.settings.workload(tick.workload)
    written = effective_policy(tick.settings, edit, tick.view.policy).policy
    return warm_hours_per_month(written)


def _of_a_job(demand: Demand, window_hours: float) -> Demand:
    """Return a demand of one job at least, so that there is something to rank for."""
    items = demand.items_per_job
    return replace(
        demand,
        need_items_per_hour=max(demand.need_items_per_hour, items / window_hours),
        backlog_items=max(demand.backlog_items, items),
        jobs=max(demand.jobs, 1),
    )

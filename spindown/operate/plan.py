"""What the next tick would do: the very plan that it would carry out, and nothing done."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.contract.decision import ActionRecord, ShapeRecord
from spindown.control.observe.observation import Observation, TickFacts
from spindown.control.plan.action import PlanDraft
from spindown.control.plan.launch_allowance import why_short
from spindown.control.plan.launch_request import LaunchWorkers
from spindown.control.plan.offers import rank_offers
from spindown.control.plan.plan import Plan
from spindown.control.plan.shape import of_shape
from spindown.control.plan.wind_down import divide_budget
from spindown.control.policy_edit import effective_policy
from spindown.control.record.decision import record_action, record_shapes
from spindown.control.tick import make_plan, observe, observe_market
from spindown.domain.budget import LaunchBudget
from spindown.domain.fleet import Backlog
from spindown.domain.policy import WhenSpent
from spindown.domain.ranking import CandidateList
from spindown.domain.reason import NO_REASON, Reason
from spindown.domain.schedule import Demand, window
from spindown.domain.warm import warm_hours_per_month
from spindown.error import Unreachable
from spindown.port import ControlPorts


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthBudget:
    """The month's budget as the next tick finds it, USD."""

    whole: float
    #: Of all workloads.
    spent: float
    reserved: float
    #: What launches of this workload may set aside after all that the tick does before them.
    left: float
    when_spent: WhenSpent


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTick:
    """A plan, and what explains it to a person."""

    workload: str
    at: datetime
    plan: Plan
    #: What it is ranked for.
    demand: Demand
    #: What the launch would come from, or would if one were due.
    candidates: CandidateList
    #: What a person should know of workers, prices, quotas and regions.
    notes: tuple[Reason, ...] = ()
    #: When the next try is due; None: nothing waits, so the next message decides.
    next_try_at: datetime | None = None
    #: Worker-hours that a usual month keeps warm; 0: none.
    warm_hours: float = 0.0
    #: None: there is no budget, or nobody could read what is spent of it.
    month: MonthBudget | None = None

    @property
    def queue(self) -> Backlog:
        """Return the queue as the tick sees it: its own, or what was asked for."""
        return self.plan.fleet.queue

    @property
    def actions(self) -> tuple[ActionRecord, ...]:
        """Return what would be done, in its order; bookkeeping is left out."""
        done = (a for a in self.plan.actions if not isinstance(a, LaunchWorkers) or a.requests)
        return tuple(entry for action in done for entry in record_action(action))

    @property
    def shapes(self) -> tuple[ShapeRecord, ...]:
        """Return the queue and the fleet of each shape of a workload with types."""
        return record_shapes(self.plan, self.plan.fleet.workers.values())

    @property
    def launches(self) -> tuple[LaunchWorkers, ...]:
        """Return the launches of the plan, those included for which others leave nothing."""
        return tuple(a for a in self.plan.actions if isinstance(a, LaunchWorkers))


def plan_next_tick(workload: str, ports: ControlPorts, *, jobs: int | None = None) -> PlannedTick:
    """Return what the next tick would do.

    Args:
        workload: whose.
        ports: the world; only read.
        jobs: a backlog to plan for instead of the queue's own; its offers are ranked even when
            the fleet would manage it by itself.

    Raises:
        SpindownError: the ledger, the settings, the queue or the prices cannot be read.
    """
    now = ports.clock.now()
    seen, early = observe(workload, ports, now=now, source="plan", jobs=jobs)
    plan = make_plan(seen, early)
    choice, demand = plan.choice, plan.choice.need.demand
    candidates, notes = choice.candidates, plan.notes
    budget = plan.allowance.budget
    if candidates is None:
        if seen.prices is None or choice.blocked_by or seen.account is None:
            seen = observe_market(early, ports, is_asked=True)
        demand = _of_a_job(demand, seen.facts)
        after = PlanDraft(facts=seen.facts, fleet=plan.fleet)
        need = replace(choice.need, demand=demand)
        ranked = rank_offers(of_shape(after, need.shape), need, seen)
        if ranked.candidates is None:
            raise Unreachable(str(ranked.failure.about["said"]))
        candidates = ranked.candidates
        notes += tuple(note for note in ranked.notes if note not in notes)
        budget = budget or divide_budget(after, seen.account)[1]
        short = NO_REASON if choice.blocked_by else why_short(candidates.candidates, budget)
        notes += (short,) if short else ()
    retry_at = choice.retry_at or now + seen.facts.policy.tick
    return PlannedTick(
        workload=workload,
        at=now,
        plan=plan,
        demand=demand,
        candidates=candidates,
        notes=notes,
        next_try_at=None if plan.fleet.queue.is_empty else retry_at,
        warm_hours=_warm_hours(seen.facts, ports),
        month=_month(budget, seen),
    )


def _month(budget: LaunchBudget | None, seen: Observation) -> MonthBudget | None:
    if budget is None or seen.account is None:
        return None
    row = seen.account.budget_at(seen.facts.now)
    return MonthBudget(
        whole=budget.month_usd,
        spent=row.dollars,
        reserved=max(row.committed - row.dollars, 0.0),
        left=max(budget.left_usd, 0.0),
        when_spent=budget.lifetimes.when_spent,
    )


def _warm_hours(facts: TickFacts, ports: ControlPorts) -> float:
    """Return what a month keeps warm by the policy as written, not as its schedule has it now."""
    _, edit = ports.settings.workload(facts.workload)
    return warm_hours_per_month(effective_policy(facts.settings, edit, facts.view.policy).policy)


def _of_a_job(demand: Demand, facts: TickFacts) -> Demand:
    """Return a demand of one job at least, so that there is something to rank for."""
    items = demand.items_per_job
    window_hours = window(facts.knowledge, facts.policy) / timedelta(hours=1)
    return replace(
        demand,
        need_items_per_hour=max(demand.need_items_per_hour, items / window_hours),
        backlog_items=max(demand.backlog_items, items),
        jobs=max(demand.jobs, 1),
    )

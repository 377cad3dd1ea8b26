"""Say for graphs what a tick saw and did: its metrics."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.contract import metric as names
from spindown.contract.decision import Decision, Outcome
from spindown.contract.row import QuotaRow
from spindown.control.alert import tell as alarm
from spindown.control.alert.tell import Untold
from spindown.control.execute.executor import TickRecord
from spindown.control.observe.observation import Observation, TickFacts
from spindown.control.plan.action import Action, ActionKind, EndRow
from spindown.control.plan.breaker import open_breakers
from spindown.control.plan.plan import Plan
from spindown.control.spend import Charge, days_to_tell, last_days
from spindown.domain.alert import Review
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.idle import idle_within
from spindown.domain.offer import QUOTA_CODES, CapacityType
from spindown.domain.past_cost import cost_per_item, dollars_per_hour
from spindown.domain.reason import ReasonCode
from spindown.port import Datum

#: Codes of notes that say that workers are left alone though they look dead.
_HELD_BACK = frozenset({ReasonCode.MOST_ARE_STALE, ReasonCode.STALE_NEXT_TICK})
#: What is condemned is gone two ticks later, unless EC2 does not end it.
_ENDED_WITHIN = timedelta(minutes=2)
#: Codes that say that the budget stops launches.
_BUDGET = frozenset(
    {ReasonCode.BUDGET_USED_UP, ReasonCode.BUDGET_TOO_LOW, ReasonCode.BUDGET_BELOW_LAUNCH}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickResult:
    """A tick that is over: its three values, and what came of writing it down."""

    seen: Observation
    plan: Plan
    record: TickRecord
    decision: Decision
    #: What was charged and written; the next tick charges what was not written.
    charges: Sequence[Charge]
    #: How often the table refused what a row holds.
    refused: int
    alerts: Review
    #: What people could not be told; None: they were told all.
    untold: Untold | None
    seconds: float

    @property
    def facts(self) -> TickFacts:
        """Return the facts of the tick."""
        return self.seen.facts

    @property
    def workers(self) -> Iterable[Worker]:
        """Return the workers as the tick leaves them."""
        return self.record.workers.values()

    def done(self, kind: ActionKind) -> list[Action]:
        """Return what was done of one kind."""
        return [action for action in self.record.done if action.kind is kind]


def measure(tick: TickResult) -> Iterator[Datum]:
    """Yield the metrics of a tick, made when the first is asked for; see ``contract.metric``.

    While nothing waits and nothing runs, only what is not zero: CloudWatch bills a metric for
    each hour in which it has a value, and dashboards take silence for zero.
    """
    is_idle = tick.decision.outcome is Outcome.IDLE
    yield from (datum for datum in _data(tick) if datum.value or not is_idle)


def _data(tick: TickResult) -> list[Datum]:
    workload = {names.DEPLOYMENT: tick.facts.deployment.name, names.WORKLOAD: tick.facts.workload}
    data = [
        Datum(name=name, value=float(value), dimensions=workload)
        for name, value in {
            **_flow(tick),
            **_cost(tick),
            **_trouble(tick),
            **_deadlines(tick.decision),
        }.items()
    ]
    deployment = {names.DEPLOYMENT: tick.facts.deployment.name}
    data += [
        Datum(name=name, value=value, dimensions=deployment) for name, value in _month(tick).items()
    ]
    data += _split(workload, "Workers", names.STATE, _states(tick))
    data += _split(workload, "LiveWorkers", names.CAPACITY_TYPE, _capacity_types(tick))
    types = Counter(w.instance_type for w in tick.workers if w.is_live)
    data += _split(workload, "WorkersOfType", names.INSTANCE_TYPE, types)
    outcomes = Counter(request.outcome.value for request in tick.record.requests)
    data += _split(workload, "LaunchRequests", names.OUTCOME, outcomes)
    pools = Counter(r.pool for request in tick.record.requests for r in request.refusals if r.pool)
    data += _split(workload, "Refusals", names.POOL, pools)
    return [*data, *alarm.measure(tick.alerts.standing, tick.untold, workload)]


def _split(
    workload: Mapping[str, str], name: str, dimension: str, values: Mapping[str, int]
) -> list[Datum]:
    return [
        Datum(name=name, value=value, dimensions={**workload, dimension: key})
        for key, value in values.items()
    ]


def _flow(tick: TickResult) -> Mapping[str, float]:
    backlog = tick.plan.fleet.remembered
    since, oldest = backlog.backlog_since, next(iter(backlog.waiting_since), None)
    return {
        "Ticks": 1,
        "TickSeconds": tick.seconds,
        "Backlog": tick.plan.fleet.queue.visible,
        "InFlight": tick.plan.fleet.queue.in_flight,
        "BacklogAge": (tick.facts.now - since).total_seconds() if since else 0,
        "WaitingAge": (tick.facts.now - oldest).total_seconds() if oldest else 0,
        "Held": tick.decision.outcome is Outcome.HELD,
        "InstancesLaunched": sum(len(request.instances) for request in tick.record.requests),
    }


def _cost(tick: TickResult) -> Mapping[str, float]:
    day = last_days(tick.facts.view.spend, tick.facts.now)
    values: dict[str, float] = {
        "Spend": sum(due.dollars for due in tick.charges),
        "SpendOnDemand": sum(due.on_demand_dollars for due in tick.charges),
        "IdleSeconds": sum(due.idle_seconds for due in tick.charges),
        "DollarsPerHour": dollars_per_hour(list(tick.workers)),
        "IdleBeyondExpectation": len(_idle_too_long(tick)),
    }
    if day.paid_seconds > 0:
        values["IdleShare"] = 100 * day.idle_seconds / day.paid_seconds
    values |= _gpu_use(tick)
    spend, now = tick.facts.view.spend, tick.facts.now
    span = last_days(spend, now, days_to_tell(spend, now))
    each = cost_per_item(
        dollars=span.dollars,
        items=span.items,
        busy_seconds=span.busy_seconds,
        paid_seconds=span.paid_seconds,
    )
    if each is not None:
        values |= {"CostPerItem": each.all_in, "CostPerItemBusy": each.busy}
    return values


def _gpu_use(tick: TickResult) -> Mapping[str, float]:
    """Return how the GPUs of busy workers are used, if any heartbeat has told."""
    percents = [
        (w.gpu_percent, w.vram_percent)
        for w in tick.workers
        if w.state is WorkerState.BUSY and w.gpu_percent is not None and w.vram_percent is not None
    ]
    if not percents:
        return {}
    return {
        "GpuPercent": sum(gpu for gpu, _ in percents) / len(percents),
        "VramPercent": max(vram for _, vram in percents),
    }


def _month(tick: TickResult) -> Mapping[str, float]:
    """Return what the deployment spends: now, and in ticks that have read it in the month."""
    charged = sum(due.dollars for due in tick.charges)
    values = {"SpendOfAll": charged} if charged else {}
    if tick.record.account is not None:
        row = tick.record.account.budget_at(tick.facts.now)
        values["SpendOfMonth"] = row.dollars
        most = tick.facts.deployment.budget_per_month
        if most:
            percent = 100 * row.committed / most
            # Used up is a budget that pays for no further work, though some cents are left.
            is_used_up = is_blocked_by_budget(tick.plan, tick.record) or any(
                worker.spent_at is not None and worker.is_live for worker in tick.workers
            )
            values["BudgetUsed"] = max(percent, 100.0) if is_used_up else percent
    return values


def _deadlines(decision: Decision) -> Mapping[str, float]:
    """Return how near the next deadline is, while a job has one."""
    if not decision.deadlines:
        return {}
    return {"DeadlineSlack": decision.deadlines[0].slack_seconds}


def _trouble(tick: TickResult) -> Mapping[str, float]:
    quotas = full_quotas(tick.seen, tick.plan, tick.record)
    values: dict[str, float] = {
        "InterruptingWorkers": sum(
            w.is_interrupting and w.state is not WorkerState.ENDED for w in tick.workers
        ),
        "PoolsCoolingDown": sum(
            x.is_active(tick.facts.now) for x in tick.record.pool_cooldowns.values()
        ),
        "QuotaBlocked": sum(q.until > tick.facts.now for q in quotas),
        "BreakerOpen": bool(open_breakers(tick.facts, tick.record.breakers)),
        "NothingFits": tick.decision.outcome is Outcome.NOTHING_FITS,
        "BudgetStopped": is_blocked_by_budget(tick.plan, tick.record),
        "CheckInsMissed": _silent_strikes(tick),
        "Condemned": len(tick.decision.condemned),
        "TerminationsHeldBack": is_held_back(tick.plan),
        "Interruptions": _interruptions(tick),
        "LeasesFreed": tick.record.leases_freed,
        # One that can be read and not added to shows as no more than what it refuses.
        "BadRows": max(len(tick.decision.bad_rows), int(tick.refused > 0)),
        "PolicyInvalid": bool(tick.facts.effective.refusal),
    }
    prices = tick.seen.prices
    # Where one is read for other reasons, no launch goes by it.
    if prices is not None and tick.plan.choice.candidates is not None:
        values["CatalogueAge"] = max((tick.facts.now - prices.oldest).total_seconds(), 0.0)
        if prices.spot_price_age is not None:
            values["SpotPriceAge"] = prices.spot_price_age.total_seconds()
    return values


def _states(tick: TickResult) -> Mapping[str, int]:
    # Every state each time, so that a graph falls to zero instead of ending.
    found = count_states(tick.workers)
    return {s.value: found.get(s.value, 0) for s in WorkerState if s is not WorkerState.ENDED}


def _capacity_types(tick: TickResult) -> Mapping[str, int]:
    found = Counter(w.capacity_type for w in tick.workers if w.is_live)
    return {kind.value: found[kind] for kind in CapacityType}


def _idle_too_long(tick: TickResult) -> list[Worker]:
    """Return workers that should be gone by now, whatever was decided of them: they still bill."""
    facts, now = tick.facts, tick.facts.now
    policy = replace(facts.policy, idle_timeout=facts.idle_timeout)
    late = {w.instance_id for w in find_unended(tick.workers, now)}
    return [
        w
        for w in tick.workers
        if w.instance_id in late
        or (
            w.state is not WorkerState.ENDED
            and w.useless_since is not None
            and now - w.useless_since > idle_within(facts.knowledge, policy, w.shape)
        )
    ]


def find_unended(workers: Iterable[Worker], now: datetime) -> list[Worker]:
    """Return the workers that EC2 was told to end and has not ended in time, the longest first."""
    late = [
        (w.condemned_at, w.instance_id, w)
        for w in workers
        if w.state is not WorkerState.ENDED
        and w.condemned_at is not None
        and now - w.condemned_at > _ENDED_WITHIN
    ]
    return [worker for *_, worker in sorted(late)]


def count_states(workers: Iterable[Worker]) -> Mapping[str, int]:
    """Return how many workers are in each state that is not ended."""
    counts = Counter(w.state for w in workers)
    del counts[WorkerState.ENDED]
    return {state.value: counts[state] for state in sorted(counts)}


def is_held_back(plan: Plan) -> bool:
    """Tell whether workers are left alone though they look dead."""
    return any(note.code in _HELD_BACK for note in plan.notes)


def is_blocked_by_budget(plan: Plan, record: TickRecord) -> bool:
    """Tell whether the month's budget keeps launches from being made."""
    return plan.choice.blocked_by.code in _BUDGET or record.ended_early.code in _BUDGET


def full_quotas(seen: Observation, plan: Plan, record: TickRecord) -> Sequence[QuotaRow]:
    """Return the quotas that are full: by EC2's word, or too short for what fits."""
    known = record.account.quotas if record.account else ()
    full = {row.quota_class for row in known if row.until > seen.facts.now}
    until = seen.facts.now + seen.facts.policy.tick
    short = (
        QuotaRow(quota_class=name, code=QUOTA_CODES.get(name.partition("/")[2], ""), until=until)
        for name in sorted(plan.quotas_short - full)
    )
    return (*known, *short)


def _silent_strikes(tick: TickResult) -> int:
    strikes = (action.reason.code for action in tick.done(ActionKind.COUNT))
    return sum(code is ReasonCode.STRIKES_SILENT for code in strikes)


def _interruptions(tick: TickResult) -> int:
    ends = (a for a in tick.done(ActionKind.END) if isinstance(a, EndRow))
    return sum(a.is_interruption for a in ends) + len(tick.done(ActionKind.INTERRUPT))

"""Say what a tick saw, decided and did: the decision for people, the metrics for graphs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime

from spindown.app.alarm import tell as alarm
from spindown.app.port import Datum
from spindown.app.reconcile.choose import Choice
from spindown.app.reconcile.tick import Tick
from spindown.contract import metric as names
from spindown.contract.decision import (
    CandidateRecord,
    Decision,
    Outcome,
    RejectionRecord,
    SizingRecord,
)
from spindown.contract.row import SPEND, SpendRow, spend_sort
from spindown.domain.cost import cost_per_item, dollars_per_hour
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.idle import idle_timeout
from spindown.domain.offer import CapacityType
from spindown.domain.ranking import Candidate, CandidateList, Rejection

#: Candidates that a decision spells out.
_SHOWN = 50


def decide(tick: Tick, choice: Choice, ended_early: str) -> Decision:
    """Return the whole decision of a tick."""
    outcome = _outcome(tick, choice, ended_early)
    candidates = choice.candidates
    nearest = candidates.nearest if candidates is not None and not len(candidates) else None
    notes = list(tick.notes)
    if nearest is not None:
        notes.append(f"nearest is {nearest.offer}: {nearest.reason}")
    if tick.journal.lost:
        notes.append(f"{tick.journal.lost} writes lost a race; the next tick looks again")
    budget = tick.account.budget_at(tick.now) if tick.account else None
    return Decision(
        workload=tick.workload,
        at=tick.now,
        outcome=outcome,
        summary=_summary(tick, choice, outcome, ended_early),
        source=tick.source,
        fence=tick.journal.fence,
        policy_version=tick.effective.version,
        policy_refusal=tick.effective.refusal,
        visible=tick.backlog.visible,
        in_flight=tick.backlog.in_flight,
        delayed=tick.backlog.delayed,
        backlog_since=tick.seen.backlog_since,
        workers=_by_state(tick),
        sizing=SizingRecord(
            need_items_per_hour=choice.sizing.need_items_per_hour,
            wanted=choice.sizing.wanted,
            waited_seconds=choice.sizing.waited.total_seconds(),
            reason=choice.sizing.reason,
        ),
        held_until=choice.sizing.hold_until,
        next_try_at=_next_try(tick, choice, outcome),
        candidates=_candidates(candidates),
        rejections=_rejections(candidates),
        attempts=tuple(tick.attempts),
        condemned=tuple(tick.condemned),
        ended=tuple(tick.ended),
        notes=tuple(notes),
        bad_rows=tick.view.bad_rows + (tick.account.bad_rows if tick.account else ()),
        month_dollars=budget.dollars if budget else None,
        month_committed=budget.committed if budget else None,
    )


def _outcome(tick: Tick, choice: Choice, ended_early: str) -> Outcome:
    if any(attempt.instances for attempt in tick.attempts):
        return Outcome.LAUNCHED
    if choice.sizing.hold_until is not None:
        return Outcome.HELD
    if choice.is_due:
        if choice.stopped:
            return Outcome.STOPPED
        if choice.candidates is not None and choice.candidates.best is None:
            return Outcome.HELD if choice.retry_at else Outcome.NOTHING_FITS
        return Outcome.REFUSED if tick.attempts else Outcome.STOPPED
    is_idle = tick.backlog.is_empty and not any(w.is_live for w in tick.workers.values())
    return Outcome.IDLE if is_idle and not ended_early else Outcome.ENOUGH


def _summary(tick: Tick, choice: Choice, outcome: Outcome, ended_early: str) -> str:
    match outcome:
        case Outcome.LAUNCHED:
            pools = Counter(p for a in tick.attempts for p in a.instances.values())
            is_new = any(a.outcome == "launched" for a in tick.attempts)
            said = "launched " if is_new else "adopted "
            said += ", ".join(f"{n} {pool}" for pool, n in sorted(pools.items()))
        case Outcome.HELD if choice.sizing.hold_until is None:
            said = f"no offer may be taken before {_clock(choice.retry_at)}"
            if choice.candidates is not None and choice.candidates.best is None:
                said += f": {choice.candidates.say_none()}"
        case Outcome.STOPPED:
            said = choice.stopped or ended_early
        case Outcome.NOTHING_FITS:
            found = choice.candidates
            said = f"no offer fits: {found.say_none() if found is not None else 'none is known'}"
        case Outcome.REFUSED:
            said = f"EC2 gave nothing in {len(tick.attempts)} requests"
        case Outcome.IDLE:
            return "nothing waits and nothing runs"
        case _:
            return choice.sizing.reason
    more = f"; {ended_early}" if ended_early and ended_early != said else ""
    return f"{said} ({choice.sizing.reason}){more}"


def _clock(at: datetime | None) -> str:
    return f"{at:%H:%M:%S}" if at else "now"


def _next_try(tick: Tick, choice: Choice, outcome: Outcome) -> datetime | None:
    if outcome in {Outcome.LAUNCHED, Outcome.IDLE, Outcome.ENOUGH}:
        return None
    return choice.retry_at or tick.now + tick.policy.tick


def _by_state(tick: Tick) -> Mapping[str, int]:
    counts = Counter(w.state for w in tick.workers.values())
    del counts[WorkerState.ENDED]
    return {state.value: counts[state] for state in sorted(counts)}


def _candidates(candidates: CandidateList | None) -> tuple[CandidateRecord, ...]:
    if candidates is None:
        return ()
    return tuple(record_candidate(c) for c in candidates.top(_SHOWN))


def record_candidate(candidate: Candidate) -> CandidateRecord:
    """Return a candidate as a decision spells it out."""
    parts = candidate.parts
    return CandidateRecord(
        offer=str(candidate.offer),
        region=candidate.offer.region,
        price_per_hour=candidate.offer.price,
        cost_per_item=candidate.cost_per_item,
        parts={
            "work": parts.work,
            "boot": parts.boot,
            "redo": parts.redo,
            "idle": parts.idle,
            "refund": -parts.refund,
            "transfer": parts.transfer,
        },
        items_per_hour=candidate.items_per_hour,
        measured=candidate.measured,
        interruptions_per_hour=candidate.interruption_rate,
    )


def _rejections(candidates: CandidateList | None) -> tuple[RejectionRecord, ...]:
    if candidates is None:
        return ()
    counts: Counter[str] = Counter()
    first: dict[str, Rejection] = {}
    for rejection in candidates.rejected:
        counts[rejection.constraint] += 1
        first.setdefault(rejection.constraint, rejection)
    return tuple(
        RejectionRecord(
            reason=constraint, offers=counts[constraint], example=f"{each.offer}: {each.reason}"
        )
        for constraint, each in sorted(first.items())
    )


def measure(tick: Tick, decision: Decision) -> Iterator[Datum]:
    """Yield the metrics of a tick, made when the first is asked for; see ``contract.metric``.

    While nothing waits and nothing runs, only what is not zero: CloudWatch bills a metric for
    each hour in which it has a value, and dashboards take silence for zero.
    """
    is_idle = decision.outcome is Outcome.IDLE
    yield from (datum for datum in _data(tick, decision) if datum.value or not is_idle)


def _data(tick: Tick, decision: Decision) -> list[Datum]:
    workload = {names.DEPLOYMENT: tick.deployment.name, names.WORKLOAD: tick.workload}
    data = [
        Datum(name=name, value=float(value), dimensions=workload)
        for name, value in {
            **_flow(tick, decision),
            **_cost(tick),
            **_trouble(tick, decision),
        }.items()
    ]
    deployment = {names.DEPLOYMENT: tick.deployment.name}
    data += [
        Datum(name=name, value=value, dimensions=deployment) for name, value in _month(tick).items()
    ]
    data += _split(workload, "Workers", names.STATE, _states(tick))
    data += _split(workload, "LiveWorkers", names.CAPACITY_TYPE, _capacity_types(tick))
    types = Counter(w.instance_type for w in tick.workers.values() if w.is_live)
    data += _split(workload, "WorkersOfType", names.INSTANCE_TYPE, types)
    outcomes = Counter(attempt.outcome for attempt in tick.attempts)
    data += _split(workload, "LaunchAttempts", names.OUTCOME, outcomes)
    pools = Counter(r.pool for attempt in tick.attempts for r in attempt.refusals if r.pool)
    data += _split(workload, "Refusals", names.POOL, pools)
    return [*data, *alarm.measure(tick.concerns.standing, tick.untold, workload)]


def _split(
    workload: Mapping[str, str], name: str, dimension: str, values: Mapping[str, int]
) -> list[Datum]:
    return [
        Datum(name=name, value=value, dimensions={**workload, dimension: key})
        for key, value in values.items()
    ]


def _flow(tick: Tick, decision: Decision) -> Mapping[str, float]:
    since = tick.seen.backlog_since
    return {
        "Ticks": 1,
        "TickSeconds": (tick.ports.clock.now() - tick.now).total_seconds(),
        "Backlog": tick.backlog.visible,
        "InFlight": tick.backlog.in_flight,
        "BacklogAge": (tick.now - since).total_seconds() if since else 0,
        "Held": decision.outcome is Outcome.HELD,
        "InstancesLaunched": sum(len(attempt.instances) for attempt in tick.attempts),
    }


def _cost(tick: Tick) -> Mapping[str, float]:
    today = tick.view.spend.get(spend_sort(tick.now).removeprefix(SPEND), SpendRow())
    paid = today.boot_seconds + today.busy_seconds + today.idle_seconds
    values: dict[str, float] = {
        "Spend": tick.tally.dollars,
        "SpendOnDemand": tick.tally.on_demand_dollars,
        "IdleSeconds": tick.tally.idle_seconds,
        "DollarsPerHour": dollars_per_hour(list(tick.workers.values())),
        "IdleBeyondExpectation": len(_idle_too_long(tick)),
    }
    if paid > 0:
        values["IdleShare"] = 100 * today.idle_seconds / paid
    values |= _gpu_use(tick)
    each = cost_per_item(
        dollars=today.dollars,
        items=today.items,
        busy_seconds=today.busy_seconds,
        paid_seconds=paid,
    )
    if each is not None:
        values |= {"CostPerItem": each.all_in, "CostPerItemBusy": each.busy}
    return values


def _gpu_use(tick: Tick) -> Mapping[str, float]:
    """Return how the GPUs of busy workers are used, if any heartbeat has told."""
    told = [
        (w.gpu_percent, w.vram_percent)
        for w in tick.workers.values()
        if w.state is WorkerState.BUSY and w.gpu_percent is not None and w.vram_percent is not None
    ]
    if not told:
        return {}
    return {
        "GpuPercent": sum(gpu for gpu, _ in told) / len(told),
        "VramPercent": max(vram for _, vram in told),
    }


def _month(tick: Tick) -> Mapping[str, float]:
    """Return what the deployment spends: now, and in ticks that have read it in the month."""
    values = {"SpendOfAll": tick.tally.dollars} if tick.tally.dollars else {}
    if tick.account is not None:
        row = tick.account.budget_at(tick.now)
        values["SpendOfMonth"] = row.dollars
        most = tick.deployment.budget_per_month
        if most:
            values["BudgetUsed"] = 100 * row.committed / most
    return values


def _trouble(tick: Tick, decision: Decision) -> Mapping[str, float]:
    quotas = tick.account.quotas if tick.account else ()
    tally = tick.tally
    values: dict[str, float] = {
        "InterruptingWorkers": sum(
            w.is_interrupting and w.state is not WorkerState.ENDED for w in tick.workers.values()
        ),
        "UnavailablePools": sum(u.until > tick.now for u in tick.unavailable.values()),
        "QuotaBlocked": sum(q.until > tick.now for q in quotas),
        "BreakerOpen": tick.open_breaker is not None,
        "NothingFits": decision.outcome is Outcome.NOTHING_FITS,
        "BudgetStopped": tick.budget_stopped,
        "CheckInsMissed": tally.check_ins_missed,
        "Condemned": len(tick.condemned),
        "ReapingHeldBack": tick.held_back,
        "Interruptions": tally.interruptions,
        "LeasesFreed": tally.leases_freed,
        "BadRows": len(decision.bad_rows),
        "PolicyInvalid": bool(tick.effective.refusal),
    }
    if tick.catalogue_age is not None:
        values["CatalogueAge"] = tick.catalogue_age.total_seconds()
    return values


def _states(tick: Tick) -> Mapping[str, int]:
    # Every state each time, so that a graph falls to zero instead of ending.
    found = _by_state(tick)
    return {s.value: found.get(s.value, 0) for s in WorkerState if s is not WorkerState.ENDED}


def _capacity_types(tick: Tick) -> Mapping[str, int]:
    found = Counter(w.capacity_type for w in tick.workers.values() if w.is_live)
    return {kind.value: found[kind] for kind in CapacityType}


def _idle_too_long(tick: Tick) -> list[Worker]:
    """Return workers that should have ended by themselves by now."""
    expected = idle_timeout(tick.knowledge, tick.policy) + tick.policy.scale_down_delay
    return [
        w
        for w in tick.workers.values()
        if w.state is WorkerState.IDLE
        and w.useless_since is not None
        and tick.now - w.useless_since > expected
    ]

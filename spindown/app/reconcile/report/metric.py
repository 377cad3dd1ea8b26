"""Say for graphs what a tick saw and did: its metrics."""

from collections import Counter
from collections.abc import Iterator, Mapping

from spindown.app.alarm import tell as alarm
from spindown.app.port import Datum
from spindown.app.reconcile.report.decision import by_state
from spindown.app.reconcile.tick import Tick
from spindown.contract import metric as names
from spindown.contract.decision import (
    Decision,
    Outcome,
)
from spindown.contract.row import SPEND, SpendRow, spend_sort
from spindown.domain.cost import cost_per_item, dollars_per_hour
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.offer import CapacityType


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
            **_deadlines(decision),
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
    return [*data, *alarm.measure(tick.alerts.standing, tick.untold, workload)]


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
        "Spend": sum(due.dollars for due in tick.charges),
        "SpendOnDemand": sum(due.on_demand_dollars for due in tick.charges),
        "IdleSeconds": sum(due.idle_seconds for due in tick.charges),
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
    charged = sum(due.dollars for due in tick.charges)
    values = {"SpendOfAll": charged} if charged else {}
    if tick.account is not None:
        row = tick.account.budget_at(tick.now)
        values["SpendOfMonth"] = row.dollars
        most = tick.deployment.budget_per_month
        if most:
            values["BudgetUsed"] = 100 * row.committed / most
    return values


def _deadlines(decision: Decision) -> Mapping[str, float]:
    """Return how near the next deadline is, while a job has one."""
    if not decision.deadlines:
        return {}
    return {"DeadlineSlack": decision.deadlines[0].slack_seconds}


def _trouble(tick: Tick, decision: Decision) -> Mapping[str, float]:
    quotas = tick.account.quotas if tick.account else ()
    tally = tick.tally
    values: dict[str, float] = {
        "InterruptingWorkers": sum(
            w.is_interrupting and w.state is not WorkerState.ENDED for w in tick.workers.values()
        ),
        "UnavailablePools": sum(u.until > tick.now for u in tick.unavailable.values()),
        "QuotaBlocked": sum(q.until > tick.now for q in quotas),
        "BreakerOpen": bool(tick.open_breakers),
        "NothingFits": decision.outcome is Outcome.NOTHING_FITS,
        "BudgetStopped": tick.budget_stopped,
        "CheckInsMissed": tally.check_ins_missed,
        "Condemned": len(tick.condemned),
        "ReapingHeldBack": tick.held_back,
        "Interruptions": tally.interruptions,
        "LeasesFreed": tally.leases_freed,
        # One that can be read and not added to shows as no more than what it refuses.
        "BadRows": max(len(decision.bad_rows), int(tick.journal.refused > 0)),
        "PolicyInvalid": bool(tick.effective.refusal),
    }
    if tick.catalogue_age is not None:
        values["CatalogueAge"] = tick.catalogue_age.total_seconds()
    if tick.spot_price_age is not None:
        values["SpotPriceAge"] = tick.spot_price_age.total_seconds()
    return values


def _states(tick: Tick) -> Mapping[str, int]:
    # Every state each time, so that a graph falls to zero instead of ending.
    found = by_state(tick)
    return {s.value: found.get(s.value, 0) for s in WorkerState if s is not WorkerState.ENDED}


def _capacity_types(tick: Tick) -> Mapping[str, int]:
    found = Counter(w.capacity_type for w in tick.workers.values() if w.is_live)
    return {kind.value: found[kind] for kind in CapacityType}


def _idle_too_long(tick: Tick) -> list[Worker]:
    """Return workers that should have ended by themselves by now."""
    expected = tick.idle_timeout + tick.policy.scale_down_delay
    return [
        w
        for w in tick.workers.values()
        if w.state is WorkerState.IDLE
        and w.useless_since is not None
        and tick.now - w.useless_since > expected
    ]

"""Tell why an item costs more than it used to, and which setting to change.

Once an hour, after the refresh of the offers: the last week is compared with the weeks before
(``domain.cost_rise``), and the part of the cost that moved most is named. A cause is told once a
day, until the cost is down or a person accepts it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime

from spindown.contract import row as rows
from spindown.contract.metric import CAUSE
from spindown.contract.settings import WorkloadSettings
from spindown.control.alert.tell import measure, of_workload, remember, tell
from spindown.control.market import current_offers
from spindown.control.policy_edit import effective_policy
from spindown.control.spend import window_of
from spindown.domain.alert import SAID_AGAIN_AFTER, Alert, AlertState, review
from spindown.domain.cost_rise import RiseFound, find_rise
from spindown.domain.cost_rise_cause import Diagnosis, Fit, diagnose
from spindown.domain.offer import CapacityType, Offer
from spindown.domain.policy import Policy
from spindown.domain.requirement import misfit
from spindown.ledger import Ledger, LedgerView
from spindown.port import ControlPorts, Datum
from spindown.reason_text import say, say_remedy

#: What the name of each alert of ours begins with.
COST = "cost-"
#: So much more GPU memory than was ever used a smaller machine should have.
_ROOM = 1.25
_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What was found out about the costs of one workload."""

    workload: str
    #: None: an item costs what it usually does, or too little is known.
    diagnosis: Diagnosis | None = None
    #: Why it could not be found out; "": it could.
    failure: str = ""


def judge(ports: ControlPorts) -> tuple[Judgement, ...]:
    """Judge the cost of every workload, tell people, say what one warm machine would cost."""
    return tuple(_try(name, ports) for name in ports.deployment().workloads)


def _try(workload: str, ports: ControlPorts) -> Judgement:
    try:
        return _judge(workload, ports)
    except Exception as exc:  # noqa: BLE001 - an edge: it must not keep the others from theirs
        return Judgement(workload=workload, failure=str(exc) or type(exc).__name__)


def _judge(workload: str, ports: ControlPorts) -> Judgement:
    ledger, now = Ledger(ports.table, workload), ports.clock.now()
    view = ledger.read()
    dimensions = of_workload(ports.name, workload)
    ports.metrics.emit(_warm_dollars(_offers(workload, view, ports), dimensions))
    settings, edit = ports.settings.workload(workload)
    found_rise = rise_of(view, effective_policy(settings, edit, view.policy).policy, now)
    _remember_rise(found_rise, view, ledger)
    diagnosis = None
    if found_rise is not None:
        fit = _fit(workload, view, ports)
        diagnosis = diagnose(found_rise.now, found_rise.rise.usual, fit=fit)
    alerts = [] if diagnosis is None else [_alert(workload, diagnosis)]
    known: dict[str, AlertState] = {
        name: alert_state for name, alert_state in view.alerts.items() if name.startswith(COST)
    }
    found = review(alerts, known, now)
    for write in remember(found, ledger):
        ledger.write(write)
    untold = tell(found, workload, ports, ledger)
    data = measure(found.standing, untold, dimensions)
    if diagnosis is not None:
        by_cause = {**dimensions, CAUSE: diagnosis.cause.value}
        data.append(Datum(name="CostRaised", value=1, dimensions=dimensions))
        data.append(Datum(name="CostRise", value=diagnosis.dollars, dimensions=by_cause))
    ports.metrics.emit(data)
    return Judgement(workload=workload, diagnosis=diagnosis)


def rise_of(view: LedgerView, policy: Policy, now: datetime) -> RiseFound | None:
    """Return the rise of the cost of an item that stands now; None: it costs what is usual."""
    return find_rise(
        {date.fromisoformat(day): window_of(row) for day, row in view.spend.items()},
        now,
        limit=policy.alarm_cost_rise,
        standing=view.cost_rise,
        accepted=view.accepted[-1] if view.accepted else None,
    )


def _remember_rise(found: RiseFound | None, view: LedgerView, ledger: Ledger) -> None:
    if found is None and view.cost_rise is not None:
        ledger.write(ledger.delete(rows.COST_RISE))
    elif found is not None and found.rise != view.cost_rise:
        ledger.write(ledger.put(rows.COST_RISE, found.rise))


def _alert(workload: str, diagnosis: Diagnosis) -> Alert:
    return Alert(
        name=COST + diagnosis.cause.value.replace(" ", "-"),
        says=f"{workload}: {say(diagnosis.reason)}",
        remedy=f"{say_remedy(diagnosis.reason)} If it may cost so much, run `spindown policy "
        f"accept-cost {workload}`.",
        rest=SAID_AGAIN_AFTER,
    )


def _fit(workload: str, view: LedgerView, ports: ControlPorts) -> Fit | None:
    """Return how much of the GPUs was used lately, and what smaller machine would do.

    None: no heartbeat has told of a GPU at work.
    """
    days = [row for _, row in sorted(view.spend.items()) if row.gpu_seconds > 0.0]
    if not days:
        return None
    used = days[-1]
    cheapest = min(
        _offers(workload, view, ports, vram_gib=used.vram_gib_max),
        key=lambda offer: offer.price,
        default=None,
    )
    return Fit(
        gpu_mean=used.gpu_percent_seconds / used.gpu_seconds,
        vram_max=used.vram_percent_seconds / used.gpu_seconds,
        cheapest_price=cheapest.price if cheapest else None,
        cheapest_offer=str(cheapest.instance_type.name) if cheapest else "",
    )


def _offers(
    workload: str, view: LedgerView, ports: ControlPorts, *, vram_gib: float | None = None
) -> list[Offer]:
    """Return the offers that fit and have a price; with ``vram_gib`` all that would hold it."""
    settings, edit = ports.settings.workload(workload)
    policy = effective_policy(settings, edit, view.policy).policy
    if vram_gib is not None:
        settings = _loosened(settings, vram_gib)
    priced = current_offers(
        settings,
        policy,
        home_region=ports.deployment().region,
        ports=ports,
        now=ports.clock.now(),
    )
    return [
        offer
        for offer in priced.offers
        if offer.instance_price > 0.0 and misfit(offer.instance_type, settings.requirements) is None
    ]


def _loosened(settings: WorkloadSettings, vram_gib: float) -> WorkloadSettings:
    """Return settings that ask for any GPU with the memory that was used, and some more."""
    loose = replace(
        settings.requirements,
        gpu_names=None,
        instance_types=None,
        gpu_memory_mib_min=round(vram_gib * _ROOM * _MIB_PER_GIB),
    )
    return replace(settings, requirements=loose)


def _warm_dollars(offers: list[Offer], dimensions: Mapping[str, str]) -> list[Datum]:
    """Return what the cheapest machine that fits, kept on demand, costs in this hour."""
    prices = [o.price for o in offers if o.capacity_type is CapacityType.ON_DEMAND]
    if not prices:
        return []
    return [Datum(name="WarmDollars", value=min(prices), dimensions=dimensions)]

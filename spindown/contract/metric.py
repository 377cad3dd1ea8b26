"""The one table of metrics: name, unit, dimensions, who emits it, and how to read it.

Dashboards and alarms are built from it, emitters name their data by it, and tests hold all
three to it. Values of dollars are estimates at the price stamped at launch.

Dollars and idle time come in lumps, since a worker is charged every five minutes
(``control.plan.charge.CHARGED_EVERY``): sums of them tell something from an hour on.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from spindown.domain.reason import ReasonCode

DEPLOYMENT = "Deployment"
WORKLOAD = "Workload"
STATE = "State"
CAPACITY_TYPE = "CapacityType"
INSTANCE_TYPE = "InstanceType"
OUTCOME = "Outcome"
REASON = "Reason"
SOURCE = "Source"
FUNCTION = "Function"
POOL = "Pool"
ALERT = "Alert"
CAUSE = "Cause"


#: Reason of ``DeadLettered`` of a job that was given up, by the code of its manifest.
_CLASSES = {
    ReasonCode.FAILED_TOO_OFTEN.value: "failures",
    ReasonCode.FAILED_ON_SEVERAL.value: "failures",
    ReasonCode.NEVER_DONE.value: "interruptions",
}


def class_of(code: str) -> str:
    """Return what the metric of dead letters calls a job that was given up with a code.

    Its input is bad where there is none.
    """
    return _CLASSES.get(code, code or "input")


class Unit(StrEnum):
    """CloudWatch's units, as far as we use them."""

    COUNT = "Count"
    SECONDS = "Seconds"
    PERCENT = "Percent"
    #: Dollars, which CloudWatch has no unit for.
    NONE = "None"


class Emitter(StrEnum):
    """Who emits a metric."""

    SCALER = "scaler"
    INTERRUPTION = "interruption"
    OFFERS = "offers"
    INTAKE = "intake"
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of the namespace Spindown."""

    name: str
    unit: Unit
    dimensions: tuple[str, ...]
    emitters: frozenset[Emitter]
    description: str


_Row = tuple[str, Unit, tuple[str, ...], frozenset[Emitter], str]

_SCALER = frozenset({Emitter.SCALER})
_EVENTS = frozenset({Emitter.SCALER, Emitter.INTERRUPTION})
_OFFERS = frozenset({Emitter.OFFERS})
_TELLERS = frozenset({Emitter.SCALER, Emitter.OFFERS})
_WORKER = frozenset({Emitter.WORKER})
_INTAKE = frozenset({Emitter.INTAKE})
_GIVERS_UP = _WORKER | _INTAKE
_COUNT, _SECONDS, _PERCENT, _DOLLARS = Unit.COUNT, Unit.SECONDS, Unit.PERCENT, Unit.NONE

_PER_WORKLOAD: tuple[_Row, ...] = (
    # Is work flowing?
    ("Backlog", _COUNT, (), _SCALER, "Visible messages, as the tick read them."),
    ("InFlight", _COUNT, (), _SCALER, "Messages received and not yet deleted."),
    ("BacklogAge", _SECONDS, (), _SCALER, "Since when work waits with no claim; 0 if none."),
    ("WaitingAge", _SECONDS, (), _SCALER, "How long the oldest visible message is so; 0: none."),
    ("DeadlineSlack", _SECONDS, (), _SCALER, "Time left beyond a job's work, the least of all."),
    ("Held", _COUNT, (), _SCALER, "1 while a launch waits for more work or a lower price."),
    ("ItemsDone", _COUNT, (), _WORKER, "Items committed with status ok."),
    ("ItemsFailed", _COUNT, (), _WORKER, "Items committed with status failed."),
    ("ItemsRedone", _COUNT, (), _WORKER, "Items computed again after an interruption or loss."),
    ("JobsCompleted", _COUNT, (), _WORKER, "Jobs that are over, without a failed item."),
    ("JobsFailed", _COUNT, (), _GIVERS_UP, "Jobs that are over: an item failed, or given up."),
    ("DeadLettered", _COUNT, (REASON,), _GIVERS_UP, "Messages sent to the dead-letter queue."),
    ("JobsRouted", _COUNT, (), _INTAKE, "Messages sent to the queue of their shape."),
    ("JobsNotRouted", _COUNT, (), _INTAKE, "Messages that could not be routed yet."),
    ("JobsRerouted", _COUNT, (), _WORKER, "Jobs handed to a machine of another shape."),
    ("WaitSeconds", _SECONDS, (), _WORKER, "From a message sent to its first item with code."),
    ("JobSeconds", _SECONDS, (), _WORKER, "Time in which a job was worked on, over all epochs."),
    ("CommitSeconds", _SECONDS, (), _WORKER, "Time that one commit took."),
    # What does it cost?
    ("Spend", _DOLLARS, (), _SCALER, "Dollars accrued; sum it. Refunds of EC2 are negative."),
    ("SpendOnDemand", _DOLLARS, (), _SCALER, "The same hours at the on-demand price; sum it."),
    ("WarmDollars", _DOLLARS, (), _OFFERS, "An hour of one warm machine, on demand; sum it."),
    ("CostRise", _DOLLARS, (CAUSE,), _OFFERS, "What a cause has added to the cost of an item."),
    ("CostRaised", _COUNT, (), _OFFERS, "1 while an item costs more than it used to."),
    ("DollarsPerHour", _DOLLARS, (), _SCALER, "What the instances of the moment cost an hour."),
    ("CostPerItem", _DOLLARS, (), _SCALER, "Dollars by items, of a day or until ten items."),
    ("CostPerItemBusy", _DOLLARS, (), _SCALER, "The share of it in which slots were busy."),
    ("BudgetStopped", _COUNT, (), _SCALER, "1 while the budget stops launches."),
    # Who works?
    ("Workers", _COUNT, (STATE,), _SCALER, "Workers by state."),
    ("LiveWorkers", _COUNT, (CAPACITY_TYPE,), _SCALER, "Workers that bill, by capacity type."),
    ("WorkersOfType", _COUNT, (INSTANCE_TYPE,), _SCALER, "Workers that bill, by instance type."),
    ("InterruptingWorkers", _COUNT, (), _SCALER, "Workers that EC2 is taking away."),
    ("InstancesLaunched", _COUNT, (), _SCALER, "Instances that launches gave."),
    ("GpuPercent", _PERCENT, (), _SCALER, "Time in which GPUs of busy workers computed."),
    ("VramPercent", _PERCENT, (), _SCALER, "Memory of their GPUs that was used at the most."),
    ("BootSeconds", _SECONDS, (), _WORKER, "From the launch to the first item with code."),
    # What went wrong?
    ("LaunchRequests", _COUNT, (OUTCOME,), _SCALER, "Launch calls by outcome."),
    ("Refusals", _COUNT, (POOL,), _SCALER, "Refusals of EC2's by pool."),
    ("Alerts", _COUNT, (ALERT,), _TELLERS, "1 while something waits for a person to fix it."),
    ("PoolsCoolingDown", _COUNT, (), _SCALER, "Pools that cool down after a refusal or a reclaim."),
    ("QuotaBlocked", _COUNT, (), _SCALER, "Quota classes that are full."),
    ("BreakerOpen", _COUNT, (), _SCALER, "1 while launching is stopped until it is fixed."),
    ("NothingFits", _COUNT, (), _SCALER, "1 while work waits and no offer may be taken."),
    ("CheckInsMissed", _COUNT, (), _SCALER, "Instances that never checked in."),
    ("Condemned", _COUNT, (), _SCALER, "Workers that the scaler decided to terminate."),
    ("TerminationsHeldBack", _COUNT, (), _SCALER, "1 while most workers look stale at once."),
    ("Interruptions", _COUNT, (), _SCALER, "Spot instances that EC2 has taken back."),
    ("LeasesFreed", _COUNT, (), _SCALER, "Jobs requeued because their worker is gone."),
    ("BadRows", _COUNT, (), _SCALER, "Ledger rows that could not be read, or not added to."),
    ("PolicyInvalid", _COUNT, (), _SCALER, "1 while the live policy is refused."),
    ("LockBusy", _COUNT, (), _SCALER, "Ticks that found another one at work."),
    # Is it idle?
    ("IdleShare", _PERCENT, (), _SCALER, "Idle time of the last day's paid time."),
    ("IdleSeconds", _SECONDS, (), _SCALER, "Paid time in which no slot had a job; sum it."),
    ("IdleBeyondExpectation", _COUNT, (), _SCALER, "Workers idle longer than they should be."),
    # Is Spindown itself well?
    ("Ticks", _COUNT, (), _SCALER, "Ticks carried out; none for minutes is an alarm."),
    ("TickSeconds", _SECONDS, (), _SCALER, "Time that one tick took."),
    ("CatalogueAge", _SECONDS, (), _SCALER, "Age of the catalogue that offers come from."),
    ("SpotPriceAge", _SECONDS, (), _SCALER, "Age of the spot prices that offers go by."),
)
_PER_DEPLOYMENT: tuple[_Row, ...] = (
    ("SpendOfAll", _DOLLARS, (), _SCALER, "Dollars accrued by all workloads; sum it."),
    ("Untold", _COUNT, (), _TELLERS, "Texts to people that the topic did not take."),
    ("SpendOfMonth", _DOLLARS, (), _SCALER, "The deployment's dollars of this month."),
    (
        "BudgetUsed",
        _PERCENT,
        (),
        _SCALER,
        "Spent or set aside of the budget; 100 once it is used up.",
    ),
    ("MalformedEvents", _COUNT, (FUNCTION,), _EVENTS, "Events that could not be read."),
    ("CatalogueTypes", _COUNT, (), _OFFERS, "Instance types in the catalogue."),
    ("CatalogueSourceAge", _SECONDS, (SOURCE,), _OFFERS, "Age of a part of the catalogue."),
)


def _metrics(first: tuple[str, ...], table: tuple[_Row, ...]) -> Iterator[Metric]:
    for name, unit, more, emitters, description in table:
        yield Metric(
            name=name,
            unit=unit,
            dimensions=(*first, *more),
            emitters=emitters,
            description=description,
        )


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        *_metrics((DEPLOYMENT, WORKLOAD), _PER_WORKLOAD),
        *_metrics((DEPLOYMENT,), _PER_DEPLOYMENT),
    )
}


def say_metric(name: str) -> str:
    """Return the name of a metric in words: ``ItemsDone`` is "items done"."""
    return _WORD.sub(r" \1", name.removeprefix("ApproximateNumberOf")).lower()


#: Where a word begins, but for the first.
_WORD = re.compile(r"(?<!^)([A-Z])")

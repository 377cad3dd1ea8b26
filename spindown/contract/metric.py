"""The one table of metrics: name, unit, dimensions, who emits it, and how to read it.

Dashboards and alarms are built from it, emitters name their data by it, and tests hold all
three to it. Values of dollars are estimates at the price stamped at launch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

DEPLOYMENT = "Deployment"
WORKLOAD = "Workload"
STATE = "State"
CAPACITY_TYPE = "CapacityType"
OUTCOME = "Outcome"
REASON = "Reason"
SOURCE = "Source"
FUNCTION = "Function"


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
    WORKER = "worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of the namespace Spindown."""

    name: str
    unit: Unit
    dimensions: tuple[str, ...]
    emitters: frozenset[Emitter]
    description: str


def _rows() -> tuple[Metric, ...]:
    per_workload = (DEPLOYMENT, WORKLOAD)
    scaler = {Emitter.SCALER}
    both = {Emitter.SCALER, Emitter.INTERRUPTION}
    offers = {Emitter.OFFERS}
    worker = {Emitter.WORKER}
    count, seconds, percent, dollars = Unit.COUNT, Unit.SECONDS, Unit.PERCENT, Unit.NONE
    table = (
        # Is work flowing?
        ("Backlog", count, (), scaler, "Visible messages, as the tick read them."),
        ("InFlight", count, (), scaler, "Messages received and not yet deleted."),
        ("BacklogAge", seconds, (), scaler, "Since when work waits with no claim; 0 if none."),
        ("Held", count, (), scaler, "1 while a launch waits for more work or a lower price."),
        ("ItemsDone", count, (), worker, "Items committed with status ok."),
        ("ItemsFailed", count, (), worker, "Items committed with status failed."),
        ("ItemsRedone", count, (), worker, "Items computed again after an interruption or loss."),
        ("JobsCompleted", count, (), worker, "Jobs finished."),
        ("JobsFailed", count, (), worker, "Failures and losses that counted against a job."),
        ("DeadLettered", count, (REASON,), worker, "Messages sent to the dead-letter queue."),
        ("WaitSeconds", seconds, (), worker, "From a message sent to its first claim."),
        ("JobSeconds", seconds, (), worker, "Time in which a job was worked on, over all epochs."),
        ("CommitSeconds", seconds, (), worker, "Time that one commit took."),
        # What does it cost?
        ("Spend", dollars, (), both, "Dollars accrued; sum it. Refunds of EC2 are negative."),
        ("SpendOnDemand", dollars, (), both, "The same hours at the on-demand price; sum it."),
        ("DollarsPerHour", dollars, (), scaler, "What the instances of the moment cost an hour."),
        ("CostPerItem", dollars, (), scaler, "Today's dollars by today's items, all in."),
        ("CostPerItemBusy", dollars, (), scaler, "The share of it in which slots were busy."),
        ("SpendOfMonth", dollars, (), scaler, "The deployment's dollars of this month."),
        ("BudgetUsed", percent, (), scaler, "Spent and set aside, of the month's budget."),
        ("BudgetStopped", count, (), scaler, "1 while the budget stops launches."),
        # Who works?
        ("Workers", count, (STATE,), scaler, "Workers by state."),
        ("LiveWorkers", count, (CAPACITY_TYPE,), scaler, "Workers that bill, by capacity type."),
        ("InterruptingWorkers", count, (), scaler, "Workers that EC2 is taking away."),
        ("InstancesLaunched", count, (), scaler, "Instances that launches gave."),
        ("BootSeconds", seconds, (), worker, "From the launch to the check-in."),
        # What went wrong?
        ("LaunchAttempts", count, (OUTCOME,), scaler, "Launch calls by outcome."),
        ("UnavailablePools", count, (), scaler, "Pools remembered as dry or reclaimed."),
        ("QuotaBlocked", count, (), scaler, "Quota classes that are full."),
        ("BreakerOpen", count, (), scaler, "1 while launching is stopped until it is mended."),
        ("NothingFits", count, (), scaler, "1 while work waits and no offer may be taken."),
        ("CheckInsMissed", count, (), scaler, "Instances that never checked in."),
        ("Condemned", count, (), scaler, "Workers that reconcile decided to terminate."),
        ("ReapingHeldBack", count, (), scaler, "1 while most workers look stale at once."),
        ("Interruptions", count, (), both, "Spot instances that EC2 has taken back."),
        ("LeasesFreed", count, (), both, "Jobs requeued because their worker is gone."),
        ("BadRows", count, (), scaler, "Ledger rows that could not be read."),
        ("PolicyInvalid", count, (), scaler, "1 while the live policy is refused."),
        ("LockBusy", count, (), scaler, "Reconciles that found another one at work."),
        # Is it idle?
        ("IdleShare", percent, (), scaler, "Idle time of today's paid time."),
        ("IdleSeconds", seconds, (), both, "Paid time in which no slot had a job; sum it."),
        ("IdleBeyondExpectation", count, (), scaler, "Workers idle longer than they should be."),
        # Is Spindown itself well?
        ("Ticks", count, (), scaler, "Reconciles carried out; none for minutes is an alarm."),
        ("TickSeconds", seconds, (), scaler, "Time that one reconcile took."),
        ("CatalogueAge", seconds, (), scaler, "Age of the catalogue that offers come from."),
    )
    shared = (
        ("MalformedEvents", count, (FUNCTION,), both, "Events that could not be read."),
        ("CatalogueTypes", count, (), offers, "Instance types in the catalogue."),
        ("CatalogueSourceAge", seconds, (SOURCE,), offers, "Age of a part of the catalogue."),
    )
    return tuple(
        Metric(
            name=name,
            unit=unit,
            dimensions=(*first, *more),
            emitters=frozenset(emitters),
            description=description,
        )
        for first, part in ((per_workload, table), ((DEPLOYMENT,), shared))
        for name, unit, more, emitters, description in part
    )


METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _rows()}

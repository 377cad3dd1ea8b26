"""The dashboard of the whole deployment: a line for each workload, and what they share."""

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from spindown.contract.metric import ALERT, CAPACITY_TYPE, FUNCTION, SOURCE, WORKLOAD
from spindown.infra.observability.dashboard_layout import Graph, Section, lay_out, show_alarms
from spindown.infra.observability.metric import (
    DAY,
    FIVE_MINUTES,
    FUNCTION_DOLLARS,
    HOUR,
    MINUTE,
    MetricScope,
    function_metrics,
)


class OverviewDashboard(Construct):
    """The dashboard ``{deployment}``; searches find the workloads, however many there are."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        metrics: MetricScope,
        alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        super().__init__(scope, construct_id)
        dashboard = cloudwatch.Dashboard(
            self, "Dashboard", dashboard_name=metrics.name, start="-P1D"
        )
        show_alarms(dashboard, f"Alarms of {metrics.deployment}", alarms)
        lay_out(
            dashboard,
            [
                _flow(metrics),
                _cost(metrics),
                _workers(metrics),
                _trouble(metrics),
                _idleness(metrics),
                _health(metrics),
            ],
        )


def _lines(
    metrics: MetricScope,
    title: str,
    name: str,
    statistic: str,
    unit: str,
    *,
    hourly: bool = False,
) -> Graph:
    period = HOUR if hourly else FIVE_MINUTES
    found = metrics.search(name, statistic, by=WORKLOAD, period=period)
    return Graph(title=title, left=[found], left_label=unit)


def _flow(metrics: MetricScope) -> Section:
    return Section(
        title="Is work flowing?",
        explanation=(
            "Each workload is one line. Where the backlog only rises and no items are done, work "
            "is stuck: open the dashboard of that workload."
        ),
        graphs=[
            _lines(metrics, "Backlog", "Backlog", "Maximum", "messages"),
            _lines(metrics, "Backlog without a claim", "BacklogAge", "Maximum", "seconds"),
            _lines(metrics, "Items done", "ItemsDone", "Sum", "items in 5 minutes"),
            _lines(metrics, "Slack to the next deadline", "DeadlineSlack", "Minimum", "seconds"),
            _lines(metrics, "Messages routed by type", "JobsRouted", "Sum", "in 5 minutes"),
        ],
    )


def _cost(metrics: MetricScope) -> Section:
    spend, on_demand, warm = (
        metrics.search(name, "Sum", by=WORKLOAD, period=DAY, function="SUM", label=label)
        for name, label in (
            ("Spend", "spent"),
            ("SpendOnDemand", "the same hours on demand"),
            ("WarmDollars", "one machine a workload kept warm the whole day"),
        )
    )
    control_plane = cloudwatch.MathExpression(
        expression=FUNCTION_DOLLARS,
        using_metrics=function_metrics(metrics, DAY),
        label="control plane (functions)",
        period=DAY,
    )
    return Section(
        title="What does it cost?",
        explanation=(
            "What workers cost, estimated from the price of each launch. The line of the control "
            "plane is the cost of its functions; alarms, dashboards and metrics cost a fixed "
            "amount more. What the same hours cost on demand, less what was spent, is what spot "
            "saves. The line of machines kept warm is no cost of yours: it is what one machine of "
            "each workload would cost if it never ended: of a day with little work, as the first, "
            "it is no fair comparison. Of today all lines are the day so far."
        ),
        graphs=[
            _lines(metrics, "Cost per item, a day or ten items", "CostPerItem", "Maximum", "USD"),
            _lines(metrics, "Dollars per hour", "DollarsPerHour", "Maximum", "USD"),
            Graph(
                title="Cost of a day, and of its alternatives",
                left=[spend, on_demand, warm, control_plane],
                left_label="USD",
            ),
            Graph(
                title="Month",
                left=[metrics.metric("SpendOfMonth", "Maximum", label="spent")],
                right=[metrics.metric("BudgetUsed", "Maximum", label="spent and set aside, %")],
                left_label="USD",
                right_label="percent of budget",
            ),
        ],
    )


def _workers(metrics: MetricScope) -> Section:
    return Section(
        title="Who works?",
        explanation=(
            "The instances of all workloads that cost money now, the launches of each workload, "
            "and how long an instance takes from its launch to its check-in."
        ),
        graphs=[
            Graph(
                title="Workers that cost money now",
                left=[metrics.search("LiveWorkers", "Maximum", by=CAPACITY_TYPE, function="SUM")],
                left_label="workers",
            ),
            _lines(
                metrics, "Instances launched", "InstancesLaunched", "Sum", "in an hour", hourly=True
            ),
            _lines(metrics, "Boot, p95", "BootSeconds", "p95", "seconds", hourly=True),
            _lines(metrics, "Being interrupted", "InterruptingWorkers", "Maximum", "workers"),
        ],
    )


def _trouble(metrics: MetricScope) -> Section:
    return Section(
        title="What went wrong?",
        explanation=(
            "Interruptions are normal on spot; what matters is the work that is done again. A line "
            "above zero under *Launching is stopped* says why nothing is launched. `spindown why` "
            "says what to do, or when Spindown tries again by itself."
        ),
        graphs=[
            _lines(metrics, "Interruptions", "Interruptions", "Sum", "in an hour", hourly=True),
            _lines(metrics, "Items redone", "ItemsRedone", "Sum", "in an hour", hourly=True),
            _lines(
                metrics, "Time of a commit, p95", "CommitSeconds", "p95", "seconds", hourly=True
            ),
            Graph(
                title="Launching is stopped",
                left=[
                    metrics.search(name, "Maximum", by=WORKLOAD, function="MAX")
                    for name in ("BreakerOpen", "BudgetStopped", "NothingFits", "QuotaBlocked")
                ],
                left_label="above 0: stopped",
            ),
            Graph(
                title="Messages not routed, and jobs sent back to be routed again",
                left=[
                    metrics.search(name, "Sum", by=WORKLOAD, function="SUM")
                    for name in ("JobsNotRouted", "JobsRerouted")
                ],
                left_label="in 5 minutes",
            ),
            Graph(
                title="Waits for a person",
                left=[
                    metrics.search("Alerts", "Maximum", by=ALERT),
                    metrics.metric("Untold", "Maximum", label="could not be published"),
                ],
                left_label="alerts",
            ),
        ],
    )


def _idleness(metrics: MetricScope) -> Section:
    return Section(
        title="Is it idle?",
        explanation=(
            "Idle time is paid time without a job. The workers that are idle longer than expected "
            "should be zero."
        ),
        graphs=[
            _lines(
                metrics,
                "Idle share of the last day",
                "IdleShare",
                "Maximum",
                "percent of paid time",
            ),
            _lines(
                metrics, "Idle longer than expected", "IdleBeyondExpectation", "Maximum", "workers"
            ),
            _lines(metrics, "Idle time", "IdleSeconds", "Sum", "seconds in the hour", hourly=True),
        ],
    )


def _health(metrics: MetricScope) -> Section:
    return Section(
        title="Is Spindown itself well?",
        explanation=(
            "Each workload has one tick a minute. Each source of the catalogue is refreshed every "
            "hour; where its age rises, it cannot be read. Malformed events are ignored, but "
            "somebody sends them. After a submit a busy lock is normal. The alarm topic tells of "
            "the other faults."
        ),
        graphs=[
            Graph(
                title="Ticks per minute",
                left=[metrics.search("Ticks", "Sum", by=WORKLOAD, period=MINUTE)],
                left_label="ticks",
            ),
            Graph(
                title="Age of the catalogue's sources",
                left=[metrics.search("CatalogueSourceAge", "Maximum", by=SOURCE)],
                right=[metrics.metric("CatalogueTypes", "Maximum", period=HOUR)],
                left_label="seconds",
                right_label="instance types",
            ),
            _lines(metrics, "Age of the catalogue in use", "CatalogueAge", "Maximum", "seconds"),
            _lines(metrics, "Age of the spot prices in use", "SpotPriceAge", "Maximum", "seconds"),
            _faults(metrics),
            Graph(
                title="Errors",
                left=[
                    *(
                        metrics.function(name, "Errors", FIVE_MINUTES)
                        for name in ("scaler", "interruption", "offers")
                    ),
                    metrics.search("MalformedEvents", "Sum", by=FUNCTION),
                ],
                left_label="in 5 minutes",
            ),
        ],
    )


def _faults(metrics: MetricScope) -> Graph:
    return Graph(
        title="Faults",
        left=[
            metrics.search(name, statistic, by=WORKLOAD, function=statistic[:3].upper())
            for name, statistic in (
                ("BadRows", "Maximum"),
                ("PolicyInvalid", "Maximum"),
                ("TerminationsHeldBack", "Maximum"),
                ("LockBusy", "Sum"),
            )
        ],
        left_label="in 5 minutes",
    )

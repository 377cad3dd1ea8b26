"""The dashboard of the whole deployment: every workload as one line, and what is shared."""

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.insight.control_cost import function_dollars
from infra.insight.question import Graph, Question, lay_out, show_alarms
from infra.insight.series import DAY, FIVE_MINUTES, HOUR, MINUTE, Series
from spindown.contract.metric import CAPACITY_TYPE, CONCERN, FUNCTION, SOURCE, WORKLOAD


class Overview(Construct):
    """``{deployment}``: searches find the workloads, so their number is free."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        series: Series,
        alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        super().__init__(scope, construct_id)
        dashboard = cloudwatch.Dashboard(
            self, "Dashboard", dashboard_name=series.deployment, start="-P1D"
        )
        show_alarms(dashboard, f"Alarms of {series.deployment}", alarms)
        lay_out(
            dashboard,
            [
                _flow(series),
                _cost(series),
                _workers(series),
                _trouble(series),
                _idleness(series),
                _health(series),
            ],
        )


def _lines(
    series: Series, title: str, name: str, statistic: str, unit: str = "", *, hourly: bool = False
) -> Graph:
    period = HOUR if hourly else FIVE_MINUTES
    found = series.search(name, statistic, by=WORKLOAD, period=period)
    return Graph(title=title, left=[found], left_label=unit)


def _flow(series: Series) -> Question:
    return Question(
        title="Is work flowing?",
        how_to_read=(
            "One line a workload. A backlog that only rises while nothing is done is stuck: open "
            "that workload's own dashboard."
        ),
        graphs=[
            _lines(series, "Backlog", "Backlog", "Maximum", "messages"),
            _lines(series, "Backlog without a claim", "BacklogAge", "Maximum", "seconds"),
            _lines(series, "Items done", "ItemsDone", "Sum", "items in 5 minutes"),
            _lines(series, "Slack to the next deadline", "DeadlineSlack", "Minimum", "seconds"),
        ],
    )


def _cost(series: Series) -> Question:
    spend = series.search("Spend", "Sum", by=WORKLOAD, period=DAY, function="SUM")
    on_demand = series.search("SpendOnDemand", "Sum", by=WORKLOAD, period=DAY, function="SUM")
    warm = series.search("WarmDollars", "Sum", by=WORKLOAD, period=DAY, function="SUM")
    return Question(
        title="What does it cost?",
        how_to_read=(
            "Dollars of workers, estimated at the price of each launch. The control plane's line "
            "is its functions alone; alarms, dashboards and metrics cost a fixed amount besides. "
            "The gap between spend and on demand is what spot saves; that to warm dollars, what "
            "not keeping a machine for each workload saves."
        ),
        graphs=[
            _lines(series, "Cost per item today, all in", "CostPerItem", "Maximum", "USD"),
            _lines(series, "Dollars per hour", "DollarsPerHour", "Maximum", "USD"),
            Graph(
                title="A day: workers and control plane",
                left=[spend, on_demand, warm, function_dollars(series, DAY)],
                left_label="USD",
            ),
            Graph(
                title="Month",
                left=[series.metric("SpendOfMonth", "Maximum", label="spent")],
                right=[series.metric("BudgetUsed", "Maximum", label="budget used, %")],
                left_label="USD",
                right_label="percent of budget",
            ),
        ],
    )


def _workers(series: Series) -> Question:
    return Question(
        title="Who works?",
        how_to_read=(
            "Instances of all workloads that bill now, launches by workload, and how long an "
            "instance takes from its launch to its check-in."
        ),
        graphs=[
            Graph(
                title="Workers that bill",
                left=[series.search("LiveWorkers", "Maximum", by=CAPACITY_TYPE, function="SUM")],
                left_label="workers",
            ),
            _lines(series, "Instances launched", "InstancesLaunched", "Sum", hourly=True),
            _lines(series, "Boot, p95", "BootSeconds", "p95", "seconds", hourly=True),
            _lines(series, "Being interrupted", "InterruptingWorkers", "Maximum", "workers"),
        ],
    )


def _trouble(series: Series) -> Question:
    return Question(
        title="What went wrong?",
        how_to_read=(
            "Interruptions are normal on spot; what matters is the work redone. A line above zero "
            "under *launching is stopped* says why; `spindown why` says what mends it, or when it "
            "is tried again by itself."
        ),
        graphs=[
            _lines(series, "Interruptions", "Interruptions", "Sum", hourly=True),
            _lines(series, "Items redone", "ItemsRedone", "Sum", hourly=True),
            _lines(series, "Time of a commit, p95", "CommitSeconds", "p95", "s", hourly=True),
            Graph(
                title="Launching is stopped",
                left=[
                    series.search(name, "Maximum", by=WORKLOAD, function="MAX")
                    for name in ("BreakerOpen", "BudgetStopped", "NothingFits", "QuotaBlocked")
                ],
            ),
            Graph(
                title="Waits for a person",
                left=[
                    series.search("Concerns", "Maximum", by=CONCERN),
                    series.metric("Untold", "Maximum", label="could not be told"),
                ],
            ),
        ],
    )


def _idleness(series: Series) -> Question:
    return Question(
        title="Is it idle?",
        how_to_read=(
            "Idle is paid time without a job. Workers idle beyond expectation should be zero."
        ),
        graphs=[
            _lines(series, "Idle share today", "IdleShare", "Maximum", "percent of paid time"),
            _lines(series, "Idle beyond expectation", "IdleBeyondExpectation", "Maximum"),
            _lines(series, "Idle time", "IdleSeconds", "Sum", "seconds in the hour", hourly=True),
        ],
    )


def _health(series: Series) -> Question:
    return Question(
        title="Is Spindown itself well?",
        how_to_read=(
            "Each workload has one tick a minute. Sources of the catalogue are refreshed hourly; "
            "one that ages cannot be read. Malformed events are ignored, but somebody sends them. "
            "A lock that is busy now and then is normal after a submit; the other faults are "
            "told of by the alarms' topic."
        ),
        graphs=[
            Graph(
                title="Ticks per minute",
                left=[series.search("Ticks", "Sum", by=WORKLOAD, period=MINUTE)],
            ),
            Graph(
                title="Age of the catalogue's sources",
                left=[series.search("CatalogueSourceAge", "Maximum", by=SOURCE)],
                right=[series.metric("CatalogueTypes", "Maximum", period=HOUR)],
                left_label="seconds",
                right_label="instance types",
            ),
            _lines(series, "Age of the catalogue in use", "CatalogueAge", "Maximum", "seconds"),
            _lines(series, "Age of the spot prices in use", "SpotPriceAge", "Maximum", "seconds"),
            _faults(series),
            Graph(
                title="Errors",
                left=[
                    *(
                        series.function(name, "Errors", FIVE_MINUTES)
                        for name in ("scaler", "interruption", "offers")
                    ),
                    series.search("MalformedEvents", "Sum", by=FUNCTION),
                ],
            ),
        ],
    )


def _faults(series: Series) -> Graph:
    return Graph(
        title="Faults",
        left=[
            series.search(name, statistic, by=WORKLOAD, function=statistic[:3].upper())
            for name, statistic in (
                ("BadRows", "Maximum"),
                ("PolicyInvalid", "Maximum"),
                ("ReapingHeldBack", "Maximum"),
                ("LockBusy", "Sum"),
            )
        ],
    )

"""The dashboard of one workload."""

from collections.abc import Iterator, Sequence

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from spindown.contract.metric import (
    ALERT,
    CAPACITY_TYPE,
    CAUSE,
    INSTANCE_TYPE,
    OUTCOME,
    POOL,
    REASON,
    STATE,
)
from spindown.domain.cost_rise_cause import LITTLE_USE
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy
from spindown.infra.observability.dashboard_layout import Graph, Section, lay_out, show_alarms
from spindown.infra.observability.metric import DAY, HOUR, MINUTE, MetricScope

#: Variable of metric math -> the metric whose sum over a day it is.
_NAMES = {"spend": "Spend", "spendOnDemand": "SpendOnDemand", "warmDollars": "WarmDollars"}


class WorkloadDashboard(Construct):
    """``{deployment}-{workload}``: flow, cost, workers, trouble, idle time, health."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        metrics: MetricScope,
        policy: Policy,
        budget_per_month: float | None,
        alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        super().__init__(scope, construct_id)
        dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=metrics.name,
            start="-PT12H",
        )
        show_alarms(dashboard, f"Alarms of {metrics.workload}", alarms)
        lay_out(
            dashboard,
            [
                _flow(metrics, policy),
                _cost(metrics, budget_per_month),
                _workers(metrics),
                _trouble(metrics),
                _idleness(metrics),
                _health(metrics),
            ],
        )


def _flow(metrics: MetricScope, policy: Policy) -> Section:
    return Section(
        title="Is work flowing?",
        explanation=(
            "Messages of the backlog wait; messages in flight are being worked on. While there is "
            "a backlog, the wait should stay below `start_within` and the items done above zero. "
            "*Held* is 1 while a launch waits on purpose, for more work or for a lower price."
        ),
        graphs=[
            Graph(
                title="Messages",
                left=[metrics.level("Backlog"), metrics.level("InFlight")],
                right=[metrics.level("Held")],
                left_label="messages",
                right_label="1: held",
            ),
            Graph(
                title="Waiting",
                left=[
                    metrics.level("BacklogAge", label="backlog without a claim"),
                    metrics.level("WaitingAge", label="oldest visible message"),
                    metrics.metric("WaitSeconds", "p95", label="first item, p95"),
                ],
                right=[metrics.metric("JobSeconds", "p95", label="time of a job, p95")],
                left_label="seconds",
                right_label="seconds",
                marks=[(policy.start_within.total_seconds(), "start_within at the last deploy")],
            ),
            Graph(
                title="Done per minute",
                left=[
                    metrics.total("ItemsDone", period=MINUTE),
                    metrics.total("ItemsFailed", period=MINUTE),
                ],
                right=[metrics.total("JobsCompleted", period=MINUTE)],
                left_label="items",
                right_label="jobs",
            ),
            *_slack(metrics, policy),
        ],
    )


def _slack(metrics: MetricScope, policy: Policy) -> Iterator[Graph]:
    """Yield the slack of the nearest deadline, if jobs have deadlines."""
    if policy.finish_within is not None:
        yield Graph(
            title="Slack to the next deadline",
            left=[metrics.metric("DeadlineSlack", "Minimum", label="below 0: too late")],
            left_label="seconds",
        )


def _cost(metrics: MetricScope, budget_per_month: float | None) -> Section:
    """Return what the workload costs beside what it might; the budget is in USD."""
    return Section(
        title="What does it cost?",
        explanation=(
            "*All paid time* counts every paid second, *busy time* only those with a job: the "
            "difference is boot and idle time. Dollars are estimates from the price of each "
            "launch. The savings compare with the same hours on demand, and with the cheapest "
            "machine that fits, running on demand all day. That line is of a whole day: of a day "
            "with little work, as the first, it is no fair comparison. Where an item costs more "
            "than it used to, the alarm topic tells the cause, once a day. *Month* is the whole "
            "deployment."
        ),
        graphs=[
            Graph(
                title="Cost per item, a day or ten items",
                left=[
                    metrics.metric("CostPerItem", "Maximum", label="all paid time"),
                    metrics.metric("CostPerItemBusy", "Maximum", label="busy time"),
                ],
                left_label="USD",
            ),
            Graph(
                title="Why an item became expensive",
                left=[metrics.search("CostRise", "Maximum", by=CAUSE, period=HOUR)],
                left_label="USD per item",
                stacked=True,
            ),
            Graph(
                title="Dollars per hour",
                left=[metrics.level("DollarsPerHour", label="running now")],
                left_label="USD",
            ),
            _a_day(metrics),
            Graph(
                title="Month",
                left=[metrics.metric("SpendOfMonth", "Maximum", label="spent")],
                right=[metrics.metric("BudgetUsed", "Maximum", label="spent and set aside, %")],
                left_label="USD",
                right_label="percent of budget",
                marks=[(budget_per_month, "budget")] if budget_per_month is not None else [],
            ),
        ],
    )


def _a_day(metrics: MetricScope) -> Graph:
    return Graph(
        title="Cost of a day, and of its alternatives",
        left=[
            _day(metrics, "spend", "spent"),
            _day(metrics, "spendOnDemand", "the same hours on demand"),
            _day(metrics, "warmDollars", "one machine kept warm the whole day"),
        ],
        # What is saved against kept warm is of a span, which no graph of days tells: see `bill`.
        right=[_saving(metrics, "spendOnDemand", "saved against on demand")],
        left_label="USD",
        right_label="percent",
        right_from_zero=False,
    )


def _day(metrics: MetricScope, variable: str, label: str) -> cloudwatch.MathExpression:
    """Return the dollars of each day that a variable holds."""
    return _math(metrics, f"FILL({variable}, 0)", [variable], label)


def _saving(metrics: MetricScope, other: str, label: str) -> cloudwatch.MathExpression:
    """Return what a day saves compared with another variable, in percent of that."""
    share = f"IF({other} > 0, 100 * (1 - FILL(spend, 0) / {other}))"
    return _math(metrics, share, ["spend", other], label)


def _math(
    metrics: MetricScope, expression: str, variables: Sequence[str], label: str
) -> cloudwatch.MathExpression:
    # The expressions of a graph share their variables, so each metric is shown once.
    return cloudwatch.MathExpression(
        expression=expression,
        using_metrics={name: metrics.total(_NAMES[name], period=DAY) for name in variables},
        label=label,
        period=DAY,
    )


def _workers(metrics: MetricScope) -> Section:
    states = [state for state in WorkerState if state is not WorkerState.ENDED]
    return Section(
        title="Who works?",
        explanation=(
            "Each instance is in one state; most should be busy. Where booting workers do not "
            "become idle or busy, the image or the network does not work. Boot time costs money "
            "and does no work. Where the use of GPUs and of their memory is below the mark, a "
            "smaller machine may be enough: lower `gpu_memory_gib_min`, or add names to "
            "`gpu_names`."
        ),
        graphs=[
            Graph(
                title="Workers by state",
                # The highest of each state would count a worker twice that changed its state.
                left=[
                    metrics.level("Workers", "Average", label=state.value, of={STATE: state.value})
                    for state in states
                ],
                left_label="workers",
                stacked=True,
            ),
            _capacity_types(metrics),
            Graph(
                title="Workers by type",
                left=[metrics.search("WorkersOfType", "Maximum", by=INSTANCE_TYPE)],
                left_label="workers",
                stacked=True,
            ),
            Graph(
                title="Launches and boots",
                left=[metrics.total("InstancesLaunched")],
                right=[metrics.metric("BootSeconds", "p95", period=HOUR, label="boot, p95")],
                left_label="instances",
                right_label="seconds",
            ),
            _gpu_use(metrics),
        ],
    )


def _capacity_types(metrics: MetricScope) -> Graph:
    return Graph(
        title="Workers by capacity type",
        left=[
            *(
                metrics.level("LiveWorkers", label=kind.value, of={CAPACITY_TYPE: kind.value})
                for kind in CapacityType
            ),
            metrics.level("InterruptingWorkers", label="being interrupted"),
        ],
        left_label="workers",
    )


def _gpu_use(metrics: MetricScope) -> Graph:
    return Graph(
        title="Use of GPUs by busy workers",
        left=[
            metrics.metric("GpuPercent", "Average", label="GPU time, mean"),
            metrics.metric("VramPercent", "Maximum", label="GPU memory, maximum"),
        ],
        left_label="percent",
        marks=[(LITTLE_USE, "little use")],
    )


def _trouble(metrics: MetricScope) -> Section:
    return Section(
        title="What went wrong?",
        explanation=(
            "What fails is tried again: a job counts as failed, once, when it is over. "
            "The alarm topic tells once a day what waits for a person, and what to do. "
            "Interruptions are normal on spot; their price is the work that is done again. A "
            "launch request that is not *launched* names the class of EC2's refusal. A message in "
            "the dead-letter queue has its reason as an attribute."
        ),
        graphs=[
            Graph(
                title="Waits for a person",
                left=[metrics.search("Alerts", "Maximum", by=ALERT)],
                left_label="alerts",
                stacked=True,
            ),
            Graph(
                title="Interruptions and losses",
                left=[
                    metrics.total("Interruptions"),
                    metrics.total("LeasesFreed"),
                    metrics.total("CheckInsMissed"),
                    metrics.total("Condemned"),
                ],
                left_label="in 5 minutes",
            ),
            _attempts(metrics),
            Graph(
                title="Refusals by offer",
                left=[metrics.search("Refusals", "Sum", by=POOL)],
                left_label="in 5 minutes",
                stacked=True,
            ),
            Graph(
                title="Items redone, failed jobs",
                left=[metrics.total("ItemsRedone"), metrics.total("JobsFailed")],
                left_label="in 5 minutes",
            ),
            Graph(
                title="Dead letters",
                left=[
                    metrics.queue("ApproximateNumberOfMessagesVisible", dead_letters=True),
                    metrics.search("DeadLettered", "Sum", by=REASON),
                ],
                left_label="messages",
            ),
        ],
    )


def _attempts(metrics: MetricScope) -> Graph:
    return Graph(
        title="Launch requests by outcome",
        left=[metrics.search("LaunchRequests", "Sum", by=OUTCOME)],
        right=[metrics.level("PoolsCoolingDown", label="pools cooling down")],
        left_label="in 5 minutes",
        right_label="pools",
        stacked=True,
    )


def _idleness(metrics: MetricScope) -> Section:
    return Section(
        title="Is it idle?",
        explanation=(
            "Idle time is paid time without a job. A few percent are the time after the last job. "
            "Much more, or few items per launch, means that messages come seldom: raise "
            "`start_within`. The workers that are idle longer than expected should be zero."
        ),
        graphs=[
            Graph(
                title="Idle share of the last day",
                left=[metrics.metric("IdleShare", "Maximum")],
                left_label="percent of paid time",
            ),
            Graph(
                title="Idle longer than expected",
                left=[metrics.level("IdleBeyondExpectation")],
                left_label="workers",
            ),
            Graph(
                title="Items per launch",
                left=[_items_per_launch(metrics)],
                left_label="items",
            ),
        ],
    )


def _items_per_launch(metrics: MetricScope) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(
        expression="IF(launched > 0, done / launched)",
        using_metrics={
            "done": metrics.total("ItemsDone", period=DAY),
            "launched": metrics.total("InstancesLaunched", period=DAY),
        },
        label="items per launch on the day",
        period=DAY,
    )


def _health(metrics: MetricScope) -> Section:
    return Section(
        title="Is Spindown itself well?",
        explanation="There is one tick a minute, of a second or two. The overview shows the rest.",
        graphs=[
            Graph(
                title="Ticks per minute",
                left=[metrics.total("Ticks", period=MINUTE)],
                left_label="ticks",
            ),
            Graph(
                title="Time of a tick",
                left=[metrics.metric("TickSeconds", "p95", label="p95")],
                left_label="seconds",
            ),
        ],
    )

"""The dashboard of one workload."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.insight.cost_question import ask_cost
from infra.insight.question import Graph, Question, lay_out, show_alarms
from infra.insight.series import DAY, HOUR, MINUTE, Series
from spindown.contract.metric import (
    CAPACITY_TYPE,
    CONCERN,
    INSTANCE_TYPE,
    OUTCOME,
    POOL,
    REASON,
    STATE,
)
from spindown.domain.diagnosis import LITTLE_USE
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy


class WorkloadDashboard(Construct):
    """``{deployment}-{workload}``: flow, cost, workers, trouble, idle time, in this order."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        series: Series,
        policy: Policy,
        budget_per_month: float | None,
        alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        super().__init__(scope, construct_id)
        dashboard = cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=f"{series.deployment}-{series.workload}",
            start="-PT12H",
        )
        show_alarms(dashboard, f"Alarms of {series.workload}", alarms)
        lay_out(
            dashboard,
            [
                _flow(series, policy),
                ask_cost(series, budget_per_month),
                _workers(series),
                _trouble(series),
                _idleness(series),
                _health(series),
            ],
        )


def _flow(series: Series, policy: Policy) -> Question:
    return Question(
        title="Is work flowing?",
        how_to_read=(
            "Backlog waits, in flight is being worked on. While there is a backlog, the wait "
            "should stay under `start_within` and items done should be above zero. *Held* at 1 "
            "means that a launch waits on purpose, for more work or a lower price."
        ),
        graphs=[
            Graph(
                title="Messages",
                left=[series.level("Backlog"), series.level("InFlight")],
                right=[series.level("Held")],
                left_label="messages",
            ),
            Graph(
                title="Waiting",
                left=[
                    series.level("BacklogAge", label="backlog without a claim"),
                    series.queue("ApproximateAgeOfOldestMessage"),
                    series.metric("WaitSeconds", "p95", label="first claim, p95"),
                ],
                right=[series.metric("JobSeconds", "p95", label="time of a job, p95")],
                left_label="seconds",
                right_label="seconds",
                marks=[(_seconds(policy.start_within), "start_within at the last deploy")],
            ),
            Graph(
                title="Done per minute",
                left=[
                    series.total("ItemsDone", period=MINUTE),
                    series.total("ItemsFailed", period=MINUTE),
                ],
                right=[series.total("JobsCompleted", period=MINUTE)],
                left_label="items",
                right_label="jobs",
            ),
            *_slack(series, policy),
        ],
    )


def _slack(series: Series, policy: Policy) -> Iterator[Graph]:
    """Yield the slack of the tightest deadline, if jobs have one."""
    if policy.finish_within is not None:
        yield Graph(
            title="Slack to the next deadline",
            left=[series.metric("DeadlineSlack", "Minimum", label="too late below 0")],
            left_label="seconds",
        )


def _workers(series: Series) -> Question:
    states = [state for state in WorkerState if state is not WorkerState.ENDED]
    return Question(
        title="Who works?",
        how_to_read=(
            "Each instance is in one state; most should be busy. Booting that does not turn into "
            "idle or busy is an image or a network that does not come up. Boot time is paid and "
            "does no work. GPUs and their memory both under the mark mean that a smaller machine "
            "may do: lower `gpu_memory_gib_min`, or widen `gpu_names`."
        ),
        graphs=[
            Graph(
                title="Workers by state",
                left=[
                    series.level("Workers", label=state.value, of={STATE: state.value})
                    for state in states
                ],
                left_label="workers",
                stacked=True,
            ),
            _capacity_types(series),
            Graph(
                title="Workers by type",
                left=[series.search("WorkersOfType", "Maximum", by=INSTANCE_TYPE)],
                left_label="workers",
                stacked=True,
            ),
            Graph(
                title="Launches and boots",
                left=[series.total("InstancesLaunched")],
                right=[series.metric("BootSeconds", "p95", period=HOUR, label="boot, p95")],
                left_label="instances",
                right_label="seconds",
            ),
            _gpu_use(series),
        ],
    )


def _capacity_types(series: Series) -> Graph:
    return Graph(
        title="Workers by capacity type",
        left=[
            *(
                series.level("LiveWorkers", label=kind.value, of={CAPACITY_TYPE: kind.value})
                for kind in CapacityType
            ),
            series.level("InterruptingWorkers", label="being interrupted"),
        ],
        left_label="workers",
    )


def _gpu_use(series: Series) -> Graph:
    return Graph(
        title="Use of GPUs by busy workers",
        left=[
            series.metric("GpuPercent", "Average", label="time, mean"),
            series.metric("VramPercent", "Maximum", label="memory, most"),
        ],
        left_label="percent",
        marks=[(LITTLE_USE, "little")],
    )


def _trouble(series: Series) -> Question:
    return Question(
        title="What went wrong?",
        how_to_read=(
            "What waits for a person was told by the alarms' topic, once a day, with what to do. "
            "Interruptions are normal on spot; what they cost is the work redone. Launch attempts "
            "other than *launched* name the class of EC2's refusal. A message in the dead-letter "
            "queue carries its reason as an attribute."
        ),
        graphs=[
            Graph(
                title="Waits for a person",
                left=[series.search("Concerns", "Maximum", by=CONCERN)],
                stacked=True,
            ),
            Graph(
                title="Interruptions and losses",
                left=[
                    series.total("Interruptions"),
                    series.total("LeasesFreed"),
                    series.total("CheckInsMissed"),
                    series.total("Condemned"),
                ],
            ),
            _attempts(series),
            Graph(
                title="Refusals by offer",
                left=[series.search("Refusals", "Sum", by=POOL)],
                stacked=True,
            ),
            Graph(
                title="Items redone, failures of jobs",
                left=[series.total("ItemsRedone"), series.total("JobsFailed")],
            ),
            Graph(
                title="Dead letters",
                left=[
                    series.queue("ApproximateNumberOfMessagesVisible", dead_letters=True),
                    series.search("DeadLettered", "Sum", by=REASON),
                ],
            ),
        ],
    )


def _attempts(series: Series) -> Graph:
    return Graph(
        title="Launch attempts by outcome",
        left=[series.search("LaunchAttempts", "Sum", by=OUTCOME)],
        right=[series.level("UnavailablePools", label="unavailable pools")],
        stacked=True,
    )


def _idleness(series: Series) -> Question:
    return Question(
        title="Is it idle?",
        how_to_read=(
            "Idle is paid time without a job. A few percent are the idle tail after the last job; "
            "much more, or few items per launch, means a sparse queue: raise `start_within` or "
            "`scale_up_threshold`. Workers idle beyond expectation should be zero."
        ),
        graphs=[
            Graph(
                title="Idle share today",
                left=[series.metric("IdleShare", "Maximum")],
                left_label="percent of paid time",
            ),
            Graph(
                title="Idle beyond expectation",
                left=[series.level("IdleBeyondExpectation")],
                left_label="workers",
            ),
            Graph(title="Items per launch", left=[_items_per_launch(series)]),
        ],
    )


def _items_per_launch(series: Series) -> cloudwatch.MathExpression:
    return cloudwatch.MathExpression(
        expression="IF(launched > 0, done / launched)",
        using_metrics={
            "done": series.total("ItemsDone", period=DAY),
            "launched": series.total("InstancesLaunched", period=DAY),
        },
        label="items per launch in the day",
        period=DAY,
    )


def _health(series: Series) -> Question:
    return Question(
        title="Is Spindown itself well?",
        how_to_read=("One tick a minute, each a second or two. The overview shows the rest."),
        graphs=[
            Graph(
                title="Ticks per minute",
                left=[series.total("Ticks", period=MINUTE)],
            ),
            Graph(
                title="Time of a tick",
                left=[series.metric("TickSeconds", "p95", label="p95")],
                left_label="seconds",
            ),
        ],
    )


def _seconds(duration: timedelta) -> float:
    return duration.total_seconds()

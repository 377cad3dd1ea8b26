"""The alarms to people: what happened, and what to do about it.

An alarm is there only for what a person must hear even when our own code is silent. A tick tells
the same topic what only the code can explain, such as which quota is full
(``spindown.control.alert``): each metric that an alarm reads costs money every month. The alarm on
a queue's depth, which wakes the scaler and tells nobody, is in ``infra.control.trigger``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns
from aws_cdk.aws_cloudwatch_actions import SnsAction
from constructs import Construct

from spindown.config import format_duration
from spindown.contract.name import WEBHOOK_ALARM, failed_events_name, resource_name
from spindown.domain.policy import Policy
from spindown.domain.retry_or_dead_letter import MAX_RECEIVE_COUNT
from spindown.infra.observability.metric import (
    DAY,
    FIVE_MINUTES,
    FUNCTION_DOLLARS,
    HOUR,
    MINUTE,
    MetricScope,
    function_metrics,
    waiting_in,
)

_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
_LESS_THAN = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD

#: Percent of the spend that the control plane's functions may cost.
_CONTROL_SHARE = 5
#: USD a day below which a share says nothing: ticks and refreshes cost about a cent.
_SPEND_WORTH_A_SHARE = 1

#: Whoever sees a message of this age sends it again, so an older message is seen by nobody.
_OLDEST_MESSAGE = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmDefinition:
    """What an alarm compares and what it tells a person. Settings in its text are in backticks."""

    name: str
    metric: cloudwatch.IMetric
    #: What happened: one full sentence or more.
    problem: str
    #: What to do: imperative clauses with the setting to change or the command to run.
    remedy: str
    threshold: float = 1
    #: For how many periods the metric must be over the threshold.
    periods: int = 1
    #: In how many of them it is enough; None: in all.
    enough: int | None = None
    comparison: cloudwatch.ComparisonOperator = _AT_LEAST
    #: Whether the alarm goes off when the metric has no value.
    on_silence: bool = False

    @property
    def text(self) -> str:
        """Return what the person reads."""
        return f"{self.problem} To do: {self.remedy}"


def make_alarm(
    scope: Construct, definition: AlarmDefinition, *, prefix: str, topic: sns.ITopic
) -> cloudwatch.Alarm:
    """Add the alarm ``{prefix}--{name}``, which sends its text to ``topic``."""
    treat = cloudwatch.TreatMissingData
    name = resource_name(prefix, definition.name)
    alarm = cloudwatch.Alarm(
        scope,
        name,
        alarm_name=name,
        alarm_description=definition.text,
        metric=definition.metric,
        threshold=definition.threshold,
        evaluation_periods=definition.periods,
        datapoints_to_alarm=definition.enough,
        comparison_operator=definition.comparison,
        treat_missing_data=treat.BREACHING if definition.on_silence else treat.NOT_BREACHING,
    )
    alarm.add_alarm_action(SnsAction(topic))
    return alarm


def workload_alarms(metrics: MetricScope, policy: Policy) -> Iterator[AlarmDefinition]:
    """Yield the alarms of one workload, the gravest first; ``policy`` is that of the deploy."""
    workload, deployment = metrics.workload, metrics.deployment
    yield AlarmDefinition(
        name="tick-missing",
        metric=metrics.total("Ticks", period=MINUTE),
        threshold=1,
        periods=5,
        # A spare tick each 5 minutes must not end it. CloudWatch looks at some older minutes too,
        # and does not say how many: of 10 minutes at most 2 have one.
        enough=3,
        comparison=_LESS_THAN,
        on_silence=True,
        problem=f"Ticks of {workload} are missing: in 3 of the last 5 minutes or more none "
        "has run. Workers start late or not at all, and some end only by "
        "themselves.",
        remedy=f"look for errors in the log /spindown/{deployment}/scaler, and check that the "
        f"schedule {resource_name(metrics.name, 'tick')} is enabled.",
    )
    yield AlarmDefinition(
        name="idle",
        metric=metrics.metric("IdleBeyondExpectation", "Maximum"),
        periods=5,
        problem=f"A worker of {workload} has been idle for longer than it should be, and it costs "
        "money.",
        remedy=f"end it with `spindown drain {workload} --now`; the log "
        f"/spindown/{deployment}/worker/{workload} says what holds it. Spindown itself terminates "
        "what is idle for `idle_timeout` and `scale_down_delay`, or else when `max_lifetime` and "
        "`lifetime_grace` are over.",
    )
    yield AlarmDefinition(
        name="cost",
        metric=metrics.metric("CostRaised", "Maximum", period=HOUR),
        # One value comes in an hour, now and then late: it must not end and begin anew by that.
        periods=3,
        enough=1,
        problem=f"An item of {workload} costs more than it used to.",
        remedy=f"run `spindown cost {workload}`, which shows since when, and `spindown status`, "
        f"which names the cause. It ends when the cost is down, or with `spindown policy "
        f"accept-cost {workload}`. `alarm_cost_rise` sets from where it rings.",
    )
    promised = policy.start_within + policy.drain_within
    yield AlarmDefinition(
        name="oldest-message",
        # SQS's own age counts jobs that are worked on, and leaves out what came back three times.
        metric=metrics.metric("WaitingAge", "Maximum", period=FIVE_MINUTES),
        threshold=promised.total_seconds(),
        periods=3,
        problem=f"A message of {workload} has waited for {format_duration(promised)}, the sum of "
        "`start_within` and `drain_within`.",
        remedy="run `spindown why`, which says what keeps it waiting; raise `max_workers`, "
        "`max_price_per_hour` or `max_dollars_per_hour`, or set a longer `drain_within`.",
    )
    yield AlarmDefinition(
        name="message-of-a-week",
        # With types it sees what nobody has moved to the queue of a shape, which no template knows.
        metric=metrics.queue("ApproximateAgeOfOldestMessage"),
        threshold=_OLDEST_MESSAGE.total_seconds(),
        problem=f"A message of {workload} is older than 7 days; SQS deletes it after 12 days.",
        remedy="check that workers run: raise `max_price_per_hour` or `max_workers`, or solve what "
        "the other alarms tell. A worker that claims an old message sends it again as a new one.",
    )
    if policy.types:
        yield _not_routed(metrics)
    yield AlarmDefinition(
        name="dead-letters",
        metric=metrics.queue("ApproximateNumberOfMessagesVisible", dead_letters=True),
        problem=f"Jobs of {workload} have failed for good. SQS keeps their messages for 14 days.",
        remedy=f"read the attribute reason of a message in "
        f"{resource_name(metrics.name, 'dlq')}, correct "
        f"the code or the input, then run `spindown redrive {workload}`. `max_failures` and "
        "`max_losses` set how often a job is tried.",
    )


def deployment_alarms(
    metrics: MetricScope,
    *,
    budget_per_month: float | None,
    failed_events: str | None,
    has_webhook: bool = False,
) -> Iterator[AlarmDefinition]:
    """Yield the alarms of what all workloads share: the budget (USD) and the control plane.

    ``failed_events`` is the name of the queue of what functions have failed on for good; None:
    nobody would hear of it.
    """
    deployment = metrics.deployment
    if budget_per_month is not None:
        yield from _budget(metrics, budget_per_month)
    yield AlarmDefinition(
        name="catalogue-missing",
        metric=metrics.metric("CatalogueTypes", "SampleCount", period=HOUR),
        comparison=_LESS_THAN,
        periods=4,
        on_silence=True,
        problem="The catalogue of instance types and prices has not been refreshed for 4 hours. "
        "Launches use the old one.",
        remedy=f"read the log /spindown/{deployment}/offers.",
    )
    yield AlarmDefinition(
        name="interruption-errors",
        metric=metrics.function("interruption", "Errors", FIVE_MINUTES),
        problem=f"The function {resource_name(deployment, 'interruption')} fails. "
        "Interrupted jobs return to the queue when their lease expires instead of at once.",
        remedy=f"read the log /spindown/{deployment}/interruption.",
    )
    if failed_events is not None:
        yield _failed_events(deployment, failed_events)
    yield AlarmDefinition(
        name="untold",
        metric=metrics.metric("Untold", "Maximum", period=FIVE_MINUTES),
        periods=3,
        problem=f"The functions of {deployment} cannot publish a message to their topic.",
        remedy="run `spindown status` to read the message. The reason is in the log of the scaler, "
        "in the line with the metric Untold; most often a policy denies sns:Publish on "
        f"{resource_name(deployment, 'alarms')}.",
    )
    if has_webhook:
        yield AlarmDefinition(
            name=WEBHOOK_ALARM,
            # By the hour: its own text fails as well, within the same hour, and rings no second
            # time. While texts fail hour by hour it stays as it is, and says nothing more.
            metric=metrics.function("webhook", "Errors", HOUR),
            problem="The webhook takes no text, or its address cannot be read: alarms and alerts "
            "come to `alarm_email` alone.",
            remedy=f"read the log /spindown/{deployment}/webhook; store a new address in the "
            "secret that `alarm_webhook` names.",
        )
    yield _control_share(metrics)


def _failed_events(deployment: str, queue: str) -> AlarmDefinition:
    return AlarmDefinition(
        name="failed-events",
        metric=waiting_in(queue),
        problem=f"A function of {deployment} has failed on an event for good, or could not be "
        "given it. Nothing tries it again; the queue keeps it for 14 days.",
        remedy=f"read the logs /spindown/{deployment}/interruption, offers and webhook, and the "
        f"messages of the queue {deployment}-core-ControlFailedEvents; repair the cause, then "
        "purge the queue. Jobs are not lost by it.",
    )


def unsent_events(deployment: str, *, region: str, home: str) -> AlarmDefinition:
    """Return the alarm of an outpost whose events do not come home."""
    queue = failed_events_name(deployment)
    return AlarmDefinition(
        name="failed-events",
        metric=waiting_in(queue),
        problem=f"EC2's events do not come from {region} to {home}: jobs of machines that it takes "
        "back there return to their queue when their lease expires instead of at once.",
        remedy=f"read ERROR_CODE and ERROR_MESSAGE among the attributes of a message of the queue "
        f"{queue} in {region}; let its role put events on the default bus of {home} (a policy "
        "that denies events:PutEvents, most often), then purge the queue. Jobs are not lost by it.",
    )


def lost_events(rule_name: str, number: int, *, bucket: str, queue: str) -> AlarmDefinition:
    """Return the alarm of events that neither a queue nor that of its dead letters takes.

    Both are encrypted by one key, so a policy of it that leaves out EventBridge loses them. The
    metric is that of a rule (Amazon EventBridge User Guide, "Monitoring Amazon EventBridge").
    """
    return AlarmDefinition(
        name=f"source-{number}-lost",
        metric=cloudwatch.Metric(
            namespace="AWS/Events",
            metric_name="InvocationsFailedToBeSentToDlq",
            dimensions_map={"RuleName": rule_name},
            statistic="Sum",
            period=FIVE_MINUTES,
        ),
        problem=f"Events of new objects in {bucket} reach neither the queue {queue} nor that of "
        "its dead letters, and are lost.",
        remedy="let events.amazonaws.com use the key `kms_key_arn`, and look for a policy that "
        "denies sqs:SendMessage; then submit what was written meanwhile by `spindown submit`.",
    )


def _budget(metrics: MetricScope, dollars: float) -> Iterator[AlarmDefinition]:
    for percent, problem in (
        (80, "80 % of the month's budget of {:,.2f} USD is spent or reserved."),
        (
            100,
            "The month's budget of {:,.2f} USD pays for no further job: nothing more is launched.",
        ),
    ):
        yield AlarmDefinition(
            name=f"budget-{percent}",
            metric=metrics.metric("BudgetUsed", "Maximum", period=FIVE_MINUTES),
            threshold=percent,
            problem=problem.format(dollars) + " `when_spent` says what becomes of running work.",
            remedy="raise `budget_per_month` and deploy, or lower `max_workers` or "
            "`max_dollars_per_hour` of the workload that spends most.",
        )


def _not_routed(metrics: MetricScope) -> AlarmDefinition:
    """Return the alarm of a workload with types; a run that dies counts no message."""
    deployment = metrics.deployment
    return AlarmDefinition(
        name="not-routed",
        metric=cloudwatch.MathExpression(
            expression="FILL(errors, 0) + FILL(left, 0)",
            using_metrics={
                "errors": metrics.function("intake", "Errors", FIVE_MINUTES),
                "left": metrics.total("JobsNotRouted"),
            },
            period=FIVE_MINUTES,
        ),
        periods=3,
        problem=f"The function {resource_name(deployment, 'intake')} fails: jobs of "
        f"{metrics.workload} stay in the queue to which they were sent, and no machine is launched "
        "for them.",
        remedy=f"read the log /spindown/{deployment}/intake. They are tried again every minute; "
        f"after {MAX_RECEIVE_COUNT} tries SQS moves a message to "
        f"{resource_name(metrics.name, 'dlq')}, from where `spindown redrive` sends it again.",
    )


def _control_share(metrics: MetricScope) -> AlarmDefinition:
    spent = "FILL(spend, 0)"
    share = f"IF({spent} >= {_SPEND_WORTH_A_SHARE}, 100 * ({FUNCTION_DOLLARS}) / ({spent}), 0)"
    return AlarmDefinition(
        name="control-share",
        metric=cloudwatch.MathExpression(
            expression=share,
            using_metrics={
                **function_metrics(metrics, DAY),
                "spend": metrics.total("SpendOfAll", period=DAY),
            },
            period=DAY,
        ),
        threshold=_CONTROL_SHARE,
        problem=f"In one day the functions of {metrics.deployment} cost more than "
        f"{_CONTROL_SHARE} % of what its workers cost.",
        remedy="find out what invokes the scaler besides the tick; often it is many small batches. "
        "Submit fewer and larger ones.",
    )

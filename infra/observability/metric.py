"""Metrics for dashboards and alarms, taken from the one table of the metrics that are emitted.

A name that nothing emits, or a dimension that a metric does not have, is refused. So no graph stays
empty and no alarm stays silent.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from spindown.contract.metric import DEPLOYMENT, METRICS, WORKLOAD, Metric, say_metric
from spindown.contract.name import queue_name, resource_name
from spindown.contract.settings import NAMESPACE
from spindown.domain.control_cost import FUNCTION_GIB
from spindown.domain.list_price import PRICES, Usage
from spindown.error import ContractError

MINUTE = Duration.minutes(1)
FIVE_MINUTES = Duration.minutes(5)
HOUR = Duration.hours(1)
DAY = Duration.days(1)


def of_queue(queue: str, name: str) -> cloudwatch.Metric:
    """Return a metric of a queue, by the queue's name."""
    return cloudwatch.Metric(
        namespace="AWS/SQS",
        metric_name=name,
        dimensions_map={"QueueName": queue},
        statistic="Maximum",
        period=FIVE_MINUTES,
    )


def waiting_in(queue: str) -> cloudwatch.Metric:
    """Return how many messages a queue holds that nobody has in hand."""
    return of_queue(queue, "ApproximateNumberOfMessagesVisible")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricScope:
    """The metrics of one workload, or of a whole deployment where ``workload`` is None."""

    deployment: str
    workload: str | None = None

    def metric(
        self,
        name: str,
        statistic: str,
        *,
        period: Duration = MINUTE,
        label: str | None = None,
        of: Mapping[str, str] | None = None,
    ) -> cloudwatch.Metric:
        """Return one metric; ``of`` holds its dimensions besides deployment and workload.

        Raises:
            ContractError: the table has no such metric, or it has other dimensions.
        """
        row = _row(name)
        given = {DEPLOYMENT: self.deployment, **(of or {})}
        if WORKLOAD in row.dimensions and self.workload is not None:
            given[WORKLOAD] = self.workload
        if set(given) != set(row.dimensions):
            raise ContractError(
                f"dimensions of {name}", sorted(given), f"give {', '.join(row.dimensions)}"
            )
        return cloudwatch.Metric(
            namespace=NAMESPACE,
            metric_name=name,
            dimensions_map=given,
            statistic=statistic,
            period=period,
            label=label,
        )

    def level(
        self,
        name: str,
        statistic: str = "Maximum",
        *,
        label: str | None = None,
        of: Mapping[str, str] | None = None,
    ) -> cloudwatch.MathExpression:
        """Return the value of each minute, or 0 where nothing was emitted."""
        metric = self.metric(name, statistic, of=of)
        variable = _variable(name, of)
        return cloudwatch.MathExpression(
            expression=f"FILL({variable}, 0)",
            using_metrics={variable: metric},
            label=label or say_metric(name),
            period=MINUTE,
        )

    @property
    def name(self) -> str:
        """Return the name of its dashboard, with which those of its alarms begin."""
        return resource_name(self.deployment, *([self.workload] if self.workload else []))

    def total(self, name: str, *, period: Duration = FIVE_MINUTES) -> cloudwatch.Metric:
        """Return the sum over each period."""
        return self.metric(name, "Sum", period=period)

    def search(
        self,
        name: str,
        statistic: str,
        *,
        by: str,
        period: Duration = FIVE_MINUTES,
        function: str | None = None,
        label: str = "",
    ) -> cloudwatch.MathExpression:
        """Return a line for each value of the dimension ``by``, also for values of the future.

        A ``function`` such as SUM makes them one line, called ``label`` or else as the metric is.
        (Raises ContractError.)
        """
        row = _row(name)
        if by not in row.dimensions:
            raise ContractError(f"dimensions of {name}", by, f"one of {', '.join(row.dimensions)}")
        schema = ",".join([NAMESPACE, *row.dimensions])
        terms = [f'MetricName="{name}"', f'{DEPLOYMENT}="{self.deployment}"']
        if self.workload is not None:
            terms.append(f'{WORKLOAD}="{self.workload}"')
        seconds = round(period.to_seconds())
        found = f"SEARCH('{{{schema}}} {' '.join(terms)}', '{statistic}', {seconds})"
        return cloudwatch.MathExpression(
            expression=f"{function}({found})" if function else found,
            using_metrics={},
            label=label or say_metric(name) if function else f"${{PROP('Dim.{by}')}}",
            period=period,
        )

    def queue(self, name: str, *, dead_letters: bool = False) -> cloudwatch.Metric:
        """Return a metric that SQS emits about the workload's queue (raises ContractError)."""
        if self.workload is None or name not in _QUEUE_METRICS:
            raise ContractError("queue metric", name, f"one of {', '.join(sorted(_QUEUE_METRICS))}")
        queue = queue_name(self.deployment, self.workload)
        return of_queue(resource_name(queue, "dlq") if dead_letters else queue, name)

    def function(self, function: str, name: str, period: Duration) -> cloudwatch.Metric:
        """Return a metric that Lambda emits about a function (raises ContractError)."""
        if name not in _FUNCTION_METRICS:
            raise ContractError("metric", name, f"one of {', '.join(sorted(_FUNCTION_METRICS))}")
        return cloudwatch.Metric(
            namespace="AWS/Lambda",
            metric_name=name,
            dimensions_map={"FunctionName": resource_name(self.deployment, function)},
            statistic="Sum",
            period=period,
        )


#: What SQS emits (Amazon SQS Developer Guide, "Available CloudWatch metrics").
_QUEUE_METRICS = frozenset({"ApproximateAgeOfOldestMessage", "ApproximateNumberOfMessagesVisible"})
#: What Lambda emits (AWS Lambda Developer Guide, "Types of metrics for Lambda functions").
_FUNCTION_METRICS = frozenset({"Duration", "Errors", "Invocations"})


def _row(name: str) -> Metric:
    row = METRICS.get(name)
    if row is None:
        raise ContractError("metric", name, "name one of spindown.contract.metric.METRICS")
    return row


def _variable(name: str, of: Mapping[str, str] | None) -> str:
    """Return a name for metric math, unique among the metrics of a graph."""
    said = "".join([name, *(of or {}).values()])
    letters = "".join(letter for letter in said if letter.isalnum())
    return letters[0].lower() + letters[1:]


#: The function of the ticks, which is invoked most often; the request price of the others is
#: nothing beside it.
_SCALER = "scaler"
#: Functions that run longer, or as often as instances are interrupted. An alarm is billed by each
#: metric that it reads, so the teardown, which runs with a deploy, is left out.
_OTHERS = ("interruption", "offers")


def _function_dollars() -> str:
    second = PRICES[Usage.LAMBDA_GIB_SECOND].each * FUNCTION_GIB
    request = PRICES[Usage.LAMBDA_REQUEST].each
    # A function may not have run in a period.
    others = " + ".join(f"FILL({name}, 0)" for name in _OTHERS)
    milliseconds = f"(milliseconds + {others})"
    return f"{milliseconds} / 1000 * {second:.10f} + invocations * {request:.10f}"


#: What the control plane costs beside the workers, in USD, as far as metrics tell: its functions.
#: Metric math over ``function_metrics``, whose durations are in milliseconds.
FUNCTION_DOLLARS = _function_dollars()


def function_metrics(metrics: MetricScope, period: Duration) -> dict[str, cloudwatch.IMetric]:
    """Return the metrics that ``FUNCTION_DOLLARS`` is made of."""
    return {
        "milliseconds": metrics.function(_SCALER, "Duration", period),
        "invocations": metrics.function(_SCALER, "Invocations", period),
        **{name: metrics.function(name, "Duration", period) for name in _OTHERS},
    }

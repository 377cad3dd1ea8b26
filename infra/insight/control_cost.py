"""What the control plane costs beside the workers, as far as metrics tell: its functions."""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.cost.price import PRICES, Usage
from infra.insight.series import Series

#: Memory of each function in GB, which its price goes by.
FUNCTION_GIB = 0.5

#: Ticks most often; what the others are paid for by invocation is nothing beside it.
_SCALER = "scaler"
#: Run for longer, or as often as instances are taken away. An alarm is billed by each metric that
#: it reads, so the teardown, which runs with a deploy, is left out.
_BESIDES = ("interruption", "offers")


def function_dollars(series: Series, period: Duration) -> cloudwatch.MathExpression:
    """Return the dollars of the functions in each period: durations are in milliseconds."""
    return cloudwatch.MathExpression(
        expression=EXPRESSION,
        using_metrics=function_metrics(series, period),
        label="control plane (functions)",
        period=period,
    )


def function_metrics(series: Series, period: Duration) -> dict[str, cloudwatch.IMetric]:
    """Return the metrics that ``EXPRESSION`` is made of."""
    return {
        "milliseconds": series.function(_SCALER, "Duration", period),
        "invocations": series.function(_SCALER, "Invocations", period),
        **{name: series.function(name, "Duration", period) for name in _BESIDES},
    }


def _expression() -> str:
    second = PRICES[Usage.LAMBDA_GIB_SECOND].each * FUNCTION_GIB
    request = PRICES[Usage.LAMBDA_REQUEST].each
    # Neither of them need have run.
    besides = " + ".join(f"FILL({name}, 0)" for name in _BESIDES)
    milliseconds = f"(milliseconds + {besides})"
    return f"{milliseconds} / 1000 * {second:.10f} + invocations * {request:.10f}"


EXPRESSION = _expression()

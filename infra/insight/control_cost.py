"""What the control plane costs beside the workers, as far as metrics tell: its functions."""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.cost.price import PRICES, Usage
from infra.insight.series import Series

#: Memory of the scaler in GB, which its price goes by.
SCALER_GIB = 0.5

#: The scaler ticks; the other functions run too rarely to matter.
_SCALER = "scaler"


def function_dollars(series: Series, period: Duration) -> cloudwatch.MathExpression:
    """Return the dollars of the scaler in each period: duration is in milliseconds."""
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
    }


def _expression() -> str:
    second = PRICES[Usage.LAMBDA_GIB_SECOND].each * SCALER_GIB
    request = PRICES[Usage.LAMBDA_REQUEST].each
    return f"milliseconds / 1000 * {second:.10f} + invocations * {request:.10f}"


EXPRESSION = _expression()

"""The alarms of what all workloads share: the budget, and the control plane itself."""

from collections.abc import Iterator

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.insight.alarm import Watch
from infra.insight.control_cost import EXPRESSION, function_metrics
from infra.insight.series import DAY, FIVE_MINUTES, HOUR, Series

#: Percent of the spend that the control plane's functions may cost.
_CONTROL_SHARE = 5
#: USD a day below which a share says nothing: ticks and refreshes cost about a cent.
_SPEND_WORTH_A_SHARE = 1


def watch_deployment(deployment: str, *, budget_per_month: float | None) -> Iterator[Watch]:
    """Yield what is watched, for all workloads together."""
    series = Series(deployment=deployment)
    if budget_per_month is not None:
        yield from _budget(series, budget_per_month)
    yield Watch(
        name="catalogue-missing",
        metric=series.metric("CatalogueTypes", "SampleCount", period=HOUR),
        comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
        periods=4,
        on_silence=True,
        says="The catalogue of instance types and prices has not been refreshed for 4 hours; "
        "launches go by the old one.",
        mend=f"read the log /spindown/{deployment}/offers.",
    )
    yield Watch(
        name="interruption-errors",
        metric=series.function("interruption", "Errors", FIVE_MINUTES),
        says=f"The function {deployment}-interruption fails; interrupted jobs come back when their "
        "lease lapses instead of at once.",
        mend=f"read the log /spindown/{deployment}/interruption.",
    )
    yield Watch(
        name="untold",
        metric=series.metric("Untold", "Maximum", period=FIVE_MINUTES),
        periods=3,
        says=f"The functions of {deployment} have something to tell, and their topic does not "
        "take it.",
        mend="run `spindown status` for what it is; in the logs of scaler and offers the line "
        f"with the metric Untold has the reason: mostly a policy that refuses sns:Publish on "
        f"{deployment}-alarms.",
    )
    yield _control_share(series)


def _budget(series: Series, dollars: float) -> Iterator[Watch]:
    for percent, says in (
        (80, "80 % of the month's budget of {:,.2f} USD is spent or set aside."),
        (100, "The month's budget of {:,.2f} USD is used up: nothing more is launched."),
    ):
        yield Watch(
            name=f"budget-{percent}",
            metric=series.metric("BudgetUsed", "Maximum", period=FIVE_MINUTES),
            threshold=percent,
            says=says.format(dollars) + " Work that runs goes on.",
            mend="raise `budget_per_month` and deploy, or lower `max_workers` or "
            "`max_dollars_per_hour` of the workload that spends most.",
        )


def _control_share(series: Series) -> Watch:
    # Below a dollar a day a share says nothing.
    spent = "FILL(spend, 0)"
    share = f"IF({spent} >= {_SPEND_WORTH_A_SHARE}, 100 * ({EXPRESSION}) / ({spent}), 0)"
    return Watch(
        name="control-share",
        metric=cloudwatch.MathExpression(
            expression=share,
            using_metrics={
                **function_metrics(series, DAY),
                "spend": series.total("SpendOfAll", period=DAY),
            },
            period=DAY,
        ),
        threshold=_CONTROL_SHARE,
        says=f"The functions of {series.deployment} cost more than {_CONTROL_SHARE} % of what its "
        "workers cost in a day.",
        mend="see what invokes the scaler besides the tick; many small batches do. Submit fewer, "
        "larger ones.",
    )

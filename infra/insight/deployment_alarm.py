"""The alarms of what all workloads share: budget, quotas, the control plane itself."""

from collections.abc import Iterator, Sequence

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.insight.alarm import Watch
from infra.insight.control_cost import EXPRESSION, function_metrics
from infra.insight.series import DAY, FIVE_MINUTES, HOUR, Series

#: Percent of the spend that the control plane's functions may cost.
_CONTROL_SHARE = 5
#: USD a day below which a share says nothing: a tick a minute costs about a cent.
_SPEND_WORTH_A_SHARE = 1
#: Amazon CloudWatch API, "PutMetricAlarm".
_METRICS_IN_AN_ALARM = 10
#: Two of the metrics are the functions'.
_WORKLOADS_IN_A_SHARE = _METRICS_IN_AN_ALARM - 2


def watch_deployment(
    deployment: str, workloads: Sequence[str], *, budget_per_month: float | None
) -> Iterator[Watch]:
    """Yield what is watched, for all workloads together."""
    series = Series(deployment=deployment)
    if budget_per_month is not None:
        yield from _budget(series, budget_per_month)
    yield from _quota(deployment, workloads)
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
    if len(workloads) <= _WORKLOADS_IN_A_SHARE:
        yield _control_share(deployment, workloads)


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


def _quota(deployment: str, workloads: Sequence[str]) -> Iterator[Watch]:
    """Yield an alarm for as many workloads at once as one can read.

    Quotas are the account's, but a workload sees them only while it has something to launch.
    """
    for start in range(0, len(workloads), _METRICS_IN_AN_ALARM):
        read = workloads[start : start + _METRICS_IN_AN_ALARM]
        yield Watch(
            name=f"quota-{start // _METRICS_IN_AN_ALARM + 1}" if start else "quota",
            metric=_highest([Series(deployment=deployment, workload=name) for name in read]),
            periods=2,
            says="A vCPU quota of EC2 is full, so a class of instances cannot be launched. Spot: "
            "L-3819A6DF (G and VT), L-7212CCBC (P2 to P4), L-C4BD4855 (P5). On-demand: "
            "L-DB2E81BA (G and VT), L-417A185B (P).",
            mend="run `spindown status` for the code that is meant, then ask for more: aws "
            "service-quotas request-service-quota-increase --service-code ec2 --quota-code CODE "
            "--desired-value VCPUS. Or widen `gpu_names` to another class.",
        )


def _highest(workloads: Sequence[Series]) -> cloudwatch.IMetric:
    metrics: dict[str, cloudwatch.IMetric] = {
        f"workload{number}": series.metric("QuotaBlocked", "Maximum", period=FIVE_MINUTES)
        for number, series in enumerate(workloads)
    }
    if len(metrics) == 1:
        return metrics["workload0"]
    filled = ", ".join(f"FILL({name}, 0)" for name in metrics)
    return cloudwatch.MathExpression(
        expression=f"MAX([{filled}])", using_metrics=metrics, period=FIVE_MINUTES
    )


def _control_share(deployment: str, workloads: Sequence[str]) -> Watch:
    series = Series(deployment=deployment)
    spends: dict[str, cloudwatch.IMetric] = {
        f"spend{number}": Series(deployment=deployment, workload=name).total("Spend", period=DAY)
        for number, name in enumerate(workloads)
    }
    spend = " + ".join(f"FILL({name}, 0)" for name in spends)
    share = f"IF({spend} >= {_SPEND_WORTH_A_SHARE}, 100 * ({EXPRESSION}) / ({spend}), 0)"
    return Watch(
        name="control-share",
        metric=cloudwatch.MathExpression(
            expression=share,
            using_metrics={**function_metrics(series, DAY), **spends},
            period=DAY,
        ),
        threshold=_CONTROL_SHARE,
        says=f"The functions of {deployment} cost more than {_CONTROL_SHARE} % of what its workers "
        "cost in a day.",
        mend="see what invokes the scaler besides the tick; many small batches do. Submit fewer, "
        "larger ones.",
    )

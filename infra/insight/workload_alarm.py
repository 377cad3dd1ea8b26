"""The alarms of one workload that must be heard even when our own code is silent.

What only the code can explain, such as which quota is full, a tick tells the same topic itself
(``spindown.app.alarm``): each metric that an alarm reads is paid for by the month.
"""

from collections.abc import Iterator
from datetime import timedelta

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.insight.alarm import Watch
from infra.insight.series import MINUTE, Series
from spindown.config import format_duration
from spindown.domain.policy import Policy

#: Sent again at this age by whoever sees it, so an older message is seen by nobody.
_OLDEST_MESSAGE = timedelta(days=7)


def watch_workload(series: Series, policy: Policy) -> Iterator[Watch]:
    """Yield what is watched, the gravest first. ``policy`` is that of the deploy."""
    yield from _control(series)
    yield from _workers(series)
    yield from _flow(series, policy)


def _control(series: Series) -> Iterator[Watch]:
    workload, deployment = series.workload, series.deployment
    yield Watch(
        name="tick-missing",
        metric=series.total("Ticks", period=MINUTE),
        threshold=1,
        periods=5,
        comparison=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
        on_silence=True,
        says=f"Nothing has reconciled {workload} for 5 minutes, so nothing starts for it and "
        "workers end only by themselves.",
        mend=f"look for errors in the log /spindown/{deployment}/scaler and see that the schedule "
        f"{deployment}-{workload}-tick is enabled.",
    )


def _workers(series: Series) -> Iterator[Watch]:
    workload, deployment = series.workload, series.deployment
    yield Watch(
        name="idle",
        metric=series.metric("IdleBeyondExpectation", "Maximum"),
        periods=5,
        says=f"A worker of {workload} is idle for longer than it should be, and bills.",
        mend='set `idle_timeout` to "auto" or shorter. If it stays, its worker hangs: see the log '
        f"/spindown/{deployment}/worker/{workload}; reconcile terminates it at the latest "
        "at `max_lifetime` and `lifetime_grace`.",
    )


def _flow(series: Series, policy: Policy) -> Iterator[Watch]:
    workload = series.workload
    start, drain = policy.start_within, policy.drain_within
    yield Watch(
        name="oldest-message",
        metric=series.queue("ApproximateAgeOfOldestMessage"),
        threshold=(start + drain).total_seconds(),
        periods=3,
        says=f"The oldest message of {workload} is older than the promise of "
        f"{format_duration(start + drain)}, to start and to drain.",
        mend="raise `max_workers`, `max_price_per_hour` or `max_dollars_per_hour`, or promise a "
        "longer `drain_within`.",
    )
    yield Watch(
        name="message-of-a-week",
        metric=series.queue("ApproximateAgeOfOldestMessage"),
        threshold=_OLDEST_MESSAGE.total_seconds(),
        says=f"A message of {workload} is older than 7 days; SQS deletes it after 12.",
        mend="see that workers run at all: raise `max_price_per_hour` or `max_workers`, or mend "
        "what the other alarms name. Any claim sends an old message again.",
    )
    yield Watch(
        name="dead-letters",
        metric=series.queue("ApproximateNumberOfMessagesVisible", dead_letters=True),
        says=f"Jobs of {workload} have failed for good; SQS keeps them for 14 days.",
        mend=f"read the attribute reason of a message in {series.deployment}-{workload}-dlq, mend "
        f"the code or the input, then run `spindown redrive {workload}`. `max_failures` and "
        "`max_losses` say how often a job is tried.",
    )

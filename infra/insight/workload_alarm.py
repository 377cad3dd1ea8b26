"""The alarms of one workload."""

from collections.abc import Iterator
from datetime import timedelta

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.insight.alarm import Watch
from infra.insight.series import FIVE_MINUTES, HOUR, MINUTE, QUARTER, Series
from spindown.config import format_duration
from spindown.contract.metric import OUTCOME
from spindown.domain.policy import Policy

#: Sent again at this age by whoever sees it, so an older message is seen by nobody.
_OLDEST_MESSAGE = timedelta(days=7)


def watch_workload(series: Series, policy: Policy) -> Iterator[Watch]:
    """Yield what is watched, the gravest first. ``policy`` is that of the deploy."""
    yield from _control(series)
    yield from _workers(series)
    yield from _flow(series, policy)
    yield from _market(series)
    yield from _refusals(series)
    yield from _money(series)


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
    yield Watch(
        name="policy-invalid",
        metric=series.metric("PolicyInvalid", "Maximum"),
        periods=3,
        says=f"The live policy of {workload} is refused; the last good one stays in force.",
        mend=f"run `spindown status` for the reason, then `spindown policy set {workload}` with a "
        f"value that is valid, or `spindown policy reset {workload}` to give keys back.",
    )
    yield Watch(
        name="bad-rows",
        metric=series.metric("BadRows", "Maximum"),
        periods=15,
        says=f"A row of {workload} in the ledger cannot be read and is passed over.",
        mend=f"find its key in the newest decision of {workload} in the bucket, and delete or mend "
        f"it in the table {deployment}-ledger.",
    )


def _workers(series: Series) -> Iterator[Watch]:
    workload, deployment = series.workload, series.deployment
    yield Watch(
        name="reaping-held-back",
        metric=series.metric("ReapingHeldBack", "Maximum"),
        periods=15,
        says=f"Most workers of {workload} look dead at once, which is more likely a fault of the "
        "ledger or the network than theirs; they are left alone and go on billing.",
        mend="see whether workers can reach DynamoDB. If they are dead indeed, terminate them in "
        "EC2: their jobs come back by themselves.",
    )
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
        name="late",
        metric=series.metric("BacklogAge", "Maximum"),
        # A launch is asked for within start_within; the claim is seen a tick later.
        threshold=(start + 2 * policy.tick).total_seconds(),
        periods=3,
        says=f"Work of {workload} waits for longer than the promised {format_duration(start)} and "
        "nobody takes it.",
        mend="run `spindown status`: it names the nearest offer and what rules it out. Raise "
        "`max_price_per_hour`, widen the `ladder` or `zones`, or allow a longer `start_within`.",
    )
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
        "the code or the input, then submit the job again. `max_failures` and `max_losses` say "
        "how often a job is tried.",
    )


def _market(series: Series) -> Iterator[Watch]:
    workload = series.workload
    yield Watch(
        name="no-offer",
        metric=series.metric("NothingFits", "Maximum"),
        periods=15,
        says=f"Work of {workload} waits and no offer may be taken at any time.",
        mend="run `spindown status` for the nearest offer, then raise `max_price_per_hour`, lower "
        "`min_reliability`, or widen `gpu_names`, `gpu_memory_gib_min` or `zones`.",
    )
    yield Watch(
        name="capacity",
        metric=cloudwatch.MathExpression(
            expression="IF(dry > 0 AND launched < 1, dry, 0)",
            using_metrics={
                "dry": series.total("LaunchAttempts", period=QUARTER, of={OUTCOME: "capacity"}),
                "launched": series.total("InstancesLaunched", period=QUARTER),
            },
            period=QUARTER,
        ),
        periods=2,
        says=f"EC2 has had no capacity for {workload} in half an hour, in any pool that was tried.",
        mend="add `zones` or `gpu_names`, or let an earlier rung of the `ladder` take on-demand.",
    )


def _refusals(series: Series) -> Iterator[Watch]:
    workload, deployment = series.workload, series.deployment
    yield Watch(
        name="account",
        metric=series.total("LaunchAttempts", period=FIVE_MINUTES, of={OUTCOME: "account"}),
        says=f"EC2 refuses every launch of {workload} because of the account or the configuration: "
        "a role, an image, a subnet, a plan.",
        mend="run `spindown status` for EC2's words. Frequent ones: the service-linked role of "
        "spot is missing (aws iam create-service-linked-role --aws-service-name "
        "spot.amazonaws.com), or a free plan may not start GPUs.",
    )
    yield Watch(
        name="unknown-refusal",
        metric=series.total("LaunchAttempts", period=HOUR, of={OUTCOME: "unknown"}),
        threshold=3,
        says=f"EC2 refuses launches of {workload} with a code that Spindown does not know, and "
        "which it treats as a lack of capacity.",
        mend=f"read the code in the log /spindown/{deployment}/scaler and report it.",
    )
    yield Watch(
        name="breaker",
        metric=series.metric("BreakerOpen", "Maximum"),
        says=f"Instances of {workload} start and never check in; launching is stopped, since each "
        "would bill for nothing.",
        mend=f"read the log /spindown/{deployment}/worker/{workload} and the console output of the "
        "last instance, mend the image or `requirements`, and deploy: a new image closes "
        "the breaker.",
    )


def _money(series: Series) -> Iterator[Watch]:
    yield Watch(
        name="cost-per-item",
        metric=series.metric("CostPerItem", "Average", period=HOUR),
        unusual_by=4,
        periods=2,
        says=f"An item of {series.workload} costs clearly more than it used to.",
        mend="see on the dashboard which part moved. Price: lower `max_price_per_hour`. Boot: "
        "bake what `requirements` installs. Idle: `idle_timeout`. Work redone: shorten "
        "`checkpoint_interval`, raise `min_reliability`. Throughput: `batch_size`, or the code. "
        "Few items per launch: raise `start_within` or `scale_up_threshold`. GPU hardly used: "
        "lower `gpu_memory_gib_min`, widen `gpu_names`.",
    )

"""An alarm to a person: what happened, and what to do about it."""

from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns
from aws_cdk.aws_cloudwatch_actions import SnsAction
from constructs import Construct

_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What an alarm looks at and what it says. Settings in its text stand in backticks."""

    name: str
    metric: cloudwatch.IMetric
    #: One full sentence or more.
    says: str
    #: An imperative clause or more: the setting to change, the command to run.
    mend: str
    threshold: float = 1
    #: Periods that the metric must be over the threshold.
    periods: int = 1
    comparison: cloudwatch.ComparisonOperator = _AT_LEAST
    #: Whether silence is what it watches for.
    on_silence: bool = False

    @property
    def text(self) -> str:
        """Return what the person reads."""
        return f"{self.says} To do: {self.mend}"


def make_alarm(
    scope: Construct, watch: Watch, *, prefix: str, topic: sns.ITopic
) -> cloudwatch.Alarm:
    """Add the alarm ``{prefix}-{name}``, which tells ``topic``."""
    silence = cloudwatch.TreatMissingData
    missing = silence.BREACHING if watch.on_silence else silence.NOT_BREACHING
    name = f"{prefix}-{watch.name}"
    alarm = cloudwatch.Alarm(
        scope,
        name,
        alarm_name=name,
        alarm_description=watch.text,
        metric=watch.metric,
        threshold=watch.threshold,
        evaluation_periods=watch.periods,
        comparison_operator=watch.comparison,
        treat_missing_data=missing,
    )
    alarm.add_alarm_action(SnsAction(topic))
    return alarm

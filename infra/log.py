"""Where functions and workers log; their metrics come from the same lines (EMF)."""

from aws_cdk import RemovalPolicy
from aws_cdk import aws_logs as logs
from constructs import Construct


def make_log(scope: Construct, name: str) -> logs.LogGroup:
    """Add a log group that keeps a month and goes with the stack."""
    return logs.LogGroup(
        scope,
        "Log",
        log_group_name=name,
        retention=logs.RetentionDays.ONE_MONTH,
        removal_policy=RemovalPolicy.DESTROY,
    )

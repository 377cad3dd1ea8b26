"""What the functions may do, besides launching."""

from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from infra.grant.statement import CHANGE_ROWS, READ_ROWS, allow, parameter, regional
from infra.ledger import INSTANCE_INDEX
from spindown.contract import tag
from spindown.contract.row import workload_partition
from spindown.contract.settings import (
    deployment_parameter,
    live_parameter,
    outpost_parameter,
    workload_parameter,
)


def keep_ledger(*, table_arn: str) -> iam.PolicyStatement:
    """Return the whole ledger and its index."""
    return allow(
        "KeepLedger",
        [*READ_ROWS, *CHANGE_ROWS],
        [table_arn, f"{table_arn}/index/{INSTANCE_INDEX}"],
    )


def keep_concerns(*, table_arn: str, workloads: Sequence[str]) -> iam.PolicyStatement:
    """Return what judges costs: the account of the days, and what people were told."""
    partitions = [workload_partition(name) for name in workloads]
    return allow(
        "KeepConcerns",
        ["dynamodb:DeleteItem", "dynamodb:Query", "dynamodb:UpdateItem"],
        [table_arn],
        {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": partitions}},
    )


def tell_people(*, topic_arn: str) -> iam.PolicyStatement:
    """Return the telling of what only a person can mend."""
    return allow("TellPeople", ["sns:Publish"], [topic_arn])


def read_settings(*, deployment: str) -> iam.PolicyStatement:
    """Return the reading of the deployment's parameters, live edits among them.

    Not by the names of the workloads, of which there may be more than a policy has room for.
    """
    names = [
        deployment_parameter(deployment),
        workload_parameter(deployment, "*"),
        live_parameter(deployment, "*"),
    ]
    return allow("ReadSettings", ["ssm:GetParameters"], [parameter(name) for name in names])


def see_queues(queue_arns: Sequence[str]) -> iam.PolicyStatement:
    """Return the reading of queue depths."""
    return allow("SeeQueues", ["sqs:GetQueueAttributes"], queue_arns)


def requeue_jobs(queue_arns: Sequence[str]) -> iam.PolicyStatement:
    """Return the requeueing of what an ended worker held."""
    return allow("RequeueJobs", ["sqs:ChangeMessageVisibility"], queue_arns)


def see_backlogs(*, table_arn: str) -> iam.PolicyStatement:
    """Return what tells since when each queue has not been empty, and when it was looked at."""
    return allow("SeeBacklogs", ["dynamodb:GetItem", "dynamodb:UpdateItem"], [table_arn])


def renew_messages(queue_arns: Sequence[str]) -> iam.PolicyStatement:
    """Return the replacing of messages by copies before SQS drops them."""
    actions = ("ReceiveMessage", "SendMessage", "DeleteMessage", "ChangeMessageVisibility")
    return allow("RenewMessages", [f"sqs:{action}" for action in actions], queue_arns)


def keep_items(*, bucket_arn: str) -> iam.PolicyStatement:
    """Return the laying aside of items for which a copy has no room."""
    return allow("KeepItems", ["s3:PutObject"], [f"{bucket_arn}/workloads/*/jobs/*/items.jsonl"])


def keep_offers(*, bucket_arn: str) -> iam.PolicyStatement:
    """Return the renewal of the catalogue, whose old parts stand in for what cannot be read."""
    return allow("KeepOffers", ["s3:GetObject", "s3:PutObject"], [f"{bucket_arn}/offers/*"])


def keep_decisions(*, bucket_arn: str) -> iam.PolicyStatement:
    """Return the writing of decisions."""
    return allow("KeepDecisions", ["s3:PutObject"], [f"{bucket_arn}/decisions/*"])


def see_instances() -> iam.PolicyStatement:
    """Return what tells which of our instances live, and why one ended."""
    return _see("SeeInstances", ["DescribeInstances", "DescribeSpotInstanceRequests"])


def find_instances() -> iam.PolicyStatement:
    """Return what tells which of our instances live."""
    return _see("FindInstances", ["DescribeInstances"])


def keep_reconcile_out(*, table_arn: str) -> iam.PolicyStatement:
    """Return the taking of every workload's lock."""
    return allow("KeepReconcileOut", ["dynamodb:UpdateItem"], [table_arn])


def see_prices() -> iam.PolicyStatement:
    """Return the reading of spot prices."""
    return _see("SeePrices", ["DescribeSpotPriceHistory"])


def read_outposts(*, deployment: str, workloads: Sequence[str]) -> iam.PolicyStatement:
    """Return the reading of what an outpost says of itself."""
    names = [outpost_parameter(deployment, name) for name in workloads]
    return allow("ReadOutposts", ["ssm:GetParameters"], [parameter(name) for name in names])


def see_types() -> iam.PolicyStatement:
    """Return the reading of types and of where they are offered."""
    return _see("SeeTypes", ["DescribeInstanceTypeOfferings", "DescribeInstanceTypes"])


def see_market() -> list[iam.PolicyStatement]:
    """Return what the catalogue of offers is made of: types, zones, prices, quotas."""
    return [
        see_types(),
        allow("SeeListPrices", ["pricing:GetProducts"], ["*"]),
        allow("SeeQuotas", ["servicequotas:ListServiceQuotas"], ["*"]),
    ]


def end_workers(*, deployment: str) -> iam.PolicyStatement:
    """Return the termination of instances that carry our tag."""
    return allow(
        "EndWorkers",
        ["ec2:TerminateInstances"],
        [regional("ec2", "instance/*")],
        {"StringEquals": {f"aws:ResourceTag/{tag.DEPLOYMENT}": deployment}},
    )


def _see(sid: str, actions: Sequence[str]) -> iam.PolicyStatement:
    """Return EC2 reading, which knows no resources and is bounded by the region instead."""
    return allow(
        sid,
        [f"ec2:{action}" for action in actions],
        ["*"],
        {"StringEquals": {"aws:RequestedRegion": Aws.REGION}},
    )

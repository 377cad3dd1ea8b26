"""What the functions may do."""

from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from infra.iam.statement import CHANGE_ROWS, READ_ROWS, allow, parameter, public, regional
from infra.shared.resources import INSTANCE_INDEX
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


def keep_alerts(*, table_arn: str, workloads: Sequence[str]) -> iam.PolicyStatement:
    """Return what judges costs: the account of the days, and what people were told."""
    partitions = [workload_partition(name) for name in workloads]
    return allow(
        "KeepAlerts",
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


_LAUNCH = ["ec2:CreateFleet", "ec2:RunInstances"]


def use_parts(
    *, template_ids: Sequence[str], subnet_ids: Sequence[str], security_group_id: str
) -> list[iam.PolicyStatement]:
    """Return the use of what a launch finds: templates, network, images."""
    parts = [
        public("ec2", "image/*"),
        public("ec2", "snapshot/*"),
        regional("ec2", f"security-group/{security_group_id}"),
        *(regional("ec2", f"subnet/{one}") for one in subnet_ids),
    ]
    return [
        allow("LaunchFromTemplates", _LAUNCH, _templates(template_ids)),
        allow("LaunchWithParts", _LAUNCH, parts),
    ]


def make_tagged(*, deployment: str, template_ids: Sequence[str]) -> list[iam.PolicyStatement]:
    """Return the making of what a launch makes, each bearing our tag from the start.

    The launch within CreateFleet names its template, as one that is refused shows
    (github.com/aws/karpenter-provider-aws/issues/1488), so an instance can be bound to ours (Amazon
    EC2 User Guide, "Use launch templates to control launching").

    A spot request bears none, since the same template is there for on demand; EC2 makes it only
    beside an instance, which does.
    """
    instances = regional("ec2", "instance/*")
    beside = [regional("ec2", f"{kind}/*") for kind in ("network-interface", "volume")]
    made = [regional("ec2", "fleet/*"), instances, *beside]
    ours = {f"aws:RequestTag/{tag.DEPLOYMENT}": deployment}
    launching = {"ec2:CreateAction": ["CreateFleet", "RunInstances"]}
    from_ours = {"ec2:LaunchTemplate": _templates(template_ids)}
    return [
        allow("RequestTaggedFleets", ["ec2:CreateFleet"], made, {"StringEquals": ours}),
        allow("RequestSpot", _LAUNCH, [regional("ec2", "spot-instances-request/*")]),
        allow("LaunchTaggedParts", ["ec2:RunInstances"], beside, {"StringEquals": ours}),
        allow(
            "LaunchTaggedInstances",
            ["ec2:RunInstances"],
            [instances],
            {"StringEquals": ours, "ArnEquals": from_ours},
        ),
        allow("TagLaunches", ["ec2:CreateTags"], made, {"StringEquals": {**ours, **launching}}),
    ]


def pass_roles(*, worker_role_arns: Sequence[str]) -> list[iam.PolicyStatement]:
    """Return the handing of worker roles to EC2, and the making of EC2's own role for spot.

    The latter is made once an account, by its first spot request.
    """
    path = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    return [
        allow(
            "PassWorkerRoles",
            ["iam:PassRole"],
            worker_role_arns,
            {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        ),
        allow(
            "MakeSpotRole",
            ["iam:CreateServiceLinkedRole"],
            [f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/{path}"],
            {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
        ),
    ]


def resolve_images(parameters: Sequence[str]) -> iam.PolicyStatement:
    """Return the look-up of the images' parameters, which EC2 does as the caller.

    EC2's guide says GetParameters; CreateFleet has been seen to ask for GetParameter
    (github.com/kent8192/reinhardt-web/issues/2027).
    """
    arns = [parameter(name) for name in sorted(set(parameters))]
    return allow("ResolveImages", ["ssm:GetParameter", "ssm:GetParameters"], arns)


def _templates(template_ids: Sequence[str]) -> list[str]:
    return [regional("ec2", f"launch-template/{one}") for one in template_ids]

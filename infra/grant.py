"""What each role may do: one named statement for each reason to call AWS.

Everything that a role of ours may ever do is written in this file, so that it can be read, and
tested, in one place. A statement's id says why it is there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from infra.ledger import INSTANCE_INDEX
from spindown.contract import row, tag
from spindown.contract.location import parse_location
from spindown.contract.settings import (
    deployment_parameter,
    live_parameter,
    workload_parameter,
)

_READ_ROWS = ["dynamodb:GetItem", "dynamodb:Query"]
_CHANGE_ROWS = [
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
]


def allow(
    sid: str,
    actions: Sequence[str],
    resources: Sequence[str],
    conditions: Mapping[str, Any] | None = None,
) -> iam.PolicyStatement:
    """Return one statement that allows ``actions`` on ``resources``."""
    return iam.PolicyStatement(
        sid=sid, actions=list(actions), resources=list(resources), conditions=conditions
    )


# --- the worker -------------------------------------------------------------------------------


def work_jobs(*, queue_arn: str, dead_letters_arn: str) -> list[iam.PolicyStatement]:
    """Return what a worker does with messages: take, extend, end, re-send, give up."""
    return [
        allow(
            "WorkQueue",
            [
                "sqs:ChangeMessageVisibility",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:ReceiveMessage",
                "sqs:SendMessage",
            ],
            [queue_arn],
        ),
        allow("GiveUpJobs", ["sqs:SendMessage"], [dead_letters_arn]),
    ]


def keep_results(*, bucket_arn: str) -> list[iam.PolicyStatement]:
    """Return what a worker does with objects: manifests, parts, checkpoints, usage."""
    prefixes = [f"{bucket_arn}/{prefix}/*" for prefix in ("batches", "jobs", "usage")]
    return [
        allow(
            "KeepResults",
            ["s3:AbortMultipartUpload", "s3:GetObject", "s3:GetObjectVersion", "s3:PutObject"],
            prefixes,
        ),
        see_missing_objects(bucket_arn=bucket_arn, versions=True),
    ]


def see_missing_objects(*, bucket_arn: str, versions: bool = False) -> iam.PolicyStatement:
    """Return the listing of our bucket, without which a missing key answers 403, not 404.

    It bears no condition on the prefix, because reading an object has none to compare.
    """
    actions = ["s3:ListBucket", "s3:ListBucketVersions"] if versions else ["s3:ListBucket"]
    return allow("SeeMissingObjects", actions, [bucket_arn])


def read_code(*, bucket: str, key: str) -> iam.PolicyStatement:
    """Return the reading of one code archive, and of nothing else beside it."""
    return allow("ReadCode", ["s3:GetObject"], [f"arn:{Aws.PARTITION}:s3:::{bucket}/{key}"])


def read_inputs(uris: Sequence[str]) -> list[iam.PolicyStatement]:
    """Return the reading of a workload's declared inputs, ``s3://bucket/prefix``."""
    places = [parse_location(uri) for uri in uris]
    if not places:
        return []
    prefixes: dict[str, list[str]] = {}
    for place in places:
        prefixes.setdefault(place.bucket, []).append(f"{place.key}*")
    objects = [f"arn:{Aws.PARTITION}:s3:::{place.bucket}/{place.key}*" for place in places]
    return [
        allow("ReadInputs", ["s3:GetObject"], objects),
        *(
            allow(
                f"ListInputs{number}",
                ["s3:ListBucket"],
                [f"arn:{Aws.PARTITION}:s3:::{bucket}"],
                {"StringLike": {"s3:prefix": keys}},
            )
            for number, (bucket, keys) in enumerate(sorted(prefixes.items()), 1)
        ),
    ]


def keep_own_rows(*, table_arn: str, workload: str) -> iam.PolicyStatement:
    """Return the worker's part of the ledger: the rows of its workload.

    Each of these actions names its keys, so the condition always has something to compare.
    """
    partitions = [row.workload_partition(workload), row.history_partition(workload)]
    return allow(
        "KeepOwnRows",
        [*_READ_ROWS, *_CHANGE_ROWS],
        [table_arn],
        {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": partitions}},
    )


def write_log(*, log_group_arn: str) -> iam.PolicyStatement:
    """Return the writing of one log group, which carries the metrics too (EMF)."""
    return allow("WriteLog", ["logs:CreateLogStream", "logs:PutLogEvents"], [log_group_arn])


# --- the functions ----------------------------------------------------------------------------


def keep_ledger(*, table_arn: str) -> iam.PolicyStatement:
    """Return the whole ledger and its index."""
    return allow(
        "KeepLedger",
        [*_READ_ROWS, *_CHANGE_ROWS],
        [table_arn, f"{table_arn}/index/{INSTANCE_INDEX}"],
    )


def read_settings(*, deployment: str, workloads: Sequence[str]) -> iam.PolicyStatement:
    """Return the reading of the deployment's parameters, live edits among them."""
    names = [
        deployment_parameter(deployment),
        *(workload_parameter(deployment, name) for name in workloads),
        *(live_parameter(deployment, name) for name in workloads),
    ]
    return allow("ReadSettings", ["ssm:GetParameters"], [_parameter(name) for name in names])


def see_queues(queue_arns: Sequence[str]) -> iam.PolicyStatement:
    """Return the reading of queue depths."""
    return allow("SeeQueues", ["sqs:GetQueueAttributes"], queue_arns)


def requeue_jobs(queue_arns: Sequence[str]) -> iam.PolicyStatement:
    """Return the requeueing of what an ended worker held."""
    return allow("RequeueJobs", ["sqs:ChangeMessageVisibility"], queue_arns)


def keep_offers(*, bucket_arn: str) -> iam.PolicyStatement:
    """Return the renewal of the catalogue, whose old parts stand in for what cannot be read."""
    return allow("KeepOffers", ["s3:GetObject", "s3:PutObject"], [f"{bucket_arn}/offers/*"])


def keep_decisions(*, bucket_arn: str) -> iam.PolicyStatement:
    """Return the writing of decisions."""
    return allow("KeepDecisions", ["s3:PutObject"], [f"{bucket_arn}/decisions/*"])


def see_instances() -> iam.PolicyStatement:
    """Return what tells which of our instances live, and why one ended."""
    return _see("SeeInstances", ["DescribeInstances", "DescribeSpotInstanceRequests"])


def see_prices() -> iam.PolicyStatement:
    """Return the reading of spot prices."""
    return _see("SeePrices", ["DescribeSpotPriceHistory"])


def see_market() -> list[iam.PolicyStatement]:
    """Return what the catalogue of offers is made of: types, zones, prices, quotas."""
    return [
        _see("SeeTypes", ["DescribeInstanceTypeOfferings", "DescribeInstanceTypes"]),
        allow("SeeListPrices", ["pricing:GetProducts"], ["*"]),
        allow("SeeQuotas", ["servicequotas:ListServiceQuotas"], ["*"]),
    ]


def launch_workers(
    *,
    deployment: str,
    template_ids: Sequence[str],
    subnet_ids: Sequence[str],
    security_group_id: str,
    image_parameters: Sequence[str],
    worker_role_arns: Sequence[str],
) -> list[iam.PolicyStatement]:
    """Return launching: only from our templates, into our subnets, with our tag.

    A launch is two actions of the caller: CreateFleet, and RunInstances within it.
    """
    launch = ["ec2:CreateFleet", "ec2:RunInstances"]
    templates = [_regional("ec2", f"launch-template/{one}") for one in template_ids]
    kinds = ["fleet", "instance", "network-interface", "spot-instances-request", "volume"]
    made = {kind: _regional("ec2", f"{kind}/*") for kind in kinds}
    tagged = {"StringEquals": {f"aws:RequestTag/{tag.DEPLOYMENT}": deployment}}
    return [
        allow("LaunchFromTemplates", launch, templates),
        allow(
            "LaunchWithParts",
            launch,
            [
                _public("ec2", "image/*"),
                _public("ec2", "snapshot/*"),
                _regional("ec2", f"security-group/{security_group_id}"),
                *(_regional("ec2", f"subnet/{one}") for one in subnet_ids),
            ],
        ),
        allow("RequestTaggedFleets", ["ec2:CreateFleet"], list(made.values()), tagged),
        allow(
            "LaunchTaggedParts",
            ["ec2:RunInstances"],
            [arn for kind, arn in made.items() if kind not in {"fleet", "instance"}],
            tagged,
        ),
        allow(
            "LaunchTaggedInstances",
            ["ec2:RunInstances"],
            [made["instance"]],
            {**tagged, "ArnEquals": {"ec2:LaunchTemplate": templates}},
        ),
        allow(
            "TagLaunches",
            ["ec2:CreateTags"],
            list(made.values()),
            {
                "StringEquals": {
                    **tagged["StringEquals"],
                    "ec2:CreateAction": ["CreateFleet", "RunInstances"],
                }
            },
        ),
        allow(
            "PassWorkerRoles",
            ["iam:PassRole"],
            worker_role_arns,
            {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        ),
        allow(
            "ResolveImages",
            ["ssm:GetParameters"],
            [_parameter(name) for name in sorted(set(image_parameters))],
        ),
        allow(
            "MakeSpotRole",
            ["iam:CreateServiceLinkedRole"],
            [_spot_role()],
            {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
        ),
    ]


def end_workers(*, deployment: str) -> iam.PolicyStatement:
    """Return the termination of instances that carry our tag."""
    return allow(
        "EndWorkers",
        ["ec2:TerminateInstances"],
        [_regional("ec2", "instance/*")],
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


def _regional(service: str, resource: str) -> str:
    return f"arn:{Aws.PARTITION}:{service}:{Aws.REGION}:{Aws.ACCOUNT_ID}:{resource}"


def _public(service: str, resource: str) -> str:
    """Return the ARN of something that may belong to AWS: its account is left out."""
    return f"arn:{Aws.PARTITION}:{service}:{Aws.REGION}::{resource}"


def _spot_role() -> str:
    """Return the ARN of the role that EC2 takes spot capacity by, once an account."""
    path = "aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    return f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:role/{path}"


def _parameter(name: str) -> str:
    """Return the ARN of a parameter; those below /aws/ belong to no account."""
    make = _public if name.startswith("/aws/") else _regional
    return make("ssm", f"parameter/{name.removeprefix('/')}")

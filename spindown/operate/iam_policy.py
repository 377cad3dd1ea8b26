"""The least rights of people as policies of IAM: who deploys, operates, runs folders or submits.

Actions, resources and condition keys are those of the Service Authorization Reference of each
service. What is made by CloudFormation has a name that nobody knows before: there a pattern stands,
and the account bounds it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spindown.config.deployment import (
    KEPT_OF_STACK,
    POLICY_CHARACTERS_MAX,
    USUAL_QUALIFIER,
    bootstrap_parameter,
)
from spindown.contract import tag
from spindown.contract.folder import folder_prefix
from spindown.contract.job.batch import BATCHES, OPEN, SUBMITTED, UPLOADS
from spindown.contract.location import work_root
from spindown.contract.name import (
    SEPARATOR,
    failed_events_name,
    queue_name,
    resource_name,
    scaler_name,
)

Statement = Mapping[str, Any]
Policy = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Whose:
    """The deployment that rights are for."""

    deployment: str
    account: str
    #: Home first.
    regions: Sequence[str]
    workloads: Sequence[str]
    #: Of the roles of `cdk bootstrap`.
    qualifier: str = USUAL_QUALIFIER
    #: The account's own keys, that of the home region first; none: AWS's keys encrypt.
    key_arns: Sequence[str] = ()
    #: Keys that may encrypt the buckets of ``cdk bootstrap``.
    archive_key_arns: Sequence[str] = ()
    #: SSM parameters of one's own that name images.
    image_parameters: Sequence[str] = ()
    #: Path and beginning of the names of its roles, and what bounds them.
    role_path: str = "/"
    role_name_prefix: str = ""
    boundary_arn: str | None = None
    #: Its bucket; None: not known before the first deploy, since CloudFormation names it.
    bucket: str | None = None

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of what the account has in the home region."""
        return f"arn:aws:{service}:{self.regions[0]}:{self.account}:{resource}"

    def objects(self, *keys: str) -> list[str]:
        """Return the ARNs of objects of the bucket; no key: the bucket's own."""
        stack = f"{self.deployment}-core"
        pattern = f"{stack}-storebucket*" if len(stack) <= KEPT_OF_STACK else f"{stack[:20]}*"
        name = self.bucket or pattern
        return [f"arn:aws:s3:::{name}/{key}" for key in keys] or [f"arn:aws:s3:::{name}"]

    @property
    def ours(self) -> Mapping[str, Any]:
        """Return the condition that a bucket is this account's."""
        return {"StringEquals": {"aws:ResourceAccount": self.account}}


#: With which EC2 launches spot instances.
_SPOT_ROLE = "spot.amazonaws.com/AWSServiceRoleForEC2Spot"


def deployer(whose: Whose) -> list[Statement]:
    """Return what `spindown deploy` and `destroy` need: to act as the roles of `cdk bootstrap`.

    Those roles may do all that a deploy does (AWS CDK v2 Developer Guide, "Bootstrapping").
    """
    kinds = ("deploy", "file-publishing", "lookup")
    roles = [
        f"arn:aws:iam::{whose.account}:role/cdk-{whose.qualifier}-{kind}-role-{whose.account}-{region}"
        for region in whose.regions
        for kind in kinds
    ]
    return [allow("ActAsBootstrapRoles", ["sts:AssumeRole"], roles)]


def submitter(whose: Whose) -> list[Statement]:
    """Return what `spindown submit` needs: the queues, where it writes, and to wake the scaler."""
    queues = [
        whose.arn("sqs", queue_name(whose.deployment, workload)) for workload in whose.workloads
    ]
    keys = [
        f"{work_root(workload)}{part}*"
        for workload in whose.workloads
        for part in (BATCHES, OPEN, SUBMITTED, UPLOADS)
    ]
    return [
        allow("SendWork", ["sqs:GetQueueUrl", "sqs:ListQueueTags", "sqs:SendMessage"], queues),
        allow(
            "WriteBatches",
            ["s3:AbortMultipartUpload", "s3:PutObject"],
            whose.objects(*keys),
            whose.ours,
        ),
        _wake_scaler(whose),
    ]


def operator(whose: Whose) -> list[Statement]:
    """Return what all other commands need; they change jobs and policies, and launch nothing."""
    name = whose.deployment
    settings = f"parameter/spindown/{name}/*"
    table = whose.arn("dynamodb", f"table/{resource_name(name, 'ledger')}")
    return [
        allow(
            "ReadSettings",
            ["ssm:GetParameters"],
            [f"arn:aws:ssm:{region}:{whose.account}:{settings}" for region in whose.regions],
        ),
        allow(
            "EditPolicies",
            [
                # The first edit bears the account's tags.
                "ssm:AddTagsToResource",
                "ssm:DeleteParameter",
                "ssm:GetParameterHistory",
                "ssm:PutParameter",
            ],
            [whose.arn("ssm", f"parameter/spindown/{name}/live/*")],
        ),
        allow(
            "UseQueues",
            [
                "sqs:ChangeMessageVisibility",
                "sqs:DeleteMessage",
                "sqs:GetQueueAttributes",
                "sqs:GetQueueUrl",
                "sqs:ListQueueTags",
                "sqs:ReceiveMessage",
                "sqs:SendMessage",
            ],
            [whose.arn("sqs", f"{name}{SEPARATOR}*")],
        ),
        allow(
            "ReadObjects",
            ["s3:GetObject", "s3:GetObjectVersion"],
            whose.objects("*"),
            whose.ours,
        ),
        # Not the folders of `spindown run`, which are code.
        allow(
            "KeepObjects",
            ["s3:AbortMultipartUpload", "s3:PutObject"],
            whose.objects("workloads/*"),
            whose.ours,
        ),
        allow(
            "SeeObjects", ["s3:ListBucket", "s3:ListBucketVersions"], whose.objects(), whose.ours
        ),
        allow(
            "KeepLedger",
            [
                "dynamodb:BatchGetItem",
                "dynamodb:ConditionCheckItem",
                "dynamodb:DeleteItem",
                "dynamodb:GetItem",
                "dynamodb:PartiQLSelect",
                "dynamodb:Query",
                "dynamodb:UpdateItem",
            ],
            [table, f"{table}/index/*"],
        ),
        allow(
            "ReadLogs",
            ["logs:FilterLogEvents", "logs:StartQuery"],
            # Of workers, and of the functions; and of images that are baked.
            [
                f"arn:aws:logs:{region}:{whose.account}:log-group:{group}"
                for region in whose.regions
                for group in (f"/spindown/{name}/*", f"/aws/imagebuilder/{name}{SEPARATOR}*")
            ],
        ),
        _wake_scaler(whose),
        # `spindown doctor`: whether the function of the webhook can read its secret. The runbook:
        # to read the market now.
        allow(
            "CallFunctions",
            ["lambda:InvokeFunction"],
            [
                whose.arn("lambda", f"function:{resource_name(name, function)}")
                for function in ("offers", "webhook")
            ],
        ),
        # `spindown doctor`: who hears of trouble.
        allow(
            "SeeSubscribers",
            ["sns:ListSubscriptionsByTopic"],
            [
                f"arn:aws:sns:{region}:{whose.account}:{resource_name(name, 'alarms')}"
                for region in whose.regions
            ],
        ),
        # `spindown doctor`, and the runbook: whether a tick is on.
        allow(
            "SeeSchedules",
            ["scheduler:GetSchedule"],
            [whose.arn("scheduler", f"schedule/default/{name}{SEPARATOR}*")],
        ),
        allow(
            "SeeSpareTicks",
            ["events:DescribeRule"],
            [whose.arn("events", f"rule/{resource_name(name, '*', 'tick')}")],
        ),
        # The runbook: events that came to nothing, to be read, and purged once that is repaired.
        allow(
            "EndFailedEvents",
            ["sqs:GetQueueUrl", "sqs:PurgeQueue", "sqs:ReceiveMessage"],
            [
                whose.arn("sqs", f"{name}-core-ControlFailedEvents*"),
                *(
                    f"arn:aws:sqs:{region}:{whose.account}:{failed_events_name(name)}"
                    for region in whose.regions[1:]
                ),
            ],
        ),
        # `spindown drain --now`, and the runbook: what an instance printed at its boot.
        allow(
            "EndWorkers",
            ["ec2:GetConsoleOutput", "ec2:TerminateInstances"],
            [f"arn:aws:ec2:{region}:{whose.account}:instance/*" for region in whose.regions],
            {
                "StringEquals": {
                    f"aws:ResourceTag/{tag.DEPLOYMENT}": name,
                    f"aws:ResourceTag/{tag.REGION}": whose.regions[0],
                }
            },
        ),
        # `spindown doctor`, before the first deploy: what it needs to be there.
        allow(
            "SeeSpotRole",
            ["iam:GetRole"],
            [f"arn:aws:iam::{whose.account}:role/aws-service-role/{_SPOT_ROLE}"],
        ),
        allow(
            "SeeParameters",
            ["ssm:GetParameter"],
            # AWS's own belong to no account.
            [
                f"arn:aws:ssm:*:{owner}:parameter{path}"
                for owner, path in (
                    ("", "/aws/service/*"),
                    (whose.account, bootstrap_parameter(whose.qualifier)),
                    (whose.account, f"/imagebuilder/spindown/{name}/*"),
                    *((whose.account, path) for path in whose.image_parameters),
                )
            ],
            {"StringEquals": {"aws:RequestedRegion": list(whose.regions)}},
        ),
        # `spindown doctor`: whether the buckets of sources, which are people's own, send events.
        allow("SeeSources", ["s3:GetBucketNotification"], ["arn:aws:s3:::*"], whose.ours),
        # Dashboards belong to no region.
        allow(
            "SeeDashboards",
            ["cloudwatch:GetDashboard"],
            [
                f"arn:aws:cloudwatch::{whose.account}:dashboard/{shown}"
                for shown in (whose.deployment, f"{whose.deployment}--*")
            ],
        ),
        # None of these takes a resource.
        allow(
            "SeeMarket",
            [
                "cloudwatch:DescribeAlarms",
                "cloudwatch:GetMetricData",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypeOfferings",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeInstances",
                "ec2:DescribeSpotInstanceRequests",
                "ec2:DescribeSpotPriceHistory",
                "ec2:DescribeRouteTables",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcEndpoints",
                "ec2:DescribeVpcs",
                "freetier:GetAccountPlanState",
                "lambda:GetAccountSettings",
                "logs:DescribeQueryDefinitions",
                "logs:GetQueryResults",
                "pricing:GetProducts",
                "servicequotas:GetServiceQuota",
                "servicequotas:ListServiceQuotas",
            ],
            ["*"],
        ),
    ]


def runner(whose: Whose) -> list[Statement]:
    """Return what `spindown run` needs beside an operator's rights: to choose code that runs."""
    keys = [f"{folder_prefix(workload)}*" for workload in whose.workloads]
    return [allow("SendFolders", ["s3:PutObject"], whose.objects(*keys), whose.ours)]


def verifier(whose: Whose) -> list[Statement]:
    """Return what `spindown verify` needs beside an operator's rights.

    Its experiments are those of the deployment. The first one of an account makes the role with
    which FIS itself works (AWS FIS User Guide, "Service-linked role").
    """
    tagged = {"StringEquals": {f"aws:ResourceTag/{tag.DEPLOYMENT}": whose.deployment}}
    made = {"StringEquals": {f"aws:RequestTag/{tag.DEPLOYMENT}": whose.deployment}}
    role = "role/aws-service-role/fis.amazonaws.com/AWSServiceRoleForFIS"
    return [
        allow(
            "StartExperiments",
            ["fis:StartExperiment"],
            [whose.arn("fis", "experiment-template/*")],
            tagged,
        ),
        # Where an experiment is started, both what it is started from and what it is are asked for.
        allow(
            "MakeExperiments",
            ["fis:StartExperiment", "fis:TagResource"],
            [whose.arn("fis", "experiment/*")],
            made,
        ),
        allow(
            "FollowExperiments",
            ["fis:GetExperiment"],
            [whose.arn("fis", "experiment/*")],
            tagged,
        ),
        allow(
            "MakeRoleOfExperiments",
            ["iam:CreateServiceLinkedRole"],
            [f"arn:aws:iam::{whose.account}:{role}"],
            {"StringEquals": {"iam:AWSServiceName": "fis.amazonaws.com"}},
        ),
        # It takes no resource.
        allow("SeeProof", ["fis:ListExperimentTemplates"], ["*"]),
    ]


def _wake_scaler(whose: Whose) -> Statement:
    function = f"function:{scaler_name(whose.deployment)}"
    return allow("WakeScaler", ["lambda:InvokeFunction"], [whose.arn("lambda", function)])


#: Who somebody is -> what they need.
RIGHTS: Mapping[str, Callable[[Whose], list[Statement]]] = {
    "deployer": deployer,
    "operator": operator,
    "runner": runner,
    "submitter": submitter,
    "verifier": verifier,
}


def policy(role: str, whose: Whose) -> Policy:
    """Return the policy document of a role of ``RIGHTS``, however long it is."""
    return document([*RIGHTS[role](whose), *_use_key(role, whose)])


def policies(role: str, whose: Whose) -> Mapping[str, Policy]:
    """Return the same, by names to give them, as policies of which each has room for its part."""
    parts = split(policy(role, whose)["Statement"])
    return {f"{whose.deployment}-{role}-{n}": document(part) for n, part in enumerate(parts, 1)}


def document(statements: Sequence[Statement]) -> Policy:
    """Return a policy of these statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def split(statements: Sequence[Statement]) -> list[list[Statement]]:
    """Divide the statements, in their order, among as few policies as have room for them."""
    parts: list[list[Statement]] = [[]]
    for one in (piece for whole in statements for piece in _pieces(whole)):
        if not _has_room([*parts[-1], one]):
            parts.append([])
        parts[-1].append(one)
    return parts


def _pieces(statement: Statement) -> list[Statement]:
    """Return the statement, or several of a part of its resources each if it is too long."""
    if _has_room([statement]) or len(statement["Resource"]) == 1:
        return [statement]
    middle = len(statement["Resource"]) // 2
    halves = (statement["Resource"][:middle], statement["Resource"][middle:])
    return [
        piece
        for side, half in zip("AB", halves, strict=True)
        for piece in _pieces({**statement, "Sid": statement["Sid"] + side, "Resource": half})
    ]


def _has_room(statements: Sequence[Statement]) -> bool:
    text = json.dumps(document(statements), separators=(",", ":"))
    return len(text) <= POLICY_CHARACTERS_MAX


#: Who -> through which services they use what the account's own key encrypts, and for what.
_KEY_USERS: Mapping[str, tuple[Sequence[str], Sequence[str]]] = {
    "operator": (
        ("dynamodb", "s3", "sqs"),
        ("Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo"),
    ),
    "submitter": (("s3", "sqs"), ("Decrypt", "GenerateDataKey")),
}


def _use_key(role: str, whose: Whose) -> list[Statement]:
    """Return what the account's own key asks of whoever sends, reads and writes."""
    if not whose.key_arns or role not in _KEY_USERS:
        return []
    services, actions = _KEY_USERS[role]
    through = [f"{service}.{whose.regions[0]}.amazonaws.com" for service in services]
    # `spindown doctor`: whether they are enabled, and lent to EC2's role for spot.
    looks = ["kms:DescribeKey", "kms:GetKeyPolicy", "kms:ListGrants"]
    return [
        *([allow("SeeOwnKeys", looks, whose.key_arns)] if role == "operator" else []),
        allow(
            "UseOwnKey",
            [f"kms:{action}" for action in actions],
            # Queues, ledger and bucket are at home.
            whose.key_arns[:1],
            {"StringEquals": {"kms:ViaService": through}},
        ),
        *(_read_abroad(whose) if role == "operator" else []),
    ]


def _read_abroad(whose: Whose) -> list[Statement]:
    """Return what reading an outpost's queue of failed events asks of its key."""
    through = [f"sqs.{region}.amazonaws.com" for region in whose.regions[1:]]
    condition = {"StringEquals": {"kms:ViaService": through}}
    keys = whose.key_arns[1:]
    return [allow("ReadFailedEvents", ["kms:Decrypt"], keys, condition)] if keys else []


def allow(
    sid: str,
    actions: Sequence[str],
    resources: Sequence[str],
    condition: Mapping[str, Any] | None = None,
) -> Statement:
    """Return one statement that allows ``actions`` on ``resources``."""
    found = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
    return {**found, "Condition": condition} if condition else found

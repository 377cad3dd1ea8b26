"""The parts of a grant: a named statement, the ARN that bounds it, the role that has it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws
from aws_cdk import aws_iam as iam
from constructs import Construct

from spindown.infra.shared.stack import DeploymentStack

READ_ROWS = ["dynamodb:GetItem", "dynamodb:Query"]
#: PartiQL's SELECT, which reads more partitions than one by one request.
READ_EACH = "dynamodb:PartiQLSelect"
#: By which one workload's rows are read where its workers have written too many for that.
READ_FEW = ["dynamodb:BatchGetItem", "dynamodb:Query"]
CHANGE_ROWS = [
    "dynamodb:ConditionCheckItem",
    "dynamodb:DeleteItem",
    "dynamodb:UpdateItem",
]


def make_role(
    scope: Construct,
    *,
    what: Sequence[str],
    description: str,
    trusted: iam.IPrincipal,
    statements: Sequence[iam.PolicyStatement],
    is_named: bool = False,
) -> iam.Role:
    """Add a role to ``scope`` that may do what its statements say and nothing else.

    Args:
        scope: what it is part of.
        what: what its name is made of, if it has one: no other role's.
        description: what it is for.
        trusted: who assumes it.
        statements: what it may do, within the boundary of the account's roles.
        is_named: whether another stack refers to it by its name.
    """
    stack = DeploymentStack.holding(scope)
    role = iam.Role(
        scope,
        "Role",
        role_name=stack.role_name(*what, is_named=is_named),
        description=description,
        assumed_by=trusted,
        permissions_boundary=stack.boundary,
    )
    for statement in (*statements, *_use_key(stack.deployment.kms_key_arn, statements)):
        role.add_to_policy(statement)
    return role


#: Service -> what it asks of KMS in the name of who uses things of it that a key encrypts.
#: Sources: Amazon S3 User Guide, "Using server-side encryption with AWS KMS keys"; Amazon SQS and
#: SNS Developer Guides, "Key management"; Amazon DynamoDB Developer Guide, "Authorizing use of your
#: customer managed key".
KEY_USE: Mapping[str, frozenset[str]] = {
    "dynamodb": frozenset(
        {"Decrypt", "DescribeKey", "Encrypt", "GenerateDataKey", "ReEncryptFrom", "ReEncryptTo"}
    ),
    "s3": frozenset({"Decrypt", "GenerateDataKey"}),
    "sns": frozenset({"Decrypt", "GenerateDataKey"}),
    "sqs": frozenset({"Decrypt", "GenerateDataKey"}),
}


def _use_key(
    key_arn: str | None, statements: Sequence[iam.PolicyStatement]
) -> list[iam.PolicyStatement]:
    """Allow using the home region's key, through the services that the statements are about."""
    services = {action.partition(":")[0] for one in statements for action in one.actions}
    used = sorted(services & KEY_USE.keys())
    if key_arn is None or not used:
        return []
    region = key_arn.split(":")[3]
    actions = sorted({f"kms:{action}" for service in used for action in KEY_USE[service]})
    through = {"kms:ViaService": [f"{service}.{region}.amazonaws.com" for service in used]}
    return [allow("UseOwnKey", actions, [key_arn], {"StringEquals": through})]


def make_profile(
    scope: Construct, construct_id: str, role: iam.Role, *, what: Sequence[str], is_named: bool
) -> iam.CfnInstanceProfile:
    """Add an instance profile with a role; ``what`` and ``is_named`` as of a role."""
    stack = DeploymentStack.holding(scope)
    return iam.CfnInstanceProfile(
        scope,
        construct_id,
        instance_profile_name=stack.role_name(*what, is_named=is_named),
        roles=[role.role_name],
    )


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


#: That what is read is this account's, whoever has made a bucket of such a name.
OF_THIS_ACCOUNT = {"StringEquals": {"aws:ResourceAccount": Aws.ACCOUNT_ID}}


def see(sid: str, actions: Sequence[str], *, regions: Sequence[str]) -> iam.PolicyStatement:
    """Allow actions that take no resource, in these regions alone."""
    asked = regions[0] if len(regions) == 1 else list(regions)
    return allow(sid, actions, ["*"], {"StringEquals": {"aws:RequestedRegion": asked}})


def within(*partitions: str) -> dict[str, dict[str, list[str]]]:
    """Return the condition that a call names rows of these partitions alone; ``*`` is a pattern.

    It holds of a call that names none, so it must stand at no such action (Scan, PartiQL).
    """
    return {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": list(partitions)}}


def literal(text: str) -> str:
    """Return a text as a pattern that means nothing but this text.

    In resources and conditions ``*`` and ``?`` are wildcards, and ``${...}`` is a variable. What
    stands for the signs themselves: IAM User Guide, "IAM policy elements: Variables and tags",
    "Special characters that can be specified as policy variables".
    """
    return _SIGNS.sub(r"${\g<0>}", text)


_SIGNS = re.compile(r"[*?$]")


def see_missing_objects(*, bucket_arn: str) -> iam.PolicyStatement:
    """Allow listing our bucket; without this S3 answers 403 for a missing key, not 404.

    There is no condition on the prefix, because reading an object has no prefix to compare. A
    condition with IfExists would allow a request without a prefix, which lists everything.
    """
    return allow("SeeMissingObjects", ["s3:ListBucket"], [bucket_arn])


def write_log(*, log_group_arn: str) -> iam.PolicyStatement:
    """Allow writing to one log group, which carries the metrics too (EMF)."""
    return allow("WriteLog", ["logs:CreateLogStream", "logs:PutLogEvents"], [log_group_arn])


#: Source: AWS Lambda Developer Guide, "Giving Lambda functions access to resources in an Amazon
#: VPC".
_CONNECT = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)


def connect_function() -> iam.PolicyStatement:
    """Allow Lambda to connect a function to a VPC or to leave it, and the function's code neither.

    Lambda does so as the function's role, by requests of which no function is the source (the same
    guide, "Using source function ARN to control function access behavior").
    """
    conditions = {
        "StringEquals": {"aws:RequestedRegion": Aws.REGION},
        "Null": {"lambda:SourceFunctionArn": "true"},
    }
    return allow("ConnectFunction", _CONNECT, ["*"], conditions)


def regional(service: str, resource: str) -> str:
    """Return the ARN of a resource of this account and region."""
    return f"arn:{Aws.PARTITION}:{service}:{Aws.REGION}:{Aws.ACCOUNT_ID}:{resource}"


def public(service: str, resource: str, region: str | None = None) -> str:
    """Return the ARN of a resource that may belong to AWS: the account is left out."""
    return f"arn:{Aws.PARTITION}:{service}:{region or Aws.REGION}::{resource}"


def parameter(name: str) -> str:
    """Return the ARN of a parameter; a parameter below /aws/ belongs to no account."""
    make = public if name.startswith("/aws/") else regional
    return make("ssm", f"parameter/{name.removeprefix('/')}")

"""What it takes to launch a worker: only from our templates, into our subnets, with our tag.

A launch is two actions of the caller: CreateFleet, and RunInstances within it. EC2 checks both
for each thing that they use or make.
"""

from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from infra.grant.statement import allow, parameter, public, regional
from spindown.contract import tag

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

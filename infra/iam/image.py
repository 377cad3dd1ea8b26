"""What baking an image takes: what the instance may do that is baked, and what expires images.

Image Builder itself works under its service-linked role, which it makes at its first use.
"""

from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from infra.iam.statement import allow, public, regional
from infra.iam.worker import open_sessions, use_keys
from spindown.contract import tag

#: Image Builder tags what it makes so.
_ITS_OWN = {"aws:ResourceTag/CreatedBy": "EC2 Image Builder"}


def bake(
    *,
    component_arns: Sequence[str],
    archive_arns: Sequence[str],
    log_group_arns: Sequence[str],
    key_arns: Sequence[str],
) -> list[iam.PolicyStatement]:
    """Return what an instance does while it is baked: be told what to do, fetch it, log it.

    The bucket of assets may be encrypted with a key of one's own.

    It is told by Systems Manager, whose agent's actions know no resources. Source: AWS Managed
    Policy Reference, "EC2InstanceProfileForImageBuilder" and "AmazonSSMManagedInstanceCore",
    without what serves container images, inventories and disk files.
    """
    messages = ["AcknowledgeMessage", "DeleteMessage", "FailMessage", "GetEndpoint", "GetMessages"]
    return [
        open_sessions(),
        allow(
            "ExchangeMessages",
            [f"ec2messages:{action}" for action in (*messages, "SendReply")],
            ["*"],
        ),
        # Its own program, which carries the steps out, and what that needs.
        allow("ReadTools", ["s3:GetObject"], [f"arn:{Aws.PARTITION}:s3:::ec2imagebuilder*"]),
        allow("ReadComponents", ["imagebuilder:GetComponent"], component_arns),
        allow("ReadArchives", ["s3:GetObject"], archive_arns),
        *use_keys(key_arns),
        allow(
            "WriteLogs",
            ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"],
            log_group_arns,
        ),
    ]


def expire(*, deployment: str, regions: Sequence[str] = ()) -> list[iam.PolicyStatement]:
    """Return the ending of old images of a deployment, and of their snapshots.

    In ``regions`` lie copies of them.

    Source: AWS Managed Policy Reference, "EC2ImageBuilderLifecycleExecutionPolicy", of which this
    is the part that deletes.
    """
    ours = {**_ITS_OWN, f"aws:ResourceTag/{tag.DEPLOYMENT}": deployment}
    return [
        allow("FindImages", ["ec2:DescribeImages", "tag:GetResources"], ["*"]),
        allow(
            "EndImages",
            ["ec2:DeregisterImage", "ec2:DescribeImageAttribute"],
            [public("ec2", "image/*", region) for region in (None, *regions)],
            {"StringEquals": ours},
        ),
        allow(
            "DeleteSnapshots",
            ["ec2:DeleteSnapshot"],
            [public("ec2", "snapshot/*", region) for region in (None, *regions)],
            {"StringEquals": _ITS_OWN},
        ),
        allow(
            "ForgetImages",
            ["imagebuilder:DeleteImage"],
            [regional("imagebuilder", f"image/{deployment}-*")],
        ),
    ]

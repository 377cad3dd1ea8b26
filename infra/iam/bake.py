"""What baking images needs: the role of the baked instance, and the role that expires images.

Image Builder itself uses its service-linked role, which it creates at its first use.
"""

from collections.abc import Sequence

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from spindown.contract import tag
from spindown.contract.image import BUILDER_TAG
from spindown.contract.name import resource_name
from spindown.infra.iam.statement import OF_THIS_ACCOUNT, allow, public, regional, see
from spindown.infra.iam.worker import open_sessions, use_keys

#: The tags that Image Builder gives to all that it makes.
_ITS_OWN = {"aws:ResourceTag/CreatedBy": "EC2 Image Builder"}
_MADE_FOR = f"aws:ResourceTag/{BUILDER_TAG}"


def bake(
    *,
    component_arns: Sequence[str],
    archives_arns: Sequence[str],
    log_group_arns: Sequence[str],
    key_arns: Sequence[str],
) -> list[iam.PolicyStatement]:
    """Allow what an instance does while it is baked: take orders, fetch archives, write logs.

    The bucket of assets may be encrypted with a key of the user's own.

    The orders come from Systems Manager, whose agent's actions take no resource. Source: AWS
    Managed Policy Reference, "EC2InstanceProfileForImageBuilder" and
    "AmazonSSMManagedInstanceCore", without what serves container images, inventories and disk
    files.
    """
    messages = ["AcknowledgeMessage", "DeleteMessage", "FailMessage", "GetEndpoint", "GetMessages"]
    return [
        open_sessions([Aws.REGION]),
        see(
            "ExchangeMessages",
            [f"ec2messages:{action}" for action in (*messages, "SendReply")],
            regions=[Aws.REGION],
        ),
        # Image Builder's program that executes the steps, and what that program needs.
        allow("ReadTools", ["s3:GetObject"], [f"arn:{Aws.PARTITION}:s3:::ec2imagebuilder*"]),
        allow("ReadComponents", ["imagebuilder:GetComponent"], component_arns),
        allow("ReadArchives", ["s3:GetObject"], archives_arns, OF_THIS_ACCOUNT),
        *use_keys(key_arns),
        allow(
            "WriteLogs",
            ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"],
            log_group_arns,
        ),
    ]


def expire(*, deployment: str, regions: Sequence[str] = ()) -> list[iam.PolicyStatement]:
    """Allow deleting old images of a deployment and their snapshots.

    ``regions`` are the further ones that hold copies.

    Source: AWS Managed Policy Reference, "EC2ImageBuilderLifecycleExecutionPolicy", of which this
    is the part that deletes.
    """
    ours = {**_ITS_OWN, f"aws:ResourceTag/{tag.DEPLOYMENT}": deployment}
    images = regional("imagebuilder", f"image/{resource_name(deployment, '*')}")
    return [
        see(
            "FindImages",
            ["ec2:DescribeImages", "tag:GetResources"],
            regions=[Aws.REGION, *regions],
        ),
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
            # The tag of the deployment is on images alone.
            {"StringEquals": _ITS_OWN, "StringLike": {_MADE_FOR: images}},
        ),
        allow(
            "ForgetImages",
            ["imagebuilder:DeleteImage"],
            [images],
        ),
    ]

"""What an experiment may do: announce the end of spot instances of one workload."""

from collections.abc import Mapping

from aws_cdk import Aws
from aws_cdk import aws_iam as iam

from spindown.infra.iam.statement import allow, regional, see


def trusted_experiments() -> iam.IPrincipal:
    """Return FIS, for experiments of this account (AWS FIS User Guide, "Confused deputy")."""
    return iam.ServicePrincipal(
        "fis.amazonaws.com",
        conditions={
            "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
            "ArnLike": {"aws:SourceArn": regional("fis", "experiment/*")},
        },
    )


def interrupt_spot(ours: Mapping[str, str]) -> list[iam.PolicyStatement]:
    """Allow interrupting spot instances that carry our tags, as given.

    Source: AWS FIS User Guide, "AWS FIS Actions reference",
    "aws:ec2:send-spot-instance-interruptions".
    """
    tags = {f"aws:ResourceTag/{name}": value for name, value in ours.items()}
    return [
        allow(
            "InterruptSpot",
            ["ec2:SendSpotInstanceInterruptions"],
            [regional("ec2", "instance/*")],
            {"StringEquals": tags},
        ),
        see("FindTargets", ["ec2:DescribeInstances"], regions=[Aws.REGION]),
    ]

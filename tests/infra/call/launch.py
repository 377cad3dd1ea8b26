"""What a launch must be able to call."""

from spindown.contract import tag
from tests.infra.call.resource import OURS, TEMPLATES
from tests.infra.policy import REGION, Call, ours

_FOUND = [
    *TEMPLATES,
    f"arn:aws:ec2:{REGION}::image/ami-1",
    f"arn:aws:ec2:{REGION}::snapshot/snap-1",
    ours("ec2", "security-group/NetworkWorkers"),
    ours("ec2", "subnet/NetworkSubnetA"),
    ours("ec2", "subnet/NetworkSubnetC"),
]
_BESIDE = [ours("ec2", f"{kind}/*") for kind in ("network-interface", "volume")]
_MADE = [ours("ec2", "fleet/*"), ours("ec2", "instance/*"), *_BESIDE]

_BASE_IMAGE = (
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
)


def an_instance(workload: str) -> dict[str, list[str]]:
    """Return what is known of an instance that the scaler launches, besides type and template."""
    return {
        **OURS,
        f"aws:RequestTag/{tag.WORKLOAD}": [workload],
        f"aws:RequestTag/{tag.LEASE_UNTIL}": ["2026-11-21T12:00:00Z"],
        "ec2:MetadataHttpTokens": ["required"],
    }


#: What CreateFleet asks for each thing that it uses or makes, and RunInstances within it.
LAUNCH_CALLS = [
    *(Call(f"ec2:{a}", one) for a in ("CreateFleet", "RunInstances") for one in _FOUND),
    *(Call("ec2:CreateFleet", one, OURS) for one in _MADE),
    *(
        Call(f"ec2:{action}", ours("ec2", "spot-instances-request/*"))
        for action in ("CreateFleet", "RunInstances")
    ),
    *(Call("ec2:RunInstances", one, OURS) for one in _BESIDE),
    *(
        Call(
            "ec2:RunInstances",
            ours("ec2", "instance/*"),
            {**an_instance(workload), "ec2:LaunchTemplate": [template], **type_},
        )
        for template in TEMPLATES
        for workload in ("plain", "rich")
        for type_ in ({"ec2:InstanceType": ["g6.xlarge"]}, {"ec2:InstanceType": ["p5.48xlarge"]})
    ),
    *(
        Call("ec2:CreateTags", one, {**OURS, "ec2:CreateAction": [action]})
        for one in _MADE
        for action in ("CreateFleet", "RunInstances")
    ),
    *(
        Call(
            "iam:PassRole",
            f"arn:aws:iam::111122223333:role/Workload{name}FleetRole",
            {"iam:PassedToService": ["ec2.amazonaws.com"]},
        )
        for name in ("plain", "rich")
    ),
    Call(
        "iam:CreateServiceLinkedRole",
        "arn:aws:iam::111122223333:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot",
        {"iam:AWSServiceName": ["spot.amazonaws.com"]},
    ),
    *(
        Call(f"ssm:{action}", image)
        for action in ("GetParameter", "GetParameters")
        for image in (
            ours("ssm", "parameter/images/rich/arm64"),
            ours("ssm", "parameter/images/rich/x86_64"),
            f"arn:aws:ssm:{REGION}::parameter{_BASE_IMAGE}",
        )
    ),
]

"""Every code that EC2 is known to refuse a launch with, in one table: what is tried next.

Codes: the botocore model of EC2, the EC2 user guide and Karpenter's pkg/errors. Each is answered
by botocore's Stubber twice: for one pool beside others, and for the call as a whole.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.stub import Stubber

from spindown.aws.ec2 import Ec2Compute
from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType
from spindown.error import Throttled, Unreachable
from spindown.port import LaunchOverride, LaunchRequest, Refusal, RefusalKind

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REGION = "eu-west-1"
CAPACITY, QUOTA, ACCOUNT, THROTTLE, UNKNOWN = (
    RefusalKind.CAPACITY,
    RefusalKind.QUOTA,
    RefusalKind.ACCOUNT,
    RefusalKind.THROTTLE,
    RefusalKind.UNKNOWN,
)

#: Code -> its class for one pool.
CODES = {
    # This pool is dry, or cannot be had like this: the next offer.
    "InsufficientInstanceCapacity": CAPACITY,
    "UnfulfillableCapacity": CAPACITY,
    "InsufficientHostCapacity": CAPACITY,
    "InsufficientReservedInstanceCapacity": CAPACITY,
    "InsufficientCapacity": CAPACITY,
    "ReservationCapacityExceeded": CAPACITY,
    "Unsupported": CAPACITY,
    "InvalidFleetConfiguration": CAPACITY,
    "SpotMaxPriceTooLow": CAPACITY,
    "InsufficientFreeAddressesInSubnet": CAPACITY,
    "InsufficientAddressCapacity": CAPACITY,
    "Server.InternalError": CAPACITY,
    "InternalError": CAPACITY,
    # This class of vCPUs is full.
    "MaxSpotInstanceCountExceeded": QUOTA,
    "VcpuLimitExceeded": QUOTA,
    "InstanceLimitExceeded": QUOTA,
    "SpotRequestLimitExceeded": QUOTA,
    # What all classes share is full: no other one can be launched either.
    "MaxFleetCountExceeded": ACCOUNT,
    "VolumeLimitExceeded": ACCOUNT,
    # The account may not, until a person acts.
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": ACCOUNT,
    "PendingVerification": ACCOUNT,
    "OptInRequired": ACCOUNT,
    "Blocked": ACCOUNT,
    # The configuration is wrong, until a person acts.
    "UnauthorizedOperation": ACCOUNT,
    "AccessDenied": ACCOUNT,
    "AuthFailure": ACCOUNT,
    "InvalidAMIID.NotFound": ACCOUNT,
    "InvalidAMIID.Malformed": ACCOUNT,
    "InvalidAMIID.Unavailable": ACCOUNT,
    "InvalidSubnetID.NotFound": ACCOUNT,
    "InvalidGroup.NotFound": ACCOUNT,
    "InvalidLaunchTemplateName.NotFoundException": ACCOUNT,
    "InvalidLaunchTemplateId.NotFound": ACCOUNT,
    "InvalidUserData.Malformed": ACCOUNT,
    "InvalidParameterValue": ACCOUNT,
    # "... not eligible for Free Tier" too: a free plan launches no GPU.
    "InvalidParameterCombination": ACCOUNT,
    "InvalidFleetConfig": ACCOUNT,
    "IdempotentParameterMismatch": ACCOUNT,
    "MissingParameter": ACCOUNT,
    "InvalidKeyPair.NotFound": ACCOUNT,
    # A root volume that is smaller than the image's snapshot.
    "InvalidBlockDeviceMapping": ACCOUNT,
    # The parameter of the image may not be read, or is of another data type.
    "SsmAccessDenied": ACCOUNT,
    "SsmInvalidParameter": ACCOUNT,
    "DryRunOperation": ACCOUNT,
    # Too many calls.
    "RequestLimitExceeded": THROTTLE,
    "Throttling": THROTTLE,
    "ThrottlingException": THROTTLE,
    "EC2ThrottledException": THROTTLE,
    "RequestThrottled": THROTTLE,
    "ServiceUnavailable": THROTTLE,
    "Unavailable": THROTTLE,
    # Never heard of: as a dry pool, but counted and alarmed.
    "SomethingNewInAutumn": UNKNOWN,
    "": UNKNOWN,
}
#: Code -> its class for the call as a whole, where that is another one.
AS_A_WHOLE = {"InvalidFleetConfiguration": ACCOUNT}
#: Codes that say nothing of pools that the call did not ask for.
OF_WHAT_WAS_ASKED = {
    "InvalidFleetConfig",
    "InvalidFleetConfiguration",
    "InvalidParameterCombination",
    "InvalidParameterValue",
}


@pytest.fixture(scope="module")
def client(session: boto3.Session) -> "EC2Client":
    return session.client("ec2", region_name=REGION)


@pytest.fixture
def stub(client: "EC2Client") -> Iterator[tuple[Ec2Compute, Stubber]]:
    with Stubber(client) as stubber:
        yield Ec2Compute(lambda _: client), stubber
        stubber.assert_no_pending_responses()


def _request() -> LaunchRequest:
    return LaunchRequest(
        client_token="token-1",
        region=REGION,
        template=TemplateRef(id="lt-1", version="7"),
        capacity_type=CapacityType.SPOT,
        overrides=(
            LaunchOverride(instance_type="g6.xlarge", zone="eu-west-1a", subnet_id="subnet-a"),
        ),
        count=1,
        tags={},
    )


def _refusal(compute: Ec2Compute) -> Refusal:
    answer = compute.launch(_request())
    assert answer.instances == ()
    (refusal,) = answer.refusals
    return refusal


@pytest.mark.parametrize(("code", "kind"), CODES.items(), ids=[c or "none" for c in CODES])
def test_a_code_of_one_pool_says_what_to_try_next(
    stub: tuple[Ec2Compute, Stubber], code: str, kind: RefusalKind
) -> None:
    compute, answers = stub
    override = {"InstanceType": "g6.xlarge", "AvailabilityZone": "eu-west-1a"}
    answers.add_response(
        "create_fleet",
        {
            "FleetId": "fleet-1",
            "Instances": [],
            "Errors": [
                {
                    "ErrorCode": code,
                    "ErrorMessage": "it says so",
                    "LaunchTemplateAndOverrides": {"Overrides": override},
                }
            ],
        },
    )

    found = _refusal(compute)

    assert (found.kind, found.code) == (kind, code)
    assert found.message.startswith("it says so")
    # No address left is the end of the subnet, whatever the type.
    name = None if code == "InsufficientFreeAddressesInSubnet" else "g6.xlarge"
    assert (found.instance_type, found.zone) == (name, "eu-west-1a")


@pytest.mark.parametrize(("code", "kind"), CODES.items(), ids=[c or "none" for c in CODES])
def test_a_code_of_the_call_says_what_to_try_next(
    stub: tuple[Ec2Compute, Stubber], code: str, kind: RefusalKind
) -> None:
    compute, answers = stub
    answers.add_client_error(
        "create_fleet",
        service_error_code=code,
        service_message="it says so",
        # Throttles come as 503, which is no fault that leaves the outcome open.
        http_status_code=503 if kind is THROTTLE else 400,
    )

    found = _refusal(compute)

    assert (found.kind, found.code) == (AS_A_WHOLE.get(code, kind), code)
    asked = ("g6.xlarge", "eu-west-1a") if code in OF_WHAT_WAS_ASKED else (None, None)
    assert (found.instance_type, found.zone) == asked


def test_what_is_wrong_with_a_request_is_wrong_with_its_pools(
    stub: tuple[Ec2Compute, Stubber],
) -> None:
    compute, answers = stub
    answers.add_client_error("create_fleet", service_error_code="InvalidParameterCombination")
    zones = ("eu-west-1a", "eu-west-1b")
    overrides = tuple(
        LaunchOverride(instance_type="g6.xlarge", zone=zone, subnet_id=f"subnet-{zone}")
        for zone in zones
    )

    refusals = compute.launch(replace(_request(), overrides=overrides)).refusals

    assert [(r.kind, r.instance_type, r.zone) for r in refusals] == [
        (ACCOUNT, "g6.xlarge", zone) for zone in zones
    ]


def _would(answers: Stubber, call: str, expected: dict[str, Any] | None = None) -> None:
    """Let EC2 say that it would have carried out a call."""
    code = "DryRunOperation"
    answers.add_client_error(call, code, http_status_code=412, expected_params=expected)


def test_a_rehearsal_asks_both_calls_of_a_launch(stub: tuple[Ec2Compute, Stubber]) -> None:
    compute, answers = stub
    _would(answers, "create_fleet")
    _would(answers, "run_instances")

    assert compute.rehearse(_request()) is None


def test_a_template_with_an_interface_is_no_refusal(stub: tuple[Ec2Compute, Stubber]) -> None:
    compute, answers = stub
    _would(answers, "create_fleet")
    answers.add_client_error("run_instances", "InvalidParameterCombination", "no subnet ID")

    assert compute.rehearse(_request()) is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UnauthorizedOperation", ACCOUNT),
        ("InvalidBlockDeviceMapping", ACCOUNT),
        ("InvalidParameterValue", ACCOUNT),
        ("OptInRequired", ACCOUNT),
        ("Unsupported", CAPACITY),
        ("VcpuLimitExceeded", QUOTA),
        ("NeverHeardOf", UNKNOWN),
    ],
)
@pytest.mark.parametrize("call", ["create_fleet", "run_instances"])
def test_a_rehearsal_says_what_ec2_refuses(
    stub: tuple[Ec2Compute, Stubber], call: str, code: str, kind: RefusalKind
) -> None:
    compute, answers = stub
    if call == "run_instances":
        _would(answers, "create_fleet")
    answers.add_client_error(call, code, "no", http_status_code=403)

    refusal = compute.rehearse(_request())

    assert refusal is not None
    assert (refusal.kind, refusal.code) == (kind, code)


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("InternalError", 500, Unreachable),
        ("RequestLimitExceeded", 503, Throttled),
        ("RequestLimitExceeded", 400, Throttled),
    ],
)
def test_a_rehearsal_without_an_answer_is_an_error(
    stub: tuple[Ec2Compute, Stubber], code: str, status: int, error: type[Exception]
) -> None:
    compute, answers = stub
    answers.add_client_error("create_fleet", code, http_status_code=status)

    with pytest.raises(error):
        compute.rehearse(_request())


def test_an_instance_is_asked_for_as_the_fleet_would(stub: tuple[Ec2Compute, Stubber]) -> None:
    compute, answers = stub
    tags = [{"Key": "spindown:deployment", "Value": "demo"}]
    _would(answers, "create_fleet")
    _would(
        answers,
        "run_instances",
        {
            "ClientToken": "token-1",
            "DryRun": True,
            "MinCount": 1,
            "MaxCount": 1,
            "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "7"},
            "InstanceType": "g6.xlarge",
            "SubnetId": "subnet-a",
            "InstanceMarketOptions": {"MarketType": "spot"},
            # A grant may ask of each thing that is made to bear our tag.
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": tags},
                {"ResourceType": "volume", "Tags": tags},
            ],
        },
    )

    compute.rehearse(replace(_request(), tags={"spindown:deployment": "demo"}))

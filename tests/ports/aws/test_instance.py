"""How instances are described and ended, beyond what a simulated EC2 shows."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.stub import Stubber

from spindown.aws.ec2 import Ec2Compute
from spindown.domain.offer import CapacityType
from spindown.error import AccessDenied, SpindownError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REGION = "eu-west-1"


@pytest.fixture
def client(session: boto3.Session) -> "EC2Client":
    return session.client("ec2", region_name=REGION)


@pytest.fixture
def compute(client: "EC2Client") -> Ec2Compute:
    return Ec2Compute(lambda _: client)


@pytest.fixture
def stub(client: "EC2Client") -> Iterator[Stubber]:
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()


def test_ends_the_others_when_one_id_fails_the_call(compute: Ec2Compute, stub: Stubber) -> None:
    code = "InvalidInstanceID.NotFound"
    stub.add_client_error("terminate_instances", code, expected_params={"InstanceIds": ["a", "b"]})
    stub.add_client_error("terminate_instances", code, expected_params={"InstanceIds": ["a"]})
    ended = {"InstanceId": "b", "CurrentState": {"Name": "shutting-down"}}
    stub.add_response(
        "terminate_instances", {"TerminatingInstances": [ended]}, {"InstanceIds": ["b"]}
    )

    said = compute.terminate(region=REGION, instance_ids=["a", "b"])
    assert said == {"a": "", "b": "shutting-down"}


def test_ends_the_others_when_one_is_protected_and_says_so(
    compute: Ec2Compute, stub: Stubber
) -> None:
    code = "OperationNotPermitted"
    stub.add_client_error("terminate_instances", code, expected_params={"InstanceIds": ["a", "b"]})
    stub.add_client_error("terminate_instances", code, expected_params={"InstanceIds": ["a"]})
    stub.add_response("terminate_instances", {}, {"InstanceIds": ["b"]})

    with pytest.raises(SpindownError, match="OperationNotPermitted"):
        compute.terminate(region=REGION, instance_ids=["a", "b"])


def test_says_when_it_may_not_terminate(compute: Ec2Compute, stub: Stubber) -> None:
    stub.add_client_error("terminate_instances", "UnauthorizedOperation")
    with pytest.raises(AccessDenied, match="TerminateInstances"):
        compute.terminate(region=REGION, instance_ids=["a"])


@pytest.mark.parametrize(
    ("code", "is_reclaimed"),
    [
        ("fulfilled", False),
        ("marked-for-termination", True),
        ("instance-terminated-no-capacity", True),
        ("instance-terminated-by-price", True),
        ("instance-terminated-capacity-oversubscribed", True),
        ("instance-terminated-by-user", False),
    ],
)
def test_knows_by_the_spot_request_that_ec2_takes_an_instance(
    compute: Ec2Compute, stub: Stubber, code: str, *, is_reclaimed: bool
) -> None:
    request = {"InstanceId": "i-1", "Status": {"Code": code}}
    stub.add_response(
        "describe_spot_instance_requests",
        {"SpotInstanceRequests": [request]},
        {"Filters": [{"Name": "instance-id", "Values": ["i-1", "i-2"]}], "MaxResults": 1000},
    )

    found = compute.reclaimed(region=REGION, instance_ids=["i-1", "i-2"])
    assert found == ({"i-1"} if is_reclaimed else set())


def test_describes_over_many_pages(compute: Ec2Compute, stub: Stubber) -> None:
    asked = {"Filters": [{"Name": "tag:a", "Values": ["b"]}], "MaxResults": 1000}
    for number, before, token in ((1, {}, {"NextToken": "more"}), (2, {"NextToken": "more"}, {})):
        instance = {
            "InstanceId": f"i-{number}",
            "InstanceType": "g6.xlarge",
            "Placement": {"AvailabilityZone": "eu-west-1a"},
            "State": {"Name": "terminated"},
            "LaunchTime": "2026-01-01T00:00:00Z",
            "InstanceLifecycle": "spot",
            "StateReason": {"Code": "Server.SpotInstanceTermination"},
        }
        stub.add_response(
            "describe_instances",
            {"Reservations": [{"Instances": [instance]}], **token},
            {**asked, **before},
        )
    found = compute.instances(region=REGION, tags={"a": "b"})

    assert [seen.instance_id for seen in found] == ["i-1", "i-2"]
    assert found[0].state_reason == "Server.SpotInstanceTermination"
    assert found[0].capacity_type is CapacityType.SPOT

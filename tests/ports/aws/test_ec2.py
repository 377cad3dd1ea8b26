"""What CreateFleet is asked and how its answers are read, beyond what a simulated EC2 shows."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from spindown.aws.ec2 import Ec2Compute
from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType
from spindown.error import SpindownError, Throttled, Unreachable
from spindown.port import LaunchOverride, LaunchRequest, RefusalKind

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REGION = "eu-west-1"
Answer = tuple[Any, Mapping[str, Any]]


class _Http:
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code
        self.headers: Mapping[str, str] = {}


class Ec2:
    """A client whose CreateFleet is answered here: after validation, before any network."""

    def __init__(self, client: "EC2Client") -> None:
        self.asked: list[Mapping[str, str]] = []
        self.answer: Callable[[], Answer] | None = None
        client.meta.events.register("before-call.ec2.CreateFleet", self._answer)  # type: ignore[arg-type]  # a handler may answer
        self.compute = Ec2Compute(lambda _: client)

    def gives(self, **answer: Any) -> None:
        self.answer = lambda: (_Http(200), {"FleetId": "fleet-1", **answer})

    def fails(self, code: str, status: int = 400, message: str = "no") -> None:
        said = {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},
        }
        self.answer = lambda: (_Http(status), said)

    def raises(self, error: Exception) -> None:
        def answer() -> Answer:
            raise error

        self.answer = answer

    def _answer(self, params: Mapping[str, Any], **_: Any) -> Answer | None:
        self.asked.append(params["body"])
        return self.answer() if self.answer else None


@pytest.fixture
def ec2(session: boto3.Session) -> Ec2:
    return Ec2(session.client("ec2", region_name=REGION))


def _request(capacity_type: CapacityType = CapacityType.SPOT, overrides: int = 2) -> LaunchRequest:
    pools = (("g6.xlarge", "eu-west-1a"), ("g5.xlarge", "eu-west-1b"))
    return LaunchRequest(
        client_token="token-1",
        region=REGION,
        template=TemplateRef(id="lt-1", version="7"),
        capacity_type=capacity_type,
        overrides=tuple(
            LaunchOverride(instance_type=name, zone=zone, subnet_id=f"subnet-{zone[-1]}")
            for name, zone in pools[:overrides]
        ),
        count=2,
        tags={"spindown:launch": "l-1"},
    )


def _asked(ec2: Ec2, request: LaunchRequest) -> Mapping[str, str]:
    ec2.gives(Instances=[], Errors=[])
    ec2.compute.launch(request)
    return ec2.asked[-1]


def test_asks_for_spot_in_the_order_of_the_offers(ec2: Ec2) -> None:
    asked = _asked(ec2, _request())

    first = "LaunchTemplateConfigs.1.Overrides.1."
    assert (
        asked.items()
        >= {
            "Type": "instant",
            "ClientToken": "token-1",
            "LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateId": "lt-1",
            "LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version": "7",
            f"{first}InstanceType": "g6.xlarge",
            f"{first}SubnetId": "subnet-a",
            f"{first}AvailabilityZone": "eu-west-1a",
            f"{first}Priority": 0.0,
            "LaunchTemplateConfigs.1.Overrides.2.Priority": 1.0,
            "SpotOptions.AllocationStrategy": "capacity-optimized-prioritized",
            "SpotOptions.InstanceInterruptionBehavior": "terminate",
            "TargetCapacitySpecification.TotalTargetCapacity": 2,
            "TargetCapacitySpecification.DefaultTargetCapacityType": "spot",
            "TagSpecification.1.ResourceType": "instance",
            "TagSpecification.1.Tag.1.Key": "spindown:launch",
            "TagSpecification.1.Tag.1.Value": "l-1",
            "TagSpecification.2.ResourceType": "fleet",
            "TagSpecification.3.ResourceType": "volume",
        }.items()
    )
    assert not [name for name in asked if name.startswith("OnDemandOptions")]


def test_asks_for_on_demand_in_the_order_of_the_offers(ec2: Ec2) -> None:
    asked = _asked(ec2, _request(CapacityType.ON_DEMAND))

    assert asked["OnDemandOptions.AllocationStrategy"] == "prioritized"
    assert asked["TargetCapacitySpecification.DefaultTargetCapacityType"] == "on-demand"
    assert not [name for name in asked if name.startswith("SpotOptions")]


def test_one_override_needs_no_priority(ec2: Ec2) -> None:
    assert not [name for name in _asked(ec2, _request(overrides=1)) if "Priority" in name]


def test_reads_instances_and_errors_side_by_side(ec2: Ec2) -> None:
    ec2.gives(
        Instances=[
            {
                "LaunchTemplateAndOverrides": {"Overrides": {"SubnetId": "subnet-b"}},
                "Lifecycle": "spot",
                "InstanceIds": ["i-1", "i-2"],
                "InstanceType": "g5.xlarge",
            }
        ],
        Errors=[
            {
                "LaunchTemplateAndOverrides": {
                    "Overrides": {
                        "InstanceType": "g6.xlarge",
                        "SubnetId": "subnet-a",
                        "AvailabilityZone": "eu-west-1a",
                    }
                },
                "Lifecycle": "spot",
                "ErrorCode": "InsufficientInstanceCapacity",
                "ErrorMessage": "none left",
            },
            {
                "LaunchTemplateAndOverrides": {
                    "Overrides": {"InstanceType": "g5.xlarge", "SubnetId": "subnet-b"}
                },
                "ErrorCode": "MaxSpotInstanceCountExceeded",
                "ErrorMessage": "Max spot instance count exceeded",
            },
        ],
    )
    answer = ec2.compute.launch(_request())

    assert [(i.instance_id, i.instance_type, i.zone) for i in answer.instances] == [
        ("i-1", "g5.xlarge", "eu-west-1b"),
        ("i-2", "g5.xlarge", "eu-west-1b"),
    ]
    assert [(r.kind, r.instance_type, r.zone, r.message) for r in answer.refusals] == [
        (RefusalKind.CAPACITY, "g6.xlarge", "eu-west-1a", "none left"),
        (RefusalKind.QUOTA, "g5.xlarge", "eu-west-1b", "Max spot instance count exceeded"),
    ]


def test_an_answer_without_instances_is_no_error(ec2: Ec2) -> None:
    ec2.gives(Errors=[{"ErrorCode": "UnfulfillableCapacity"}])
    answer = ec2.compute.launch(_request())

    assert answer.instances == ()
    (refusal,) = answer.refusals
    assert (refusal.kind, refusal.instance_type, refusal.zone) == (
        RefusalKind.CAPACITY,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("RequestLimitExceeded", 503, RefusalKind.THROTTLE),
        ("UnauthorizedOperation", 403, RefusalKind.ACCOUNT),
        ("InvalidLaunchTemplateId.NotFound", 400, RefusalKind.ACCOUNT),
        ("InsufficientInstanceCapacity", 400, RefusalKind.CAPACITY),
        ("InsufficientInstanceCapacity", 500, RefusalKind.CAPACITY),
        ("VcpuLimitExceeded", 400, RefusalKind.QUOTA),
        ("NeverHeardOf", 400, RefusalKind.UNKNOWN),
    ],
)
def test_an_error_of_the_call_refuses_the_whole_request(
    ec2: Ec2, code: str, status: int, kind: RefusalKind
) -> None:
    ec2.fails(code, status, message="x" * 5000)
    answer = ec2.compute.launch(_request())

    assert answer.instances == ()
    (refusal,) = answer.refusals
    assert (refusal.kind, refusal.code) == (kind, code)
    assert (refusal.instance_type, refusal.zone) == (None, None)
    assert len(refusal.message) < 500


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("VolumeLimitExceeded", "--service-code ebs --quota-code L-7A658B76"),
        ("MaxFleetCountExceeded", "aws ec2 describe-fleets"),
    ],
)
def test_a_limit_that_no_quota_of_vcpus_is_tells_its_own_remedy(
    ec2: Ec2, code: str, remedy: str
) -> None:
    overrides = {"InstanceType": "g5.xlarge", "SubnetId": "subnet-b"}
    error = {"LaunchTemplateAndOverrides": {"Overrides": overrides}, "ErrorCode": code}
    ec2.gives(Errors=[error | {"ErrorMessage": "x" * 5000}])
    ec2.fails(code, 400, message="too many.")

    (of_one,) = ec2.compute.launch(_request()).refusals
    (of_all,) = ec2.compute.launch(_request()).refusals

    assert remedy in of_one.message
    assert of_all.message.startswith("too many.")
    assert remedy in of_all.message


@pytest.mark.parametrize("code", ["InternalError", "InternalFailure", "NeverHeardOf"])
def test_a_fault_of_ec2_leaves_open_what_became_of_the_request(ec2: Ec2, code: str) -> None:
    ec2.fails(code, 500)
    with pytest.raises(Unreachable):
        ec2.compute.launch(_request())


@pytest.mark.parametrize(
    "error",
    [
        ReadTimeoutError(endpoint_url="http://x"),
        EndpointConnectionError(endpoint_url="http://x"),
    ],
    ids=["timeout", "no connection"],
)
def test_no_answer_leaves_open_what_became_of_the_request(ec2: Ec2, error: Exception) -> None:
    ec2.raises(error)
    with pytest.raises(Unreachable):
        ec2.compute.launch(_request())


class _Raw:
    """The body of an answer, as urllib3 gives it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> list[bytes]:
        return [self._body]


def _tries(client: "EC2Client", *answers: tuple[int, str] | None) -> list[str]:
    """Answer the tries of a request with a status and a code each; None: with nothing.

    Return what is sent.
    """
    left, sent = list(answers), list[str]()

    def send(request: Any, **_: Any) -> AWSResponse:
        sent.append(request.body)
        answer = left.pop(0)
        if answer is None:
            raise ReadTimeoutError(endpoint_url=request.url)
        status, code = answer
        error = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
        body = f"<Response><Errors>{error}</Errors><RequestID>r</RequestID></Response>"
        return AWSResponse(request.url, status, HTTPHeaders(), _Raw(body.encode()))

    client.meta.events.register("before-send.ec2.CreateFleet", send)  # type: ignore[arg-type]  # a handler may answer
    return sent


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (None, (503, "RequestLimitExceeded"), Throttled),
        ((500, "InternalError"), (503, "RequestLimitExceeded"), Throttled),
        (None, (403, "UnauthorizedOperation"), Unreachable),
    ],
)
def test_a_refused_repeat_tells_nothing_of_a_lost_try(
    session: boto3.Session,
    first: tuple[int, str] | None,
    last: tuple[int, str],
    expected: type[SpindownError],
) -> None:
    retries = Config(retries={"mode": "standard", "total_max_attempts": 2})
    client = session.client("ec2", region_name=REGION, config=retries)
    sent = _tries(client, first, last)

    with pytest.raises(expected):
        Ec2Compute(lambda _: client).launch(_request())

    assert len(sent) == 2


def test_a_request_throttled_at_each_try_is_refused(session: boto3.Session) -> None:
    retries = Config(retries={"mode": "standard", "total_max_attempts": 2})
    client = session.client("ec2", region_name=REGION, config=retries)
    _tries(client, *[(503, "RequestLimitExceeded")] * 2)

    (refusal,) = Ec2Compute(lambda _: client).launch(_request()).refusals

    assert refusal.kind is RefusalKind.THROTTLE

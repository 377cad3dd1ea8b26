"""What every Account promises, on AWS as in memory, and how AWS's answers are read."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.stub import Stubber

from spindown.app.port import (
    Account,
    AccountPlan,
    ImageView,
    LaunchOverride,
    LaunchRequest,
    RefusalKind,
    SubnetView,
)
from spindown.aws.account import AwsAccount, Clients
from spindown.aws.wiring import Aws
from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType
from spindown.error import AccessDenied, NotFound, Unreachable
from spindown.memory import MemoryAccount

REGION = "us-east-1"
ZONE = f"{REGION}a"
PARAMETER = "/images/worker"
INPUT = "s3://documents/scans/"
ABSENT_KEY = f"arn:aws:kms:{REGION}:123456789012:key/00000000-0000-0000-0000-000000000000"


@dataclass
class World:
    """An account, and the names of what is in it."""

    account: Account
    image_id: str
    subnet_id: str
    key: str
    template: TemplateRef = field(default_factory=lambda: TemplateRef(id="lt-1", version="1"))


def in_memory() -> World:
    image = ImageView(image_id="ami-1", architecture="x86_64", state="available", root_gib=30)
    subnet = SubnetView(subnet_id="subnet-1", zone=ZONE, free_addresses=4091)
    account = MemoryAccount(
        parameters={(REGION, PARAMETER): image.image_id},
        images={(REGION, image.image_id): image},
        networks={(REGION, subnet.subnet_id): subnet},
        unreadable={
            name: NotFound("it is not there")
            for name in ("s3://absent/", "/absent/secret", "absent/secret", ABSENT_KEY)
        },
    )
    return World(account=account, image_id=image.image_id, subnet_id=subnet.subnet_id, key="arn")


def on_aws(session: boto3.Session, aws: Aws) -> World:
    ec2 = session.client("ec2")
    ssm, s3 = session.client("ssm"), session.client("s3")
    image_id = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    subnets = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": [ZONE]}])
    ssm.put_parameter(Name=PARAMETER, Value=image_id, Type="String", Overwrite=True)
    s3.create_bucket(Bucket="documents")
    s3.put_object(Bucket="documents", Key="scans/1.png", Body=b"1")
    s3.create_bucket(Bucket="bare")
    template = ec2.create_launch_template(
        LaunchTemplateName="worker", LaunchTemplateData={"ImageId": image_id}
    )["LaunchTemplate"]
    session.client("secretsmanager").create_secret(Name="hub/token", SecretString="t")
    return World(
        account=aws.account(),
        key=session.client("kms").create_key()["KeyMetadata"]["Arn"],
        image_id=image_id,
        subnet_id=subnets["Subnets"][0]["SubnetId"],
        template=TemplateRef(id=template["LaunchTemplateId"], version="1"),
    )


@pytest.fixture(scope="module")
def worlds(session: boto3.Session, aws: Aws) -> dict[str, World]:
    return {"memory": in_memory(), "aws": on_aws(session, aws)}


@pytest.fixture(params=["memory", "aws"])
def world(request: pytest.FixtureRequest, worlds: dict[str, World]) -> World:
    return worlds[request.param]


def test_says_who_asks(world: World) -> None:
    caller = world.account.caller()

    assert caller.account == "123456789012"
    assert caller.arn.startswith("arn:aws:")


def test_reads_a_parameter(world: World) -> None:
    assert world.account.parameter(PARAMETER, region=REGION) == world.image_id


def test_a_parameter_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.account.parameter("/images/absent", region=REGION)


def test_describes_an_image(world: World) -> None:
    found = world.account.image(world.image_id, region=REGION)

    assert (found.image_id, found.architecture, found.state) == (
        world.image_id,
        "x86_64",
        "available",
    )
    assert found.root_gib > 0


@pytest.mark.parametrize("image_id", ["ami-0123456789abcdef0", "none"])
def test_an_image_that_is_not_there_is_not_found(world: World, image_id: str) -> None:
    with pytest.raises(NotFound):
        world.account.image(image_id, region=REGION)


def test_describes_the_subnets_that_exist_and_leaves_out_the_others(world: World) -> None:
    asked = [world.subnet_id, "subnet-0123456789abcdef0"]

    (found,) = world.account.subnets(asked, region=REGION)

    assert (found.subnet_id, found.zone) == (world.subnet_id, ZONE)
    assert found.free_addresses > 4000


def test_asked_for_no_subnet_it_knows_none(world: World) -> None:
    assert list(world.account.subnets([], region=REGION)) == []


@pytest.mark.parametrize("prefix", [INPUT, "s3://bare/"], ids=["with objects", "empty"])
def test_an_input_that_can_be_read_is_no_error(world: World, prefix: str) -> None:
    world.account.try_input(prefix)


def test_an_input_whose_bucket_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.account.try_input("s3://absent/")


@pytest.mark.parametrize("name", [PARAMETER, "hub/token"])
def test_a_secret_that_is_there_is_no_error(world: World, name: str) -> None:
    world.account.try_secret(name, region=REGION)


@pytest.mark.parametrize("name", ["/absent/secret", "absent/secret"])
def test_a_secret_that_is_not_there_is_not_found(world: World, name: str) -> None:
    with pytest.raises(NotFound):
        world.account.try_secret(name, region=REGION)


def test_a_key_that_is_there_is_no_error(world: World) -> None:
    world.account.try_key(world.key)


def test_a_key_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.account.try_key(ABSENT_KEY)


def test_a_key_that_is_off_is_not_found(session: boto3.Session, worlds: dict[str, World]) -> None:
    kms = session.client("kms")
    key = kms.create_key()["KeyMetadata"]
    kms.disable_key(KeyId=key["KeyId"])

    with pytest.raises(NotFound, match="is Disabled"):
        worlds["aws"].account.try_key(key["Arn"])


def a_request(world: World) -> LaunchRequest:
    return LaunchRequest(
        client_token="doctor-1",
        region=REGION,
        template=world.template,
        capacity_type=CapacityType.SPOT,
        overrides=(
            LaunchOverride(instance_type="g6.xlarge", zone=ZONE, subnet_id=world.subnet_id),
        ),
        count=1,
        tags={"spindown:deployment": "demo"},
    )


def test_a_rehearsal_that_would_be_carried_out_has_no_refusal(world: World) -> None:
    assert world.account.rehearse(a_request(world)) is None


def test_a_rehearsal_launches_nothing(session: boto3.Session, worlds: dict[str, World]) -> None:
    worlds["aws"].account.rehearse(a_request(worlds["aws"]))

    assert session.client("ec2").describe_instances()["Reservations"] == []


@dataclass
class Stub:
    """An account of which one service answers by hand."""

    account: AwsAccount
    answers: Stubber


@pytest.fixture
def stub(request: pytest.FixtureRequest, session: boto3.Session) -> Iterator[Stub]:
    client: Any = session.client(request.param)
    clients = Clients(
        sts=lambda: client,
        iam=lambda: client,
        free_tier=lambda: client,
        functions=lambda _: client,
        ssm=lambda _: client,
        ec2=lambda _: client,
        s3=lambda: client,
        secrets=lambda _: client,
        keys=lambda _: client,
    )
    with Stubber(client) as answers:
        yield Stub(AwsAccount(clients), answers)


@pytest.mark.parametrize("stub", ["freetier"], indirect=True)
@pytest.mark.parametrize(("said", "plan"), [("FREE", AccountPlan.FREE), ("PAID", AccountPlan.PAID)])
def test_reads_the_plan(stub: Stub, said: str, plan: AccountPlan) -> None:
    answer = {"accountId": "1" * 12, "accountPlanType": said, "accountPlanStatus": "ACTIVE"}
    stub.answers.add_response("get_account_plan_state", answer)

    assert stub.account.plan() is plan


@pytest.mark.parametrize("stub", ["freetier"], indirect=True)
def test_an_account_from_before_there_were_plans_has_none(stub: Stub) -> None:
    stub.answers.add_client_error("get_account_plan_state", "ResourceNotFoundException")

    assert stub.account.plan() is None


@pytest.mark.parametrize("stub", ["freetier"], indirect=True)
def test_a_plan_that_may_not_be_seen_is_denied(stub: Stub) -> None:
    stub.answers.add_client_error("get_account_plan_state", "AccessDeniedException")

    with pytest.raises(AccessDenied):
        stub.account.plan()


@pytest.mark.parametrize("stub", ["iam"], indirect=True)
def test_finds_the_role_for_spot_requests(stub: Stub) -> None:
    role = {
        "Path": "/aws-service-role/spot.amazonaws.com/",
        "RoleName": "AWSServiceRoleForEC2Spot",
        "RoleId": "AROA0123456789ABCDEF",
        "Arn": "arn:aws:iam::123456789012:role/AWSServiceRoleForEC2Spot",
        "CreateDate": "2026-11-20T00:00:00Z",
    }
    asked = {"RoleName": "AWSServiceRoleForEC2Spot"}
    stub.answers.add_response("get_role", {"Role": role}, asked)
    stub.answers.add_client_error("get_role", "NoSuchEntity")

    assert stub.account.has_spot_role()
    assert not stub.account.has_spot_role()


@pytest.mark.parametrize("stub", ["iam"], indirect=True)
def test_a_role_that_may_not_be_seen_is_not_taken_for_missing(stub: Stub) -> None:
    stub.answers.add_client_error("get_role", "AccessDenied")

    with pytest.raises(AccessDenied):
        stub.account.has_spot_role()


@pytest.mark.parametrize("stub", ["lambda"], indirect=True)
def test_reads_how_much_lambda_runs_at_once(stub: Stub) -> None:
    limit = {"ConcurrentExecutions": 10, "UnreservedConcurrentExecutions": 10}
    stub.answers.add_response("get_account_settings", {"AccountLimit": limit})

    assert stub.account.concurrency(region=REGION) == 10


@pytest.mark.parametrize("stub", ["sts"], indirect=True)
def test_credentials_that_have_expired_are_denied(stub: Stub) -> None:
    stub.answers.add_client_error("get_caller_identity", "ExpiredToken")

    with pytest.raises(AccessDenied):
        stub.account.caller()


@pytest.mark.parametrize("stub", ["s3"], indirect=True)
def test_an_object_that_may_be_listed_but_not_read_is_denied(stub: Stub) -> None:
    stub.answers.add_response("list_objects_v2", {"Contents": [{"Key": "scans/1.png"}]})
    stub.answers.add_client_error("head_object", "403", http_status_code=403)

    with pytest.raises(AccessDenied):
        stub.account.try_input(INPUT)


@pytest.mark.parametrize("stub", ["ec2"], indirect=True)
@pytest.mark.parametrize(
    "code",
    ["InvalidLaunchTemplateId.NotFound", "InvalidFleetConfiguration", "UnauthorizedOperation"],
)
def test_a_rehearsal_tells_what_stands_in_the_way(
    stub: Stub, worlds: dict[str, World], code: str
) -> None:
    stub.answers.add_client_error("create_fleet", code, "no")

    refusal = stub.account.rehearse(a_request(worlds["memory"]))

    assert refusal is not None
    assert (refusal.kind, refusal.code, refusal.message) == (RefusalKind.ACCOUNT, code, "no")


@pytest.mark.parametrize("stub", ["ec2"], indirect=True)
def test_a_fault_of_ec2_is_no_refusal(stub: Stub, worlds: dict[str, World]) -> None:
    stub.answers.add_client_error("create_fleet", "InternalError", http_status_code=500)

    with pytest.raises(Unreachable):
        stub.account.rehearse(a_request(worlds["memory"]))


@pytest.mark.parametrize("stub", ["ec2"], indirect=True)
def test_a_rehearsal_without_an_answer_is_unreachable(stub: Stub, worlds: dict[str, World]) -> None:
    client = stub.answers.client

    def fail(**_: Any) -> None:
        raise EndpointConnectionError(endpoint_url="https://ec2")

    client.meta.events.register_first("before-parameter-build.ec2.CreateFleet", fail)

    with pytest.raises(Unreachable):
        stub.account.rehearse(a_request(worlds["memory"]))

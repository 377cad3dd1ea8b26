"""How the answers of AWS's services about an account are read."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from spindown.aws.account import AwsAccount, Clients
from spindown.error import AccessDenied
from spindown.port import AccountPlan
from tests.ports.account import INPUT, REGION

TOPIC = f"arn:aws:sns:{REGION}:123456789012:lab--alarms"


@dataclass
class Stub:
    """An account of which one service answers by hand."""

    account: AwsAccount
    answers: Stubber


def account_of(client: Any) -> AwsAccount:
    """Return an account that asks one client, whatever the service."""
    return AwsAccount(
        Clients(
            sts=lambda: client,
            iam=lambda: client,
            free_tier=lambda: client,
            functions=lambda _: client,
            quotas=lambda _: client,
            ssm=lambda _: client,
            ec2=lambda _: client,
            s3=lambda: client,
            secrets=lambda _: client,
            keys=lambda _: client,
            schedules=lambda _: client,
            rules=lambda _: client,
            alarms=lambda _: client,
            topics=lambda _: client,
        )
    )


@pytest.fixture
def stub(request: pytest.FixtureRequest, session: boto3.Session) -> Iterator[Stub]:
    client: Any = session.client(request.param)
    with Stubber(client) as answers:
        yield Stub(account_of(client), answers)


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


@pytest.mark.parametrize("stub", ["sns"], indirect=True)
@pytest.mark.parametrize(
    ("arn", "is_confirmed"),
    [("PendingConfirmation", False), ("Deleted", False), (f"{TOPIC}:0a1b", True)],
    ids=["pending", "deleted", "confirmed"],
)
def test_only_who_has_confirmed_is_told(stub: Stub, arn: str, *, is_confirmed: bool) -> None:
    who = {"SubscriptionArn": arn, "Protocol": "email", "Endpoint": "ada@example.com"}
    stub.answers.add_response("list_subscriptions_by_topic", {"Subscriptions": [who]})

    (found,) = stub.account.subscribers(TOPIC)

    assert found.is_confirmed is is_confirmed


@pytest.mark.parametrize(
    ("stub", "call", "code", "ask"),
    [
        pytest.param(
            "freetier",
            "get_account_plan_state",
            "AccessDeniedException",
            AwsAccount.plan,
            id="the plan",
        ),
        pytest.param("iam", "get_role", "AccessDenied", AwsAccount.has_spot_role, id="a role"),
        pytest.param(
            "sts", "get_caller_identity", "ExpiredToken", AwsAccount.caller, id="who it is"
        ),
    ],
    indirect=["stub"],
)
def test_what_may_not_be_read_is_denied_and_not_missing(
    stub: Stub, call: str, code: str, ask: Callable[[AwsAccount], object]
) -> None:
    stub.answers.add_client_error(call, code)

    with pytest.raises(AccessDenied):
        ask(stub.account)


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


@pytest.mark.parametrize("stub", ["lambda"], indirect=True)
def test_reads_how_much_lambda_runs_at_once(stub: Stub) -> None:
    limit = {"ConcurrentExecutions": 10, "UnreservedConcurrentExecutions": 10}
    stub.answers.add_response("get_account_settings", {"AccountLimit": limit})

    assert stub.account.concurrency(region=REGION) == 10


@pytest.mark.parametrize("stub", ["s3"], indirect=True)
def test_an_object_that_may_be_listed_but_not_read_is_denied(stub: Stub) -> None:
    stub.answers.add_response("list_objects_v2", {"Contents": [{"Key": "scans/1.png"}]})
    stub.answers.add_client_error("head_object", "403", http_status_code=403)

    with pytest.raises(AccessDenied):
        stub.account.try_input(INPUT)


@pytest.mark.parametrize("stub", ["s3"], indirect=True)
def test_a_bucket_sends_events_where_the_setting_is_there(stub: Stub) -> None:
    # moto keeps this setting and leaves it out of its answer.
    on: dict[str, object] = {"EventBridgeConfiguration": {}}
    stub.answers.add_response("get_bucket_notification_configuration", on, {"Bucket": "scans"})

    assert stub.account.sends_events("scans")


@pytest.fixture
def network(session: boto3.Session) -> tuple[Any, AwsAccount, str]:
    """Return a client, an account, and a VPC without any way out."""
    client: Any = session.client("ec2", REGION)
    vpc = client.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    return client, account_of(client), vpc


def a_subnet(client: Any, vpc: str, block: str) -> str:
    made: str = client.create_subnet(VpcId=vpc, CidrBlock=block)["Subnet"]["SubnetId"]
    return made


def test_tells_what_subnets_reach_by_routes_and_addresses(
    network: tuple[Any, AwsAccount, str],
) -> None:
    client, account, vpc = network
    closed, public = (a_subnet(client, vpc, f"10.1.{n}.0/24") for n in (1, 2))
    gateway = client.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    client.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = client.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    client.associate_route_table(RouteTableId=table, SubnetId=public)
    client.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    client.modify_subnet_attribute(SubnetId=public, MapPublicIpOnLaunch={"Value": True})

    ways = account.ways_out([closed, public, "subnet-0123456789abcdef0"], region=REGION)

    assert set(ways) == {closed, public}
    assert (ways[public].default_route, ways[public].is_public) == (gateway, True)
    assert ways[public].reaches_internet
    assert (ways[closed].default_route, ways[closed].is_public) == ("", False)
    assert not ways[closed].reaches_internet


def test_a_table_that_is_not_seen_says_nothing_of_routes(
    network: tuple[Any, AwsAccount, str],
) -> None:
    client, account, vpc = network
    subnet = a_subnet(client, vpc, "10.1.1.0/24")

    def hide(parsed: dict[str, Any], **_: object) -> None:
        parsed["RouteTables"] = []

    # Of a subnet that another account shares, the main table is that account's to see.
    client.meta.events.register("after-call.ec2.DescribeRouteTables", hide)

    way = account.ways_out([subnet], region=REGION)[subnet]
    assert way.default_route is None
    assert not way.reaches_internet


def test_an_internet_gateway_may_be_closed_by_the_account(
    network: tuple[Any, AwsAccount, str],
) -> None:
    client, account, vpc = network
    subnet = a_subnet(client, vpc, "10.1.1.0/24")

    def close(parsed: dict[str, Any], **_: object) -> None:
        for one in parsed["Subnets"]:
            one["BlockPublicAccessStates"] = {"InternetGatewayBlockMode": "block-ingress"}

    # moto knows nothing of VPC Block Public Access.
    client.meta.events.register("after-call.ec2.DescribeSubnets", close)

    assert account.ways_out([subnet], region=REGION)[subnet].gateway_block == "block-ingress"


def test_an_endpoint_counts_where_it_serves(network: tuple[Any, AwsAccount, str]) -> None:
    client, account, vpc = network
    one, other = (a_subnet(client, vpc, f"10.1.{n}.0/24") for n in (1, 2))
    table = client.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    client.associate_route_table(RouteTableId=table, SubnetId=one)
    service = f"com.amazonaws.{REGION}"
    client.create_vpc_endpoint(
        VpcId=vpc,
        ServiceName=f"{service}.s3",
        VpcEndpointType="Gateway",
        RouteTableIds=[table],
    )
    for name, is_named in (("ecr.api", True), ("sqs", False)):
        client.create_vpc_endpoint(
            VpcId=vpc,
            ServiceName=f"{service}.{name}",
            VpcEndpointType="Interface",
            SubnetIds=[one],
            PrivateDnsEnabled=is_named,
        )

    ways = account.ways_out([one, other], region=REGION)

    assert ways[one].endpoints == {"s3", "ecr.api"}
    assert ways[other].endpoints == {"ecr.api"}


def test_asked_for_no_subnet_it_tells_no_way(network: tuple[Any, AwsAccount, str]) -> None:
    _, account, _ = network

    assert account.ways_out([], region=REGION) == {}
    assert account.ways_out(["subnet-0123456789abcdef0"], region=REGION) == {}


def test_a_key_is_lent_to_spot_by_a_grant_or_by_its_policy(session: boto3.Session) -> None:
    keys: Any = session.client("kms", REGION)
    spot = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    principal = f"arn:aws:iam::123456789012:{spot}"
    kept, granted = (keys.create_key()["KeyMetadata"]["Arn"] for _ in range(2))
    keys.create_grant(KeyId=granted, GranteePrincipal=principal, Operations=["Decrypt"])
    told = {"Effect": "Allow", "Principal": {"AWS": principal}, "Action": "*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [told]})
    named = keys.create_key(Policy=policy)["KeyMetadata"]["Arn"]
    account = account_of(keys)

    assert [account.lends_key_to_spot(one) for one in (kept, granted, named)] == [False, True, True]

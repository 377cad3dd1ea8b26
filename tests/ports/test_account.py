"""What every Account promises, on AWS as in memory."""

from typing import Any

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.error import NotFound
from tests.ports.account import (
    ABSENT_KEY,
    ABSENT_TOPIC,
    ALARM,
    INPUT,
    OFF,
    PARAMETER,
    REGION,
    SCHEDULE,
    SPARE,
    SPARE_OFF,
    TURNED_OFF,
    ZONE,
    World,
    in_memory,
)


def on_aws(session: boto3.Session, aws: Aws) -> World:
    ec2 = session.client("ec2")
    ssm, s3 = session.client("ssm"), session.client("s3")
    image_id = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    subnets = ec2.describe_subnets(Filters=[{"Name": "availability-zone", "Values": [ZONE]}])
    ssm.put_parameter(Name=PARAMETER, Value=image_id, Type="String", Overwrite=True)
    s3.create_bucket(Bucket="documents")
    s3.put_object(Bucket="documents", Key="scans/1.png", Body=b"1")
    s3.create_bucket(Bucket="bare")
    session.client("secretsmanager").create_secret(Name="hub/token", SecretString="t")
    _schedule(session.client("scheduler"))
    _rule(session.client("events"))
    _alarm(session.client("cloudwatch"))
    sns = session.client("sns")
    topic = sns.create_topic(Name="lab--alarms")["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="sms", Endpoint="+1555")
    return World(
        account=aws.account(),
        topic=topic,
        key=session.client("kms").create_key()["KeyMetadata"]["Arn"],
        image_id=image_id,
        subnet_id=subnets["Subnets"][0]["SubnetId"],
    )


def _schedule(client: Any) -> None:
    for name, state in ((SCHEDULE, "ENABLED"), (OFF, "DISABLED")):
        client.create_schedule(
            Name=name,
            ScheduleExpression="rate(1 minute)",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": "arn:aws:lambda:x", "RoleArn": "arn:aws:iam::1:role/x"},
            State=state,
        )


def _rule(client: Any) -> None:
    for name, state in ((SPARE, "ENABLED"), (SPARE_OFF, "DISABLED")):
        client.put_rule(Name=name, ScheduleExpression="rate(5 minutes)", State=state)


def _alarm(client: Any) -> None:
    for name in (ALARM, TURNED_OFF, "other--idle"):
        client.put_metric_alarm(
            AlarmName=name,
            ActionsEnabled=name != TURNED_OFF,
            Namespace="lab",
            MetricName="Idle",
            Statistic="Maximum",
            Period=60,
            EvaluationPeriods=1,
            Threshold=1,
            ComparisonOperator="GreaterThanThreshold",
        )
        client.set_alarm_state(AlarmName=name, StateValue="OK", StateReason="as it was")


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
    assert found.root_device in {"/dev/sda1", "/dev/xvda"}


@pytest.mark.parametrize("image_id", ["ami-0123456789abcdef0", "none"])
def test_an_image_that_is_not_there_is_not_found(world: World, image_id: str) -> None:
    with pytest.raises(NotFound):
        world.account.image(image_id, region=REGION)


def test_describes_existing_subnets_and_leaves_out_others(world: World) -> None:
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


def test_a_bucket_sends_no_events_that_nobody_asked_for(world: World) -> None:
    assert world.account.sends_events("bare") is False


def test_the_events_of_a_bucket_that_is_not_there_are_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.account.sends_events("absent")


@pytest.mark.parametrize("name", [PARAMETER, "hub/token"])
def test_a_secret_that_is_there_is_no_error(world: World, name: str) -> None:
    world.account.try_secret(name, region=REGION)


@pytest.mark.parametrize("name", ["/absent/secret", "absent/secret"])
def test_a_secret_that_is_not_there_is_not_found(world: World, name: str) -> None:
    with pytest.raises(NotFound):
        world.account.try_secret(name, region=REGION)


def test_a_key_that_is_there_is_no_error(world: World) -> None:
    world.account.try_key(world.key)


def test_the_key_of_ebs_is_there_from_the_first_question_on(world: World) -> None:
    world.account.try_key(f"arn:aws:kms:{REGION}:123456789012:alias/aws/ebs")


def test_a_key_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.account.try_key(ABSENT_KEY)


def test_a_key_that_is_off_is_not_found(session: boto3.Session, worlds: dict[str, World]) -> None:
    kms = session.client("kms")
    key = kms.create_key()["KeyMetadata"]
    kms.disable_key(KeyId=key["KeyId"])

    with pytest.raises(NotFound, match="is Disabled"):
        worlds["aws"].account.try_key(key["Arn"])


def test_counts_vpcs_against_their_quota(world: World) -> None:
    count = world.account.vpcs(region=REGION)

    assert (count.there, count.quota) == (1, 5)


@pytest.mark.parametrize(("name", "is_on"), [(SCHEDULE, True), (OFF, False)])
def test_says_whether_a_schedule_is_on(world: World, name: str, *, is_on: bool) -> None:
    assert world.account.is_scheduled(name, region=REGION) is is_on


@pytest.mark.parametrize(("name", "is_on"), [(SPARE, True), (SPARE_OFF, False)])
def test_says_whether_a_rule_is_on(world: World, name: str, *, is_on: bool) -> None:
    assert world.account.is_rule_on(name, region=REGION) is is_on


def test_a_rule_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.account.is_rule_on("absent", region=REGION)


def test_a_schedule_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.account.is_scheduled("absent", region=REGION)


def test_describes_the_alarms_whose_names_begin_so(world: World) -> None:
    found = world.account.alarms("lab--", region=REGION)

    assert {name: (one.state, one.acts) for name, one in found.items()} == {
        ALARM: ("OK", True),
        TURNED_OFF: ("OK", False),
    }
    assert all(one.since.tzinfo is not None for one in found.values())


def test_names_who_has_subscribed(world: World) -> None:
    (found,) = world.account.subscribers(world.topic)

    assert (found.protocol, found.endpoint, found.is_confirmed) == ("sms", "+1555", True)


def test_a_topic_that_is_not_there_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.account.subscribers(ABSENT_TOPIC)

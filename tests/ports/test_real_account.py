"""What the contract suites make in a real account goes again, whatever happens; moto plays it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from spindown.local.environment import environment_of_process
from tests.ports.real_account import (
    AGREEMENT,
    FOLDERS_LEFT_OUT,
    LEFT_OUT,
    PREFIX,
    TAG_LIST,
    TAGS,
    real_account,
)

SUITES = Path(__file__).parent


class Broken(Exception):
    """A test fails."""


@pytest.fixture
def account() -> Iterator[boto3.Session]:
    """Yield a session that no suite uses, of an account in which nothing is."""
    with environment_of_process({"AWS_REGION": "eu-west-1"}), mock_aws():
        yield boto3.Session(region_name="eu-west-1")


def fill(session: boto3.Session) -> None:
    """Make one of each."""
    session.client("sqs").create_queue(QueueName=PREFIX, tags=TAGS)
    session.client("dynamodb").create_table(
        TableName=PREFIX,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    s3: Any = session.client("s3")
    where = {"LocationConstraint": session.region_name}
    s3.create_bucket(Bucket=PREFIX, CreateBucketConfiguration=where)
    s3.put_bucket_versioning(Bucket=PREFIX, VersioningConfiguration={"Status": "Enabled"})
    for body in (b"one", b"two"):
        s3.put_object(Bucket=PREFIX, Key="a", Body=body)
    s3.delete_object(Bucket=PREFIX, Key="a")
    for value in "12":
        session.client("ssm").put_parameter(
            Name=f"/{PREFIX}/a", Value=value, Type="String", Overwrite=True
        )
    session.client("logs").create_log_group(logGroupName=f"/{PREFIX}/a", tags=TAGS)
    session.client("sns").create_topic(Name=PREFIX, Tags=TAG_LIST)


def left(account: boto3.Session) -> set[str]:
    """Return the services in which something is."""
    found = {
        "dynamodb": account.client("dynamodb").list_tables()["TableNames"],
        "logs": account.client("logs").describe_log_groups()["logGroups"],
        "s3": account.client("s3").list_buckets()["Buckets"],
        "sns": account.client("sns").list_topics()["Topics"],
        "sqs": account.client("sqs").list_queues().get("QueueUrls"),
        "ssm": account.client("ssm").describe_parameters()["Parameters"],
    }
    return {service for service, things in found.items() if things}


def fail(account: boto3.Session) -> None:
    with real_account() as session:
        fill(session)
        assert left(account) == {"dynamodb", "logs", "s3", "sns", "sqs", "ssm"}
        raise Broken


def test_all_is_deleted_after_a_failure(account: boto3.Session) -> None:
    with pytest.raises(Broken):
        fail(account)

    assert left(account) == set()


def test_what_aws_does_not_know_yet_is_looked_for_again(account: boto3.Session) -> None:
    slept: list[float] = []

    def miss(**_: object) -> None:
        if len(slept) < 3:
            code = "AWS.SimpleQueueService.NonExistentQueue"
            raise ClientError({"Error": {"Code": code, "Message": ""}}, "GetQueueUrl")

    with real_account(slept.append) as session:
        fill(session)
        session.events.register("before-call.sqs.GetQueueUrl", miss)

    assert left(account) == set()
    assert len(slept) == 3


def break_off(slept: list[float]) -> None:
    def interrupt(**_: object) -> None:
        raise KeyboardInterrupt

    with real_account(slept.append) as session:
        session.events.register("before-call.sqs.CreateQueue", interrupt)
        fill(session)


def test_what_was_never_made_is_not_looked_for_for_ever(account: boto3.Session) -> None:
    slept: list[float] = []

    with pytest.raises(KeyboardInterrupt):
        break_off(slept)

    assert left(account) == set()
    assert 0 < len(slept) < 20


def be_refused() -> None:
    with real_account() as session:
        fill(session)
        session.events.register("before-call.sqs.DeleteQueue", _refuse)


def test_what_cannot_be_deleted_is_named_and_keeps_no_other(account: boto3.Session) -> None:
    with pytest.raises(ExceptionGroup) as told:
        be_refused()

    assert left(account) == {"sqs"}
    (one,) = told.value.exceptions
    assert PREFIX in one.__notes__[0]


def _refuse(**_: object) -> None:
    raise ClientError({"Error": {"Code": "AccessDenied", "Message": ""}}, "DeleteQueue")


def test_a_call_that_names_nothing_of_the_run_is_not_sent(account: boto3.Session) -> None:
    with real_account() as session:
        with pytest.raises(AssertionError, match="CreateQueue"):
            session.client("sqs").create_queue(QueueName="of-somebody")
        with pytest.raises(AssertionError, match="DescribeInstances"):
            session.client("ec2").describe_instances()

    assert left(account) == set()


def test_what_is_of_somebody_is_not_deleted_by_another_field(account: boto3.Session) -> None:
    with real_account() as session:
        with pytest.raises(AssertionError, match="DeleteObject"):
            session.client("s3").delete_object(Bucket="of-somebody", Key=PREFIX)
        with pytest.raises(AssertionError, match="DeleteParameters"):
            session.client("ssm").delete_parameters(Names=[f"/{PREFIX}/a", "/of-somebody"])

    assert left(account) == set()


def test_who_is_to_agree_reads_the_name_of_the_run() -> None:
    assert PREFIX in AGREEMENT


def test_what_is_left_out_is_there_by_its_name() -> None:
    for name in LEFT_OUT:
        module, _, test = name.partition("::")
        text = (SUITES / f"{module}.py").read_text(encoding="utf-8")
        assert f"def {test}" in text
    assert all((SUITES / folder).is_dir() for folder in FOLDERS_LEFT_OUT)

"""A real AWS account for the contract suites: what they make there, and that all of it goes again.

`make aws` runs them so (`--world account --agree`), with the credentials of the shell. What they
make bears a name and a tag of this run, and a call that names nothing of this run is not sent.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import boto3
import pytest

from spindown.aws.error import translated
from spindown.error import NotFound, SpindownError

RUN = uuid4().hex[:12]
#: How each name begins that the suites make, whatever answers them.
PREFIX = f"spindown-contract-{RUN}"
TAGS = {"spindown-contract": RUN}
#: Likewise, as most services take them. boto3's stubs name the form anew for each service.
TAG_LIST: Any = [{"Key": key, "Value": value} for key, value in TAGS.items()]
#: Seconds that counts of SQS, indexes of DynamoDB and events of CloudWatch Logs may come late.
LATE = 120.0
#: How often, a second apart, what is to be deleted is looked for: AWS may not know yet what it made
#: a moment ago.
_LOOKS = 10
_PAUSE = threading.Event()
#: Fields by which calls that delete say of what.
_NAMING = ("Bucket", "Name", "Names", "QueueUrl", "TableName", "TopicArn", "logGroupName")

AGREEMENT = f"""\
The contract suites make in your AWS account, and delete again: about 45 SQS queues, 20 parameters
of SSM, 6 log groups, a DynamoDB table, a versioned S3 bucket and an SNS topic. They launch no
instance. Their names begin with {PREFIX}, or with a slash before it, or
lie below /spindown/{PREFIX}. Some 1,300 requests cost
about one cent at list prices, and take some minutes."""

#: Module of tests/ports, or one of its tests -> why it does not run on a real account.
LEFT_OUT: Mapping[str, str] = {
    "test_account": "it subscribes a telephone, and counts on moto's account (tests/aws reads)",
    "test_advisor": "its server speaks by hand; the real file belongs to no account",
    "test_compute": "it launches instances (tests/aws rehearses a launch by a dry run)",
    "test_image_builder": "its server speaks by hand; a real build runs an instance for an hour",
    "test_job_events": "rules of others hear the default bus, and its refusal is made by hand",
    "test_market": "it counts on moto's types, zones and prices (tests/aws asks the real ones)",
    "test_metadata": "only an instance has a metadata service",
    "test_queue::test_a_queue_is_removed_with_all_that_it_holds": (
        "for a minute SQS may still answer for a removed queue, and does not take its name"
    ),
    "test_restore": "a table takes half an hour to be restored",
    "test_settings::test_adds_outposts_and_says_which_cannot_be_read": (
        "it writes in a second region"
    ),
    "test_traffic": "nobody but SQS writes its metrics, and none can be deleted",
}
#: Folders of tests/ports whose tests are of one side alone -> likewise.
FOLDERS_LEFT_OUT: Mapping[str, str] = {
    "aws": "answers that are put in by hand, and moto's back doors",
    "memory": "it asks no AWS",
}
#: The parameter of a fixture whose tests ask AWS.
_SIDES = frozenset({"cloudwatch", "dynamodb", "s3", "s3 below a root", "sqs", "ssm"})


def can_run(item: pytest.Item) -> bool:
    """Tell whether a test of tests/ports asks AWS, and can ask a real account."""
    module = item.path.stem
    name = f"{module}::{getattr(item, 'originalname', item.name)}"
    if item.path.parent.name in FOLDERS_LEFT_OUT or {module, name} & LEFT_OUT.keys():
        return False
    callspec = getattr(item, "callspec", None)
    given = [one for one in (callspec.params.values() if callspec else ()) if isinstance(one, str)]
    if "memory" in given:
        return False
    return bool(_SIDES & {*given} or {"aws", "session"} & {*getattr(item, "fixturenames", ())})


@contextmanager
def real_account(
    sleep: Callable[[float], object] = _PAUSE.wait,
) -> Iterator[boto3.Session]:
    """Yield a session of the shell's account; delete at the end what was made by it."""
    # boto3 reads AWS_DEFAULT_REGION alone.
    session = boto3.Session(region_name=os.environ.get("AWS_REGION"))
    assert session.region_name, "set AWS_REGION"
    made: dict[tuple[str, str], Callable[[boto3.Session, str], object]] = {}

    def note(event_name: str, params: Mapping[str, Any], **_: object) -> None:
        call = event_name.partition(".")[2]
        assert _is_of_this_run(call, params), f"{call} names nothing of this run: it is not sent"
        if call in _MAKING:
            field, delete = _MAKING[call]
            # Before it is sent: a call that nobody answers may have made it all the same.
            made[call, params[field]] = delete

    session.events.register("before-parameter-build", note)
    try:
        yield session
    finally:
        _delete_all(session, made, sleep)


def _is_of_this_run(call: str, params: Mapping[str, Any]) -> bool:
    if not call.partition(".")[2].startswith(("Delete", "Purge")):
        return PREFIX in str(params)
    given = [params[field] for field in _NAMING if field in params]
    named = [name for one in given for name in (one if isinstance(one, list) else [one])]
    return bool(named) and all(PREFIX in name for name in named)


def _delete_all(
    session: boto3.Session,
    made: Mapping[tuple[str, str], Callable[[boto3.Session, str], object]],
    sleep: Callable[[float], object],
) -> None:
    """Delete in the opposite order; one that cannot be deleted does not keep the others."""
    failures: list[Exception] = []
    left = [*made.items()][::-1]
    for look in range(_LOOKS):
        if look and left:
            sleep(1.0)
        unseen = []
        for (call, name), delete in left:
            try:
                with translated():
                    delete(session, name)
            except NotFound:
                unseen.append(((call, name), delete))
            except (AssertionError, SpindownError) as exc:
                exc.add_note(f"{name} ({call}) may be left")
                failures.append(exc)
        left = unseen
    if failures:
        raise ExceptionGroup("not all was deleted", failures)


def _delete_queue(session: boto3.Session, name: str) -> None:
    client = session.client("sqs")
    client.delete_queue(QueueUrl=client.get_queue_url(QueueName=name)["QueueUrl"])


def _delete_table(session: boto3.Session, name: str) -> None:
    client = session.client("dynamodb")
    if client.describe_table(TableName=name)["Table"]["TableStatus"] == "CREATING":
        client.get_waiter("table_exists").wait(TableName=name)
    client.delete_table(TableName=name)


def _delete_bucket(session: boto3.Session, name: str) -> None:
    empty_bucket(session, name)
    session.client("s3").delete_bucket(Bucket=name)


def empty_bucket(session: boto3.Session, name: str) -> None:
    """Delete every version of every object of a bucket."""
    client: Any = session.client("s3")
    for page in client.get_paginator("list_object_versions").paginate(Bucket=name):
        found = [*page.get("Versions", ()), *page.get("DeleteMarkers", ())]
        which = [{"Key": one["Key"], "VersionId": one["VersionId"]} for one in found]
        if which:
            said = client.delete_objects(Bucket=name, Delete={"Objects": which, "Quiet": True})
            assert not said.get("Errors"), said["Errors"]


def _delete_topic(session: boto3.Session, name: str) -> None:
    client = session.client("sns")
    # It answers for one that is there by its ARN.
    client.delete_topic(TopicArn=client.create_topic(Name=name, Tags=TAG_LIST)["TopicArn"])


#: Call that makes something -> the field with its name, and what deletes it.
_MAKING: Mapping[str, tuple[str, Callable[[boto3.Session, str], object]]] = {
    "cloudwatch-logs.CreateLogGroup": (
        "logGroupName",
        lambda session, name: session.client("logs").delete_log_group(logGroupName=name),
    ),
    "dynamodb.CreateTable": ("TableName", _delete_table),
    "s3.CreateBucket": ("Bucket", _delete_bucket),
    "sns.CreateTopic": ("Name", _delete_topic),
    "sqs.CreateQueue": ("QueueName", _delete_queue),
    "ssm.PutParameter": (
        "Name",
        lambda session, name: session.client("ssm").delete_parameter(Name=name),
    ),
}

"""An event of S3 is a message: whatever comes is a job of that object, or one sentence."""

import hashlib
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.job.message import JobMessage, encode_job, parse_job
from spindown.contract.job.s3_event import source_of
from spindown.error import ContractError


def of_s3(key: str = "in/a+b%2B%C3%A9.png", **about: Any) -> dict[str, Any]:
    """Return a notification as S3 sends it to a queue."""
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": "2026-11-27T14:00:00.000Z",
        "eventName": "ObjectCreated:Put",
        "userIdentity": {"principalId": "AWS:A"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "bucket": {"name": "scans", "arn": "arn:aws:s3:::scans"},
            "object": {"key": key, "size": 1024, "eTag": "e1", "sequencer": "0A", **about},
        },
    }
    return {"Records": [record]}


def of_eventbridge(key: str = "in/a b+é.png", **about: Any) -> dict[str, Any]:
    """Return an event as EventBridge passes it on."""
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": "Object Created",
        "source": "aws.s3",
        "account": "111122223333",
        "time": "2026-11-27T14:00:01Z",
        "region": "us-east-1",
        "resources": ["arn:aws:s3:::scans"],
        "detail": {
            "version": "0",
            "bucket": {"name": "scans"},
            "object": {"key": key, "size": 1024, "etag": "e1", "sequencer": "0A", **about},
            "reason": "PutObject",
        },
    }


def parsed(row: object) -> JobMessage:
    return parse_job(json.dumps(row))


def test_both_forms_of_one_object_are_one_job() -> None:
    first, second = parsed(of_s3()), parsed(of_eventbridge())

    assert first == second
    assert first.items == ("s3://scans/in/a b+é.png",)
    assert first.job_id is not None
    assert parse_job(encode_job(first)) == first


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (of_s3(), of_s3(), True),
        (of_s3(sequencer="01"), of_s3(sequencer="02"), False),
        (of_s3(versionId="v1"), of_s3(versionId="v1", sequencer="02"), True),
        (of_s3(sequencer=None), of_s3(), False),
        (of_s3(eTag="e1"), of_s3(eTag="e2"), False),
        (of_s3(versionId="v1"), of_s3(versionId="v2"), False),
        (of_s3(versionId="v1"), of_s3(versionId="v1", eTag="e2"), True),
        (of_s3(versionId="v1"), of_eventbridge(**{"version-id": "v1"}), True),
        (of_s3(versionId="null"), of_s3(), True),
        (of_s3(eTag='"e1"'), of_s3(), True),
        (of_s3("in/a.png"), of_s3("in/b.png"), False),
    ],
    ids=[
        "sent twice",
        "written again with the same content",
        "one version, whatever its place in the order",
        "a message that knows the content alone",
        "other content",
        "another version",
        "one version",
        "one version in both forms",
        "versioning that is suspended",
        "an ETag in quotes",
        "another key",
    ],
)
def test_an_id_stands_for_one_version_of_an_object(one: Any, other: Any, *, is_same: bool) -> None:
    assert (parsed(one).job_id == parsed(other).job_id) is is_same


def test_the_id_is_the_one_that_the_guide_says() -> None:
    # docs/sources.md

    told = json.dumps([["scans", "in/x.png", "v9"]]).encode()

    assert (
        parsed(of_s3("in/x.png", versionId="v9")).job_id
        == "s3-" + hashlib.sha256(told).hexdigest()[:32]
    )


def test_without_versions_the_order_of_writes_is_in_the_id() -> None:
    # docs/sources.md

    told = json.dumps([["scans", "in/x.png", "e1-0A"]]).encode()

    assert parsed(of_s3("in/x.png")).job_id == "s3-" + hashlib.sha256(told).hexdigest()[:32]


def test_the_order_of_what_an_event_tells_of_does_not_matter() -> None:
    (one,), (other,) = of_s3("in/a")["Records"], of_s3("in/b")["Records"]

    first, second = (parsed({"Records": each}) for each in ([one, other], [other, one]))

    assert first == second
    assert first.items == ("s3://scans/in/a", "s3://scans/in/b")


@pytest.mark.parametrize("row", [of_s3("in/new/", size=1), of_eventbridge("in/new/", size=1)])
def test_an_object_with_content_is_a_job_whatever_its_key(row: Any) -> None:
    assert parsed(row).items == ("s3://scans/in/new/",)


@pytest.mark.parametrize(
    "row",
    [
        {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "scans", "RequestId": "R"},
        of_s3("in/new+folder/", size=0),
        of_eventbridge("in/new folder/", size=0),
    ],
    ids=["a test of the notification", "a folder", "a folder by EventBridge"],
)
def test_where_no_object_came_to_be_there_is_nothing_to_do(row: Any) -> None:
    job = parsed(row)

    assert (job.items, job.job_id) == ((), None)


def changed(row: dict[str, Any], *path: str | int, value: Any) -> dict[str, Any]:
    copy: Any = json.loads(json.dumps(row))
    place = copy
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return dict(copy)


@pytest.mark.parametrize(
    "row",
    [
        changed(of_s3(), "Records", 0, "eventName", value="ObjectRemoved:Delete"),
        changed(of_s3(), "Records", 0, "eventSource", value="aws:sqs"),
        changed(of_s3(), "Records", 0, "s3", "bucket", "name", value="../x"),
        changed(of_s3(), "Records", value=[]),
        changed(of_eventbridge(), "detail-type", value="Object Deleted"),
        changed(of_eventbridge(), "detail", "object", "key", value=["a"]),
        of_s3(""),
        of_s3("%ff"),
        of_s3("x" * 1025),
        of_s3(eTag=None),
        of_s3(sequencer=7),
        of_eventbridge("\ud800"),
        of_eventbridge(etag="\ud800"),
    ],
)
def test_what_is_no_event_of_a_created_object_is_refused(row: Any) -> None:
    with pytest.raises(ContractError, match="let only S3 send such messages"):
        parsed(row)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_PATHS: list[tuple[dict[str, Any], tuple[str | int, ...]]] = [
    (of_s3(), ("Records",)),
    *((of_s3(), ("Records", 0, name)) for name in ("eventSource", "eventName", "s3")),
    *((of_s3(), ("Records", 0, "s3", name)) for name in ("bucket", "object")),
    *(
        (of_s3(), ("Records", 0, "s3", "object", name))
        for name in ("key", "eTag", "versionId", "sequencer", "size")
    ),
    (of_s3(), ("Records", 0, "s3", "bucket", "name")),
    (of_eventbridge(), ("detail",)),
    (of_eventbridge(), ("detail", "object")),
    (of_eventbridge(), ("detail", "object", "version-id")),
    (of_eventbridge(), ("detail", "object", "sequencer")),
    (of_eventbridge(), ("detail", "bucket", "name")),
]


@given(st.sampled_from(_PATHS), JSON)
def test_whatever_stands_in_an_event_is_a_job_or_one_sentence(
    place: tuple[dict[str, Any], tuple[str | int, ...]], value: Any
) -> None:
    row, path = place
    with suppress(ContractError):
        job = parsed(changed(row, *path, value=value))
        assert parse_job(encode_job(job)) == job


@pytest.mark.parametrize(
    ("items", "source"),
    [
        pytest.param(["s3://scans/a.png"], "s3://scans/a.png", id="an address"),
        pytest.param(["s3://scans/" + "a" * 1024], "s3://scans/" + "a" * 1024, id="a long key"),
        pytest.param(["s3://" + "a" * 900_000], "", id="longer than any address"),
        pytest.param(["a.png"], "", id="no address"),
        pytest.param([7], "", id="no text"),
        pytest.param([], "", id="none"),
    ],
)
def test_who_takes_such_an_id_leaves_no_more_than_an_address(items: Any, source: str) -> None:
    assert source_of("s3-" + "0" * 32, items) == source
    assert source_of("notes", items) == ""

"""What S3 answers and a simulated one does not."""

import io
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber
from urllib3.exceptions import SSLError

from spindown.aws.s3 import S3InputSource, S3ObjectStore
from spindown.error import (
    AccessDenied,
    NotFound,
    PreconditionFailed,
    Throttled,
    Unreachable,
    Unreadable,
    WriteConflict,
)
from spindown.port import Absent, Matches


@pytest.fixture
def both(session: boto3.Session) -> Iterator[tuple[S3ObjectStore, Stubber]]:
    client = session.client("s3")
    with Stubber(client) as stub:
        yield S3ObjectStore(client, "bucket"), stub
        stub.assert_no_pending_responses()


@pytest.mark.parametrize("condition", [Absent(), Matches(etag='"1"')])
def test_a_racing_write_is_a_conflict(
    both: tuple[S3ObjectStore, Stubber], condition: Absent | Matches
) -> None:
    store, stub = both
    stub.add_client_error("put_object", "ConditionalRequestConflict", http_status_code=409)
    with pytest.raises(WriteConflict):
        store.put("a", b"", condition=condition)


@pytest.mark.parametrize("retries", [0, 1])
def test_only_a_repeated_write_may_have_met_itself(
    both: tuple[S3ObjectStore, Stubber], retries: int
) -> None:
    store, stub = both
    told = {"RetryAttempts": retries}
    stub.add_client_error(
        "put_object", "PreconditionFailed", http_status_code=412, response_meta=told
    )
    with pytest.raises(PreconditionFailed) as failed:
        store.put("a", b"", condition=Absent())
    assert failed.value.may_be_own is bool(retries)


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("SlowDown", 503, Throttled),
        ("AccessDenied", 403, AccessDenied),
        ("InternalError", 500, Unreachable),
        ("NoSuchBucket", 404, NotFound),
    ],
)
def test_other_errors_of_a_put(
    both: tuple[S3ObjectStore, Stubber], code: str, status: int, expected: type[Exception]
) -> None:
    store, stub = both
    stub.add_client_error("put_object", code, http_status_code=status)
    with pytest.raises(expected):
        store.put("a", b"")


def test_lists_over_many_pages(both: tuple[S3ObjectStore, Stubber]) -> None:
    store, stub = both
    at = "2026-01-01T00:00:00Z"
    for key, more in (("a", {"IsTruncated": True, "NextContinuationToken": "t"}), ("b", {})):
        found = {"Key": key, "Size": 1, "LastModified": at}
        stub.add_response("list_objects_v2", {"Contents": [found], **more})

    assert [found.key for found in store.list("")] == ["a", "b"]


def test_reads_versions_of_one_key_only(both: tuple[S3ObjectStore, Stubber]) -> None:
    store, stub = both
    stub.add_response(
        "list_object_versions",
        {
            "IsTruncated": True,
            "NextKeyMarker": "ab",
            "Versions": [
                {"Key": "a", "VersionId": "2"},
                {"Key": "a", "VersionId": "1"},
                {"Key": "ab", "VersionId": "9"},
            ],
        },
    )

    assert store.versions("a") == ["2", "1"]


class Broken(io.BytesIO):
    """A body whose line breaks in a way that botocore lets through as urllib3 tells it."""

    def read(self, *_: object) -> bytes:
        raise SSLError("decryption failed or bad record mac")


def test_a_line_that_breaks_in_an_answer_is_no_answer(
    both: tuple[S3ObjectStore, Stubber],
) -> None:
    store, stub = both
    stub.add_response("get_object", {"Body": StreamingBody(Broken(), 9), "ETag": '"1"'})
    with pytest.raises(Unreachable, match="bad record mac"):
        store.get("a")


@pytest.mark.parametrize(
    ("head", "code", "expected"),
    [
        pytest.param("403", "AccessDenied", AccessDenied, id="denied"),
        pytest.param("403", "RequestTimeTooSkewed", Unreachable, id="our clock is wrong"),
        pytest.param("400", "ExpiredToken", Unreachable, id="our credentials are old"),
        pytest.param("400", "KMS.DisabledException", AccessDenied, id="its key is off"),
        pytest.param("400", "InvalidRequest", AccessDenied, id="only its owner has the key"),
    ],
)
def test_what_a_head_does_not_tell_of_an_input_is_asked_for(
    session: boto3.Session, tmp_path: Path, head: str, code: str, expected: type[Exception]
) -> None:
    client = session.client("s3")
    inputs = S3InputSource(client, ["s3://images/"])
    with Stubber(client) as stub:
        stub.add_client_error("head_object", head, http_status_code=int(head))
        stub.add_client_error("get_object", code, "said so", http_status_code=int(head))
        with pytest.raises(expected, match="said so"):
            inputs.fetch("s3://images/a.png", tmp_path / "a.png")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("AccessDenied", AccessDenied),
        ("InvalidObjectState", Unreadable),
        ("InvalidRequest", Unreadable),
        ("KMS.NotFoundException", Unreadable),
    ],
)
def test_an_object_that_nobody_can_read_now_is_denied(
    both: tuple[S3ObjectStore, Stubber], code: str, expected: type[Exception]
) -> None:
    store, stub = both
    stub.add_client_error("get_object", code, "said so", http_status_code=403)
    with pytest.raises(AccessDenied, match=f"{code}: said so") as caught:
        store.get("a")
    assert type(caught.value) is expected


def test_an_input_replaced_during_its_fetch_is_fetched_again(
    session: boto3.Session, tmp_path: Path
) -> None:
    client = session.client("s3")
    inputs = S3InputSource(client, ["s3://images/"])
    with Stubber(client) as stub:
        stub.add_response("head_object", {"ContentLength": 3, "ETag": '"1"'})
        stub.add_client_error("get_object", "PreconditionFailed", http_status_code=412)
        with pytest.raises(Unreachable, match="did not match expected ETag"):
            inputs.fetch("s3://images/a.png", tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_a_transfer_that_is_refused_leaves_no_file(
    both: tuple[S3ObjectStore, Stubber], tmp_path: Path
) -> None:
    store, stub = both
    stub.add_client_error("head_object", "403", http_status_code=403)
    with pytest.raises(AccessDenied):
        store.get_file("a", tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        pytest.param("AccessDenied", 403, AccessDenied, id="denied"),
        pytest.param("ExpiredToken", 400, Unreachable, id="our credentials are old"),
        pytest.param("RequestTimeTooSkewed", 403, Unreachable, id="our clock is wrong"),
    ],
)
def test_only_what_is_wrong_with_a_prefix_is_held_against_it(
    session: boto3.Session, code: str, status: int, expected: type[Exception]
) -> None:
    client = session.client("s3")
    inputs = S3InputSource(client, ["s3://archive/"])
    with Stubber(client) as stub:
        stub.add_client_error("list_objects_v2", code, "said so", http_status_code=status)
        with pytest.raises(expected, match="said so"):
            list(inputs.list("s3://archive/images/"))


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        pytest.param("InvalidObjectState", 403, AccessDenied, id="archived"),
        pytest.param("KMS.DisabledException", 400, AccessDenied, id="its key is off"),
        pytest.param("ExpiredToken", 400, Unreachable, id="our credentials are old"),
        pytest.param("RequestTimeTooSkewed", 403, Unreachable, id="our clock is wrong"),
    ],
)
def test_only_what_is_wrong_with_an_input_is_held_against_it(
    session: boto3.Session, tmp_path: Path, code: str, status: int, expected: type[Exception]
) -> None:
    client = session.client("s3")
    inputs = S3InputSource(client, ["s3://archive/"])
    with Stubber(client) as stub:
        stub.add_client_error("get_object", code, "restore it", http_status_code=status)
        with pytest.raises(expected, match="restore it"):
            inputs.read("s3://archive/a.json", at_most_bytes=9)

        stub.add_response("head_object", {"ContentLength": 3, "ETag": '"1"'})
        stub.add_client_error("get_object", code, "restore it", http_status_code=status)
        with pytest.raises(expected, match="restore it"):
            inputs.fetch("s3://archive/a.png", tmp_path / "a.png")

"""What every ObjectStore and InputSource promises, on S3 as in memory."""

import re
from pathlib import Path
from typing import Any

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.error import (
    AccessDenied,
    ContractError,
    NotFound,
    PreconditionFailed,
    WriteConflict,
)
from spindown.memory import MemoryClock, MemoryInputSource, MemoryObjectStore
from spindown.port import Absent, InputSource, Matches, ObjectStore
from tests.ports.real_account import PREFIX, TAG_LIST, empty_bucket

#: The bucket of all tests, and where inputs lie in it.
DATA = f"s3://{PREFIX}"
INPUTS = {
    f"{DATA}/scans/a.png": b"a",
    f"{DATA}/scans/b.png": b"bb",
    f"{DATA}/secret/c.png": b"ccc",
    f"{DATA}/papers/1.pdf": b"p",
    f"{DATA}/papers-private/2.pdf": b"pp",
}
DECLARED = ["s3://other/", f"{DATA}/scans/", f"{DATA}/papers", f"{DATA}/list.jsonl"]


@pytest.fixture(scope="module")
def bucket(session: boto3.Session) -> str:
    client: Any = session.client("s3")
    # us-east-1 takes no word of where.
    is_first = session.region_name == "us-east-1"
    where = {"LocationConstraint": session.region_name}
    client.create_bucket(
        Bucket=PREFIX, **({} if is_first else {"CreateBucketConfiguration": where})
    )
    client.put_bucket_tagging(Bucket=PREFIX, Tagging={"TagSet": TAG_LIST})
    client.put_bucket_versioning(Bucket=PREFIX, VersioningConfiguration={"Status": "Enabled"})
    return PREFIX


@pytest.fixture
def empty(session: boto3.Session, bucket: str) -> str:
    """Return the bucket, in which nothing is."""
    empty_bucket(session, bucket)
    return bucket


@pytest.fixture(params=["memory", "s3", "s3 below a root"])
def store(request: pytest.FixtureRequest) -> ObjectStore:
    fixture = request.getfixturevalue
    if request.param == "memory":
        return MemoryObjectStore(fixture("clock"))
    root = "workloads/ocr/" if request.param == "s3 below a root" else ""
    found: ObjectStore = fixture("aws").object_store(fixture("empty"), root)
    return found


@pytest.fixture
def s3_inputs(session: boto3.Session, aws: Aws, empty: str) -> InputSource:
    client = session.client("s3")
    for uri, data in INPUTS.items():
        client.put_object(Bucket=empty, Key=uri.removeprefix(f"{DATA}/"), Body=data)
    return aws.input_source(DECLARED)


@pytest.fixture(params=["memory", "s3"])
def inputs(request: pytest.FixtureRequest) -> InputSource:
    if request.param == "memory":
        return MemoryInputSource(INPUTS, DECLARED)
    found: InputSource = request.getfixturevalue("s3_inputs")
    return found


def test_gives_back_what_was_written(store: ObjectStore) -> None:
    etag = store.put("a/b", b"one")
    found = store.get("a/b")

    assert found.data == b"one"
    assert found.etag == etag
    assert found.modified_at.tzinfo is not None


def test_finds_no_object_that_was_never_written(store: ObjectStore, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        store.get("a")
    with pytest.raises(NotFound):
        store.get_file("a", tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_writes_a_new_key_once(store: ObjectStore) -> None:
    store.put("a", b"one", condition=Absent())

    with pytest.raises(PreconditionFailed):
        store.put("a", b"two", condition=Absent())
    assert store.get("a").data == b"one"


def test_replaces_only_what_the_writer_has_seen(store: ObjectStore) -> None:
    first = store.put("a", b"one")
    second = store.put("a", b"two", condition=Matches(etag=first))

    with pytest.raises(PreconditionFailed):
        store.put("a", b"three", condition=Matches(etag=first))
    assert store.get("a").etag == second


def test_replaces_nothing_where_there_is_nothing(store: ObjectStore) -> None:
    with pytest.raises(PreconditionFailed):
        store.put("a", b"one", condition=Matches(etag='"0"'))


def test_the_same_bytes_have_the_same_etag(store: ObjectStore) -> None:
    assert store.put("a", b"one") == store.put("a", b"one")
    assert store.put("a", b"one") != store.put("a", b"two")


def test_keeps_older_versions(store: ObjectStore) -> None:
    for data in (b"one", b"two", b"three"):
        store.put("a", data)
    store.put("ab", b"another key that begins alike")
    versions = store.versions("a")

    assert [store.get("a", version=v).data for v in versions] == [b"three", b"two", b"one"]
    assert store.get("a").version == versions[0]


def test_a_key_without_objects_has_no_versions(store: ObjectStore) -> None:
    store.put("b", b"another")
    assert store.versions("a") == []
    with pytest.raises(NotFound):
        store.get("a", version=store.get("b").version)


def test_lists_a_prefix_in_key_order(store: ObjectStore) -> None:
    for key in ("b/2", "b/10", "a", "b", "c", "b/é"):
        store.put(key, key.encode())

    assert [(found.key, found.bytes) for found in store.list("b/")] == [
        ("b/10", 4),
        ("b/2", 3),
        ("b/é", 4),
    ]
    assert len(list(store.list(""))) == 6
    assert list(store.list("z")) == []


def test_carries_files(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "up").write_bytes(b"x" * 1000)
    store.put_file("a", tmp_path / "up")
    store.get_file("a", tmp_path / "down")

    assert (tmp_path / "down").read_bytes() == b"x" * 1000


def test_carries_a_file_that_goes_up_in_parts(store: ObjectStore, tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000
    (tmp_path / "up").write_bytes(data)
    store.put_file("a", tmp_path / "up")
    store.get_file("a", tmp_path / "down")

    assert (tmp_path / "down").read_bytes() == data


def test_reads_a_declared_input(inputs: InputSource, tmp_path: Path) -> None:
    assert inputs.read(f"{DATA}/scans/b.png", at_most_bytes=2) == b"bb"
    inputs.fetch(f"{DATA}/scans/a.png", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"a"


def test_lists_declared_inputs(inputs: InputSource) -> None:
    assert list(inputs.list(f"{DATA}/scans/")) == [
        f"{DATA}/scans/a.png",
        f"{DATA}/scans/b.png",
    ]


@pytest.mark.parametrize("prefix", [f"{DATA}/papers", f"{DATA}/papers/"], ids=["bare", "slash"])
def test_a_folder_without_its_slash_holds_no_other(
    inputs: InputSource, prefix: str, tmp_path: Path
) -> None:
    assert list(inputs.list(prefix)) == [f"{DATA}/papers/1.pdf"]
    assert inputs.read(f"{DATA}/papers/1.pdf", at_most_bytes=9) == b"p"
    with pytest.raises(AccessDenied):
        inputs.read(f"{DATA}/papers-private/2.pdf", at_most_bytes=9)
    with pytest.raises(AccessDenied):
        inputs.fetch(f"{DATA}/papers-private/2.pdf", tmp_path / "a")
    with pytest.raises(AccessDenied):
        list(inputs.list(f"{DATA}/papers-"))


def test_refuses_an_object_that_is_too_large(store: ObjectStore) -> None:
    store.put("k", b"four")

    assert store.get("k", at_most_bytes=4).data == b"four"
    with pytest.raises(ContractError, match="within 3 bytes") as caught:
        store.get("k", at_most_bytes=3)
    assert caught.value.field == "k"


def test_an_object_may_be_declared_alone(inputs: InputSource) -> None:
    with pytest.raises(NotFound):
        inputs.read(f"{DATA}/list.jsonl", at_most_bytes=9)
    assert list(inputs.list(f"{DATA}/list.jsonl")) == []


def test_refuses_an_input_that_is_too_large(inputs: InputSource) -> None:
    with pytest.raises(ContractError, match="1 bytes") as caught:
        inputs.read(f"{DATA}/scans/b.png", at_most_bytes=1)
    assert caught.value.field == f"{DATA}/scans/b.png"


def test_finds_no_input_that_is_not_there(inputs: InputSource, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        inputs.read(f"{DATA}/scans/z.png", at_most_bytes=9)
    with pytest.raises(NotFound):
        inputs.fetch(f"{DATA}/scans/z.png", tmp_path / "z")


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param(f"{DATA}/secret/c.png", id="another prefix"),
        pytest.param(f"{DATA}/", id="above the prefix"),
        pytest.param(f"{DATA}/scan", id="the beginning of the prefix"),
        pytest.param("s3://scans/scans/a.png", id="another bucket"),
    ],
)
def test_reads_nothing_outside_the_declared_inputs(
    inputs: InputSource, uri: str, tmp_path: Path
) -> None:
    with pytest.raises(AccessDenied, match=re.escape(uri)):
        inputs.read(uri, at_most_bytes=9)
    with pytest.raises(AccessDenied):
        inputs.fetch(uri, tmp_path / "a")
    with pytest.raises(AccessDenied):
        list(inputs.list(uri))


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param(f"{DATA}/scans/../secret/c.png", id="climbs"),
        pytest.param(f"{DATA}/scans/./a.png", id="stays"),
        pytest.param("data/scans/a.png", id="no scheme"),
        pytest.param("s3:///scans/a.png", id="no bucket"),
        pytest.param("file:///etc/passwd", id="another scheme"),
    ],
)
def test_reads_no_uri_that_could_become_another_path(inputs: InputSource, uri: str) -> None:
    with pytest.raises(ContractError):
        inputs.read(uri, at_most_bytes=9)


def test_memory_answers_a_conflict_when_told_to(clock: MemoryClock) -> None:
    store = MemoryObjectStore(clock)
    store.conflict_next("a", times=2)
    for _ in range(2):
        with pytest.raises(WriteConflict):
            store.put("a", b"one", condition=Absent())

    store.put("a", b"one", condition=Absent())
    assert store.get("a").data == b"one"


def test_keeps_the_versions_of_a_deleted_object(store: ObjectStore) -> None:
    store.delete("a")
    etag = store.put("a", b"one")
    store.delete("a")

    with pytest.raises(NotFound):
        store.get("a")
    with pytest.raises(PreconditionFailed):
        store.put("a", b"two", condition=Matches(etag=etag))
    assert list(store.list("")) == []
    store.put("a", b"three", condition=Absent())
    assert [store.get("a", version=v).data for v in store.versions("a")] == [b"three", b"one"]


def test_memory_lists_more_than_one_page(clock: MemoryClock) -> None:
    store = MemoryObjectStore(clock)
    keys = [f"many/{number:04}" for number in range(2000)]
    for key in keys:
        store.put(key, b"")

    assert [found.key for found in store.list("many/")] == keys


def test_memory_forgets_versions_beyond_those_that_it_keeps(clock: MemoryClock) -> None:
    store = MemoryObjectStore(clock, noncurrent_versions=1)
    for number in range(5):
        store.put("a", bytes([number]))

    assert [store.get("a", version=v).data for v in store.versions("a")] == [b"\x04", b"\x03"]

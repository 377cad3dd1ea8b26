"""What whoever may send a message can make a worker do: work on declared inputs, nothing else."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.job.message import JobMessage, parse_job
from spindown.contract.location import check_declared
from spindown.error import AccessDenied, ContractError, NotFound
from spindown.job.item import settle_items
from spindown.memory.store import MemoryInputSource
from spindown.worker.transfer.prefetch import Prefetch
from tests.work import WorkWorld

DECLARED = ["s3://mine/inputs/"]


class Observed(MemoryInputSource):
    """Inputs of which every object is there, that note what they were asked for and where to."""

    def __init__(self) -> None:
        super().__init__({}, DECLARED)
        self.fetched: list[tuple[str, Path]] = []

    def fetch(self, uri: str, path: Path) -> None:
        check_declared(uri, DECLARED)
        self.fetched.append((uri, path))
        path.write_bytes(b"")


hostile = st.sampled_from(
    [
        "s3://mine/inputs/../secret",
        "s3://mine/inputs/./a",
        "s3://mine/inputs/\ud800",
        "s3://mine/inputs/a/../../b",
        "s3://mine/other/a",
        "s3://theirs/inputs/a",
        "s3://mine@theirs/inputs/a",
        "s3://mine/inputs",
        "s3:///etc/passwd",
        "s3://mine//inputs/a",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "/etc/passwd",
        "S3://mine/inputs/a",
    ]
)
uris = hostile | st.text(max_size=30).map(lambda text: f"s3://mine/inputs/{text}") | st.text()


@given(st.lists(uris, min_size=1, max_size=4))
def test_an_item_comes_from_a_declared_prefix_or_not_at_all(
    values: list[str],
) -> None:
    source = Observed()
    with TemporaryDirectory() as directory, ThreadPoolExecutor(1) as pool:
        scratch = Path(directory) / "inputs"
        batch = Prefetch(values, inputs=source, scratch=scratch, executor=pool).take(
            range(len(values))
        )
        for uri, path in source.fetched:
            assert uri.startswith("s3://mine/inputs/")
            assert path.resolve().parent.parent == scratch.resolve()
            assert path.parent.name.isdecimal()
    for item in batch.items:
        assert (item.path is not None) == str(item.value).startswith("s3://")
    assert len(batch.items) + len(batch.failed) == len(values)


@pytest.mark.parametrize(
    "extra",
    [
        {"code": "s3://theirs/code.zip"},
        {"entrypoint": "os:system"},
        {"command": ["sh", "-c", "id"]},
        {"image": "theirs:latest"},
        {"env": {"LD_PRELOAD": "x"}},
        {"code_digest": "d"},
        {"owner": "i-1/0"},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_a_message_chooses_no_code(extra: dict[str, object]) -> None:
    with pytest.raises(ContractError) as caught:
        parse_job(json.dumps({"items": ["a"], **extra}))
    assert caught.value.field.removeprefix("message.") in extra


@pytest.mark.parametrize("job_id", ["..", ".", "a/b", "../a", "", "a\\b", "a\0", "é", "x" * 129])
def test_an_id_is_never_a_path(job_id: str) -> None:
    with pytest.raises(ContractError, match="job_id"):
        parse_job(json.dumps({"items": ["a"], "job_id": job_id}))


@pytest.mark.parametrize("name", ["items_uri", "prefix_uri"])
@pytest.mark.parametrize(
    "uri",
    [
        "http://example.com/items.jsonl",
        "https://mine.s3.amazonaws.com/inputs/a",
        "file:///etc/passwd",
        "s3://MINE/inputs/a",
        "s3://arn:aws:s3:us-east-1:1:accesspoint/a",
        "s3://mine",
        "s3://-mine/a",
    ],
)
def test_a_source_is_an_address_in_s3(name: str, uri: str) -> None:
    with pytest.raises(ContractError, match=name):
        parse_job(json.dumps({name: uri}))


@pytest.mark.parametrize(
    "uri",
    [
        "s3://theirs/inputs/a",
        "s3://inputs/../theirs",
        "s3://inputs-of-others/a",
        "s3://inputs/\ud800",
    ],
)
@pytest.mark.parametrize("name", ["items_uri", "prefix_uri"])
def test_a_list_outside_of_what_is_declared_is_not_read(name: str, uri: str) -> None:
    world = WorkWorld(sources={uri: b'"a"\n'})
    job = JobMessage(**{name: uri, "job_id": "j"})  # type: ignore[arg-type]
    with pytest.raises((ContractError, AccessDenied)):
        settle_items(job, world.ports)
    with pytest.raises(NotFound):
        world.objects.get("jobs/j/items.jsonl")


@pytest.fixture
def listed() -> WorkWorld:
    return WorkWorld(sources={"s3://inputs/a": b"", "s3://inputs/../b": b"", "s3://inputs/c/": b""})


def test_a_listed_key_that_climbs_out_fails_its_item_alone(
    listed: WorkWorld, tmp_path: Path
) -> None:
    values = settle_items(JobMessage(prefix_uri="s3://inputs/", job_id="j"), listed.ports)
    with ThreadPoolExecutor(1) as pool:
        prefetch = Prefetch(values, inputs=listed.ports.inputs, scratch=tmp_path, executor=pool)
        batch = prefetch.take(range(len(values)))
    assert [item.value for item in batch.items] == ["s3://inputs/a"]
    [said] = batch.failed.values()
    assert said.startswith("uri is 's3://inputs/../b': ")


def test_a_local_copy_keeps_the_letters_of_its_name(tmp_path: Path) -> None:
    uris = ["s3://inputs/dök 1.txt", f"s3://inputs/{'ö' * 300}.txt"]
    world = WorkWorld(sources=dict.fromkeys(uris, b""))
    with ThreadPoolExecutor(1) as pool:
        prefetch = Prefetch(uris, inputs=world.ports.inputs, scratch=tmp_path, executor=pool)
        first, long = prefetch.take(range(2)).items

    assert first.path is not None
    assert long.path is not None
    assert first.path.name == "dök_1.txt"
    assert long.path.name == f"{'ö' * 98}.txt"

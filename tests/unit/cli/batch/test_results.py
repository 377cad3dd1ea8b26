"""What ``spindown results`` prints is JSON on every screen, and no terminal obeys it."""

import hashlib
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import typer
from moto import mock_aws

from spindown.cli import results
from spindown.contract.codec import encode
from spindown.contract.job.batch import Batch, batch_key
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.ec2sim import MemoryClock
from spindown.error import BadInput
from spindown.job.result import read_progress
from spindown.memory.store import MemoryObjectStore
from spindown.operate.record_file import RecordFormat
from tests.builders import NOW
from tests.unit.cli.batch.account import Account

#: What a program may print before it dies.
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202e\ud800"


class Terminal(io.StringIO):
    """A screen that a person looks at."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
@pytest.mark.parametrize("item", ["plain", "\u6f22\u5b57", "caf\u00e9", "\ud800"])
def test_a_record_reads_back_whatever_the_screen_can_spell(encoding: str, item: str) -> None:
    screen = io.TextIOWrapper(io.BytesIO(), encoding=encoding)

    with redirect_stdout(screen):
        screen.write(results.to_json({"item": item}))

    screen.seek(0)
    assert json.loads(screen.read()) == {"item": item}


def test_no_terminal_obeys_why_a_job_was_given_up() -> None:
    store = MemoryObjectStore(MemoryClock())
    lost = Manifest(job_id="j", epoch=1, owner="", state=JobState.FAILED, reason=HOSTILE)
    store.put(manifest_key("j"), encode_manifest(lost))

    with redirect_stdout(Terminal()) as screen:
        results._print_progress(read_progress("j", store), NOW, as_json=False)

    assert screen.getvalue().strip("\n").isprintable()
    assert r"\x1b[2J" in screen.getvalue()


def test_no_terminal_obeys_a_record() -> None:
    with redirect_stdout(Terminal()):
        said = results.to_json({"item": HOSTILE})

    assert said.isprintable()
    assert json.loads(said) == {"item": HOSTILE}


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with mock_aws():
        yield Account(tmp_path)


def test_one_job_that_cannot_be_read_hides_no_other(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = ("b-00000", "b-00001", "b-00002")
    batch = Batch(batch_id="b", workload="ocr", jobs=jobs)
    account.store(batch_key("b"), json.dumps(encode(batch)).encode())
    for job_id in jobs:
        text = "{oops" if job_id == jobs[1] else json.dumps({"job_id": job_id, "index": 0})
        account.commit(job_id, text.encode() + b"\n")

    with pytest.raises(typer.Exit) as end:
        results.results("b", config=account.config)

    assert end.value.exit_code == 1
    said = capsys.readouterr()
    assert [json.loads(line)["job_id"] for line in said.out.splitlines()] == [jobs[0], jobs[2]]
    assert said.err.startswith(f"spindown: {jobs[1]}: ")


def test_a_child_that_cannot_be_read_hides_no_other(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    children = tuple(f"j.{n:05}" for n in range(3))
    parent = Manifest(job_id="j", epoch=1, owner="", state=JobState.SPLIT, children=children)
    account.store(manifest_key("j"), encode_manifest(parent))
    for child in children:
        text = "{oops" if child == children[1] else json.dumps({"job_id": child, "index": 0})
        account.commit(child, text.encode() + b"\n")

    with pytest.raises(typer.Exit):
        results.results("j", config=account.config)

    said = capsys.readouterr()
    found = [json.loads(line)["job_id"] for line in said.out.splitlines()]
    assert found == [children[0], children[2]]
    assert said.err.startswith(f"spindown: {children[1]}: ")


def a_batch(account: Account) -> None:
    """Leave a batch of two jobs: one item with a file, one that failed."""
    made = b"made"
    key = "jobs/b-00000/parts/0/0/a.txt"
    output = {"path": "a.txt", "key": key, "bytes": 4, "sha256": hashlib.sha256(made).hexdigest()}
    good = {"job_id": "b-00000", "index": 0, "item": 1, "status": "ok", "outputs": [output]}
    bad = {"job_id": "b-00001", "index": 0, "item": HOSTILE, "status": "failed"}
    batch = Batch(batch_id="b", workload="ocr", jobs=("b-00000", "b-00001"), items=2)
    account.store(key, made)
    account.store(batch_key("b"), json.dumps(encode(batch)).encode())
    account.commit("b-00000", json.dumps(good).encode())
    lines = "\n  boom \x1b[2J\nmore"
    account.commit("b-00001", json.dumps({**bad, "error": lines}).encode(), failed=1)


def test_a_batch_is_waited_for_and_fetched_with_its_files(
    account: Account, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a_batch(account)
    folder = tmp_path / "got"

    def fetch() -> None:
        results.results("b", wait=True, download=folder, config=account.config)

    with pytest.raises(typer.Exit) as end:
        fetch()

    assert end.value.exit_code == 1
    why = capsys.readouterr().err.splitlines()[-1]
    assert "1 failed item, hence exit status 1; see why: spindown results b --failed" in why
    lines = (folder / "results.jsonl").read_text().splitlines()
    assert [json.loads(line)["job_id"] for line in lines] == ["b-00000", "b-00001"]
    assert (folder / "files" / "b-00000" / "0" / "a.txt").read_bytes() == b"made"
    with pytest.raises(BadInput, match="--overwrite"):
        fetch()


def test_failed_items_are_a_line_each_and_fail_the_command(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    a_batch(account)

    with pytest.raises(typer.Exit):
        results.results("b", failed=True, config=account.config)
    results.results("b-00000", config=account.config)

    brief, good = capsys.readouterr().out.splitlines()
    assert brief.startswith("b-00001  0  ")
    assert brief.endswith(r"  boom \x1b[2J")
    assert json.loads(good)["job_id"] == "b-00000"


def test_parquet_has_no_place_on_a_screen(account: Account) -> None:
    with pytest.raises(BadInput, match="--download"):
        results.results("b", output=RecordFormat.PARQUET, config=account.config)


def test_why_a_batch_was_cancelled_is_told(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = Batch(batch_id="b", workload="ocr", jobs=("b-00000",), items=1, after="a")
    account.store(batch_key("b"), json.dumps(encode(batch)).encode())
    job = Manifest(
        job_id="b-00000", epoch=0, owner="", state=JobState.CANCELLED, reason="a has failed"
    )
    account.store(manifest_key(job.job_id), encode_manifest(job))

    with pytest.raises(typer.Exit):
        results.results("b", config=account.config)

    said = capsys.readouterr().err
    assert "a has failed" in said
    assert "spindown status b" in said

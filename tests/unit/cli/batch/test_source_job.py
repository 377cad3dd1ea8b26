"""Jobs that sources made are in no batch: ``spindown batches --sources`` lists them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from spindown.cli.batches import batches
from spindown.cli.explain.status import status
from spindown.contract.job.manifest import JobState, Manifest, Part, encode_manifest, manifest_key
from spindown.error import BadInput
from tests.unit.cli.batch.account import Account


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with mock_aws():
        yield Account(tmp_path)


def leave(account: Account, number: int, *, failed: int = 0) -> str:
    job_id = f"s3-{number:032x}"
    part = Part(key=f"jobs/{job_id}/p", first=0, last=0, bytes=1, sha256="", failed=failed)
    job = Manifest(
        job_id=job_id,
        epoch=1,
        owner="i-1/0",
        state=JobState.COMPLETED,
        items=1,
        next_item=1,
        parts=(part,),
        source=f"s3://scans/{number}.png",
    )
    account.store(manifest_key(job_id), encode_manifest(job))
    account.store(part.key, b"x")
    return job_id


def test_jobs_of_sources_are_counted_and_listed(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [leave(account, 1), leave(account, 2, failed=1)]

    batches(sources=True, config=account.config)

    said = capsys.readouterr().out
    assert "2 jobs of S3 events that workers have claimed: 1 completed, 1 failed" in said
    for number, job_id in enumerate(jobs, 1):
        assert job_id in said
        assert f"s3://scans/{number}.png" in said


def test_a_batch_named_like_them_is_none_of_them(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "s3-beef-00000"
    job = Manifest(job_id=name, epoch=1, owner="i-1/0", state=JobState.COMPLETED, items=1)
    account.store(manifest_key(name), encode_manifest(job))
    batches(config=account.config)
    hint = capsys.readouterr().err
    leave(account, 1)
    batches(config=account.config)

    assert "--sources" not in hint
    assert "--sources" in capsys.readouterr().err
    batches(sources=True, config=account.config)
    assert name not in capsys.readouterr().out


def test_programs_get_the_jobs_of_sources(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = leave(account, 1, failed=1)

    batches(sources=True, config=account.config, as_json=True)

    (found,) = json.loads(capsys.readouterr().out)
    assert found["workload"] == "ocr"
    assert (found["job_id"], found["source"], found["state"]) == (
        job_id,
        "s3://scans/1.png",
        "failed",
    )


def test_without_jobs_of_sources_that_is_said(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    batches(sources=True, config=account.config)

    assert capsys.readouterr().out == ("ocr: no job of an S3 event was claimed by a worker yet\n")


def test_an_object_of_no_job_is_said(account: Account) -> None:
    with pytest.raises(BadInput, match=r"spindown batches --sources"):
        status(["s3://scans/1.png"], config=account.config)

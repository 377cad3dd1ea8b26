"""A batch or a job is found in the workload that has it, and asked for where several have one."""

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from moto import mock_aws

from spindown.cli.cancel import cancel
from spindown.cli.logs import logs
from spindown.cli.results import results
from spindown.cli.session import open_session
from spindown.contract.codec import encode
from spindown.contract.job.manifest import (
    JobState,
    Manifest,
    encode_manifest,
    manifest_key,
)
from spindown.domain.retry_or_dead_letter import Failure
from spindown.error import BadInput
from spindown.job.attachment.log import keep_log
from spindown.job.submit import Draft, submit_items
from spindown.port import ObjectStore
from spindown.reason_text import say_next_try
from tests.builders import NOW
from tests.unit.cli.batch.account import Account

Command = Callable[..., None]


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with mock_aws():
        yield Account(tmp_path, "render")


def store_of(account: Account, workload: str) -> ObjectStore:
    return open_session(account.config, deployment=None, local=False).work_store(workload)


def leave(account: Account, workload: str, job_id: str, **changes: Any) -> None:
    """Leave a job that a worker has begun."""
    values: dict[str, Any] = {"epoch": 1, "owner": "i-1/0", "state": JobState.RUNNING, **changes}
    begun = encode_manifest(Manifest(job_id=job_id, **values))
    store_of(account, workload).put(manifest_key(job_id), begun)


def submit(account: Account, workload: str) -> None:
    """Submit a batch of two jobs."""
    session = open_session(account.config, deployment=None, local=False)
    draft = Draft(workload=workload, batch_id="b-1", items_per_job=1)
    store, queue = session.work_store(workload), session.queue(workload)
    submit_items(range(2), draft, queue=queue, store=store)


def state_of(account: Account, workload: str, job_id: str) -> bytes:
    return store_of(account, workload).get(manifest_key(job_id)).data


def show(name: str, **options: object) -> None:
    results(name, summary=True, **options)  # type: ignore[arg-type]


def end(name: str, **options: object) -> None:
    cancel([name], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", [show, end])
def test_which_of_two_jobs_of_one_name_is_meant_must_be_said(
    account: Account, command: Command
) -> None:
    leave(account, "ocr", "first")
    leave(account, "render", "first")
    before = [state_of(account, each, "first") for each in ("ocr", "render")]

    with pytest.raises(BadInput, match=r"'first': say with --workload which one .*: ocr, render"):
        command("first", config=account.config)

    assert [state_of(account, each, "first") for each in ("ocr", "render")] == before


def test_the_named_job_is_cancelled_and_the_other_goes_on(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(account, "ocr")
    submit(account, "render")

    cancel(["b-1"], workload="render", config=account.config)
    capsys.readouterr()
    show("b-1-00000", workload="ocr", config=account.config)
    # What was cancelled has no results, and a program is to see that.
    with pytest.raises(typer.Exit):
        show("b-1-00000", workload="render", config=account.config)

    states = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert states == ["waiting", "cancelled"]


@pytest.mark.parametrize("command", [show, end])
@pytest.mark.parametrize(
    ("workload", "says"),
    [
        pytest.param("ocr", "name a batch or a job that was submitted", id="another has it"),
        pytest.param("paint", "name one of the deployment's: ocr, render", id="no such workload"),
    ],
)
def test_a_workload_without_such_a_job_ends_the_search(
    account: Account, command: Command, workload: str, says: str
) -> None:
    leave(account, "render", "first")

    with pytest.raises(BadInput, match=says):
        command("first", workload=workload, config=account.config)


def test_a_job_that_nobody_has_claimed_counts_as_submitted(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(account, "render")

    results("b-1-00001", summary=True, config=account.config)
    results("b-1-00001", config=account.config)

    told = capsys.readouterr()
    assert told.out == "b-1-00001  waiting  0 items done  $0 at work\n"
    assert told.err == "spindown: b-1-00001 is waiting: no worker has claimed it yet\n"


def test_a_job_that_nobody_holds_waits_and_tells_its_failures(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = Failure(at=NOW, instance_id="i-1", epoch=1, kind="failure", reason="no such module")
    leave(account, "ocr", "a", failures=(failure,), released=True)

    show("a", config=account.config)
    show("a", config=account.config, as_json=True)

    line, as_json = capsys.readouterr().out.splitlines()
    assert line.startswith("a  waiting  ")
    assert line.endswith(f"1 failure; last: no such module; {say_next_try(None, NOW)}")
    assert json.loads(as_json)["is_held"] is False
    assert json.loads(as_json)["next_try_at"] is None


def test_a_job_that_was_put_back_tells_its_next_try(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    failure = Failure(at=NOW, instance_id="i-1", epoch=1, kind="failure", reason="no such module")
    leave(account, "ocr", "a", failures=(failure,), released=True)
    account.put_back("a", at)

    show("a", config=account.config)
    show("a", config=account.config, as_json=True)
    logs("a", config=account.config)

    said = capsys.readouterr()
    line, as_json = said.out.splitlines()
    when = f"{at:%H:%M:%S}"
    assert when in say_next_try(at, NOW)
    assert [when in one for one in (line, said.err)] == [True, True]
    assert json.loads(as_json)["next_try_at"] == encode(at)


def test_an_attempt_whose_worker_was_lost_has_no_output(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(account, "ocr", "a", epoch=3, lost_epochs=(1,))
    keep_log("a", 2, b"hello", store_of(account, "ocr"))

    logs("a", config=account.config, as_json=True)

    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["attempt"], one["event"], one.get("value")) for one in told] == [
        (1, "lost", None),
        (2, "user_output", "hello"),
    ]


def test_lost_attempts_that_are_not_shown_are_told(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(account, "ocr", "a", epoch=9999, lost_epochs=tuple(range(1, 1001)))

    logs("a", config=account.config, as_json=True)

    first, *others = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (first["event"], first["attempts"]) == ("lost_left_out", 900)
    assert [one["attempt"] for one in others] == list(range(901, 1001))


def test_no_terminal_obeys_what_code_has_printed(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(account, "ocr", "a", state=JobState.COMPLETED)
    hostile = "\x1b]0;owned\x07\x1b[2J\x9b2J\u202e".encode()
    keep_log("a", 1, hostile + b"\ttab\rback\nnext\n", store_of(account, "ocr"))

    logs("a", config=account.config)

    title, first, last = capsys.readouterr().out.splitlines()
    assert title.isprintable()
    assert first.replace("\t", "").isprintable()
    assert "owned" in first
    assert last == "next"


@pytest.mark.parametrize(
    ("ended", "status"),
    [({"state": JobState.COMPLETED}, 0), ({"state": JobState.FAILED}, 1)],
    ids=["completed", "failed"],
)
def test_to_follow_ends_as_the_job_does(
    account: Account, capsys: pytest.CaptureFixture[str], ended: dict[str, Any], status: int
) -> None:
    leave(account, "ocr", "a", **ended)

    with pytest.raises(typer.Exit) if status else nullcontext() as exit_:
        logs("a", follow=True, config=account.config, as_json=True)

    assert (exit_.value.exit_code if exit_ else 0) == status
    (end_,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert end_["state"] == ended["state"]


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"state": JobState.COMPLETED}, 0), ({"state": JobState.FAILED}, 1), ({}, 0)],
    ids=["completed", "failed", "running"],
)
def test_logs_end_with_a_line_and_a_status(
    account: Account, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], status: int
) -> None:
    leave(account, "ocr", "a", **changes)

    with pytest.raises(typer.Exit) if status else nullcontext() as exit_:
        logs("a", config=account.config)

    assert (exit_.value.exit_code if exit_ else 0) == status
    assert f"1 job {changes.get('state', JobState.RUNNING)}" in capsys.readouterr().err


def test_the_log_of_nobody_is_a_mistake(account: Account) -> None:
    with pytest.raises(BadInput, match="'nobody'"):
        logs("nobody", config=account.config)


def test_a_message_of_no_job_is_looked_for_among_dead_letters(account: Account) -> None:
    with pytest.raises(BadInput, match="redrive ocr --list"):
        show("4b0c7d2e-0000-4000-8000-000000000001", workload="ocr", config=account.config)

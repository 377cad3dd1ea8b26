"""The command that sends dead letters back, on a simulated account."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from moto import mock_aws

from spindown.cli.redrive import redrive
from spindown.cli.session import find_workload, open_session
from spindown.cli.submit import submit
from spindown.contract.job.batch import batch_key
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.contract.job.message import JobMessage, encode_job, encode_stored, stored_key
from spindown.error import BadInput, SpindownError
from spindown.job.submit import Draft, submit_items
from tests.unit.cli.batch.account import Account


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with mock_aws():
        yield Account(tmp_path)


def test_sends_back_what_lies_there_and_says_why_it_did(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.bury("a")

    redrive("ocr", config=account.config)

    assert capsys.readouterr().out == "a: sent back (given up: no such model)\n"
    assert (account.waiting(account.queue), account.waiting(account.dead_letters)) == (1, 0)


def test_a_job_that_is_still_forbidden_is_left_and_counted(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.bury("a")
    account.bury_text(json.dumps({"job_id": "b", "items": [1], "type": "huge"}))

    with pytest.raises(typer.Exit):
        redrive("ocr", config=account.config)

    said = capsys.readouterr()
    assert "a: sent back" in said.out
    assert "b: left where it is" in said.out
    assert "1 job is left, since ocr still refuses" in said.err
    assert account.waiting(account.dead_letters) == 1


def test_dead_letters_are_listed_and_none_is_sent(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.bury("a")
    account.bury("b")

    redrive("ocr", ["a"], list_=True, config=account.config)
    assert capsys.readouterr().out.startswith("a  message ")
    redrive("ocr", list_=True, config=account.config, as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["job_id"], one["letter_reason"]) for one in told] == [
        ("a", "no such model"),
        ("b", "no such model"),
    ]
    assert account.waiting(account.dead_letters) == 2
    with pytest.raises(BadInput, match="'c'"):
        redrive("ocr", ["c"], list_=True, config=account.config)


def test_prints_for_programs(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.bury("a")

    redrive("ocr", config=account.config, as_json=True)

    said = json.loads(capsys.readouterr().out)
    assert said.pop("message_id")
    assert said == {"job_id": "a", "outcome": "sent", "reason": "no such model"}


def test_names_a_job_that_is_not_there(account: Account) -> None:
    account.bury("a")

    with pytest.raises(BadInput, match="JOB is 'b': name jobs in the dead-letter queue"):
        redrive("ocr", ["b"], config=account.config)

    assert account.waiting(account.dead_letters) == 1


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (JobState.RUNNING, "waiting"),
        (JobState.CANCELLED, "cancelled"),
        (JobState.FAILED, "given up"),
    ],
)
def test_a_job_without_a_letter_is_told_as_it_is(
    account: Account, state: JobState, word: str
) -> None:
    job = Manifest(job_id="a", epoch=1, owner="i-1/0", state=state, items=1, released=True)
    account.store(manifest_key("a"), encode_manifest(job))

    with pytest.raises(BadInput, match=word):
        redrive("ocr", ["a"], config=account.config)


def test_a_letter_that_is_left_where_it_is_fails_the_command(account: Account) -> None:
    account.bury_text("no job")

    with pytest.raises(typer.Exit) as ended:
        redrive("ocr", config=account.config)

    assert ended.value.exit_code == 1


def test_sends_again_what_a_purge_has_deleted(
    account: Account, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.txt"
    file.write_text("x")
    submit("ocr", [str(file)], batch="monday", config=account.config)
    account.take(delete=True)
    capsys.readouterr()

    redrive("ocr", ["monday"], lost=True, config=account.config, as_json=True)

    said = json.loads(capsys.readouterr().out)
    assert (said["job_id"], said["outcome"]) == ("monday-00000", "sent-again")
    assert account.take()["job_id"] == "monday-00000"


def test_removes_what_is_no_job_only_if_asked(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.bury_text("no \x1b[2J job")

    with pytest.raises(typer.Exit) as ended:
        redrive("ocr", malformed=True, config=account.config)
    assert ended.value.exit_code == 1
    assert capsys.readouterr().out.strip().isprintable()
    assert account.waiting(account.dead_letters) == 1

    redrive("ocr", malformed=True, remove=True, config=account.config, as_json=True)
    removed = json.loads(capsys.readouterr().out)
    assert (removed["body"], removed["removed"]) == ("no \x1b[2J job", True)
    assert account.waiting(account.dead_letters) == 0


def test_a_dead_letter_has_one_id_in_all_commands(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.bury_text("no job", original="4b0c7d2e-0000-4000-8000-000000000001")
    account.bury_text("none either")

    redrive("ocr", list_=True, config=account.config, as_json=True)
    listed = [json.loads(one)["message_id"] for one in capsys.readouterr().out.splitlines()]
    for malformed in (False, True):
        with pytest.raises(typer.Exit):
            redrive("ocr", malformed=malformed, config=account.config, as_json=True)
        told = [json.loads(one)["message_id"] for one in capsys.readouterr().out.splitlines()]
        assert sorted(told) == sorted(listed)

    redrive("ocr", listed[:1], malformed=True, remove=True, config=account.config)
    assert account.waiting(account.dead_letters) == 1


@pytest.mark.parametrize(
    ("lost", "items", "remove"),
    [
        pytest.param(True, True, False, id="two at a time"),
        pytest.param(False, False, True, id="remove alone"),
        pytest.param(False, True, False, id="no batch"),
    ],
)
def test_options_that_do_not_go_together_do_nothing(
    account: Account, *, lost: bool, items: bool, remove: bool
) -> None:
    account.bury("a")

    with pytest.raises(BadInput):
        redrive("ocr", lost=lost, items=items, remove=remove, config=account.config)

    assert account.waiting(account.dead_letters) == 1


@pytest.mark.parametrize("how", [{}, {"lost": True}, {"malformed": True}, {"list_": True}])
def test_nothing_to_redrive_is_said(
    account: Account, capsys: pytest.CaptureFixture[str], how: dict[str, Any]
) -> None:
    redrive("ocr", config=account.config, **how)

    assert "ocr has no " in capsys.readouterr().err


def test_a_batch_names_what_sends_its_failed_items(account: Account) -> None:
    session = open_session(account.config, deployment=None, local=False)
    draft = Draft(workload="ocr", batch_id="b", items_per_job=1)
    store, queue = session.work_store("ocr"), session.queue("ocr")
    submit_items([1, 2], draft, queue=queue, store=store)

    with pytest.raises(BadInput, match="`spindown redrive ocr --items b`"):
        redrive("ocr", ["b"], config=account.config)
    with pytest.raises(BadInput) as caught:
        redrive("ocr", ["a", "b"], config=account.config)
    assert "--items b" not in str(caught.value), "it is not the first that is shown"


def send(account: Account, items: list[Any]) -> None:
    """Send a batch of the name b, one item a job."""
    session = open_session(account.config, deployment=None, local=False)
    draft = Draft(workload="ocr", batch_id="b", items_per_job=1)
    submit_items(items, draft, queue=session.queue("ocr"), store=session.work_store("ocr"))


@pytest.mark.parametrize("items", [False, True], ids=["as jobs", "as items"])
def test_a_batch_with_jobs_given_up_names_what_sends_them(account: Account, *, items: bool) -> None:
    send(account, [1, 2, 3, 4, 5])
    for number in range(4):
        given_up = Manifest(
            job_id=f"b-{number:05}", epoch=1, owner="i-1/0", state=JobState.FAILED, items=1
        )
        account.store(manifest_key(given_up.job_id), encode_manifest(given_up))

    command = "`spindown redrive ocr b-00000 b-00001 b-00002` and for 1 more"
    with pytest.raises(BadInput, match=command):
        redrive("ocr", ["b"], items=items, config=account.config)


def test_failed_items_that_were_sent_name_their_batch(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    send(account, [1])
    record = {"job_id": "b-00000", "index": 0, "item": 1, "status": "failed", "error": "boom"}
    account.commit("b-00000", f"{json.dumps(record)}\n".encode(), failed=1)
    redrive("ocr", ["b"], items=True, config=account.config)
    first, waiting = capsys.readouterr().out, account.waiting(account.queue)

    redrive("ocr", ["b"], items=True, config=account.config)

    assert "b-again: 1 item" in first
    assert capsys.readouterr().out == first
    assert account.waiting(account.queue) == waiting


def test_items_whose_sending_broke_off_name_what_sends_them(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    item = "x" * 2000
    send(account, [item])
    record = {"job_id": "b-00000", "index": 0, "item": item, "status": "failed", "error": "boom"}
    account.commit("b-00000", f"{json.dumps(record)}\n".encode(), failed=1)
    account.take_at_most(1024)
    lost = f"spindown redrive ocr --lost b-again --config {account.config}"

    with pytest.raises(SpindownError):
        redrive("ocr", ["b"], items=True, config=account.config)
    assert lost in capsys.readouterr().err
    redrive("ocr", ["b"], items=True, config=account.config)
    assert lost in capsys.readouterr().err


def test_a_split_job_is_named_for_its_children(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    body = JobMessage(items=(1,), job_id="b-00000.00000", parent="b-00000")
    data, child = encode_stored(body)
    account.bury_text(encode_job(child))

    redrive("ocr", ["b-00000"], list_=True, config=account.config)
    listed = capsys.readouterr().out
    with pytest.raises(typer.Exit):
        redrive("ocr", ["b-00000"], config=account.config)

    unread = capsys.readouterr().out
    account.store(stored_key("b-00000.00000", child.stored or ""), data)
    redrive("ocr", ["b-00000"], config=account.config, as_json=True)

    assert listed.startswith("b-00000.00000  message ")
    assert unread.startswith("b-00000.00000, message ")
    assert json.loads(capsys.readouterr().out)["outcome"] == "sent"


def test_a_damaged_batch_hides_no_error_about_its_name(account: Account) -> None:
    store = open_session(account.config, deployment=None, local=False).work_store("ocr")
    store.put(batch_key("b"), b"{")

    with pytest.raises(BadInput, match="JOB is 'b'"):
        redrive("ocr", ["b"], config=account.config)


@pytest.mark.parametrize(("argument", "told"), [("BATCH", True), ("BATCH or INSTANCE", False)])
def test_an_instance_is_told_of_where_it_may_be_named(
    account: Account, argument: str, *, told: bool
) -> None:
    session = open_session(account.config, deployment=None, local=False)
    name = "i-0123456789abcdef0"

    with pytest.raises(BadInput) as caught:
        find_workload(session, name, workload=None, argument=argument)

    assert (f"spindown logs {name}" in str(caught.value)) is told


def test_a_batch_in_place_of_the_workload_is_told(account: Account) -> None:
    with pytest.raises(BadInput, match=r"workload is 'b': .*`spindown redrive ocr --items b`"):
        redrive("b", items=True, config=account.config)


def test_who_finds_no_dead_letter_is_told_of_failed_items(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    redrive("ocr", config=account.config)

    assert "spindown redrive ocr --items BATCH --config" in capsys.readouterr().err

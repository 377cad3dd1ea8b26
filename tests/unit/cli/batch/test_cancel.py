"""The command that cancels jobs, on a simulated account."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from moto import mock_aws

from spindown.cli.cancel import cancel, describe
from spindown.cli.session import open_session
from spindown.contract.job.manifest import JobState, manifest_key
from spindown.error import BadInput
from spindown.job.cancel import Cancelled, CancelOutcome
from spindown.job.submit import Draft, submit_items
from tests.unit.cli.batch.account import Account
from tests.work import NEWER_MANIFEST


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with mock_aws():
        yield Account(tmp_path)


def submit(account: Account, count: int) -> None:
    session = open_session(account.config, deployment=None, local=False)
    draft = Draft(workload="ocr", batch_id="b-1", items_per_job=1)
    store, queue = session.work_store("ocr"), session.queue("ocr")
    submit_items(range(count), draft, queue=queue, store=store)


def test_cancels_one_job_of_a_batch_and_then_the_rest(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(account, 3)

    cancel(["b-1-00001"], config=account.config)
    said = capsys.readouterr()
    assert said.out == "b-1-00001: cancelled\n"
    assert said.err.startswith("spindown: 1 ")
    assert account.waiting(account.queue) == 2

    cancel(["b-1"], config=account.config)
    assert capsys.readouterr().out == (
        "b-1-00000: cancelled\nb-1-00001: already cancelled\nb-1-00002: cancelled\n"
    )
    assert account.waiting(account.queue) == 0


def test_says_that_a_worker_drops_its_job_later() -> None:
    held = Cancelled(
        job_id="j", outcome=CancelOutcome.CANCELLED, state=JobState.CANCELLED, was_held=True
    )

    assert describe(held) == "j: cancelled; its worker drops it within a `heartbeat_interval`"


def test_prints_for_programs(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    submit(account, 1)

    cancel(["b-1"], config=account.config, as_json=True)

    said = json.loads(capsys.readouterr().out)
    assert (said["job_id"], said["outcome"]) == ("b-1-00000", "cancelled")


def test_cancels_what_it_can_and_names_what_is_too_new(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(account, 2)
    store = open_session(account.config, deployment=None, local=False).work_store("ocr")
    store.put(manifest_key("b-1-00000"), NEWER_MANIFEST)

    with pytest.raises(typer.Exit) as ended:
        cancel(["b-1"], config=account.config)

    assert ended.value.exit_code == 1
    assert capsys.readouterr().out == (
        "b-1-00000: not cancelled: a later version wrote it, so that version must cancel it\n"
        "b-1-00001: cancelled\n"
    )


def test_touches_nothing_if_one_name_is_not_known(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(account, 1)

    with pytest.raises(BadInput, match=r"'b-2': name a batch or a job that was"):
        cancel(["b-1", "b-2"], config=account.config)
    assert "nothing was cancelled" in capsys.readouterr().err
    with pytest.raises(BadInput):
        cancel(["b-2"], config=account.config)
    assert capsys.readouterr().err == ""

    assert account.waiting(account.queue) == 1


def test_a_job_with_failed_items_has_failed_already(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.commit("a", b"{}\n", failed=1)

    cancel(["a"], config=account.config)
    assert capsys.readouterr().out == "a: already failed\n"
    cancel(["a"], config=account.config, as_json=True)
    assert json.loads(capsys.readouterr().out)["state"] == "failed"


def test_an_instance_is_looked_at_by_its_log(account: Account) -> None:
    with pytest.raises(BadInput, match="`spindown logs i-0a1b2c3d`"):
        cancel(["i-0a1b2c3d"], config=account.config)

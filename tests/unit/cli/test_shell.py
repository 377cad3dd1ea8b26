"""A shell on a worker: what is refused, and what the aws command line is asked for."""

import subprocess
import sys
from pathlib import Path

import pytest

from spindown.cli.shell import (
    check_id,
    check_setting,
    find_programs,
    find_worker,
    session_command,
)
from spindown.domain.fleet import WorkerState
from spindown.error import BadInput
from spindown.ledger import LedgerView
from tests.builders import a_worker
from tests.unit.cli.batch.account import CONFIG

ROOT = Path(__file__).parents[3]
HERE = "i-0123456789abcdef0"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "i-1",
        "i-0123456789abcdef0;id",
        "i-0123456789ABCDEF0",
        "--profile=x",
        "i-01234567\n",
        "mi-01234567",
    ],
)
def test_what_is_no_id_reaches_no_other_program(text: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_id(text)

    assert caught.value.field == "INSTANCE"


def test_says_where_session_manager_is_off(tmp_path: Path) -> None:
    config = tmp_path / "spindown.toml"
    (tmp_path / "code").mkdir()
    config.write_text(CONFIG, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        check_setting(config)
    config.write_text(
        CONFIG.replace("region =", "session_manager = true\nregion ="), encoding="utf-8"
    )
    check_setting(config)

    assert caught.value.field == "deployment.session_manager"


@pytest.mark.parametrize("missing", ["aws", "session-manager-plugin"])
def test_names_the_program_that_is_missing(missing: str) -> None:
    with pytest.raises(BadInput) as caught:
        find_programs(lambda name: None if name == missing else f"/bin/{name}")

    assert caught.value.field == missing


def test_asks_for_the_instance_in_its_own_region() -> None:
    command = session_command(a_worker(HERE))

    assert command[:3] == ["aws", "ssm", "start-session"]
    assert command[command.index("--target") + 1] == HERE
    assert command[command.index("--region") + 1] == a_worker(HERE).region


def test_finds_only_a_worker_that_runs() -> None:
    ended = a_worker("i-0123456789abcdef1", state=WorkerState.ENDED)
    here = a_worker(HERE)
    workers = {each.instance_id: each for each in (here, ended)}
    views = [LedgerView(), LedgerView(workers=workers)]

    assert find_worker(views, HERE).instance_id == HERE
    for other in (ended.instance_id, "i-0123456789abcdef2"):
        with pytest.raises(BadInput):
            find_worker(views, other)


def test_becomes_the_program_and_ends_as_it_ends(tmp_path: Path) -> None:
    stand_in = tmp_path / "aws"
    stand_in.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 7\n', encoding="utf-8")
    stand_in.chmod(0o755)
    script = (
        "from spindown.cli.shell import become;from tests.builders import a_worker;"
        f"become({str(stand_in)!r}, a_worker({HERE!r}))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=False, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == f"ssm|start-session|--target|{HERE}|--region|us-west-2|"

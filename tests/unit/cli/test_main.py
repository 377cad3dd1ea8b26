"""Whatever goes wrong, the user reads one sentence and no traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from spindown.cli.main import main

CONFIG = """
[deployment]
name = "here"
region = "us-east-1"
zones = ["us-east-1a"]

[workload.count.run]
entrypoint = "count:run"
code = "code"
"""

#: What takes longest to import, and serves the local system or one command alone.
HEAVY = ("aws_cdk", "hypercorn", "ministack", "moto", "psutil", "spindown.local.system")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory with a spindown.toml, on a machine that knows no AWS account."""
    (tmp_path / "spindown.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "a-file").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command, which must fail; return what it says on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    return said.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["stauts"], "No such command 'stauts'", id="an unknown command"),
        pytest.param(["status", "--jsno"], "No such option: --jsno", id="an unknown option"),
        pytest.param(["plan"], "Missing argument", id="a missing argument"),
        pytest.param(
            ["plan", "count", "--backlog", "-1"], "Invalid value for '--backlog'", id="a number"
        ),
        pytest.param(
            ["local", "up", "--port", "70000"], "Invalid value for '--port'", id="no such port"
        ),
        pytest.param(
            ["status", "--config", "absent.toml"],
            "spindown.toml is 'absent.toml': give a readable file",
            id="no configuration",
        ),
        pytest.param(["status"], "credentials is not set: log in to AWS", id="no credentials"),
        pytest.param(["status", "--local"], "--local is '", id="no local system"),
        pytest.param(
            ["local", "status"], "no local system is up in .spindown: start", id="its status"
        ),
        pytest.param(
            ["local", "up", "--state", "a-file"],
            "state directory is '",
            id="a state directory that is a file",
        ),
        pytest.param(
            ["local", "up", "--state", "a-file/below"],
            "state directory is '",
            id="one that cannot be made",
        ),
        pytest.param(["submit", "count"], "sources is []: give exactly one", id="no sources"),
    ],
)
def test_a_mistake_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    said = told(capsys, *arguments)

    assert said.startswith(f"spindown: {sentence}")
    assert said.count("\n") == 1


def test_a_profile_that_does_not_exist_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")

    said = told(capsys, "status")

    assert said.startswith("spindown: AWS configuration is 'nobody': mend it: ")


def test_called_bare_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])

    said = capsys.readouterr()
    assert ended.value.code == 1
    assert "Usage:" in said.out
    assert said.err == ""


def test_help_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["status", "--help"])

    assert not ended.value.code
    assert "--json" in capsys.readouterr().out


def test_a_command_that_needs_no_local_system_does_not_load_it() -> None:
    look = f"import sys, spindown.cli.app; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)

    assert done.stdout == "[]\n"

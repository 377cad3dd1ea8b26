"""The command line of CDK that comes with Spindown, run in a project that init has written."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spindown.cli.init import init
from spindown.installed import cdk_command


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init(config=tmp_path / "spindown.toml", region="eu-west-1")
    path = tmp_path / "spindown.toml"
    path.write_text(path.read_text().replace(path.parent.name.lower(), "mine"))
    return tmp_path


def run(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {
        **os.environ,
        "CDK_HOME": str(project / "home"),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_VALIDATION": "false",
        # Not what a shell of the tests may find.
        "PATH": "/usr/bin:/bin",
    }
    command = [sys.executable, "-m", "spindown", *arguments]
    return subprocess.run(
        command, check=False, cwd=project, env=environment, capture_output=True, text=True
    )


def pinned() -> str:
    package = Path(cdk_command()[1]).parents[1] / "package.json"
    return str(json.loads(package.read_text())["version"])


@pytest.mark.parametrize("command", ["deploy", "destroy", "cdk"])
def test_the_pinned_version_gets_the_options(project: Path, command: str) -> None:
    done = run(project, command, "--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(pinned())


def test_its_exit_code_and_its_words_are_passed_on(project: Path) -> None:
    done = run(project, "cdk", "diff", "--app", "echo spoken >&2; exit 3")

    assert done.returncode == 1
    assert "spoken" in done.stderr


@pytest.mark.parametrize("app", ["of the project", "of nobody"])
def test_a_new_project_is_synthesised_as_it_stands(project: Path, app: str) -> None:
    if app == "of nobody":
        (project / "cdk.json").unlink()

    done = run(project, "cdk", "ls", "--no-notices")

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith(("-core", "-insight"))]

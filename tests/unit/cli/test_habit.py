"""What every command has in common: JSON for programs, and completions for the shell."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindown.cli.app import COMMANDS, load

SPINDOWN = Path(sys.executable).parent / "spindown"

#: Commands without --json, and why.
WITHOUT_JSON = {
    "deploy": "CDK prints",
    "destroy": "CDK prints",
    "cdk": "CDK prints",
    "dashboard": "a browser shows it",
    "docs": "a person reads",
    "local run": "results are JSON, and its code prints beside them",
    "shell": "a person types",
    "iam boundary": "it prints JSON alone",
    "iam deployer": "it prints JSON alone",
    "iam execution": "it prints JSON alone",
    "iam operator": "it prints JSON alone",
    "iam runner": "it prints JSON alone",
    "iam submitter": "it prints JSON alone",
    "iam verifier": "it prints JSON alone",
}


def commands() -> Iterator[tuple[str, Any]]:
    for name in COMMANDS:
        found = load(name)
        inner = getattr(found, "commands", {})
        yield from ((f"{name} {sub}", command) for sub, command in inner.items())
        if not inner:
            yield name, found


def test_every_command_speaks_json_or_says_why_not() -> None:
    without = {
        name
        for name, command in commands()
        if not any("--json" in parameter.opts for parameter in command.params)
    }

    assert without == set(WITHOUT_JSON)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        pytest.param("st", ["status"], id="a command"),
        pytest.param("results --down", ["--download"], id="an option"),
        pytest.param("local ", ["up", "run", "down", "status"], id="a command of a group"),
        pytest.param("policy hi", ["history"], id="the beginning of one"),
    ],
)
def test_the_shell_is_offered_what_may_follow(typed: str, offered: list[str]) -> None:
    words = f"spindown {typed}"
    asked = {
        "_SPINDOWN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run(
        [SPINDOWN], check=False, env=os.environ | asked, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == offered

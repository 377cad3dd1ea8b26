"""Options that several commands share, declared once."""

import re
import shlex
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer

Workload = Annotated[str, typer.Argument(help="Name of the workload in spindown.toml.")]
Workloads = Annotated[
    list[str] | None, typer.Argument(help="Workloads to show; all of the deployment if none.")
]
OfWorkload = Annotated[
    str | None, typer.Option("--workload", help="Which workload, if several have it.")
]
ConfigFile = Annotated[Path, typer.Option("--config", help="File that describes the deployment.")]
Deployment = Annotated[
    str | None, typer.Option("--deployment", help="Name of the deployment, in place of a file.")
]
Local = Annotated[bool, typer.Option("--local", help="Use the local system that is running.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Ended = Annotated[
    bool, typer.Option("--ended", help="Also instances that ended lately (always in --json).")
]

CONFIG_FILE = Path("spindown.toml")
#: Of the options with which another command finds the same deployment, the last.
LOCAL = " --local"

#: A command that a sentence names: `spindown status B-7`.
COMMAND = re.compile(r"`spindown ([a-z]+)[^`]*`")
#: Those that are of no deployment, or of a file alone.
_OF_NONE = frozenset({"cdk", "demo", "deploy", "destroy", "docs", "iam", "init", "local"})


def placed(found: re.Match[str], place: str) -> str:
    """Return a command with the options that name the deployment which is spoken of.

    Args:
        found: where ``COMMAND`` matches.
        place: the options, each with a space before it; "": none is needed.
    """
    command, name = found[0], found[1]
    is_asked_for_help = "--help" in command
    if not place or is_asked_for_help or name in _OF_NONE or place in command:
        return command
    head, dashes, rest = command[:-1].partition(" -- ")
    return f"{head}{place}{dashes}{rest}`"


def place_commands(text: str, place: str) -> str:
    """Return a text whose commands have the options that name the deployment."""
    return COMMAND.sub(lambda found: placed(found, place), text)


#: The options with which this process was told of its deployment.
GIVEN: ContextVar[str] = ContextVar("given", default="")


def place_given(text: str) -> str:
    """Return a text whose commands have the options that this process was given."""
    return place_commands(text, GIVEN.get())


def place_of(arguments: Sequence[str]) -> str:
    """Return the options of a command line that name a deployment, each with a space before it."""
    place, is_local, words = "", False, iter(arguments)
    for word in words:
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in {"--config", "--deployment", "--policy"}:
            # The commands that simulate take a file by both names.
            name = name.replace("policy", "config")
            place += f" {name} {shlex.quote(value if equals else next(words, ''))}"
        is_local = is_local or word == LOCAL.strip()
    return place + (LOCAL if is_local else "")

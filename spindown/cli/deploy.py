"""``spindown deploy``, ``destroy`` and ``cdk``: the command line of CDK that the wheel brings.

It takes this process over, so its output, its questions and its exit code are the command's.
"""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from spindown import config as configuration
from spindown.cli import option
from spindown.installed import cdk_command

#: What is not an option of ours goes to CDK.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}

Rest = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STACKS AND OPTIONS OF CDK]...", help="Passed on to cdk."),
]


def _make_app(name: str) -> typer.Typer:
    return typer.Typer(name=name, add_completion=False, rich_markup_mode=None)


deploy_app, destroy_app, cdk_app = map(_make_app, ("deploy", "destroy", "cdk"))


@deploy_app.command("deploy", context_settings=_PASSED_ON)
def deploy(rest: Rest = None, *, config: option.ConfigFile = option.CONFIG_FILE) -> None:
    """Deploy what spindown.toml describes, as the pinned `cdk deploy --all` does."""
    words = rest or []
    stacks = [] if _choose_stacks("deploy", words) else ["--all"]
    _run("deploy", *stacks, *words, config=config)


@destroy_app.command("destroy", context_settings=_PASSED_ON)
def destroy(rest: Rest = None, *, config: option.ConfigFile = option.CONFIG_FILE) -> None:
    """Delete a deployment, or only the stacks that are named; the bucket with results stays."""
    words = rest or []
    stacks = [] if _choose_stacks("destroy", words) else [_own_stacks(config)]
    _run("destroy", *stacks, *words, config=config)


@cdk_app.command("cdk", context_settings={**_PASSED_ON, "help_option_names": []})
def cdk(rest: Rest = None) -> None:
    """Run the pinned command line of CDK: `spindown cdk bootstrap`, `spindown cdk diff`."""
    _run(*(rest or []), config=option.CONFIG_FILE)


def _choose_stacks(command: str, words: Sequence[str]) -> bool:
    """Tell whether the words after a command of CDK say which stacks it is for.

    A bare word names a stack, unless it is the value of the option before it.
    """
    registry = json.loads((Path(cdk_command()[1]).parents[1] / _OPTIONS_OF_CDK).read_bytes())
    options = registry["globalOptions"] | registry["commands"][command]["options"]
    with_value = {
        written
        for name, one in options.items()
        if one["type"] != "boolean"
        for written in (f"--{name}", f"-{one.get('alias', name)}")
    }
    before = ["", *words]
    return "--all" in words or any(
        not word.startswith("-") and last not in with_value
        for last, word in zip(before, words, strict=False)
    )


#: Where the package of CDK's command line says which options there are, and which take a value.
_OPTIONS_OF_CDK = Path("lib", "cli", "cli-type-registry.json")


def _own_stacks(path: Path) -> str:
    """Return the pattern of a deployment's stacks, wherever they stand in an app (ConfigError)."""
    loaded = configuration.load(path)
    parts = ["core", "image", "insight", *(f"outpost-{one}" for one in loaded.deployment.outpost)]
    return f"**/{loaded.deployment.name}-@({'|'.join(parts)})"


def _run(*arguments: str, config: Path) -> None:
    """Become CDK's command line (raises NotInstalled)."""
    node, program = cdk_command()
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, str(Path(node).parent), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "JSII_NODE": node, "PATH": path}
    added = []
    if not _names_app(Path("cdk.json")):
        added += ["--app", shlex.join([sys.executable, "-m", "spindown.infra.app"])]
    if config != option.CONFIG_FILE:
        added += ["--context", f"config={config}"]
    sys.stdout.flush()
    os.execve(node, [node, program, *arguments, *added], environment)  # noqa: S606 - no shell


def _names_app(path: Path) -> bool:
    """Tell whether a project's own cdk.json says what its app is."""
    try:
        return "app" in json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False

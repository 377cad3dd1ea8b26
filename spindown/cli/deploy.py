"""``spindown deploy``, ``destroy`` and ``cdk``: the command line of CDK that the wheel brings.

It takes this process over, so its output, its questions and its exit code are the command's.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from spindown import config as configuration
from spindown.cli import option
from spindown.cli.render.line import print_aside
from spindown.cli.session import has_credentials, reach
from spindown.config.archive import check_code
from spindown.config.entrypoint import ModuleUnread
from spindown.domain.requirement import unknown_names
from spindown.error import (
    AccessDenied,
    BadInput,
    NoCredentials,
    NotFound,
    SpindownError,
    Throttled,
    Unreachable,
)
from spindown.installed import cdk_command

#: Options of CDK that choose another app, file or credentials, or only ask it for words.
_CHOOSING = (
    *("--app", "-a", "--context", "-c", "--plugin", "-p", "--profile"),
    *("--help", "-h", "--show-template", "--version"),
)
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
    _check("deploy", words, config)
    stacks = [] if _choose_stacks("deploy", words) else ["--all"]
    _run("deploy", *stacks, *words, config=config)


@destroy_app.command("destroy", context_settings=_PASSED_ON)
def destroy(rest: Rest = None, *, config: option.ConfigFile = option.CONFIG_FILE) -> None:
    """Delete a deployment, or only the stacks that are named; the bucket with results stays."""
    words = rest or []
    _check("destroy", words, config)
    stacks = [] if _choose_stacks("destroy", words) else [_own_stacks(config)]
    _run("destroy", *stacks, *words, config=config)


@cdk_app.command("cdk", context_settings={**_PASSED_ON, "help_option_names": []})
def cdk(rest: Rest = None, *, config: option.ConfigFile = option.CONFIG_FILE) -> None:
    """Run the pinned command line of CDK: `spindown cdk bootstrap`, `spindown cdk diff`."""
    words = rest or []
    if words:
        _check(words[0], words[1:], config)
    _run(*words, config=config)


def _check(command: str, words: Sequence[str], config: Path) -> None:
    """Raise a SpindownError for what CDK would tell late, in its own words, or never.

    CDK ignores an option that it does not know, so that `destroy --local` would be for AWS.
    """
    if "--local" in words:
        remedy = "leave it out, or use `spindown local up` and `spindown local down`"
        raise BadInput("--local", f"an option of `{command}`", remedy)
    if command not in _CALLS_AWS or any(word.startswith(_CHOOSING) for word in words):
        return
    settings, loaded = _settings_of_cdk(), None
    if settings.get("app", _OWN_APP) == _OWN_APP:
        if not config.exists():
            remedy = "begin with `spindown init`, or name your file with --config"
            raise BadInput("spindown.toml", str(config), remedy)
        loaded = configuration.load(config)
        if command == "deploy":
            _check_code(config.resolve().parent, loaded)
    # Whoever must log in first would only then learn that CDK is not installed.
    cdk_command()
    is_ours_to_ask = not settings.keys() & {"profile", "plugin"}
    if is_ours_to_ask and not has_credentials():
        can_try = command == "deploy" and loaded is not None
        remedy = "log in to AWS" + (", or try it with `spindown local up`" if can_try else "")
        raise NoCredentials("credentials", None, remedy)
    if command == "destroy" and loaded is not None and loaded.deployment.protect:
        remedy = "set it to false and run `spindown deploy` first; then destroy again"
        raise BadInput("deployment.protect", "true", remedy)
    # CDK would take other credentials than we do, and so may another account.
    if loaded is None or command == "bootstrap" or not is_ours_to_ask:
        return
    _tell_left_stacks(loaded)
    if command == "deploy":
        _refuse_namesake(loaded)
        _tell_unknown_names(loaded)


def _check_code(root: Path, config: configuration.Config) -> None:
    """Refuse code without its entrypoint; what this Python cannot read a newer one may."""
    for name, workload in config.workloads.items():
        try:
            check_code(root, {name: workload})
        except ModuleUnread as exc:
            print_aside(f"{exc}; if workers run a newer Python, it may be right")


def _refuse_namesake(config: configuration.Config) -> None:
    """Raise BadInput where the deployment has a namesake; whoever may not look is not refused."""
    with suppress(AccessDenied, NoCredentials, NotFound, Throttled, Unreachable):
        aws, name = reach(config.deployment.region), config.deployment.name
        check_namesake(name, aws.stacks().find, partial(aws.dashboards().body, name))


def check_namesake(
    name: str, find: Callable[[Sequence[str]], Sequence[str]], read_dashboard: Callable[[], object]
) -> None:
    """Raise BadInput where a deployment of this name is at home in another region.

    Dashboards are the account's, in all regions. Of two deployments of one name each would deploy
    its outpost over the other's, in a region that both use.

    Args:
        name: of the deployment.
        find: returns those of some names that stacks of the home region have.
        read_dashboard: reads its dashboard (raises NotFound).
    """
    if find([f"{name}-core", f"{name}-insight"]):
        return
    with suppress(NotFound):
        read_dashboard()
        remedy = (
            f"choose another, since there is a dashboard {name}, so a deployment in another region;"
            " if the dashboard is only left over, delete it"
        )
        raise BadInput("deployment.name", name, remedy)


def _tell_left_stacks(config: configuration.Config) -> None:
    """Tell of the stacks that the app has no more.

    Whoever may not look, or has no network, is told nothing.
    """
    with suppress(SpindownError):
        stacks = reach(config.deployment.region).stacks()
        for sentence in say_left_stacks(config, stacks.find):
            print_aside(sentence)


def say_left_stacks(
    config: configuration.Config, find: Callable[[Sequence[str]], Sequence[str]]
) -> list[str]:
    """Name the stacks of a deployment that its app has no more: CDK leaves them as they are.

    Args:
        config: what the app is made of.
        find: returns those of some names that stacks of the home region have.
    """
    deployment, workloads = config.deployment, config.workloads.values()
    left = {}
    if not any(one.image.is_baked for one in workloads):
        left[f"{deployment.name}-image"] = "bakes images each week, which you pay"
    if not (deployment.fault_injection and any(one.run.verify for one in workloads)):
        left[f"{deployment.name}-fault"] = "holds experiments that interrupt machines"
    return [
        f"the stack {name} is in the app no more, so neither deploy nor destroy changes it, and it "
        f"{left[name]}; delete it afterwards: aws cloudformation delete-stack "
        f"--region {deployment.region} --stack-name {name}"
        for name in (find([*left]) if left else ())
    ]


def _tell_unknown_names(config: configuration.Config) -> None:
    """Say which names of types and GPUs EC2 does not know; a deploy goes on all the same.

    They are looked up only where there are any. Whoever may not look, or has no network, is told
    by `spindown doctor`.
    """
    named = {
        name: wanted
        for name, workload in config.workloads.items()
        if unknown_names(wanted := workload.to_requirements(), ())
    }
    if not named:
        return
    with suppress(SpindownError):
        market = reach(config.deployment.region).market()
        regions = config.deployment.regions
        sold = [kind for region in regions for kind in market.instance_types(region=region)]
        for name, wanted in named.items():
            for setting, unknown in unknown_names(wanted, sold).items():
                print_aside(
                    f"{setting} of workload {name}: EC2 does not sell "
                    f"{', '.join(sorted(unknown))} in {', '.join(regions)}; see `spindown doctor`"
                )


#: Commands of CDK that synthesise the app, and then cannot go on without an account.
_CALLS_AWS = frozenset({"bootstrap", "deploy", "destroy"})
#: The app of the cdk.json that `spindown init` writes.
_OWN_APP = "spindown-app"


def _choose_stacks(command: str, words: Sequence[str]) -> bool:
    """Tell whether the words after a command of CDK say which stacks it is for.

    A bare word names a stack, unless it is the value of the option before it.
    """
    registry = json.loads((Path(cdk_command()[1]).parents[1] / OPTIONS_OF_CDK).read_bytes())
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
OPTIONS_OF_CDK = Path("lib", "cli", "cli-type-registry.json")


def _own_stacks(path: Path) -> str:
    """Return the pattern of a deployment's stacks, wherever they stand in an app (ConfigError)."""
    loaded = configuration.load(path)
    parts = [
        "core",
        "fault",
        "image",
        "insight",
        *(f"outpost-{one}" for one in loaded.deployment.outpost),
    ]
    return f"**/{loaded.deployment.name}-@({'|'.join(parts)})"


def _run(*arguments: str, config: Path) -> None:
    """Become CDK's command line (raises NotInstalled)."""
    node, program = cdk_command()
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, str(Path(node).parent), os.environ.get("PATH", os.defpath)])
    # Its command line tells AWS what was run, unless it is told not to; who wants that says so.
    environment = {"CDK_DISABLE_CLI_TELEMETRY": "true", **os.environ, "JSII_NODE": node}
    environment["PATH"] = path
    added = []
    if "app" not in _settings_of_cdk():
        added += ["--app", shlex.join([sys.executable, "-m", "spindown.infra.app"])]
    if config != option.CONFIG_FILE:
        added += ["--context", f"config={config}"]
    sys.stdout.flush()
    os.execve(node, [node, program, *arguments, *added], environment)  # noqa: S606 - no shell


def _settings_of_cdk() -> dict[str, object]:
    """Return the settings of CDK's command line: the person's own, below those of the project."""
    settings: dict[str, object] = {}
    for path in (Path.home() / ".cdk.json", Path("cdk.json")):
        try:
            settings |= json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            # CDK itself says what is wrong with the file.
            continue
    return settings

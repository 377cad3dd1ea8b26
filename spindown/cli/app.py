"""Every command of ``spindown``. Its module has its name; ``watch`` is beside ``status``.

A command is loaded when it runs: to load all takes most of a second.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer

from spindown import __version__
from spindown.cli.group import Group
from spindown.cli.render.line import noted_if_slow

#: Command -> module and function (or group of commands), and its first sentence for the overview.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": (
        "init:init",
        "Write a project: a commented spindown.toml, example code, cdk.json; or fill one in.",
    ),
    "deploy": (
        "deploy:deploy_app",
        "Deploy what spindown.toml describes, as the pinned `cdk deploy --all` does.",
    ),
    "destroy": (
        "deploy:destroy_app",
        "Delete a deployment, or only the stacks that are named; the bucket with results stays.",
    ),
    "cdk": (
        "deploy:cdk_app",
        "Run the pinned command line of CDK: `spindown cdk bootstrap`, `spindown cdk diff`.",
    ),
    "submit": ("submit:submit", "Put work on a workload's queue, cut into jobs of one batch."),
    "run": (
        "run:run",
        "Run a command in a copy of a folder on a machine. Exit with its status, or 1.",
    ),
    "results": (
        "results:results",
        "Print the results committed so far, one JSON record an item. Exit 1 if something failed.",
    ),
    "batches": (
        "batches:batches",
        "List batches: state, items, dollars so far, and when they will be done.",
    ),
    "logs": (
        "logs:logs",
        "Print what jobs print; with --follow as they do. Exit 1 if a job or an item failed.",
    ),
    "shell": (
        "shell:shell",
        "Open a shell on a worker's instance by Session Manager. Exit with the shell's status.",
    ),
    "cancel": (
        "cancel:cancel",
        "Cancel jobs or batches; committed results stay. Exit 1 if one could not be cancelled.",
    ),
    "redrive": (
        "redrive:redrive",
        "Send dead letters back to their queue; committed results stay. Exit 1 if one is left.",
    ),
    "status": (
        "explain.status:status",
        "Show queue, workers, jobs and dollars; of a batch, how far it is and what failed.",
    ),
    "watch": (
        "explain.status:watch",
        "Show the same live, until Ctrl-C; as JSON, one line a look.",
    ),
    "plan": (
        "explain.plan:plan",
        "Show what the next tick would do, from which offers, and why. Changes nothing.",
    ),
    "why": (
        "explain.why:why",
        "Tell the last decisions, and why nothing runs if nothing does. Changes nothing.",
    ),
    "cost": (
        "explain.cost:cost",
        "Show what an item has cost over days and weeks, and whether that is usual.",
    ),
    "bill": (
        "bill:bill",
        "Show what a month has cost, what for, and what was saved. Changes nothing.",
    ),
    "dashboard": (
        "dashboard.command:dashboard",
        "Show the deployed dashboards as pages here, with jobs and what they print.",
    ),
    "rightsize": (
        "explain.rightsize:rightsize",
        "Hold what is required against what the jobs have used. Changes nothing.",
    ),
    "usage": (
        "explain.usage:usage",
        "Show what jobs have used, by type, by SQL, or as a plot. Changes nothing.",
    ),
    "drain": (
        "drain:drain",
        "Stop launching, let workers finish their jobs, and wait until none runs.",
    ),
    "doctor": (
        "doctor:doctor",
        "Check everything that a launch needs. Exit 1 if a launch cannot work.",
    ),
    "verify": (
        "verify:verify",
        "Prove a deployment by a job of its own. Launches machines. Exit 1 if a check fails.",
    ),
    "iam": ("iam:app", "Print what somebody must be allowed to do, as a policy of IAM."),
    "policy": ("policy:app", "Read and change the policy of a running workload."),
    "local": ("local:app", "Run a deployment on this machine."),
    "simulate": (
        "simulate.command:simulate",
        "Simulate what traffic costs under a policy, compared with other ways to run it.",
    ),
    "advise": (
        "advise.command:advise_command",
        "Find the cheapest settings, and say when not to use Spindown. Changes nothing.",
    ),
    "docs": ("docs:docs", "Show a page of the documentation, or list all. Asks nobody."),
    "demo": (
        "demo.command:demo",
        "Run the whole system here: a queue, spot workers, interruptions, a bill per item.",
    ),
}


def load(name: str) -> Any:
    """Return a command, or a group of them, as typer runs it."""
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(import_module(f"spindown.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(found)
    return typer.main.get_command(alone)


class _Overview(Group):
    """All commands, listed as the table above has them and loaded one at a time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name, (_, first_sentence) in COMMANDS.items():
            self.add_command(typer.core.TyperCommand(name, help=first_sentence))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that is asked for, loaded."""
        name, _, rest = super().resolve_command(ctx, args)
        if name is None:
            return None, None, rest
        with noted_if_slow("loading ..."):
            return name, load(name), rest


app = typer.Typer(
    name="spindown",
    cls=_Overview,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _tell_version(is_asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if is_asked:
        print(f"spindown {__version__}")
        raise typer.Exit


@app.callback()
def spindown(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """GPUs start when work arrives and end when it is done."""

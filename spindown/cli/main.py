"""The ``spindown`` command: one module a command group, one place where errors become words."""

import os
import sys
from collections.abc import Sequence

import typer

from spindown.cli import batch, demo, drain, local, policy
from spindown.cli.explain import plan, view, why
from spindown.error import SpindownError

app = typer.Typer(
    name="spindown",
    help="GPUs spin up when work arrives and are gone when it is done.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("submit")(batch.submit)
app.command("results")(batch.results)
app.command("status")(view.status)
app.command("watch")(view.watch)
app.command("plan")(plan.plan)
app.command("why")(why.why)
app.command("drain")(drain.drain)
app.add_typer(policy.app, name="policy")
app.add_typer(local.app, name="local")
app.command("demo")(demo.demo)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a mistake is one sentence on stderr and exit code 1."""
    try:
        app(arguments, standalone_mode=True)
    except SpindownError as exc:
        sys.stderr.write(f"spindown: {exc or type(exc).__doc__}\n")
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)

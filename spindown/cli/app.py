"""Every command of ``spindown``. Its module has its name; ``watch`` is beside ``status``."""

from typing import Annotated

import typer

from spindown import __version__
from spindown.cli import (
    cancel,
    demo,
    doctor,
    drain,
    init,
    local,
    policy,
    redrive,
    results,
    submit,
)
from spindown.cli.advise import command as advise
from spindown.cli.explain import plan, rightsize, status, why
from spindown.cli.simulate import command as simulate

app = typer.Typer(
    name="spindown",
    no_args_is_help=True,
    add_completion=False,
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


app.command("init")(init.init)
app.command("submit")(submit.submit)
app.command("results")(results.results)
app.command("cancel")(cancel.cancel)
app.command("redrive")(redrive.redrive)
app.command("status")(status.status)
app.command("watch")(status.watch)
app.command("plan")(plan.plan)
app.command("why")(why.why)
app.command("rightsize")(rightsize.rightsize)
app.command("drain")(drain.drain)
app.command("doctor")(doctor.doctor)
app.add_typer(policy.app, name="policy")
app.add_typer(local.app, name="local")
app.command("simulate")(simulate.simulate)
app.command("advise")(advise.advise_command)
app.command("demo")(demo.demo)

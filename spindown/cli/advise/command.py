"""``spindown advise``: the settings that would have cost least, and when not to use Spindown."""

from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.history import option as history
from spindown.cli.history.option import (
    CLOUDWATCH,
    LIVE,
    RECLAIMS_PER_HOUR,
    SAMPLE,
    SimulationOptions,
)
from spindown.cli.render.line import print_aside


def advise_command(  # noqa: PLR0913 - each is an option of the command line
    *,
    arrivals: history.Arrivals = CLOUDWATCH,
    prices: Annotated[
        str | None,
        typer.Option(help="As for simulate; default live with cloudwatch, otherwise sample."),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            help="95 % of jobs must start within this time, such as 10m; default: as now."
        ),
    ] = None,
    policy: history.PolicyFile = None,
    workload: history.Workload = None,
    days: Annotated[
        float, typer.Option(min=0.1, max=90, help="Use only the last days of the history.")
    ] = 14.0,
    boot: history.Boot = None,
    reclaims: history.Reclaims = RECLAIMS_PER_HOUR,
    seed: history.Seed = 1,
    processes: history.Processes = None,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Find the cheapest settings, and say when not to use Spindown. Changes nothing."""
    options = SimulationOptions(
        arrivals=arrivals,
        prices=prices or (LIVE if arrivals == CLOUDWATCH else SAMPLE),
        policy=policy,
        workload=workload,
        deployment=deployment,
        local=local,
        is_live_policy=policy is None,
        days=days,
        last_days=days,
        has_denied_families=True,
        boot=boot,
        reclaims_per_hour=reclaims,
        seed=seed,
    )
    print_aside("reading arrivals, prices and the policy ...")
    from spindown.cli.advise.report import run  # noqa: PLC0415 - slow, and help needs none of it

    run(options, within, processes=processes, as_json=as_json)

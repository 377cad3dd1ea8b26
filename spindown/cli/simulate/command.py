"""``spindown simulate``: what traffic would cost under a policy, beside what people run instead."""

from pathlib import Path
from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.history import option as history
from spindown.cli.history.option import QUEUE_DAYS, RECLAIMS_PER_HOUR, SAMPLE, SimulationOptions
from spindown.cli.render.line import print_aside


def simulate(  # noqa: PLR0913 - each is an option of the command line
    *,
    arrivals: history.Arrivals = "office",
    prices: history.Prices = SAMPLE,
    policy: history.PolicyFile = None,
    workload: history.Workload = None,
    against: Annotated[
        str, typer.Option(help="Baselines by name or its start, separated by commas; all; none.")
    ] = "all",
    html: Annotated[Path | None, typer.Option(help="Write a page with plots here.")] = None,
    days: history.Days = None,
    boot: history.Boot = None,
    reclaims: history.Reclaims = RECLAIMS_PER_HOUR,
    seed: history.Seed = 1,
    processes: history.Processes = None,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Simulate what traffic costs under a policy, compared with other ways to run it.

    It takes some minutes for a month of traffic. Below the table a line says what each way is.
    """
    options = SimulationOptions(
        arrivals=arrivals,
        prices=prices,
        policy=policy,
        workload=workload,
        deployment=deployment,
        local=local,
        days=days or QUEUE_DAYS,
        last_days=days,
        boot=boot,
        reclaims_per_hour=reclaims,
        seed=seed,
    )
    print_aside("reading arrivals, prices and the policy ...")
    from spindown.cli.simulate.run import run  # noqa: PLC0415 - slow, and help needs none of it

    run(options, against, html=html, processes=processes, as_json=as_json)

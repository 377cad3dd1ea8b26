"""``spindown advise``: the settings that would have cost least, and when not to use Spindown."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.advise.advice import Advice, advise
from spindown.cli.advise.render import advice_to_json, render_advice
from spindown.cli.history import option as history
from spindown.cli.history.gather import CLOUDWATCH, LIVE, SAMPLE, Asked, Gathered, gather
from spindown.cli.history.price import RECLAIMS_PER_HOUR
from spindown.cli.render.screen import open_console
from spindown.cli.simulate.contest import Contestant
from spindown.cli.simulate.progress import run_in_sight
from spindown.config import parse_duration
from spindown.error import BadInput
from spindown.simulator import SimResult


def advise_command(  # noqa: PLR0913 - each is an option of the command line
    *,
    arrivals: history.Arrivals = CLOUDWATCH,
    prices: Annotated[
        str | None,
        typer.Option(help="As of simulate; live with cloudwatch, otherwise sample."),
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="95 % of jobs must start within: 10m; no later than now.")
    ] = None,
    policy: history.PolicyFile = None,
    workload: history.Workload = None,
    days: Annotated[
        float, typer.Option(min=0.1, max=90, help="The last days of the history that are used.")
    ] = 14.0,
    boot: history.Boot = None,
    reclaims: history.Reclaims = RECLAIMS_PER_HOUR,
    seed: history.Seed = 1,
    processes: history.Processes = None,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Say which settings would have cost least, and when not to use Spindown. Changes nothing."""
    promise = None if within is None else _seconds(within)
    asked = Asked(
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
    advice = _advise(gather(asked), promise, processes)
    if as_json:
        print(json.dumps(advice_to_json(advice)))
    else:
        # The line to copy is whole, however narrow the screen.
        open_console().print(render_advice(advice), crop=False)


def _advise(gathered: Gathered, promise: float | None, processes: int | None) -> Advice:
    def simulate_with(seed: int, contestants: Sequence[Contestant]) -> list[SimResult]:
        outcomes = run_in_sight(gathered.scenario, contestants, seed=seed, processes=processes)
        return [outcome.result for outcome in outcomes]

    seed = gathered.seed
    return advise(gathered, promise, partial(simulate_with, seed), partial(simulate_with, seed + 1))


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration(text).total_seconds()
    except ValueError as exc:
        raise BadInput("--within", text, str(exc)) from exc
    if seconds <= 0.0:
        raise BadInput("--within", text, "make it longer than zero")
    return seconds

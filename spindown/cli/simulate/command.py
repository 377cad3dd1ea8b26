"""``spindown simulate``: what traffic would cost under a policy, beside what people run instead."""

import json
from pathlib import Path
from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.history import option as history
from spindown.cli.history.gather import QUEUE_DAYS, SAMPLE, Asked, gather
from spindown.cli.history.price import RECLAIMS_PER_HOUR
from spindown.cli.render.screen import open_console
from spindown.cli.simulate import alternative
from spindown.cli.simulate.alternative import simulate_with_progress
from spindown.cli.simulate.comparison import Comparison, compare, comparison_to_json
from spindown.cli.simulate.page.canvas import check_page
from spindown.cli.simulate.page.page import write_page
from spindown.cli.simulate.table import render_comparison


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
    """Simulate what traffic costs under a policy, compared with other ways to run it."""
    asked = Asked(
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
    if html is not None:
        check_page(html)
    comparison = _run(asked, against, with_frontier=html is not None, processes=processes)
    # Print first what took minutes: writing the page may fail, on a full disk for instance.
    _print(comparison, as_json=as_json)
    if html is not None:
        html.write_text(write_page(comparison), encoding="utf-8")
        if not as_json:
            open_console().print(f"The page is {html}.", soft_wrap=True)


def _run(asked: Asked, against: str, *, with_frontier: bool, processes: int | None) -> Comparison:
    gathered = gather(asked)
    policy = gathered.subject.policy
    alternatives = [alternative.ours(policy), *alternative.baselines(against, policy)]
    if with_frontier:
        alternatives += alternative.frontier(policy)
    outcomes = simulate_with_progress(
        gathered.scenario, alternatives, seed=asked.seed, processes=processes
    )
    return compare(gathered, outcomes)


def _print(comparison: Comparison, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(comparison_to_json(comparison)))
        return
    console = open_console()
    console.print(render_comparison(comparison, width=console.width))

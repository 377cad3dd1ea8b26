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
from spindown.cli.simulate import contest
from spindown.cli.simulate.contest import run_in_sight
from spindown.cli.simulate.page.canvas import check_page
from spindown.cli.simulate.page.page import write_page
from spindown.cli.simulate.story import Story, story_to_json, tell
from spindown.cli.simulate.table import render_story


def simulate(  # noqa: PLR0913 - each is an option of the command line
    *,
    arrivals: history.Arrivals = "office",
    prices: history.Prices = SAMPLE,
    policy: history.PolicyFile = None,
    workload: history.Workload = None,
    against: Annotated[
        str, typer.Option(help="Baselines by name or its begin, with commas; all; none.")
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
    """Say what traffic would cost under a policy, beside what people run instead."""
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
    story = _compare(asked, against, with_frontier=html is not None, processes=processes)
    # First what took minutes: the page may yet fail, on a full disk for instance.
    _print(story, as_json=as_json)
    if html is not None:
        html.write_text(write_page(story), encoding="utf-8")
        if not as_json:
            open_console().print(f"The page is {html}.", soft_wrap=True, markup=False)


def _compare(asked: Asked, against: str, *, with_frontier: bool, processes: int | None) -> Story:
    gathered = gather(asked)
    policy = gathered.subject.policy
    contestants = [contest.ours(policy), *contest.baselines(against, policy)]
    if with_frontier:
        contestants += contest.frontier(policy)
    outcomes = run_in_sight(gathered.scenario, contestants, seed=asked.seed, processes=processes)
    return tell(gathered, outcomes)


def _print(story: Story, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(story_to_json(story)))
        return
    console = open_console()
    console.print(render_story(story, width=console.width))

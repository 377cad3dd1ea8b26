"""What ``spindown simulate`` does: gather, simulate, compare, and show it."""

import json
from pathlib import Path

from spindown.cli.history.gather import gather
from spindown.cli.history.option import SimulationOptions
from spindown.cli.render.canvas import check_page
from spindown.cli.render.screen import open_console
from spindown.cli.simulate import alternative
from spindown.cli.simulate.alternative import simulate_with_progress
from spindown.cli.simulate.comparison import Comparison, compare, comparison_to_json
from spindown.cli.simulate.page.page import write_page
from spindown.cli.simulate.table import render_comparison


def run(
    options: SimulationOptions,
    against: str,
    *,
    html: Path | None,
    processes: int | None,
    as_json: bool,
) -> None:
    """Simulate what was asked beside ``against``, print it, and write the page if one is asked."""
    if html is not None:
        check_page(html)
    comparison = _compare(options, against, with_frontier=html is not None, processes=processes)
    # Print first what took minutes: writing the page may fail, on a full disk for instance.
    _print(comparison, as_json=as_json)
    if html is not None:
        html.write_text(write_page(comparison), encoding="utf-8")
        if not as_json:
            open_console().print(f"The page is {html}.", soft_wrap=True)


def _compare(
    options: SimulationOptions, against: str, *, with_frontier: bool, processes: int | None
) -> Comparison:
    gathered = gather(options)
    policy = gathered.subject.policy
    alternatives = [alternative.ours(policy), *alternative.baselines(against, policy)]
    if with_frontier:
        alternatives += alternative.frontier(policy)
    outcomes = simulate_with_progress(
        gathered.scenario, alternatives, seed=options.seed, processes=processes
    )
    return compare(gathered, outcomes)


def _print(comparison: Comparison, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(comparison_to_json(comparison)))
        return
    console = open_console()
    console.print(render_comparison(comparison, width=console.width))

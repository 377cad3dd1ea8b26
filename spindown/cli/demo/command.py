"""``spindown demo``: the main job on this machine, from a message to the bill."""

from pathlib import Path
from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.render.line import goes_on


def demo(
    *,
    jobs: Annotated[int, typer.Option(min=1, max=200, help="Jobs of 240 files each.")] = 10,
    scenario: Annotated[
        str, typer.Option(help="Behaviour of the market: a file, or default, demo, storm, abroad.")
    ] = "demo",
    config: Annotated[Path, typer.Option(help="The deployment to run.")] = Path(
        "examples/demo.toml"
    ),
    keep: Annotated[Path | None, typer.Option(help="Keep logs and results here.")] = None,
    within: Annotated[
        float, typer.Option(min=1, max=86_400, help="Give up after so many seconds.")
    ] = 300.0,
    as_json: option.Json = False,
) -> None:
    """Run the whole system here: a queue, spot workers, interruptions, a bill per item."""
    from spindown.cli.demo.run import run  # noqa: PLC0415 - slow, and help needs none of it

    with goes_on("nothing of the demo is left running"):
        run(jobs, scenario=scenario, config=config, keep=keep, within=within, as_json=as_json)

"""Options of the commands that simulate, declared once."""

from pathlib import Path
from typing import Annotated

import typer

Arrivals = Annotated[
    str,
    typer.Option(
        help="CSV or JSON of timestamp[, items][, item_seconds]; cloudwatch: the queue's own "
        "past; office, stream or bursts: made up."
    ),
]
Prices = Annotated[
    str,
    typer.Option(
        help="CSV or JSON of timestamp, zone, type, price, or what aws ec2 "
        "describe-spot-price-history has said; live: 90 days of EC2's history; sample: made up."
    ),
]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", help="The file with the policy; spindown.toml if any.")
]
Workload = Annotated[str | None, typer.Option(help="Which workload, if there are several.")]
Days = Annotated[
    float | None,
    typer.Option(
        min=0.1, max=455, help="The last days of the history that are used; all, of cloudwatch 30."
    ),
]
Boot = Annotated[
    str | None, typer.Option(help="Time from launch to first job of half of all boots: 90s.")
]
Reclaims = Annotated[
    float,
    typer.Option(min=0, max=60, help="Times an hour that EC2 takes a spot instance (not sample)."),
]
Seed = Annotated[int, typer.Option(help="Of all that is random; the same seed, the same result.")]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Simulations at a time; as many as processors.")
]

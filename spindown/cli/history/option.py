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
        help="CSV or JSON of timestamp, zone, type, price, or the output of aws ec2 "
        "describe-spot-price-history; live: 90 days of EC2's history; sample: made up."
    ),
]
PolicyFile = Annotated[
    Path | None, typer.Option("--policy", help="File with the policy; default: spindown.toml.")
]
Workload = Annotated[str | None, typer.Option(help="Which workload, if there are several.")]
Days = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        max=455,
        help="Use only the last days of the history; default: all, of cloudwatch 30.",
    ),
]
Boot = Annotated[
    str | None, typer.Option(help="Median time from launch to first job, such as 90s.")
]
Reclaims = Annotated[
    float,
    typer.Option(min=0, max=60, help="Reclaims of a spot instance an hour (not for sample)."),
]
Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same result.")]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Simulations at a time; default: one for each processor.")
]

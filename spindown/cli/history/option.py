"""Options of the commands that simulate, declared once; it loads nothing of the simulator."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

CLOUDWATCH = "cloudwatch"
LIVE = "live"
SAMPLE = "sample"
#: The file that is read by default, if it exists.
USUAL_FILE = Path("spindown.toml")
#: Default days of a queue's past.
QUEUE_DAYS = 30.0
#: Reclaims an hour of each spot instance where nothing is known: one in twenty hours, of the order
#: of what the made-up market has. AWS's published monthly shares are a hundred times lower, and
#: probes of V100 zones found up to a hundred times more.
RECLAIMS_PER_HOUR = 0.05

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
    Path | None,
    typer.Option("--policy", "--config", help="File with the policy; default: spindown.toml."),
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
    str | None,
    typer.Option(help="Launch to first item: baked, bootstrap, model, or a median such as 90s."),
]
Reclaims = Annotated[
    float,
    typer.Option(min=0, max=60, help="Reclaims of a spot instance an hour (not for sample)."),
]
Seed = Annotated[int, typer.Option(help="Random seed; the same seed gives the same result.")]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Simulations at a time; default: one for each processor.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What a person asks of ``simulate`` or ``advise``."""

    #: A file, ``cloudwatch`` or a generator's name.
    arrivals: str
    #: A file, ``live`` or ``sample``.
    prices: str
    policy: Path | None = None
    workload: str | None = None
    deployment: str | None = None
    local: bool = False
    #: Whether to use the policy with its live edits, if the deployment is read anyway.
    is_live_policy: bool = False
    #: Of the queue's past.
    days: float = QUEUE_DAYS
    #: Use only the last days of any traffic; None: all.
    last_days: float | None = None
    #: Whether the market also has families that the requirements exclude, to try them.
    has_denied_families: bool = False
    #: Median length of boots, as people write it.
    boot: str | None = None
    reclaims_per_hour: float = RECLAIMS_PER_HOUR
    seed: int = 1

    @property
    def needs_deployment(self) -> bool:
        """Tell whether AWS must be asked."""
        return self.arrivals == CLOUDWATCH or self.prices == LIVE or self.deployment is not None

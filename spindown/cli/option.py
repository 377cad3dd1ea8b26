"""Options that several commands share, declared once."""

from pathlib import Path
from typing import Annotated

import typer

Workload = Annotated[str, typer.Argument(help="Name of the workload in spindown.toml.")]
Workloads = Annotated[
    list[str] | None, typer.Argument(help="Workloads to show; all of the deployment if none.")
]
OfWorkload = Annotated[
    str | None, typer.Option("--workload", help="Which workload, if several have it.")
]
ConfigFile = Annotated[Path, typer.Option("--config", help="File that describes the deployment.")]
Deployment = Annotated[
    str | None, typer.Option("--deployment", help="Name of the deployment, in place of a file.")
]
Local = Annotated[bool, typer.Option("--local", help="Use the local system that is running.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

CONFIG_FILE = Path("spindown.toml")
#: Of the options with which another command finds the same deployment, the last.
LOCAL = " --local"

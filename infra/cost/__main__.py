"""``python -m infra.cost [spindown.toml]`` prints the page of what an idle deployment costs."""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.app import choose_node
from spindown.error import BadInput

_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    """Print the page; say in one sentence what is wrong with the input."""
    path = Path(arguments[0]) if arguments else Path("spindown.toml")
    try:
        choose_node()
        sys.stdout.write(describe_cost(path))
    except BadInput as exc:
        sys.stderr.write(f"spindown: {exc}\n")
        return 1
    return 0


def describe_cost(path: Path) -> str:
    """Return the page for one spindown.toml (raises ConfigError)."""
    # Imported late, since aws-cdk-lib starts Node.
    from infra.cost.estimate import estimate  # noqa: PLC0415
    from infra.cost.page import render  # noqa: PLC0415
    from spindown import config  # noqa: PLC0415

    workloads = tuple(config.load(path).workloads)
    return render(estimate(synthesise(path)), workloads=workloads)


def synthesise(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the resources of each stack; the functions' package is not made."""
    from aws_cdk import App  # noqa: PLC0415

    from infra.deployment import describe  # noqa: PLC0415

    flags = json.loads((_ROOT / "cdk.json").read_text())["context"]
    with tempfile.TemporaryDirectory() as directory:
        app = App(
            outdir=directory,
            context={**flags, "config": str(path), "aws:cdk:bundling-stacks": []},
            # What is priced need not be valid; `make synth` checks that.
            builtin_cloud_formation_validation=False,
            analytics_reporting=False,
        )
        describe(app)
        app.synth()
        return read_templates(Path(directory))


def read_templates(directory: Path) -> Mapping[str, Mapping[str, Any]]:
    """Return the resources of each stack that was synthesised into a directory."""
    return {
        file.name.removesuffix(".template.json"): json.loads(file.read_text())["Resources"]
        for file in sorted(directory.glob("*.template.json"))
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

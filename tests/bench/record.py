"""Write a bench's figures to docs/bench, so that they are read beside the code they are of."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "docs" / "bench"


def record(name: str, figures: Mapping[str, float | int | str]) -> None:
    """Write ``docs/bench/{name}.json`` and print it; the machine is told with it."""
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count() or 0,
    }
    text = json.dumps({"figures": dict(figures), "on": machine}, indent=2)
    _FOLDER.mkdir(parents=True, exist_ok=True)
    (_FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(f"{name}: {text}")  # noqa: T201 - a bench talks to a person

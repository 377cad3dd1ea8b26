"""Compare on the story of 4,000 mixed jobs a day: docs/scale.json, the tables of docs/scale.md.

``python -m research.scale --data DIR``: floors and rivals for five seeds, within minutes, and the
shipped code for the first, which takes a quarter of an hour of a core for each way and 30 days.
``--ways`` names those that are played, "" none; what was kept of the others stays. Each way is kept
after each day of it, so that what was broken off is told as far as it came.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from research.scale.floor import floor
from research.scale.page import tables
from research.scale.rival import RIVALS, run_rival
from research.scale.shipped import WAYS, Played, play
from research.scale.story import market, story_jobs

DOCS = Path(__file__).parents[2] / "docs"
#: What follows it on the page is written anew.
_MARK = "## Figures"


def main() -> None:
    """Run what is asked for."""
    options = _options()
    out = DOCS / "scale.json"
    kept: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    if options.data is not None:
        began = time.process_time()
        kept["cheap"] = {
            str(seed): _cheap(seed, options.days, options.data)
            for seed in range(1, options.seeds + 1)
        }
        kept["cheap_cpu_seconds"] = round(time.process_time() - began, 1)
        _keep(out, kept)
        for name in filter(None, options.ways.split(";")):

            def note(played: Played, name: str = name) -> None:
                kept.setdefault("played", {})[name] = _rounded(asdict(played))
                _keep(out, kept)

            note(play(name, 1, options.days, options.data, note=note))
    page = DOCS / "scale.md"
    prose, _, _ = page.read_text().partition(_MARK)
    page.write_text(f"{prose}{_MARK}\n\n{tables(kept)}")


def _cheap(seed: int, days: int, data: Path) -> dict[str, Any]:
    """Return floors and rivals with one seed."""
    jobs, sold = story_jobs(seed, days, data), market(data)
    found: dict[str, Any] = {
        "jobs": len(jobs),
        "floor": _rounded(asdict(floor(jobs, sold, days))),
        "rivals": {},
    }
    for rival in RIVALS:
        for spot in (True, False):
            result = run_rival(rival, jobs, sold, seed, spot=spot)
            name = rival.name if spot else f"{rival.name}, on demand"
            found["rivals"][name] = _rounded(asdict(result))
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    return value


def _keep(out: Path, kept: dict[str, Any]) -> None:
    out.write_text(json.dumps(kept, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="directory of the real traces and prices")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ways", default=";".join(WAYS), help="with semicolons between")
    return parser.parse_args()


if __name__ == "__main__":
    main()

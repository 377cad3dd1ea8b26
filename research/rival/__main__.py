"""Rivals at their best beside ours as it is shipped: docs/rivals.json and docs/rivals.md.

``python -m research.rival --data DIR``. What a run has found is kept after each search and each
seed; another run goes on where it ended. ``--render`` writes the page anew.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

from research.baseline import simulate_any
from research.compare.case import MAX_WORKERS
from research.compare.source import Part
from research.compare.waste import bound_of
from research.rival.boot import CASES, composed, p95
from research.rival.family import FAMILIES
from research.rival.page import AT_ONCE, OURS, PROMISE, best_in_time, page
from research.rival.row import ROWS, SEARCH_SEED
from spindown.cli.init import first_document
from spindown.config import DraftConfig, parse
from spindown.domain.policy import Policy
from spindown.simulator import Boot, SimResult, SimScenario, simulate

DOCS = Path(__file__).parents[2] / "docs"


def main() -> int:
    """Search, run and render what is not there yet."""
    options = _options()
    kept = _read(options.out)
    if not options.render:
        kept["boots"] = {name: _seconds(composed(name, options.data)) for name in CASES}
        names = [
            (row, boot) for row in options.rows.split(",") for boot in options.boots.split(",")
        ]
        cells = {
            (row, boot): kept["cells"].setdefault(row, {}).setdefault(boot, {})
            for row, boot in names
        }
        with ProcessPoolExecutor(options.processes) as pool:
            searches = [(cells[name], *name, options.data) for name in names]
            for name, found in zip(
                names, pool.map(_search, *zip(*searches, strict=True)), strict=True
            ):
                cells[name]["search"] = found
                _keep(options.out, kept)
                print(f"searched {', '.join(name)}", flush=True)
            runs = [(name, seed) for seed in range(1, options.seeds + 1) for name in names]
            asked = [(cells[name], *name, seed, options.data) for name, seed in runs]
            for (name, seed), (found, took) in zip(
                runs, pool.map(_run, *zip(*asked, strict=True)), strict=True
            ):
                cells[name].setdefault("seeds", {}).setdefault(str(seed), {}).update(found)
                kept["cpu_seconds"] += took
                _keep(options.out, kept)
                print(f"{took:6.0f} s  {', '.join(name)}, seed {seed}", flush=True)
    _keep(options.out, kept)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="directory of the real traces and boots")
    parser.add_argument("--rows", default=",".join(ROWS), help="names, with commas")
    parser.add_argument("--boots", default=",".join(CASES), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--render", action="store_true", help="only write the page anew")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of rivals.md and .json")
    options = parser.parse_args()
    if options.data is None and not options.render:
        parser.error("--data: name the directory of the real traces and boots")
    return options


def shipped() -> Policy:
    """Return the policy that ``spindown init`` writes, with the promise and room for all work."""
    (workload,) = parse(first_document(), DraftConfig).workload.values()
    return replace(workload.to_policy(), start_within=PROMISE, max_workers=MAX_WORKERS)


def at_once() -> Policy:
    """Return the same with a launch for any work that comes."""
    return replace(shipped(), scale_up_threshold=1)


def _scenario(row: str, boot: str, seed: int, data: Path, part: Part) -> SimScenario:
    return replace(ROWS[row].build(seed, data, part), boot=composed(boot, data))


def _search(cell: Mapping[str, Any], row: str, boot: str, data: Path) -> Mapping[str, Any]:
    """Return what all settings of each rival came to on the first part; each is run once."""
    found = dict(cell.get("search", {}))
    missing = {name: family for name, family in FAMILIES.items() if name not in found}
    scenario = _scenario(row, boot, SEARCH_SEED, data, Part.TUNE) if missing else None
    for name, family in missing.items():
        assert scenario is not None
        found[name] = {
            setting: _told(simulate_any(scenario, baseline, SEARCH_SEED, max_workers=MAX_WORKERS))
            for setting, baseline in family.searched.items()
        }
    return found


def _run(
    cell: Mapping[str, Any], row: str, boot: str, seed: int, data: Path
) -> tuple[Mapping[str, Any], float]:
    """Run with one seed on the last part whoever has not run yet; return also the CPU seconds."""
    began = process_time()
    known = cell.get("seeds", {}).get(str(seed), {})
    found: dict[str, Any] = {}
    ways: dict[str, Any] = {OURS: shipped(), AT_ONCE: at_once()}
    for name, family in FAMILIES.items():
        ways[f"{name}, customary"] = family.customary
        best = best_in_time(cell["search"][name])
        if best is not None:
            ways[f"{name}: {best}"] = family.searched[best]
    missing = {who: way for who, way in ways.items() if who not in known}
    if missing:
        scenario = _scenario(row, boot, seed, data, Part.REPORT)
        for who, way in missing.items():
            result = (
                simulate(scenario, way, seed)
                if isinstance(way, Policy)
                else simulate_any(scenario, way, seed, max_workers=MAX_WORKERS)
            )
            found[who] = _told(result)
    return found, process_time() - began


def _seconds(boot: Boot) -> list[float]:
    """Return least, median and 95th percentile of a boot."""
    return [boot.at_least, boot.at_least + boot.median, p95(boot)]


def _told(result: SimResult) -> Mapping[str, float]:
    return {
        "dollars": round(result.dollars, 4),
        "p50_min": round(result.wait.p50 / 60.0, 3),
        "p95_min": round(result.wait.p95 / 60.0, 3),
        "jobs": result.jobs,
        "lost": result.jobs - result.jobs_done,
        "launches": result.launches,
        **{cause: round(dollars, 4) for cause, dollars in result.bill.items()},
    }


def _read(out: Path) -> dict[str, Any]:
    path = out / "rivals.json"
    kept: dict[str, Any] = {"cells": {}, "cpu_seconds": 0.0}
    return kept | (json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})


def _over_bound() -> Mapping[str, float]:
    """Return row -> our dollars over its bound, in the mean of seeds, by ``make compare``."""
    found = {}
    for row, seeds in json.loads((DOCS / "benchmarks.json").read_text("utf-8"))["results"].items():
        if row in ROWS:
            ours = math.fsum(seed["ours 10 min"]["dollars"] for seed in seeds.values())
            found[row] = ours / math.fsum(bound_of(seed, "10 min") for seed in seeds.values())
    return found


def _keep(out: Path, kept: Mapping[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(kept, indent=1, sort_keys=True) + "\n"
    (out / "rivals.json").write_text(text, encoding="utf-8")
    (out / "rivals.md").write_text(page(kept, _over_bound()), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

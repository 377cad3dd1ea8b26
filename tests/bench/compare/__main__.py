"""Compare the shipped policy with everybody else, and write docs/benchmarks.md and .json.

Run by ``make compare``. What a run has found is kept after each scenario.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import Boot, Zone, bound
from tests.bench.compare.case import CASES
from tests.bench.compare.exact import optimum
from tests.bench.compare.measure import Figures, measure
from tests.bench.compare.source import Part
from tests.bench.compare.table import page

DOCS = Path(__file__).parents[3] / "docs"
#: Scenario, first hour and length of the slices that are solved exactly.
_SLICES = (
    ("S1", 9.3, 0.5),
    ("S2 x0.6", 8.0, 6.0),
    ("S2", 10.0, 2.0),
    ("S3 103959", 24.0, 24.0),
    ("S3 6c71a0", 2.0, 2.0),
    ("S4", 24.0, 24.0),
)
_SLICE_JOBS = 120
_BOOT = Boot(at_least=90.0, median=0.0, sigma=0.0)


def main() -> int:
    """Run what is asked for."""
    options = _options()
    names = options.cases.split(",") if options.cases else list(CASES)
    data = options.data
    if data is None:
        names = [name for name in names if not CASES[name].needs_data]
    results: dict[str, dict[str, object]] = {}
    if options.render:
        whole = json.loads((options.out / "benchmarks.json").read_text(encoding="utf-8"))
        results = whole["results"]
        _keep(options.out, results, whole["gaps"] or _solve(list(results), data), whole["told"])
        return 0
    gaps: list[dict[str, float | str]] = []
    if options.keep:
        whole = json.loads((options.out / "benchmarks.json").read_text(encoding="utf-8"))
        results = {name: whole["results"][name] for name in whole["results"] if name not in names}
        gaps = [gap for gap in whole["gaps"] if gap["slice"].rpartition(",")[0] not in names]
    runs = [(name, seed) for name in names for seed in range(1, options.seeds + 1)]
    begun, seconds = perf_counter(), 0.0
    with ProcessPoolExecutor(options.processes) as pool:
        work = partial(_run, data=data or Path(), part=Part(options.part))
        for (name, seed), (found, took) in zip(runs, pool.map(work, runs), strict=True):
            results.setdefault(name, {})[str(seed)] = found
            seconds += took
            print(f"{perf_counter() - begun:6.0f} s  {name} seed {seed}", flush=True)  # noqa: T201
            if seed == options.seeds:
                _write(options, results, gaps, seconds)
    _write(options, results, [*gaps, *_solve(names, data)], seconds)
    return 0


def _run(which: tuple[str, int], data: Path, part: Part) -> tuple[Mapping[str, Figures], float]:
    """Return the figures of one scenario with one seed, and the seconds of a core they took."""
    name, seed = which
    begun = process_time()
    return measure(CASES[name], seed, data, part), process_time() - begun


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="directory of the real traces and prices")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--cases", default="", help="names, with commas; all by default")
    parser.add_argument("--part", default=Part.REPORT.value, choices=[p.value for p in Part])
    parser.add_argument("--keep", action="store_true", help="keep the rows of other scenarios")
    parser.add_argument("--render", action="store_true", help="only write the page anew")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of benchmarks.md and .json")
    return parser.parse_args()


def _solve(names: Sequence[str], data: Path | None) -> list[dict[str, float | str]]:
    """Return how far the optimum of small slices is above the bounds."""
    gaps: list[dict[str, float | str]] = []
    hour = (1.0 + extra_price_per_hour(0)) / 3600.0
    for name, first, hours in _SLICES:
        if name not in names:
            continue
        scenario = CASES[name].build(1, data or Path(), Part.REPORT)
        later = [x for x in scenario.arrivals if x.at >= first * 3600.0]
        slice_ = [x for x in later if x.at < later[0].at + hours * 3600.0]
        slice_ = slice_[:_SLICE_JOBS]
        listing = replace(scenario.listings[0], on_demand=None, speed=1.0)
        zone = next(iter(listing.zones))
        alone = replace(
            scenario,
            arrivals=tuple(slice_),
            boot=_BOOT,
            root_volume_gib=0,
            listings=(replace(listing, zones={zone: Zone(spot=((0.0, 1.0),))}),),
        )
        exact = optimum(slice_, start_within=600.0, boot=_BOOT.at_least)
        least = bound(alone, start_within=600.0)
        gaps.append(
            {
                "slice": f"{name}, {hours:g} h",
                "jobs": len(slice_),
                "least_over_l2": exact.least * hour / least.bounded_wait,
                "found_over_l2": exact.found * hour / least.bounded_wait,
                "least_over_sparse": exact.least * hour / least.sparse_wait,
            }
        )
    return gaps


def _write(
    options: argparse.Namespace,
    results: dict[str, dict[str, object]],
    gaps: list[dict[str, float | str]],
    seconds: float,
) -> None:
    minutes = seconds / 60.0
    told = (
        f"Part of the traces: `{options.part}`; {options.seeds} seeds; {minutes:.0f} minutes on"
        " one core."
    )
    _keep(options.out, results, gaps, told)


def _keep(
    out: Path,
    results: dict[str, dict[str, object]],
    gaps: list[dict[str, float | str]],
    told: str,
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    whole = {"told": told, "results": results, "gaps": gaps}
    text = json.dumps(whole, indent=1, sort_keys=True) + "\n"
    (out / "benchmarks.json").write_text(text, encoding="utf-8")
    ordered = {name: results[name] for name in CASES if name in results}
    written = page(ordered, gaps, told)  # type: ignore[arg-type]
    (out / "benchmarks.md").write_text(written, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

"""Compare the shipped policy with everybody else, and write docs/benchmarks.md and .json.

Run by ``make compare``. What a run has found is kept after each scenario.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from tests.bench.compare.case import CASES
from tests.bench.compare.ignorance import climb
from tests.bench.compare.measure import Figures, measure
from tests.bench.compare.screen import show
from tests.bench.compare.source import Part
from tests.bench.compare.table import page
from tests.bench.compare.whole import solve_whole

DOCS = Path(__file__).parents[3] / "docs"


def main() -> int:
    """Run what is asked for."""
    options = _options()
    names = options.cases.split(",") if options.cases else list(CASES)
    data = options.data
    if data is None:
        names = [name for name in names if not CASES[name].needs_data]
    results: dict[str, dict[str, object]] = {}
    if options.integral:
        _bound_whole(options, names)
        return 0
    if options.ignorance:
        _price_ignorance(options, names)
        return 0
    whole = _read(options.out)
    if options.render:
        _keep(options.out, whole)
        _show(options.out)
        return 0
    if options.keep:
        results = {name: whole["results"][name] for name in whole["results"] if name not in names}
    runs = [(name, seed) for name in names for seed in range(1, options.seeds + 1)]
    begun, seconds = perf_counter(), 0.0
    with ProcessPoolExecutor(options.processes) as pool:
        work = partial(_run, data=data or Path(), part=Part(options.part))
        for (name, seed), (found, took) in zip(runs, pool.map(work, runs), strict=True):
            results.setdefault(name, {})[str(seed)] = found
            seconds += took
            print(f"{perf_counter() - begun:6.0f} s  {name} seed {seed}", flush=True)  # noqa: T201
            if seed == options.seeds:
                told = _how_long(options, seconds)
                _keep(options.out, whole | {"results": results, "told": told})
    _show(options.out)
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
    parser.add_argument("--keep", action="store_true", help="keep what is known already")
    parser.add_argument(
        "--integral", action="store_true", help="only bound S1 to S5 with whole machines"
    )
    parser.add_argument(
        "--ignorance", action="store_true", help="only price what ours does not know in S1 to S5"
    )
    parser.add_argument(
        "--render", action="store_true", help="only write the page anew, and print it"
    )
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of benchmarks.md and .json")
    return parser.parse_args()


def _bound_whole(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Bound whole traces with the first seed; keep what has been found after each scenario."""
    out, begun = options.out, perf_counter()
    mains = [name for name in names if CASES[name].is_main]
    before = _read(out)["wholes"] if options.keep else {}
    known = [before.get(name, {}).get("1", {}) for name in mains]
    with ProcessPoolExecutor(options.processes) as pool:
        solve = partial(solve_whole, data=options.data or Path(), part=Part(options.part))
        for name, found in zip(mains, pool.map(solve, mains, known), strict=True):
            whole = _read(out)
            whole["wholes"][name] = {"1": found}
            print(f"{perf_counter() - begun:6.0f} s  {name}", flush=True)  # noqa: T201
            _keep(out, whole)


def _price_ignorance(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Run ours with the first seed in worlds that hide less; keep what each scenario has shown."""
    out, begun = options.out, perf_counter()
    mains = [name for name in names if CASES[name].is_main]
    with ProcessPoolExecutor(options.processes) as pool:
        told = partial(climb, data=options.data or Path(), part=Part(options.part))
        for name, found in zip(mains, pool.map(told, mains), strict=True):
            whole = _read(out)
            whole["ladders"][name] = found
            print(f"{perf_counter() - begun:6.0f} s  {name}", flush=True)  # noqa: T201
            _keep(out, whole)


def _read(out: Path) -> dict[str, Any]:
    whole: dict[str, Any] = {"results": {}, "told": "", "wholes": {}, "ladders": {}}
    path = out / "benchmarks.json"
    return whole | (json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})


def _how_long(options: argparse.Namespace, seconds: float) -> str:
    minutes = seconds / 60.0
    return (
        f"Part of the traces: `{options.part}`; {options.seeds} seeds; {minutes:.0f} minutes on"
        " one core."
    )


def _keep(out: Path, whole: Mapping[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(whole, indent=1, sort_keys=True) + "\n"
    (out / "benchmarks.json").write_text(text, encoding="utf-8")
    results = {name: whole["results"][name] for name in CASES if name in whole["results"]}
    written = page(results, whole["wholes"], whole["ladders"], whole["told"])
    (out / "benchmarks.md").write_text(written, encoding="utf-8")


def _show(out: Path) -> None:
    show((out / "benchmarks.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())

"""Compare the shipped policy with everybody else, and write docs/benchmarks.md and .json.

Run by ``make compare``. What a run has found is kept after each scenario.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from research.compare.case import CASES
from research.compare.ignorance import climb
from research.compare.measure import Figures, measure
from research.compare.screen import show
from research.compare.source import Part
from research.compare.table import page
from research.compare.whole import solve_online, solve_whole

DOCS = Path(__file__).parents[2] / "docs"


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
    if options.online:
        _plan_online(options, names)
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
            print(f"{perf_counter() - begun:6.0f} s  {name} seed {seed}", flush=True)
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
        "--online", action="store_true", help="only plan S1 to S5 as jobs come, after --integral"
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
    """Bound whole traces with the first seed."""
    before = _read(options.out)["wholes"] if options.keep else {}
    known = {name: before.get(name, {}).get("1", {}) for name in names}
    for name, found in _each_main(options, names, partial(_solve_whole, known=known)):
        whole = _read(options.out)
        whole["wholes"][name] = {"1": found}
        _keep(options.out, whole)


def _solve_whole(name: str, data: Path, part: Part, known: Mapping[str, Any]) -> Any:
    return solve_whole(name, known[name], data, part)


def _plan_online(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Add what schedules cost that are made as jobs come."""
    for name, found in _each_main(options, names, solve_online):
        whole = _read(options.out)
        own = whole["wholes"].setdefault(name, {}).setdefault("1", {})
        for promise, figures in found.items():
            own[promise] = own.get(promise, {}) | figures
        _keep(options.out, whole)


def _price_ignorance(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Run ours with the first seed in worlds that hide less."""
    for name, found in _each_main(options, names, climb):
        whole = _read(options.out)
        whole["ladders"][name] = found
        _keep(options.out, whole)


def _each_main(
    options: argparse.Namespace, names: Sequence[str], look: Callable[..., Any]
) -> Iterator[tuple[str, Any]]:
    """Yield what a look at each scenario of S1 to S5 has found, as soon as it has."""
    begun, mains = perf_counter(), [name for name in names if CASES[name].is_main]
    with ProcessPoolExecutor(options.processes) as pool:
        work = partial(look, data=options.data or Path(), part=Part(options.part))
        for name, found in zip(mains, pool.map(work, mains), strict=True):
            print(f"{perf_counter() - begun:6.0f} s  {name}", flush=True)
            yield name, found


def _read(out: Path) -> dict[str, Any]:
    whole: dict[str, Any] = {"results": {}, "told": "", "wholes": {}, "ladders": {}}
    path = out / "benchmarks.json"
    return whole | (json.loads(path.read_text(encoding="utf-8")) if path.exists() else {})


def _how_long(options: argparse.Namespace, seconds: float) -> str:
    of = f" for the rows that were run last ({options.cases})" if options.keep else ""
    return (
        f"Part of the traces: `{options.part}`; {options.seeds} seeds; {seconds / 60.0:.0f} minutes"
        f" on one core{of}."
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

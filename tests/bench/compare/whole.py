"""How far the optimum of whole traces lies above L2, by machines and boots that are whole numbers.

Run by ``python -m tests.bench.compare --integral``; kept in benchmarks.json beside the results.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import process_time

from spindown.simulator import bound
from tests.bench.compare.case import CASES
from tests.bench.compare.grid import Results, grid
from tests.bench.compare.integral import integral
from tests.bench.compare.measure import PROMISES
from tests.bench.compare.source import Part

TEXT = """L2 is a lower bound, not an optimum, and so is the linear relaxation above. This one has
whole machines and whole boots (`tests/bench/compare/integral`): a mixed-integer program of each
part of a trace, cut where every schedule is idle for longer than a boot. What HiGHS proves of it is
used, block by block where a part is long, so it is below the optimum whether or not it was solved
to the end. Refunds are as in L2. *Best* is the highest of L2, the sparse bound, the relaxation and
this one. All are below what a schedule costs that knows every arrival and price beforehand, so the
room that a target leaves is its ratio over best / L2. One seed, with its own ratios.
"""

#: case -> seed -> promise -> figures.
Wholes = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
_SAME = 1e-6


def solve_whole(name: str, seed: int, data: Path, part: Part) -> dict[str, dict[str, float]]:
    """Return the bound of one scenario by promise; nothing where work is too dense for it."""
    scenario = CASES[name].build(seed, data, part)
    told = {}
    for minutes in PROMISES:
        begun = process_time()
        found = integral(scenario, start_within=minutes * 60.0)
        if found is not None:
            told[f"{minutes:.0f} min"] = {
                "dollars": found.dollars,
                "relaxed": found.relaxed,
                "parts": float(found.parts),
                "bounded_wait": bound(scenario, start_within=minutes * 60.0).bounded_wait,
                "cpu_seconds": process_time() - begun,
            }
    return told


def wholes(results: Results, found: Wholes) -> str:
    """Return the table of all rows of S1 to S5, and its geometric means."""
    head = ["scenario, promise", "parts", "integral / L2", "ours / integral", "best / L2"]
    head.append("ours / best")
    rows, means = [], []
    for minutes in PROMISES:
        promise = f"{minutes:.0f} min"
        groups: dict[str, list[tuple[float, float]]] = {}
        for name in (name for name in results if CASES[name].is_main):
            row, factors = _row(results, found, name, promise)
            rows.append([f"{name}, {promise}", *row])
            groups.setdefault(name.partition(" ")[0], []).append(factors)
        tight, ours = (_mean([[f[at] for f in each] for each in groups.values()]) for at in (0, 1))
        means.append([f"S1 to S5, geometric mean, {promise}", "", "", "", tight, ours])
    return grid(head, [*rows, *means]) if means else ""


def _row(
    results: Results, found: Wholes, name: str, promise: str
) -> tuple[list[str], tuple[float, float]]:
    """Return cells, and best over L2 and ours over best."""
    least = results[name]["1"][f"bound {promise}"]
    ours, l2 = results[name]["1"][f"ours {promise}"]["dollars"], least["bounded_wait"]
    told = found.get(name, {}).get("1", {}).get(promise)
    if told is not None and abs(told["bounded_wait"] - l2) > _SAME * l2:
        told = None  # It is of other traffic or prices.
    known = [l2, least["sparse_wait"], least.get("relaxed", 0.0)]
    cells = ["", "", ""]
    if told is not None:
        dollars = told["dollars"]
        known.append(dollars)
        cells = [f"{told['parts']:.0f}", f"{dollars / l2:.3f}", f"{ours / dollars:.3f}"]
    best = max(known)
    return [*cells, f"{best / l2:.3f}", f"{ours / best:.3f}"], (best / l2, ours / best)


def _mean(groups: Sequence[Sequence[float]]) -> str:
    """Return the geometric mean, each scenario once however many rows it has."""
    logs = [math.fsum(map(math.log, group)) / len(group) for group in groups]
    return f"{math.exp(math.fsum(logs) / len(logs)):.3f}"

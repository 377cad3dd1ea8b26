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
from tests.bench.compare.integral import feasible, integral
from tests.bench.compare.measure import PROMISES
from tests.bench.compare.source import Part

TEXT = """L2 is a lower bound, not an optimum, and so is the linear relaxation above. This one has
whole machines and whole boots (`tests/bench/compare/integral`): a mixed-integer program of each
part of a trace, cut where every schedule is idle for longer than a boot. What HiGHS proves of it is
used, block by block where a part is long, so it is below the optimum whether or not it was solved
to the end. Refunds are as in L2. *Best* is the highest of L2, the sparse bound, the relaxation and
this one: a ratio over L2 below best / L2 cannot be had by anybody. *Found* is a schedule that keeps
the promise for every job and knows every arrival and price beforehand: list scheduling, the best of
some 200 ways for each part. It pays for every hour and no machine is taken from it; refunds would
make it cheaper, losses dearer. Near the optimum it is not sure to be, but whoever must decide
without knowing what comes has this to be measured by. One seed, with its own ratios.
"""

Figures = Mapping[str, float]
#: case -> seed -> promise -> figures.
Wholes = Mapping[str, Mapping[str, Mapping[str, Figures]]]
_SAME = 1e-6
#: One part of days, for which a mixed-integer program proves no more than L2 does.
_DENSE = frozenset({"S2 x10", "S5"})


def solve_whole(
    name: str, seed: int, data: Path, part: Part, known: Mapping[str, Figures]
) -> dict[str, dict[str, float]]:
    """Return a bound and a schedule of one scenario, by promise; no bound where it is too dense.

    Args:
        name: of the scenario.
        seed: of its traffic and prices.
        data: directory of the real traces.
        part: of the traces.
        known: what an earlier run has found; a bound for the same L2 is kept.
    """
    scenario = CASES[name].build(seed, data, part)
    told: dict[str, dict[str, float]] = {}
    for minutes in PROMISES:
        promise, begun, within = f"{minutes:.0f} min", process_time(), minutes * 60.0
        least = bound(scenario, start_within=within).bounded_wait
        figures = told[promise] = {
            **(_of(known.get(promise), least) or {}),
            "found": feasible(scenario, start_within=within),
            "bounded_wait": least,
        }
        if "dollars" in figures or name in _DENSE:
            continue
        whole = integral(scenario, start_within=within)
        if whole is not None:
            figures |= {
                "dollars": whole.dollars,
                "relaxed": whole.relaxed,
                "parts": float(whole.parts),
                "cpu_seconds": process_time() - begun,
            }
    return told


def wholes(results: Results, found: Wholes) -> str:
    """Return the table of all rows of S1 to S5, and its geometric means."""
    head = ["scenario, promise", "parts", "integral / L2", "best / L2", "found / L2"]
    head += ["ours / best", "ours / found"]
    rows, means = [], []
    for minutes in PROMISES:
        promise = f"{minutes:.0f} min"
        groups: dict[str, list[Sequence[float | None]]] = {}
        for name in (name for name in results if CASES[name].is_main):
            seed = results[name]["1"]
            told = found.get(name, {}).get("1", {}).get(promise)
            row, factors = _row(seed[f"ours {promise}"]["dollars"], seed[f"bound {promise}"], told)
            rows.append([f"{name}, {promise}", *row, *map(_told, factors)])
            groups.setdefault(name.partition(" ")[0], []).append(factors)
        columns = (
            [[factors[at] for factors in group] for group in groups.values()] for at in range(4)
        )
        means.append([f"S1 to S5, geometric mean, {promise}", "", "", *map(_mean, columns)])
    return grid(head, [*rows, *means]) if rows else ""


def _row(
    ours: float, least: Figures, told: Figures | None
) -> tuple[Sequence[str], Sequence[float | None]]:
    """Return the cells of the bound; and best and found over L2, ours over best and found."""
    l2 = least["bounded_wait"]
    told = _of(told, l2) or {}
    best = max(l2, least["sparse_wait"], least.get("relaxed", 0.0), told.get("dollars", 0.0))
    cells = ["", ""]
    if "dollars" in told:
        cells = [f"{told['parts']:.0f}", f"{told['dollars'] / l2:.3f}"]
    found = told.get("found")
    if found is None:
        return cells, (best / l2, None, ours / best, None)
    return cells, (best / l2, found / l2, ours / best, ours / found)


def _of(told: Figures | None, least: float) -> Figures | None:
    """Return figures only if they are of this L2: else they are of other traffic or prices."""
    is_same = told is not None and abs(told["bounded_wait"] - least) <= _SAME * least
    return told if is_same else None


def _told(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.3f}"


def _mean(groups: Sequence[Sequence[float | None]]) -> str:
    """Return the geometric mean, each scenario once however many rows it has."""
    logs = []
    for group in groups:
        known = [math.log(each) for each in group if each is not None]
        if len(known) < len(group):
            return ""
        logs.append(math.fsum(known) / len(known))
    return f"{math.exp(math.fsum(logs) / len(logs)):.3f}"

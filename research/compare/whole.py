"""How far the optimum of whole traces lies above L2, by machines and boots that are whole numbers.

Run by ``python -m research.compare --integral --data DIR --processes 2``, about half an
hour of a core that does nothing else: HiGHS is timed; and with ``--online`` for who is told as jobs
come, about as long. What they find is kept in benchmarks.json.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import process_time

from research.bound import bound, generous
from research.compare.case import CASES
from research.compare.grid import Results, grid
from research.compare.integral import feasible, integral, online
from research.compare.measure import PROMISES
from research.compare.source import Part

TEXT = """L2 is a lower bound, not an optimum, and so is the linear relaxation above. *Integral* has
whole machines and whole boots (`research/compare/integral`): a mixed-integer program of each
part of a trace, cut where every schedule is idle for longer than a boot. What HiGHS proves of it is
used, block by block where a part is long, so it is below the optimum whether or not it was solved
to the end. Reclaims of S1 to S5 come at rates, and no bound here foresees one: L2 leaves off an
hour the largest share that is free in the mean (`research/bound/refund.py`), this one
what a machine of its age is spared in the mean (`research/compare/integral/age.py`); both have
their proof. What they foresee is arrivals and prices. *Best* is the highest of L2, the sparse
bound, the relaxation and this one: a ratio over L2 below best / L2 cannot be had in the mean by
anybody who starts every job in time and never lets one rest.

*Found* is a schedule that keeps the promise for every job. It knows every arrival and price
beforehand, and no reclaim: list scheduling, the best of some 200 ways for each part, then made
cheaper by taking jobs away and handing them out again, thousands of times. It is charged what its
plans are charged in the mean, refunds included, if each machine that gets notice is replaced at
once. Boots take their mean, and nothing is done twice. The optimum lies between best and found.

*Online* is made as jobs come (`research/compare/integral/online`), by the same kind of search:
it knows of every job that has come how long it takes, and nothing of those that will; what has not
begun is planned anew at each arrival. *Foreseen* knows each job one promise before it comes, which
is what a perfect forecast would be worth; it is left out where that is too many jobs to plan. Both
are charged as *found* is. Ours knows neither what comes nor how long a job will take, nor which is
handed out next, how long a boot takes and what is taken away; it may start one job in twenty late.
One seed, with its own ratios.
"""

Figures = Mapping[str, float]
#: case -> seed -> promise -> figures.
Wholes = Mapping[str, Mapping[str, Mapping[str, Figures]]]
_SAME = 0.005
#: Minutes; of a longer promise, too.
_FORESEEN_AT_MOST = 10.0
#: Columns that the table compares by.
_FACTORS = 7
#: One part of days, for which a mixed-integer program proves no more than L2 does, and in which
#: too many jobs are known beforehand to plan them anew at each arrival.
_DENSE = frozenset({"S2 x10", "S5"})


def solve_whole(
    name: str, known: Mapping[str, Figures], data: Path, part: Part
) -> dict[str, dict[str, float]]:
    """Return a bound and a schedule of one scenario, by promise; no bound where it is too dense.

    Args:
        name: of the scenario; its traffic and prices are those of the first seed.
        known: what an earlier run has found; a bound for the same L2 is kept.
        data: directory of the real traces.
        part: of the traces.
    """
    scenario = CASES[name].scenario(1, data, part)
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
        whole = integral(generous(scenario), start_within=within)
        if whole is not None:
            figures |= {
                "dollars": whole.dollars,
                "relaxed": whole.relaxed,
                "parts": float(whole.parts),
                "cpu_seconds": process_time() - begun,
            }
    return told


def solve_online(name: str, data: Path, part: Part) -> dict[str, dict[str, float]]:
    """Return what schedules of one scenario cost that are made as jobs come, by promise.

    Args:
        name: of the scenario; its traffic and prices are those of the first seed.
        data: directory of the real traces.
        part: of the traces.
    """
    scenario = CASES[name].scenario(1, data, part)
    told: dict[str, dict[str, float]] = {}
    for minutes in PROMISES:
        within = minutes * 60.0
        figures = told[f"{minutes:.0f} min"] = {
            "bounded_wait": bound(scenario, start_within=within).bounded_wait,
            "online": online(scenario, start_within=within),
        }
        if minutes <= _FORESEEN_AT_MOST and name not in _DENSE:
            figures["foreseen"] = online(scenario, start_within=within, ahead=within)
    return told


def wholes(results: Results, found: Wholes) -> str:
    """Return the table of all rows of S1 to S5, and its geometric means."""
    head = ["scenario, promise", "parts", "integral / L2", "best / L2", "found / L2"]
    head += ["foreseen / L2", "online / L2", "ours / best", "ours / found", "ours / online"]
    if not any(CASES[name].is_main for name in results):
        return ""
    rows, means, told_plainly = [], [], []
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
            [[factors[at] for factors in group] for group in groups.values()]
            for at in range(_FACTORS)
        )
        mean = [_mean(column) for column in columns]
        means.append([f"S1 to S5, geometric mean, {promise}", "", "", *map(_told, mean)])
        told_plainly.append(_plainly(minutes, mean))
    return "\n".join([grid(head, [*rows, *means]), *told_plainly])


def _plainly(minutes: float, mean: Sequence[float | None]) -> str:
    """Return what the means show, as a paragraph."""
    least, found, _, online_pays, over_best, *_ = mean
    if least is None or found is None or over_best is None:
        return ""
    told_late = (
        ""
        if online_pays is None
        else " Who is told of each job when it comes, and how long it takes, pays"
        f" {online_pays:.3f}: a schedule was made so."
    )
    return (
        f"**Shown for S1 to S5 at {minutes:.0f} minutes**, as multiples of L2 in the mean. Nobody"
        f" who keeps the promise pays less than {least:.3f}, whatever he knows: this is proven. Who"
        f" knows every arrival pays {found:.3f}: such a schedule was found.{told_late} Ours, which"
        f" knows neither, pays {least * over_best:.3f}.\n"
    )


def _row(
    ours: float, least: Figures, told: Figures | None
) -> tuple[Sequence[str], Sequence[float | None]]:
    """Return the cells of the bound, and what the table compares; None: not looked at."""
    l2 = least["bounded_wait"]
    told = _of(told, l2) or {}
    best = max(l2, least["sparse_wait"], least.get("relaxed", 0.0), told.get("dollars", 0.0))
    cells = ["", ""]
    if "dollars" in told:
        cells = [f"{told['parts']:.0f}", f"{told['dollars'] / l2:.3f}"]
    schedules = [told.get(name) for name in ("found", "foreseen", "online")]
    over = [None if dollars is None else dollars / l2 for dollars in schedules]
    found, _, as_they_come = over
    ours_over = [None if ratio is None else ours / l2 / ratio for ratio in (found, as_they_come)]
    return cells, (best / l2, *over, ours / best, *ours_over)


def _of(told: Figures | None, least: float) -> Figures | None:
    """Return figures only if they are of this L2: else they are of other traffic or prices."""
    is_same = told is not None and abs(told["bounded_wait"] - least) <= _SAME * least
    return told if is_same else None


def _told(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.3f}"


def _mean(groups: Sequence[Sequence[float | None]]) -> float | None:
    """Return the geometric mean, each scenario once however many rows it has; None: not known."""
    logs = []
    for group in groups:
        known = [math.log(each) for each in group if each is not None]
        if len(known) < len(group):
            return None
        logs.append(math.fsum(known) / len(known))
    return math.exp(math.fsum(logs) / len(logs))

"""What it costs ours not to know: the same traffic in worlds in which less is hidden or by chance.

Run by ``python -m research.compare --ignorance --data DIR --processes 2``, about a quarter of an
hour of a core. What it finds is kept in benchmarks.json.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from research.bound import bound
from research.compare.case import CASES, patient_policy
from research.compare.grid import Results, grid
from research.compare.measure import PROMISES
from research.compare.source import Part
from spindown.simulator import SimScenario, simulate

TEXT = """The bounds know every arrival, how long each job takes, which job is handed out next, how
long each boot takes and what is taken away. Ours knows none of that. Here it runs in worlds in
which, step by step, less is hidden or left to chance: SQS hands out in order (it says that it
tries to; in all that is compared above it takes any of the ten oldest messages); then every boot
takes as long as the mean, and nothing is reclaimed; then every job takes as long as the mean job of
its trace, so that what has been measured tells how long the next one takes. The last step makes
other work of a trace in which few long jobs are most of it (S3, S4): there it says little. Prices,
arrivals and the policy stay. Each column is of a world of its own, with its own L2. What is left is
not to know what comes and when, the wait for the next tick, and what L2 leaves out. One seed.
"""

#: case -> promise -> step -> ours / L2 and the p95 wait in minutes.
Ladders = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]


def _in_order(scenario: SimScenario) -> SimScenario:
    return replace(scenario, disorder=1)


def _alike(scenario: SimScenario) -> SimScenario:
    count = len(scenario.arrivals)
    items = max(1, round(sum(each.items for each in scenario.arrivals) / count))
    seconds = scenario.work_seconds / count / items
    arrivals = (replace(each, items=items, item_seconds=seconds) for each in scenario.arrivals)
    return replace(scenario, arrivals=tuple(arrivals))


def _certain(scenario: SimScenario) -> SimScenario:
    boot = scenario.boot
    # A lognormal's mean lies above its median by exp(sigma^2 / 2).
    even = replace(boot, median=boot.median * math.exp(boot.sigma**2 / 2.0), sigma=0.0)
    listings = tuple(
        replace(
            listing,
            zones={
                name: replace(zone, reclaims_per_hour=0.0) for name, zone in listing.zones.items()
            },
        )
        for listing in scenario.listings
    )
    return replace(scenario, boot=even, listings=listings)


#: What is told besides all before, in this order.
STEPS: Mapping[str, Callable[[SimScenario], SimScenario]] = {
    "in order": _in_order,
    "boots alike, no reclaims": _certain,
    "jobs alike": _alike,
}


def climb(name: str, data: Path, part: Part) -> dict[str, dict[str, dict[str, float]]]:
    """Return ours over L2 and the p95 wait in minutes, by promise and step, with the first seed.

    Args:
        name: of the scenario.
        data: directory of the real traces.
        part: of the traces.
    """
    told: dict[str, dict[str, dict[str, float]]] = {}
    for minutes in PROMISES:
        rungs = told[f"{minutes:.0f} min"] = {}
        scenario = CASES[name].scenario(1, data, part)
        for step, tell in STEPS.items():
            scenario = tell(scenario)
            ours = simulate(scenario, patient_policy(minutes), 1)
            least = bound(scenario, start_within=minutes * 60.0).bounded_wait
            rungs[step] = {
                "ratio": ours.dollars / least,
                "wait_p95_min": ours.wait.p95 / 60.0,
            }
    return told


def ladders(results: Results, found: Ladders) -> str:
    """Return the table of the rows of S1 to S5 that have been measured, and geometric means."""
    rows, means = [], []
    for minutes in PROMISES:
        promise = f"{minutes:.0f} min"
        groups: dict[str, list[list[float]]] = {}
        for name in (name for name in results if name in found):
            seed = results[name]["1"]
            as_is = seed[f"ours {promise}"]["dollars"] / seed[f"bound {promise}"]["bounded_wait"]
            factors = [as_is, *(found[name][promise][step]["ratio"] for step in STEPS)]
            rows.append([f"{name}, {promise}", *(f"{factor:.3f}" for factor in factors)])
            groups.setdefault(name.partition(" ")[0], []).append(factors)
        if groups:
            means.append([f"geometric mean, {promise}", *_mean(groups)])
    return grid(["scenario, promise", "as compared", *STEPS], [*rows, *means]) if rows else ""


def _mean(groups: Mapping[str, list[list[float]]]) -> list[str]:
    """Return the geometric mean of each column, each scenario once however many rows it has."""
    logs = [
        [math.fsum(map(math.log, column)) / len(column) for column in zip(*group, strict=True)]
        for group in groups.values()
    ]
    return [
        f"{math.exp(math.fsum(column) / len(column)):.3f}" for column in zip(*logs, strict=True)
    ]

"""The page of rivals: what each costs over ours, and where somebody who is in time costs less."""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from research.compare.grid import grid, interval
from research.rival.boot import CASES
from research.rival.family import FAMILIES
from research.rival.row import ROWS

PROMISE = timedelta(minutes=10)
_MINUTES = PROMISE / timedelta(minutes=1)
#: Ours, and ours with a launch for any work that comes.
OURS, AT_ONCE = "ours", "ours, at once"
#: Rows below, over their seeds, are called thin.
_LEAST_JOBS, _LEAST_DOLLARS = 1000, 20.0
#: Rows on which systems as people set them are told as a target.
_CUSTOMARY = frozenset({"S1", "S2"})
#: What ours may cost over the best search.
_SEARCHED = 1.03
#: What a planner pays over the bound that is told each job, and how long it takes, when it comes:
#: the geometric mean of S1 to S5 in research/notes/0039-bounds.md, of shorter boots than today's.
_TOLD_EACH_JOB = 1.095
#: The row whose types differ most in dollars per item; rivals buy by the hour.
_UNLIKE = "S9"
#: The boots of docs/benchmarks.json, whose bounds are asked for.
_BOUNDED = "bootstrap"

_HEAD = """# Rivals at their best

Written by `python -m research.rival --data DIR`; nothing here is edited by hand. {seeds}.

Each rival is run with the setting that people have, and with the best of its own knobs: all its
settings are run on the first part of a trace (or with another seed, where traffic is generated).
The cheapest that starts 95 % of the jobs within 10 minutes there is run on the last part. Ours is
what `spindown init` writes, with `start_within = "10m"` and `max_workers = 200`; *at once* has
`scale_up_threshold = 1` besides. Nothing of ours is searched.

The customary setting of Batch has its scale-down delay at the least that it takes, 20 minutes. It
is off unless people set it, and AWS does not say how soon idle machines end then: *scale-in after
0 min*, which is searched, is the kindest reading. Which types a rival may buy is not searched: each
buys the cheapest hour. On S9 that is the wrong type, and whoever tells a rival the best one there
takes most of our lead away: the mean is told without that row too.

Rivals are treated kindly: they know the mean length of a job, commit nothing (ours spends 0.3 s a
job on it), and end as soon as they fall idle. Those that wait on SQS (*depth alarm*, *target
tracking*, *wait, then size*, *ski rental*) take what SQS hands out, as ours does: one of the ten
oldest messages. The others have queues of their own, and take the oldest job. All have the same
market, boots, reclaims and bill. A start is the moment at which the first item is handed to code:
a boot here lasts from the launch to that moment.

| boot | least, s | median, s | 95 %, s | composed of |
|---|---|---|---|---|
{boots}

The first phase is measured on launches of 2026 (Spare Cores). 125 MB a second is what a gp3 volume
writes. What packages and models weigh, and how long they take to load, is assumed: 250 MB and 5 s;
5.5 GB of PyTorch, 5 GB of model and 10 s.

"""

_LEGEND = """Figures are multiples of the dollars of *ours*, means over seeds; below 1 the rival is
cheaper. `~`: fewer than 95 % of its jobs start within 10 minutes, so its price is no rival's. `-`:
no setting that was searched is in time on the first part. In brackets: ours in dollars.

"""

_WHY = """
The published systems are near ours at their best because their best is our rule: an alarm whose
step is sized by the backlog, for machines that never stay idle, on the cheapest pool of all. Each
is told the mean length of a job, and found its setting on the first part of the same trace. Where
somebody in time costs less than ours, these are the reasons
([ADR 81](adr/0081-one-slot-waits.md) and [82](adr/0082-few-early.md)): ours commits each job,
learns lengths and boots from nothing, and holds a launch only as long as it can still be in time
if SQS hands out a young message first. [Compared by cost](benchmarks.md) has the bounds that nobody
gets below, and [note 39](../research/notes/0039-bounds.md) proves how far above them everybody who
keeps the promise stays, whatever he knows, with boots that it names.

"""


def best_in_time(settings: Mapping[str, Mapping[str, float]]) -> str | None:
    """Return the cheapest setting that keeps the promise and does all work; None: none does."""
    kept = [name for name, found in settings.items() if is_in_time(found)]
    return min(kept, key=lambda name: settings[name]["dollars"]) if kept else None


def is_in_time(found: Mapping[str, float]) -> bool:
    """Tell whether 95 % of the jobs start within the promise, and none is lost."""
    return found["p95_min"] <= _MINUTES and not found["lost"]


def page(kept: Mapping[str, Any], over_bound: Mapping[str, float]) -> str:
    """Return the whole page as Markdown."""
    cells = {
        (row, boot): kept["cells"][row][boot]
        for row in ROWS
        for boot in CASES
        if kept["cells"].get(row, {}).get(boot, {}).get("seeds", {}).get("1")
    }
    return "".join(
        [
            _HEAD.format(boots=_boots(kept), seeds=_how_many(cells, kept)),
            "## What was wanted\n\n",
            _targets(cells, over_bound),
            _WHY,
            "\n## Who is cheaper\n\n",
            _summary(cells),
            "\n## Best setting of each\n\n",
            _LEGEND,
            grid(["row, boot", "ours", AT_ONCE, *FAMILIES], [*_lines(cells, is_best=True)]),
            "\n## Customary setting of each\n\n",
            grid(["row, boot", "ours", AT_ONCE, *FAMILIES], [*_lines(cells, is_best=False)]),
            "\n## Settings that were best\n\n",
            grid(["row, boot", *FAMILIES], [*_settings(cells)]),
        ]
    )


Cells = Mapping[tuple[str, str], Mapping[str, Any]]


def _boots(kept: Mapping[str, Any]) -> str:
    lines = []
    for name, case in CASES.items():
        told = kept.get("boots", {}).get(name)
        if told is None:
            continue
        phase = "user data begins" if "start" in case.column else "drivers and docker are installed"
        figures = " | ".join(f"{second:.0f}" for second in told)
        lines.append(f"| {name}: {case.title} | {figures} | {phase}, then {case.then:.0f} s |\n")
    return "".join(lines)


def _how_many(cells: Cells, kept: Mapping[str, Any]) -> str:
    counts = sorted({len(cell["seeds"]) for cell in cells.values()})
    told = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{sum(counts)} seed(s)"
    minutes = kept["cpu_seconds"] / 60.0
    rows = f"{len(cells)} of {len(ROWS) * len(CASES)} rows, {told} a row"
    chance = ", so that intervals tell no chance" if counts[:1] == [1] else ""
    return f"{rows}{chance}; {minutes:.0f} minutes of a core for the last parts"


def _whole(seeds: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [seed for seed in seeds.values() if OURS in seed]


def _targets(cells: Cells, over_bound: Mapping[str, float]) -> str:
    """Return what was wanted beside what is."""
    rows = []
    for boot in CASES:
        best = _best_published(cells, boot)
        if best:
            scenarios = len({row.partition(" ")[0] for row in best})
            told = f"cheapest published system in time, over ours, {boot}, mean of {scenarios}"
            rows.append([f"{told} scenarios", "at least 1.25", f"{_mean(best):.2f}"])
            alike = {row: factor for row, factor in best.items() if row != _UNLIKE}
            told = f"the same without {_UNLIKE} (its cheapest hour is of the wrong type), {boot}"
            rows.append([told, "", f"{_mean(alike):.2f}" if alike else "-"])
        if best and boot == _BOUNDED and best.keys() <= over_bound.keys():
            most = _mean({row: factor * over_bound[row] for row, factor in best.items()})
            told = f"the same over who knows all jobs and prices beforehand, {boot}"
            rows.append([f"{told}: a bound that nobody gets below", "", f"{most:.2f}"])
            told = f"the same over who is told each job and its length when it comes, {boot}"
            rows.append([told, "", f"{most / _TOLD_EACH_JOB:.2f}"])
    rows.append(["cheapest of them as people set it, over ours", "at least 1.8", _usual(cells)])
    cheaper = [
        f"{row}, {boot}: {name} {interval(factors)[0]:.3f}"
        for (row, boot), cell in cells.items()
        for is_published in (True, False)
        for name, factors in [_cheapest(cell, _whole(cell["seeds"]), is_published=is_published)]
        if factors and interval(factors)[2] < 1.0
    ]
    rows.append(["rows on which somebody in time costs less", "none", "; ".join(cheaper) or "none"])
    late = max(seed[OURS]["p95_min"] for cell in cells.values() for seed in _whole(cell["seeds"]))
    rows.append(["rows on which the best search costs 3 % less or more", "none", _beaten(cells)])
    rows.append(["95 % of our jobs start within, min, on each row", "10", f"{late:.1f}"])
    return grid(["figure", "wanted", "is"], rows)


def _best_published(cells: Cells, boot: str) -> Mapping[str, float]:
    """Return row -> what the cheapest published system in time costs over ours."""
    found = {}
    for (row, used), cell in cells.items():
        factors = _cheapest(cell, _whole(cell["seeds"]), is_published=True)[1]
        if used == boot and factors:
            found[row] = interval(factors)[0]
    return found


def _mean(factors: Mapping[str, float]) -> float:
    """Return the geometric mean over scenarios, each the mean of its rows."""
    scenarios: dict[str, list[float]] = {}
    for row, factor in factors.items():
        scenarios.setdefault(row.partition(" ")[0], []).append(math.log(factor))
    return math.exp(math.fsum(math.fsum(x) / len(x) for x in scenarios.values()) / len(scenarios))


def _usual(cells: Cells) -> str:
    """Return what the cheapest published system costs over ours if nobody tunes it."""
    told = []
    for (row, boot), cell in cells.items():
        seeds = _whole(cell["seeds"])
        found = {
            name: interval(_factors(seeds, f"{name}, customary"))[0]
            for name, family in FAMILIES.items()
            if family.is_published and _is_kept(seeds, f"{name}, customary")
        }
        if row in _CUSTOMARY and found:
            least = min(found, key=found.__getitem__)
            told.append(f"{row}, {boot}: {least} {found[least]:.2f}")
    return "; ".join(told)


def _beaten(cells: Cells) -> str:
    """Return where somebody in time, with the best of all searched settings, costs far less."""
    found = {}
    for (row, boot), cell in cells.items():
        seeds = _whole(cell["seeds"])
        both = [_cheapest(cell, seeds, is_published=published)[1] for published in (True, False)]
        least = min((interval(factors)[0] for factors in both if factors), default=1.0)
        if least < 1.0 / _SEARCHED:
            found[f"{row}, {boot}"] = least
    return "; ".join(f"{name}: {least:.3f}" for name, least in found.items()) or "none"


def _summary(cells: Cells) -> str:
    rows = []
    for (row, boot), cell in cells.items():
        seeds = _whole(cell["seeds"])
        ours = [seed[OURS]["dollars"] for seed in seeds]
        waits = [seed[OURS]["p95_min"] for seed in seeds]
        jobs = seeds[0][OURS]["jobs"]
        is_thin = jobs * len(seeds) < _LEAST_JOBS or math.fsum(ours) < _LEAST_DOLLARS
        told = [f"{row}, {boot}", f"{jobs:.0f}{' (thin)' if is_thin else ''}"]
        told += [f"{interval(ours)[0]:.2f}", f"{max(waits):.1f}"]
        for published in (True, False):
            name, factor = _cheapest(cell, seeds, is_published=published)
            told.append(f"{name} {_ranged(factor)}" if factor else "nobody in time")
        rows.append(told)
    head = ["row, boot", "jobs", "ours, $", "largest p95 of ours, min"]
    return grid([*head, "cheapest published system", "cheapest rule of our own or of theory"], rows)


def _cheapest(
    cell: Mapping[str, Any], seeds: Sequence[Mapping[str, Any]], *, is_published: bool
) -> tuple[str, list[float]]:
    """Return who of one kind costs least of those in time, and its factors over ours."""
    found: dict[str, list[float]] = {}
    for name, family in FAMILIES.items():
        if family.is_published is not is_published:
            continue
        for who in (_best_name(cell, name), f"{name}, customary"):
            factors = _factors(seeds, who)
            if factors and _is_kept(seeds, who):
                found[name] = min(found.get(name, factors), factors, key=math.fsum)
    if not found:
        return "", []
    least = min(found, key=lambda name: math.fsum(found[name]))
    return least, found[least]


def _lines(cells: Cells, *, is_best: bool) -> list[list[str]]:
    rows = []
    for (row, boot), cell in cells.items():
        seeds = _whole(cell["seeds"])
        dollars = interval([seed[OURS]["dollars"] for seed in seeds])[0]
        line = [f"{row}, {boot}", f"1 ({dollars:.2f})", _cell(seeds, AT_ONCE)]
        for name in FAMILIES:
            who = _best_name(cell, name) if is_best else f"{name}, customary"
            line.append(_cell(seeds, who))
        rows.append(line)
    return rows


def _settings(cells: Cells) -> list[list[str]]:
    return [
        [f"{row}, {boot}", *(best_in_time(cell["search"][name]) or "-" for name in FAMILIES)]
        for (row, boot), cell in cells.items()
    ]


def _cell(seeds: Sequence[Mapping[str, Any]], who: str) -> str:
    factors = _factors(seeds, who)
    if not factors:
        return "-"
    return f"{interval(factors)[0]:.2f}{'' if _is_kept(seeds, who) else '~'}"


def _best_name(cell: Mapping[str, Any], family: str) -> str:
    best = best_in_time(cell["search"][family])
    return "" if best is None else f"{family}: {best}"


def _factors(seeds: Sequence[Mapping[str, Any]], who: str) -> list[float]:
    return [seed[who]["dollars"] / seed[OURS]["dollars"] for seed in seeds if who in seed]


def _is_kept(seeds: Sequence[Mapping[str, Any]], who: str) -> bool:
    told = [seed[who] for seed in seeds if who in seed]
    return math.fsum(each["p95_min"] for each in told) / len(told) <= _MINUTES and not any(
        each["lost"] for each in told
    )


def _ranged(factors: Sequence[float]) -> str:
    middle, low, high = interval(factors)
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"

"""Everybody else beside ours: what each costs, and whether anybody who is in time costs less."""

from collections.abc import Mapping, Sequence

from research.baseline import ALL
from research.compare.case import CASES
from research.compare.deadline import is_cheapest
from research.compare.grid import Results, Seed, grid, interval, mean, money, ranged, verdict
from spindown.simulator import OURS_ON_DEMAND

#: What people run; and the same on the other market, our own on demand, and what theory offers.
PEOPLE = (
    *("warm", "asg-cpu", "asg-backlog", "batch", "vm-per-job", "pool", "classic-alarm", "luna"),
)
MORE = (
    *(OURS_ON_DEMAND, "warm-spot", "asg-on-demand", "pool-fixed"),
    *("ski-rental", "ski-random", "ski-learned"),
)
#: A 95th percentile of waits beyond which a baseline is marked: it is cheap because work waits.
_LATE_MINUTES = 20.0
#: Of a row that is not thin, over all its seeds.
_JOBS, _DOLLARS = 1000, 20.0

TEXT = """A rival is whoever starts 95 % of the jobs within the promise and leaves none undone; the
factor is what the cheapest of them costs over ours. Who is late is cheap because work waits. A
promise of 1 minute is left out: half of all boots take 90 s or more, so that it is kept only by
machines that are up before work comes, whoever runs them. That is what `warm_workers` buys, and
`spindown advise` says what it costs a job.

Between the promises: *at its speed* is ours with the 95th percentile of the cheapest rival's waits
as its promise, so both start about as soon: what the rival costs over that, and both percentiles
in minutes. The first seed; none where the rival is faster than a boot.
"""
#: Figures of ours on a market of one type: its name follows.
ONLY = "only "
#: What people take who do not choose.
USUAL_TYPE = "g4dn.xlarge"
#: Figures of ours with the cheapest rival's speed as its promise.
AT_ITS_SPEED = "ours at the cheapest's speed"


def against(results: Results) -> str:
    """Return two tables: what people run, and its variants and what theory offers."""
    head = ["scenario", "ours, $", "bound L2, $", "ours / L2"]
    first = [
        [f"{name}: {CASES[name].title}{_thin(seeds)}", *_ours(seeds), *_cells(seeds, PEOPLE)]
        for name, seeds in _rows(results)
    ]
    more = [[name, *_cells(seeds, MORE)] for name, seeds in _rows(results)]
    marks = (
        "Baselines are told in multiples of our dollars; `!`: not all jobs were done;"
        " `~`: one job in twenty waited for more than 20 minutes, twice the promise."
        f" `{OURS_ON_DEMAND}` is of the first seed alone.\n"
    )
    return "\n".join([grid([*head, *PEOPLE], first), grid(["scenario", *MORE], more), marks])


def rivals(results: Results) -> str:
    """Return who else keeps each promise, and what the cheapest of them costs over ours."""
    head = ["scenario", "in time at 10 min", "cheapest of them", "in time at 60 min", "cheapest"]
    rows = []
    for name, seeds in _rows(results):
        late = _rival_cells(seeds, 60) if CASES[name].is_main else ["", ""]
        fast = _at_its_speed(results[name].get("1", {}))
        rows.append([name, *_rival_cells(seeds, 10), *late, fast])
    return grid([*head, "at its speed"], rows)


def cheapest(seed: Seed) -> str | None:
    """Return the cheapest of the others' ways that keep a promise of 10 minutes; None: nobody."""
    found = {who: factor for who, factor in in_time([seed], 10).items() if who in ALL}
    return min(found, key=found.__getitem__) if found else None


def _at_its_speed(seed: Seed) -> str:
    if AT_ITS_SPEED not in seed or (who := cheapest(seed)) is None:
        return ""
    ours, rival = seed[AT_ITS_SPEED], seed[who]
    return (
        f"{who} {rival['dollars'] / ours['dollars']:.2f},"
        f" {rival['wait_p95_min']:.1f} and {ours['wait_p95_min']:.1f}"
    )


def claims(results: Results, long: Results) -> list[str]:
    """Return the targets against others, as lines of a table."""
    return [*_cheaper(results), *_cheapest(results, long), *_ranked(results)]


def times(seeds: Sequence[Seed], who: str, minutes: int = 10) -> list[float]:
    """Return dollars of one over ours at a promise, for each seed that has it."""
    ours = f"ours {minutes} min"
    return [seed[who]["dollars"] / seed[ours]["dollars"] for seed in seeds if who in seed]


def in_time(seeds: Sequence[Seed], minutes: int) -> Mapping[str, float]:
    """Return who keeps a promise and does all the work -> mean dollars over ours."""
    found = {}
    for who in (OURS_ON_DEMAND, *ALL):
        known = [seed for seed in seeds if who in seed]
        if not known or any(seed[who]["lost_jobs"] for seed in known):
            continue
        if mean(known, who, "wait_p95_min") <= minutes:
            factors = times(known, who, minutes)
            found[who] = sum(factors) / len(factors)
    return found


def _rows(results: Results) -> list[tuple[str, Sequence[Seed]]]:
    return [(name, list(seeds.values())) for name, seeds in results.items()]


def _thin(seeds: Sequence[Seed]) -> str:
    """Return a mark of a row in which a refunded hour could be seen."""
    ours = [seed["ours 10 min"] for seed in seeds]
    jobs, dollars = sum(each["jobs"] for each in ours), sum(each["dollars"] for each in ours)
    return "" if jobs >= _JOBS and dollars >= _DOLLARS else " (thin)"


def _ours(seeds: Sequence[Seed]) -> list[str]:
    dollars = [seed["ours 10 min"]["dollars"] for seed in seeds]
    least = [seed["bound 10 min"]["bounded_wait"] for seed in seeds]
    over = [one / other for one, other in zip(dollars, least, strict=True)]
    return [money(interval(dollars)), f"{interval(least)[0]:.2f}", ranged(interval(over))]


def _cells(seeds: Sequence[Seed], names: Sequence[str]) -> list[str]:
    cells = []
    for who in names:
        factors = times(seeds, who)
        told = f"{interval(factors)[0]:.2f}{_mark(seeds, who)}" if factors else ""
        cells.append(told)
    return cells


def _mark(seeds: Sequence[Seed], who: str) -> str:
    known = [seed for seed in seeds if who in seed]
    is_late = mean(known, who, "wait_p95_min") > _LATE_MINUTES
    return "!" * any(seed[who]["lost_jobs"] for seed in known) + "~" * is_late


def _rival_cells(seeds: Sequence[Seed], minutes: int) -> list[str]:
    found = in_time(seeds, minutes)
    if not found:
        return ["0", "nobody"]
    least = min(found, key=found.__getitem__)
    return [f"{len(found)}", f"{least} {found[least]:.2f}"]


def _cheaper(results: Results) -> list[str]:
    lines = []
    wanted = (
        ("S1", "warm", 10, 11.0),
        ("S1", "warm", 60, 13.0),
        ("S1", "classic-alarm", 10, 1.8),
        *((name, "batch", 10, 1.8) for name in ("S1", "S2")),
    )
    for name, who, minutes, least in wanted:
        factors = times(list(results.get(name, {}).values()), who, minutes)
        if factors:
            found = interval(factors)
            at = "" if minutes == 10 else f" at {minutes} min"
            lines.append(
                f"| {name}: {who} over ours{at} | {least:.1f} or more | {ranged(found)} |"
                f" {verdict(found[0] >= least)} |"
            )
    return lines


def _ranked(results: Results) -> list[str]:
    """Return what one type alone costs over the ranking, as spot in all its zones."""
    lines = []
    for name, seeds in _rows(results):
        alone = sorted({who for seed in seeds for who in seed if who.startswith(ONLY)})
        factors = {who: interval(times(seeds, who)) for who in alone}
        if not factors:
            continue
        best = min(factors, key=lambda who: factors[who][0])
        told = [
            f"{who.removeprefix(ONLY)} {ranged(factors[who])}{_mark(seeds, who)}"
            for who in dict.fromkeys((f"{ONLY}{USUAL_TYPE}", best))
        ]
        lines.append(
            f"| {name}: the usual and the best single type on spot, over the ranking |"
            f" the best of them, known beforehand: 1.00 or more | {'; '.join(told)} |"
            f" {verdict(factors[best][0] >= 1.0)} |"
        )
    return lines


def _cheapest(results: Results, long: Results) -> list[str]:
    """Return in how many scenarios nobody in time is cheaper, and in how many ours is in time."""
    lines = []
    for minutes in (10, 60):
        rows = {
            name: list(results[name].values())
            for name in results
            if minutes == 10 or CASES[name].is_main
        }
        leads = {name: _leads(seeds, minutes) for name, seeds in rows.items()}
        promise = f"a promise of {minutes} min"
        if minutes == 10:
            promise += ", or the deadline,"
            leads |= {name: is_cheapest(name, list(long[name].values())) for name in long}
        kept = {
            name: mean(seeds, f"ours {minutes} min", "wait_p95_min") <= minutes
            for name, seeds in rows.items()
        }
        lines += [
            _counted(f"nobody who keeps {promise} costs less", leads),
            _counted(f"95 % of our jobs start within {minutes} min", kept),
        ]
    return lines


def _counted(what: str, rows: Mapping[str, bool]) -> str:
    """Return in how many scenarios something is so; all rows of one must agree."""
    failed = [name for name, is_so in rows.items() if not is_so]
    scenarios = {name.partition(" ")[0] for name in rows}
    held = len(scenarios - {name.partition(" ")[0] for name in failed})
    but = f", not in {', '.join(failed)}" if failed else ""
    told = f"{held} of {len(scenarios)}{but}"
    return f"| scenarios in which {what} | all | {told} | {verdict(not failed)} |"


def _leads(seeds: Sequence[Seed], minutes: int) -> bool:
    return all(factor >= 1.0 for factor in in_time(seeds, minutes).values())

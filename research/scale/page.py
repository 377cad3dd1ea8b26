"""The tables of docs/scale.md, from docs/scale.json."""

import math
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from research.compare.grid import ranged, verdict
from research.scale.rival import RIVALS

#: Days of learning before what counts.
LEARNED = 7
OURS, TOLD = "ours", "ours, told each need"
_DRAWS = 2000
#: What was wanted: times cheaper than bin packing, over who knows each need, killed for memory.
_CHEAPER, _OVER, _KILLED = 2.5, 1.15, 0.005


def tables(kept: Mapping[str, Any]) -> str:
    """Return all tables, as far as there are figures."""
    played, first = kept.get("played", {}), kept["cheap"]["1"]
    seconds = kept.get("cheap_cpu_seconds", 0.0)
    told = (
        f"Floors and rivals: {len(kept['cheap'])} seeds, {len(first['floor']['each'])} days, "
        f"{seconds:.0f} s of a core. Our own system, the first seed: {_runs(played)}. Intervals "
        "are 95 %, by bootstrap over days.\n"
    )
    if OURS not in played:
        return told
    after = learned_after(len(played[OURS]["dollars_by_day"]))
    parts = [told, _targets(played, first, after), _oracles(played, first, after)]
    parts += [_weeks(played, first), _rivals(kept, played[OURS], after)]
    return "\n".join(parts).rstrip() + "\n"


def learned_after(days: int) -> int:
    """Return the days after which is compared: those of learning, or all but one of fewer."""
    return min(LEARNED, days - 1)


def _runs(played: Mapping[str, Any]) -> str:
    return ", ".join(
        f"*{name}* {len(each['dollars_by_day'])} days ({each['cpu_seconds'] / 60:.0f} minutes)"
        for name, each in played.items()
    )


def _targets(played: Mapping[str, Any], first: Mapping[str, Any], after: int) -> str:
    ours = played[OURS]
    packing = _ratio(first["rivals"]["cluster"]["dollars_by_day"], ours["dollars_by_day"], after)
    over = _ratio(ours["dollars_by_day"], first["floor"]["each"], after)
    killed = sum(ours["killed_by_day"]) / sum(ours["jobs_by_day"])
    late = sum(ours["killed_by_day"][after:]) / sum(ours["jobs_by_day"][after:])
    same = _ratio(ours["dollars_by_day"], first["floor"]["hour"], after)
    rows = [
        (
            "bin packing on large nodes over ours, all on spot",
            ranged(packing, 2),
            "at least 2.5",
            verdict(packing[0] >= _CHEAPER),
        ),
        ("ours over each job known", ranged(over, 2), "at most 1.15", verdict(over[0] <= _OVER)),
        (
            "ours over type and hour known, who is told what ours is",
            ranged(same, 2),
            "at most 1.15",
            verdict(same[0] <= _OVER),
        ),
    ]
    if TOLD in played:
        fair = _ratio(ours["dollars_by_day"], played[TOLD]["dollars_by_day"], after)
        rows.append(
            ("ours over told each need", ranged(fair, 2), "at most 1.15", verdict(fair[0] <= _OVER))
        )
    rows += [
        ("killed for memory, all days", f"{killed:.2%}", "under 0.5 %", verdict(killed < _KILLED)),
        ("killed for memory, after a week", f"{late:.2%}", "under 0.5 %", verdict(late < _KILLED)),
    ]
    head = f"## What was wanted\n\nAfter {after} days of learning, where nothing else is said.\n"
    return head + _table(("figure", "is", "wanted", ""), rows)


def _oracles(played: Mapping[str, Any], first: Mapping[str, Any], after: int) -> str:
    floor = first["floor"]
    each = floor["each"]
    rows = []
    ways = [
        ("each job known", each),
        ("type and hour known", floor["hour"]),
        ("type known", floor["type"]),
        *((name, played[name]["dollars_by_day"]) for name in (TOLD, OURS) if name in played),
    ]
    for name, dollars in ways:
        late = dollars[after : len(played[OURS]["dollars_by_day"])]
        over = _ratio(late, each[after:], 0)
        days = f"{after + 1} to {after + len(late)}"
        rows.append((name, days, f"{_mean(late):.2f}", ranged(over, 3)))
        if name == OURS:
            work = played[OURS]["bill"]["work"]
            alone = f"{over[0] * work:.3f}"
            rows.append(
                (f"{OURS}, work that counted alone", days, f"{_mean(late) * work:.2f}", alone)
            )
    bill = played[OURS]["bill"]
    parts = ", ".join(f"{cause} {share:.1%}" for cause, share in bill.items())
    told = _floor_told(played, floor, bill, after)
    tried = "; ".join(f"{name}: {', '.join(x)}" for name, x in sorted(floor["machines"].items()))
    return (
        f"\n## How close to who knows\n\nAfter {after} days of learning.\n"
        + _table(("who", "days", "$ a day", "over each job known"), rows)
        + f"\n\nOur bill is {parts}. {told}The machines of who knows type and hour: {tried}."
    )


def _floor_told(
    played: Mapping[str, Any], floor: Mapping[str, Any], bill: Mapping[str, float], after: int
) -> str:
    """Return of what the distance to each job known is made, as factors."""
    dollars = played[OURS]["dollars_by_day"]
    over = _ratio(dollars, floor["each"], after)[0]
    known = _ratio(floor["hour"][: len(dollars)], floor["each"], after)[0]
    machines = 1.0 / bill["work"]
    rest = over / known / machines
    return (
        f"So {over:.2f} is {known:.3f} for what the type does not tell, times {machines:.3f} for "
        f"boots, idle time and work that was undone, times {rest:.3f} for all else. "
        f"To come to {_OVER} over each job known, boots, idle time and undone work would have to "
        f"fall from {1.0 - bill['work']:.1%} of the bill to "
        f"{max(0.0, 1.0 - bill['work'] * over / _OVER):.1%}. "
    )


def _weeks(played: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    ours, floor = played[OURS], first["floor"]["each"]
    rows = []
    for begin in range(0, len(ours["dollars_by_day"]), 7):
        span = slice(begin, begin + 7)
        dollars, jobs = ours["dollars_by_day"][span], sum(ours["jobs_by_day"][span])
        killed = sum(ours["killed_by_day"][span])
        factor = sum(dollars) / sum(floor[begin : begin + len(dollars)])
        last = begin + len(dollars)
        rows.append(
            (
                f"{begin + 1} to {last}",
                f"{_mean(dollars):.2f}",
                f"{factor:.2f}",
                f"{killed} of {jobs} ({killed / max(jobs, 1):.2%})",
            )
        )
    return "\n## Ours, week by week\n" + _table(
        ("days", "$ a day", "over each job known", "ran out of memory"), rows
    )


def _rivals(kept: Mapping[str, Any], ours: Mapping[str, Any], after: int) -> str:
    first, *further = kept["cheap"].values()
    until = len(ours["dollars_by_day"])
    rows = [
        (
            "ours",
            f"{_mean(ours['dollars_by_day'][after:]):.2f}",
            "1",
            "",
            f"{ours['wait_p50_min']:.1f}, {ours['wait_p95_min']:.1f}",
            str(ours["launches"]),
        )
    ]
    apart = 0.0
    for rival in RIVALS:
        spot, listed = (first["rivals"][f"{rival.name}{x}"] for x in ("", ", on demand"))
        dollars = _mean(spot["dollars_by_day"][after:until])
        for seed in further:
            elsewhere = _mean(seed["rivals"][rival.name]["dollars_by_day"][after:until])
            apart = max(apart, abs(elsewhere / dollars - 1.0))
        rows.append(
            (
                f"{rival.name}: {rival.title}",
                f"{dollars:.2f}",
                ranged(_ratio(spot["dollars_by_day"], ours["dollars_by_day"], after), 2),
                ranged(_ratio(listed["dollars_by_day"], ours["dollars_by_day"], after), 2),
                f"{spot['wait_p50_min']:.1f}, {spot['wait_p95_min']:.1f}",
                str(spot["launches"]),
            )
        )
    head = ("who", "$ a day, spot", "times ours, spot", "times ours, on demand")
    return (
        f"\n## Others\n\nAfter {after} days of our learning, to day {until}. Dollars and factors "
        "are of the first seed, waits and launches of all its days. With another seed the dollars "
        f"of another way differ by {math.ceil(100.0 * apart)} % at most.\n"
        + _table((*head, "wait p50, p95, min", "launches"), rows)
    )


def _ratio(
    above: Sequence[float], below: Sequence[float], after: int
) -> tuple[float, float, float]:
    """Return the ratio of two sums over the days after some, and its 95 % interval."""
    pairs = list(zip(above, below, strict=False))[after:]
    random = Random("bootstrap")
    drawn = sorted(_quotient(random.choices(pairs, k=len(pairs))) for _ in range(_DRAWS))
    return _quotient(pairs), drawn[int(0.025 * _DRAWS)], drawn[int(0.975 * _DRAWS)]


def _quotient(pairs: Sequence[tuple[float, float]]) -> float:
    return math.fsum(a for a, _ in pairs) / math.fsum(b for _, b in pairs)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / max(len(values), 1)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def lines() -> Iterator[str]:
        yield ""
        yield f"| {' | '.join(head)} |"
        yield "|" + " --- |" * len(head)
        for row in rows:
            yield f"| {' | '.join(row)} |"

    return "\n".join(lines())

"""What ours does and leaves undone beside its dollars: work lost, boots, attempts, the stay."""

from collections.abc import Sequence

from research.compare.grid import Results, Seed, grid, mean, verdict

TEXT = """At the promise of 10 minutes. *Billed / work* is hours of machines over hours of work on a
T4, so that faster machines push it below 1; *stay* is from a job's arrival to its end, *over work*
the mean stay over what the mean job takes on a T4; *lost* is work that was done again, of all
machine time at work; *stood* is how long a job that had lost its worker had none, capacity to be
found included; *pools asked* are those that gave a machine and those that refused, over those
that gave. Interruptions and boots are for 1,000 items.
"""

_OURS = "ours 10 min"


def efforts(results: Results) -> str:
    """Return the table; a scenario whose figures are of an older run has no row."""
    head = [
        "scenario",
        "$ for 1,000 items",
        "billed / work",
        "stay: mean, p95, p99, min",
        "over work",
        "lost, %",
        "stood: p50, p95, min",
        "interruptions",
        "boots",
        "pools asked",
        "on demand, % of $",
    ]
    rows = []
    for name, seeds in results.items():
        known = [seed for seed in seeds.values() if "stood_p95_min" in seed[_OURS]]
        if known:
            rows.append([name, *_row(known)])
    return grid(head, rows)


def _row(seeds: Sequence[Seed]) -> list[str]:
    def of(figure: str) -> float:
        return mean(seeds, _OURS, figure)

    thousands = of("items") / 1000.0
    stay = ", ".join(f"{of(f'stay_{which}_min'):.0f}" for which in ("mean", "p95", "p99"))
    return [
        f"{of('dollars') / thousands:.3g}",
        f"{of('billed_hours') / of('work_hours'):.2f}",
        stay,
        f"{of('stay_mean_min') / 60.0 / (of('work_hours') / of('jobs')):.1f}",
        f"{100.0 * lost_share(seeds, _OURS):.2f}",
        ", ".join(f"{of(f'stood_{which}_min'):.1f}" for which in ("p50", "p95")),
        f"{of('interruptions') / thousands:.2f}",
        f"{of('launches') / thousands:.1f}",
        f"{(of('launches') + of('refusals')) / of('launches'):.2f}",
        f"{100.0 * of('on_demand_dollars') / of('dollars'):.1f}",
    ]


def redone(seeds: Sequence[Seed], who: str, missing: str, at_most: float) -> list[str]:
    """Return the target of work done again in S8 as lines; none if the run does not have it.

    Judged by the greater of two shares: EC2 charges no machine that it takes in its first hour, so
    that the bill alone would hide what was lost on those.
    """
    known = [seed for seed in seeds if "redo_hours" in seed.get(who, {})]
    if not known:
        return []
    bill, work = mean(known, who, "share_redo"), lost_share(known, who)
    what = f"S8, notices missing: {missing}: work done again, of the bill, of time at work"
    found = f"{100 * bill:.2f} %, {100 * work:.2f} %"
    holds = verdict(max(bill, work) <= at_most)
    return [f"| {what} | {100 * at_most:.0f} % or less | {found} | {holds} |"]


def lost_share(seeds: Sequence[Seed], who: str) -> float:
    """Return the share of machine time at work that was undone."""
    return mean(seeds, who, "redo_hours") / mean(seeds, who, "busy_hours")

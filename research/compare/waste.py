"""Ours beside the linear relaxation, and of what the dollars between them consist."""

from collections.abc import Sequence

from research.compare.grid import Results, Seed, grid, interval, mean, ranged

TEXT = """The linear relaxation of the same schedule (`research/compare/relaxation`) bounds whole
traces: every second of the same arrivals, all types at their prices over time, boots in fractions.
Where L2 is higher, since it knows that a refund pays for no work, L2 stands; S5 is too dense for it
to be solved in minutes at 10, and L2 near enough. Besides what it
leaves out we pay for *price* (machines at work cost more an hour of work than the relaxation pays
for its own), *boots* beyond its own, *idle* and *redone* time. All are shares of the bound.
"""


def waste(results: Results, mains: Sequence[str], promises: Sequence[str]) -> str:
    """Return the table of all rows of S1 to S5."""
    head = [
        "scenario, promise",
        "relaxation / L2",
        "ours / relaxation",
        "boots: ours, relaxation",
        "beyond it, %: price / boots / idle / redone",
    ]
    rows = []
    for name in mains:
        for promise in promises:
            seeds = [s for s in results[name].values() if "relaxed" in s[f"bound {promise}"]]
            if seeds:
                rows.append(_row(f"{name}, {promise}", seeds, promise))
    return grid(head, rows)


def _row(title: str, seeds: Sequence[Seed], promise: str) -> list[str]:
    ours, least = f"ours {promise}", f"bound {promise}"
    ratios = [seed[ours]["dollars"] / bound_of(seed, promise) for seed in seeds]
    tight = [bound_of(seed, promise) / seed[least]["bounded_wait"] for seed in seeds]
    parts = [_parts(seed, ours, promise) for seed in seeds]
    beyond = (100.0 * sum(part) / len(parts) for part in zip(*parts, strict=True))
    boots = mean(seeds, ours, "launches"), mean(seeds, least, "relaxed_boots")
    return [
        title,
        f"{sum(tight) / len(tight):.3f}",
        ranged(interval(ratios)),
        f"{boots[0]:.0f}, {boots[1]:.0f}",
        " / ".join(f"{share:.1f}" for share in beyond),
    ]


def bound_of(seed: Seed, promise: str) -> float:
    """Return the dearer of L2 and the relaxation, which too many jobs have none of."""
    least = seed[f"bound {promise}"]
    return max(least.get("relaxed", 0.0), least["bounded_wait"])


def _parts(seed: Seed, ours: str, promise: str) -> tuple[float, float, float, float]:
    """Return price, boots, idle and redone time as shares of the bound; they add up to ours - 1."""
    told, least, whole = seed[ours], seed[f"bound {promise}"], bound_of(seed, promise)
    boots = told["share_boot"] * told["dollars"] - least["relaxed_boot_dollars"]
    idle, redone = (told[f"share_{cause}"] * told["dollars"] for cause in ("idle", "redo"))
    price = told["dollars"] - whole - boots - idle - redone
    return price / whole, boots / whole, idle / whole, redone / whole

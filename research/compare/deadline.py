"""The part of the page on jobs with a deadline (S10)."""

from collections.abc import Sequence

from research.compare.case import CASES
from research.compare.grid import Results, Seed, grid, interval, mean, money, verdict
from research.compare.world.trouble import LONG_JOB_HOURS

TEXT = """One job of 48 hours of V100 work, anywhere in the last 30 % of the availability traces, at
each region's prices of 2025. Ours has `finish_within` and room for two workers, and learns how
long the job takes while it runs. Greedy and Uniform Progress (Wu et al., NSDI 2024) know the
deadline and the job's length. L3 is a dynamic program over time and zone that knows every price and
all capacity beforehand; *charged* lets it pay for every hour, as in the literature; the other
seeks out hours that EC2 will not charge because it takes the machine back, which only a seer can.
Ours and the rules get such hours by luck, so they can be below *charged*.
SkyNomad (arXiv 2601.06520) is not among them: the text at hand names its parts, probes, predicted
lifetimes, the cost of a move and one model of cost, and none of its formulas.
The work share is of the time until the job was done: where spot is waited for, less of it is
better, so its target is for the nine zones, which always have some.
The gap is (ours - charged) / (greedy - charged), told where greedy is 5 % above it or more.
"""

_RULES = ("greedy", "uniform-progress", "on-demand")
_TELLING = 1.05


def deadlines(results: Results) -> str:
    """Return the table of all jobs with a deadline; "" if there is none."""
    head = ["scenario", "ours, $", "done in, h", "late", *(f"{name}, $ (late)" for name in _RULES)]
    head += ["L3, $", "L3 charged, $", "ours / charged", "gap", "work share of wall time"]
    rows = [_row(name, list(results[name].values())) for name in results]
    return grid(head, rows) if rows else ""


def is_cheapest(name: str, seeds: Sequence[Seed]) -> bool:
    """Tell whether no rule that is never late costs less than ours."""
    in_time = [rule for rule in _RULES if not _late(name, seeds, rule)]
    ours = mean(seeds, "ours", "dollars")
    return all(ours <= mean(seeds, rule, "dollars") for rule in in_time)


def lines(results: Results) -> list[str]:
    """Return the targets of jobs with a deadline."""
    found = []
    for name in results:
        seeds = list(results[name].values())
        late, share = _late(name, seeds, "ours"), _share(seeds)
        found.append(
            f"| {name}: jobs late; work share of wall time | 0; 0.98 with 9 zones |"
            f" {late} of {len(seeds)}; {share:.3f} |"
            f" {verdict(not late and (share >= 0.98 or ' region' in name))} |"
        )
        least = min(mean(seeds, rule, "dollars") for rule in ("greedy", "uniform-progress"))
        over = mean(seeds, "ours", "dollars") / least
        found.append(
            f"| {name}: ours over the cheaper of greedy and Uniform Progress | 1.05 or less |"
            f" {over:.2f} | {verdict(over <= _TELLING)} |"
        )
        gap = _gap(seeds)
        if gap is not None:
            found.append(
                f"| {name}: (ours - optimum) / (greedy - optimum) | 0.5 or less |"
                f" {gap:.2f} | {verdict(gap <= 0.5)} |"
            )
    return found


def _row(name: str, seeds: Sequence[Seed]) -> list[str]:
    gap = _gap(seeds)
    ratios = [seed["ours"]["dollars"] / seed["bound"]["charged"] for seed in seeds]
    return [
        f"{name}: {CASES[name].title}",
        money(interval([seed["ours"]["dollars"] for seed in seeds])),
        f"{mean(seeds, 'ours', 'done_hours'):.1f}",
        f"{_late(name, seeds, 'ours')} of {len(seeds)}",
        *(f"{mean(seeds, rule, 'dollars'):.2f} ({_late(name, seeds, rule)})" for rule in _RULES),
        f"{mean(seeds, 'bound', 'dollars'):.2f}",
        f"{mean(seeds, 'bound', 'charged'):.2f}",
        f"{interval(ratios)[0]:.3f}",
        "" if gap is None else f"{gap:.2f}",
        f"{_share(seeds):.3f}",
    ]


def _late(name: str, seeds: Sequence[Seed], who: str) -> int:
    hours = CASES[name].deadline_hours or 0.0
    return sum(seed[who]["done_hours"] > hours or seed[who]["lost_jobs"] > 0 for seed in seeds)


def _share(seeds: Sequence[Seed]) -> float:
    return interval([LONG_JOB_HOURS / seed["ours"]["done_hours"] for seed in seeds])[0]


def _gap(seeds: Sequence[Seed]) -> float | None:
    ours, greedy = mean(seeds, "ours", "dollars"), mean(seeds, "greedy", "dollars")
    charged = mean(seeds, "bound", "charged")
    return (ours - charged) / (greedy - charged) if greedy >= _TELLING * charged else None

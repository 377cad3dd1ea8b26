"""Figures of several seeds as cells and lines of a Markdown table."""

import math
from collections.abc import Mapping, Sequence
from random import Random

#: case -> seed -> who -> figures.
Results = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
#: who -> figures, of one seed.
Seed = Mapping[str, Mapping[str, float]]
_DRAWS = 2000


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % bootstrap interval."""
    mean = math.fsum(values) / len(values)
    random = Random("bootstrap")
    means = sorted(math.fsum(random.choices(values, k=len(values))) for _ in range(_DRAWS))
    low, high = means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS)]
    return mean, low / len(values), high / len(values)


def mean(seeds: Sequence[Seed], who: str, figure: str) -> float:
    """Return the mean of a figure over seeds."""
    return math.fsum(seed[who][figure] for seed in seeds) / len(seeds)


def money(value: tuple[float, float, float]) -> str:
    """Return dollars with their interval."""
    return f"{value[0]:.2f} ({value[1]:.2f}-{value[2]:.2f})"


def ranged(value: tuple[float, float, float], digits: int = 3) -> str:
    """Return a mean with its interval."""
    middle, low, high = value
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def verdict(holds: bool) -> str:
    """Return how a target stands."""
    return "holds" if holds else "**does not hold**"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"

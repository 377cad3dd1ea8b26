"""What the last samples of a quantity say: quantiles, and how much a data sheet is worth beside."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

#: Reports from which their quantiles say something.
ROBUST_FROM = 3
#: By how much a data sheet is off, as the standard deviation of a logarithm: 0.26 in llama-bench on
#: EC2, V100, A10G, L4 and L40S over the T4, prompts and generation of three models.
PRIOR_DEVIATION = 0.25
#: The third quartile of a normal distribution is so many deviations above its median.
_QUARTILE = 0.6745


def worth_in_reports(rates: Iterable[tuple[float, ...]]) -> float:
    """Return as how many reports a data sheet counts, by how much the reports themselves differ.

    Where jobs differ, few reports say less of a GPU than its data sheet does: it is worth as many
    as have its own deviation together, (s / ``PRIOR_DEVIATION``)^2. s is that of the logarithms
    of the rates of one GPU, by median and third quartile: no job that hung is in the faster half.
    Worked: jobs of equal items, s = 0.05: 0.04 reports; s = 0.8: 10 reports.

    Args:
        rates: the last rates of each kind of GPU.
    """
    squares, degrees = 0.0, 0
    for each in rates:
        deviation = _deviation(each)
        if deviation is not None:
            squares += (len(each) - 1) * deviation**2
            degrees += len(each) - 1
    return squares / degrees / PRIOR_DEVIATION**2 if degrees else 0.0


@lru_cache(maxsize=256)
def _deviation(rates: tuple[float, ...]) -> float | None:
    if len(rates) < ROBUST_FROM:
        return None
    middle, high = quantile(rates, 0.5), quantile(rates, 0.75)
    return math.log(high / middle) / _QUARTILE if 0.0 < middle <= high < math.inf else None


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least ``share`` of the samples do not exceed."""
    return _quantile_of(tuple(samples), share)


@lru_cache(maxsize=256)
def _quantile_of(samples: tuple[float, ...], share: float) -> float:
    """Asked for the same samples several times in every tick."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

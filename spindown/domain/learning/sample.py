"""Quantiles of the last samples of a quantity."""

import math
from collections.abc import Sequence
from functools import lru_cache

#: Reports from which their quantiles say something.
ROBUST_FROM = 3


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least ``share`` of the samples do not exceed."""
    return _quantile_of(tuple(samples), share)


@lru_cache(maxsize=256)
def _quantile_of(samples: tuple[float, ...], share: float) -> float:
    """Asked for the same samples several times in every tick."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

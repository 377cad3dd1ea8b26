"""How much a data sheet is worth beside what the workload has shown on a GPU."""

import math
from functools import lru_cache

from spindown.domain.learning.sample import quantile

#: Deviation of the logarithm of measured over data-sheet speed, relative to a T4: 0.285 over three
#: language models, prefill and decode each, on five GPUs (llama-bench on EC2, Spare Cores).
DATA_SHEET_ERROR = 0.3
#: Of a normal distribution, within one deviation.
_TWO_OF_THREE = 0.683


@lru_cache(maxsize=256)
def data_sheet_worth(rates: tuple[tuple[float, ...], ...]) -> float:
    """Return how many workers a data sheet counts as: (s / 0.3)^2.

    s is how far the logarithms of two of three reports are from the median of their GPU at most:
    one deviation of a normal distribution, and one job that hung says nothing. Until there are
    reports it is taken to be 0.3 too, which counts as one of them. The jobs of one worker are like
    each other, as they came one after the other: all of them say no more than one drawn at random
    would. Worked: where jobs are alike, 20 reports leave 1 / 20 of a worker; where s = 0.6, 4.

    Args:
        rates: of each kind of GPU, items per slot-hour of the last reports.
    """
    apart: list[float] = []
    freedom = 0
    for reports in rates:
        logs = [math.log(rate) for rate in reports if rate > 0.0]
        if logs:
            middle = quantile(logs, 0.5)
            apart += (abs(each - middle) for each in logs)
            freedom += len(logs) - 1
    spread = quantile(apart, _TWO_OF_THREE) if apart else 0.0
    squared = (DATA_SHEET_ERROR**2 + freedom * spread**2) / (1 + freedom)
    return squared / DATA_SHEET_ERROR**2

"""The gaps between work, and how many of them an idle timeout covers."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GapShare:
    """Gaps that a worker outlives: it is still there when the next work comes."""

    covered: int
    gaps: int

    @property
    def share(self) -> float:
        """Return covered over all; 0 without gaps."""
        return self.covered / self.gaps if self.gaps else 0.0


def find_gaps(present: Iterable[tuple[float, bool]], arrivals: Sequence[float]) -> list[float]:
    """Return how long there was no work each time, seconds, in order of time.

    Worked: work is seen gone at 100, the next job comes at 160: a gap of 60.

    Args:
        present: (second, whether there was work) of each look, in order of time.
        arrivals: seconds at which jobs came, sorted.
    """
    gaps = []
    was_present = False
    for at, is_present in present:
        if was_present and not is_present:
            following = bisect_left(arrivals, at)
            if following < len(arrivals):
                gaps.append(arrivals[following] - at)
        was_present = is_present
    return gaps


def gap_share(gaps: Iterable[float], timeout: float) -> GapShare:
    """Return how many gaps are not longer than an idle timeout, both in seconds."""
    ordered = sorted(gaps)
    return GapShare(covered=bisect_right(ordered, timeout), gaps=len(ordered))


def gap_quantile(gaps: Iterable[float], share: float) -> float:
    """Return the shortest timeout that covers a share of the gaps, seconds; 0 without any."""
    ordered = sorted(gaps)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0

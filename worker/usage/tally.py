"""What becomes of many readings: mean, 95th percentile and maximum over time, and a short series.

Neither grows with the length of a job.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

#: Width of a bucket.
_STEP = math.log(1.02)
_P95 = 0.95
#: What a reading counts that nothing came before, seconds: all where it stays alone.
_FIRST_SECONDS = 1e-3


class Tally:
    """What was seen of one thing, each reading weighed by the time since the one before."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._sum = 0.0
        self._max = 0.0
        #: Bucket of the logarithm -> seconds; None: of nothing at all.
        self._buckets: dict[int | None, float] = {}

    def add(self, value: float, seconds: float = 0.0) -> None:
        """Take a reading; ``seconds``: since the one before."""
        weight = max(seconds, _FIRST_SECONDS)
        self._seconds += weight
        self._sum += value * weight
        self._max = max(self._max, value)
        bucket = math.floor(math.log(value) / _STEP) if value > 0.0 else None
        self._buckets[bucket] = self._buckets.get(bucket, 0.0) + weight

    @property
    def mean(self) -> float | None:
        """Return the mean over time; None: nothing was seen."""
        return self._sum / self._seconds if self._buckets else None

    @property
    def p95(self) -> float | None:
        """Return what was not exceeded in 95 % of the time, at most 2 % too much."""
        if not self._buckets:
            return None
        left = _P95 * self._seconds
        for bucket in sorted(self._buckets, key=lambda one: -math.inf if one is None else one):
            left -= self._buckets[bucket]
            if left <= 0.0:
                most = 0.0 if bucket is None else math.exp((bucket + 1) * _STEP)
                return min(most, self._max)
        return self._max

    @property
    def max(self) -> float | None:
        """Return the greatest reading."""
        return self._max if self._buckets else None


class SeriesMaker:
    """A line of points, at most ``POINTS``: when they are many, each stands for a longer time."""

    POINTS = 120

    def __init__(self, largest: Iterable[str]) -> None:
        """Make a line; of the columns ``largest`` a point tells the maximum, of others the mean."""
        self._largest = frozenset(largest)
        self._points: list[tuple[float, dict[str, float]]] = []
        self._open: list[dict[str, float]] = []
        self._opened_at = 0.0
        self._step = 0.0

    def add(self, at: float, values: Mapping[str, float]) -> None:
        """Take readings at a time, seconds since the begin."""
        self._open.append(dict(values))
        if at - self._opened_at < self._step:
            return
        self._points.append((at, self._join(self._open)))
        self._open, self._opened_at = [], at
        if len(self._points) >= self.POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(b[0], self._join([a[1], b[1]])) for a, b in pairs]
            self._step = at / len(self._points)

    @property
    def times(self) -> Sequence[float]:
        """Return the times of the points."""
        return [at for at, _ in self._points]

    def column(self, name: str) -> Sequence[float | None] | None:
        """Return one column; None: nothing was ever seen of it."""
        values = [values.get(name) for _, values in self._points]
        return values if any(value is not None for value in values) else None

    def _join(self, rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
        joined: dict[str, float] = {}
        for name in {name: None for row in rows for name in row}:
            known = [row[name] for row in rows if name in row]
            total = max(known) if name in self._largest else math.fsum(known) / len(known)
            joined[name] = total
        return joined

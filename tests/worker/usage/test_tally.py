"""Means, percentiles and short series of readings that come at uneven times."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.worker.usage.tally import SeriesMaker, Tally


def test_nothing_seen_is_none() -> None:
    assert (Tally().mean, Tally().p95, Tally().max) == (None, None, None)


def test_a_reading_counts_for_the_time_since_the_one_before() -> None:
    tally = Tally()
    for value, seconds in ((5.0, 0.0), (1.0, 90.0), (2.0, 6.0), (9.0, 4.0)):
        tally.add(value, seconds)

    assert tally.mean == pytest.approx(1.38, abs=0.001)
    assert tally.p95 == pytest.approx(2.0, rel=0.021)
    assert tally.max == 9.0


@given(
    st.lists(st.floats(0.0, 1e6, allow_subnormal=False), min_size=1, max_size=60),
)
def test_a_percentile_is_that_of_the_sorted_list(values: list[float]) -> None:
    tally = Tally()
    for value in values:
        tally.add(value, 1.0)
    exact = sorted(values)[max(-(-95 * len(values) // 100) - 1, 0)]

    assert tally.p95 == pytest.approx(exact, rel=0.021, abs=1e-300)
    assert tally.max == max(values)


def test_a_series_stays_short_and_even_however_long_it_is() -> None:
    made = SeriesMaker(largest=("memory",))
    at, count = 0.0, 0
    while at < 40 * 3600:
        made.add(at, {"cpu": 1.0, "memory": 7.0 if count == 3000 else 2.0})
        at, count = at + (1.0 if at < 60 else 5.0), count + 1

    times, memory = made.times, made.column("memory")
    steps = [b - a for a, b in pairwise(times)]
    assert 60 <= len(times) <= SeriesMaker.POINTS
    assert max(steps) <= 4 * min(steps)
    assert made.column("cpu") == [1.0] * len(times)
    # The one peak is still there.
    assert memory is not None
    assert memory.count(7.0) == 1
    assert memory.count(2.0) == len(memory) - 1
    assert made.column("gpu") is None

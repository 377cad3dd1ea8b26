"""The comparison reckons and cuts as it says; its runs are a command of their own."""

import pytest

from spindown.simulator import Arrival, bound
from tests.bench.compare.exact import optimum
from tests.bench.compare.grid import interval
from tests.bench.compare.source import Part, cut, loaded
from tests.bench.compare.table import geometric_mean
from tests.simulator.scene import a_scenario, an_arrival

TRACE = tuple(Arrival(at=100.0 + 10.0 * n, item_seconds=1.0) for n in range(101))


def test_a_trace_is_cut_at_seventy_percent_of_its_time() -> None:
    tuned, reported = cut(TRACE, Part.TUNE), cut(TRACE, Part.REPORT)

    assert (len(tuned), len(reported)) == (70, 31)
    assert (tuned[0].at, tuned[-1].at) == (0.0, 690.0)
    assert (reported[0].at, reported[-1].at) == (0.0, 300.0)


def test_load_is_thinned_or_laid_over_itself() -> None:
    assert len(loaded(TRACE, 3.0, seed=1)) == 303
    assert 40 < len(loaded(TRACE, 0.6, seed=1)) < 80
    assert loaded(TRACE, 3.0, seed=1) == loaded(TRACE, 3.0, seed=1)


def test_means_and_their_intervals() -> None:
    assert interval([2.0, 2.0]) == (2.0, 2.0, 2.0)
    mean, low, high = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    assert mean == 3.0
    assert 1.0 < low < mean < high < 5.0
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_the_exact_optimum_lies_above_the_bound_and_is_found_by_hand() -> None:
    # Two jobs of 5 min, 30 min apart, starts within 10 min: two boots of 90 s are cheaper than
    # to idle for 20 min and more.
    arrivals = (
        an_arrival(at=0.0, items=1, item_seconds=300.0),
        an_arrival(at=1800.0, items=1, item_seconds=300.0),
    )
    exact = optimum(arrivals, start_within=600.0, boot=90.0)

    assert exact.found == pytest.approx(2 * (90 + 300))
    assert exact.least == pytest.approx(exact.found, rel=1e-3)
    least = bound(a_scenario(*arrivals), start_within=600.0)
    assert least.bounded_wait / least.work == pytest.approx(exact.found / 600.0)

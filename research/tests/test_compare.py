"""The comparison reckons and cuts as it says; its runs are a command of their own."""

from random import Random
from statistics import fmean

import pytest

from research.bound import bound
from research.compare.exact import optimum
from research.compare.grid import interval
from research.compare.ignorance import STEPS, ladders
from research.compare.source import Part, cut, loaded
from research.compare.table import geometric_mean
from spindown.simulator import Arrival
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


def test_the_optimum_is_above_the_bound_and_matches_by_hand() -> None:
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


def test_each_step_hides_less_and_leaves_the_work_as_it_is() -> None:
    arrivals = (
        an_arrival(at=0.0, items=2, item_seconds=300.0),
        an_arrival(at=9.0, items=1, item_seconds=60.0),
    )
    scenario = a_scenario(*arrivals)
    in_order, certain, alike = (tell(scenario) for tell in STEPS.values())

    assert (in_order.disorder, in_order.arrivals) == (1, scenario.arrivals)
    assert [each.work_seconds for each in alike.arrivals] == [330.0, 330.0]
    assert alike.work_seconds == scenario.work_seconds
    draws = {certain.boot.draw(Random(seed)) for seed in range(5)}
    assert len(draws) == 1
    many = Random(1)
    assert draws.pop() == pytest.approx(
        fmean(scenario.boot.draw(many) for _ in range(20_000)), rel=0.02
    )
    zones = (zone for each in certain.listings for zone in each.zones.values())
    assert not any(zone.reclaims_per_hour for zone in zones)


def test_a_scenario_of_several_rows_counts_once_in_the_mean() -> None:
    seed = {"ours 10 min": {"dollars": 2.0}, "bound 10 min": {"bounded_wait": 1.0}}
    seed |= {"ours 60 min": {"dollars": 2.0}, "bound 60 min": {"bounded_wait": 1.0}}
    results = {name: {"1": seed} for name in ("S1", "S2", "S2 x10")}
    found = {
        name: {
            promise: {step: {"ratio": ratio} for step in STEPS} for promise in ("10 min", "60 min")
        }
        for name, ratio in (("S1", 4.0), ("S2", 1.0), ("S2 x10", 1.0))
    }

    table = ladders(results, found)

    assert "| S1, 10 min | 2.000 | 4.000 | 4.000 | 4.000 |" in table
    assert "| geometric mean, 60 min | 2.000 | 2.000 | 2.000 | 2.000 |" in table
    assert ladders(results, {}) == ""

"""Traffic of our own making is what it says it is."""

import statistics
from collections import Counter
from itertools import pairwise

import pytest

from spindown.simulator.sample import office_batches, rare_bursts
from spindown.simulator.scenario import DAY

HOURS = 24 * 120


def test_rare_bursts_have_the_marginals_that_they_are_fitted_to() -> None:
    empty, dispersion, spread = [], [], []
    for seed in range(8):
        arrivals = rare_bursts(seed=seed, days=120)
        counts = Counter(int(each.at // 3600) for each in arrivals)
        hours = [counts[hour] for hour in range(HOURS)]
        gaps = [b.at - a.at for a, b in pairwise(arrivals)]
        empty.append(hours.count(0) / HOURS)
        dispersion.append(statistics.pvariance(hours) / statistics.mean(hours))
        spread.append(statistics.pstdev(gaps) / statistics.mean(gaps))
        assert max(each.work_seconds for each in arrivals) <= 2 * 3600

    assert 0.72 < statistics.mean(empty) < 0.81
    assert 9.0 < statistics.mean(dispersion) < 13.0
    assert 16.0 < statistics.mean(spread) < 24.0


def test_office_batches_are_the_work_asked_for_on_weekdays() -> None:
    arrivals = office_batches(seed=1, days=14, work_hours=50)

    assert sum(each.work_seconds for each in arrivals) / 3600 == pytest.approx(50)
    assert {int(each.at // DAY) % 7 for each in arrivals} == {0, 1, 2, 3, 4}

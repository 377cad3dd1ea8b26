"""Long jobs, and whether a deadline could spare them on-demand prices."""

from datetime import timedelta

import pytest

from spindown.domain.advice import (
    find_long_jobs,
)

HOUR = 3600.0


def test_long_jobs_are_told_with_what_they_would_cost_on_demand() -> None:
    found = find_long_jobs(
        [60.0, 2 * HOUR, 5 * HOUR, HOUR - 1], months=0.5, spot=0.2, on_demand=0.5
    )

    assert found is not None
    assert (found.jobs, found.hours) == (4.0, 14.0)
    assert (found.longest, found.within) == (timedelta(hours=5), timedelta(hours=10))
    assert found.more_an_hour == pytest.approx(0.30)
    assert found.more_a_month == pytest.approx(4.20)


@pytest.mark.parametrize(
    ("seconds", "spot", "hours"),
    [
        pytest.param([HOUR - 1], 0.2, None, id="none is long"),
        pytest.param([], 0.2, None, id="no job"),
        pytest.param([HOUR], 0.2, 2, id="just long"),
        pytest.param([1.25 * HOUR], 0.2, 3, id="in whole hours"),
        pytest.param([84 * HOUR], 0.2, 168, id="as long as a deadline can be"),
        pytest.param([84 * HOUR + 1], 0.2, None, id="too long for any deadline"),
        pytest.param([2 * HOUR], 0.5, None, id="spot is no cheaper"),
    ],
)
def test_a_deadline_is_shown_where_waiting_for_spot_could_save(
    seconds: list[float], spot: float, hours: int | None
) -> None:
    found = find_long_jobs(seconds, months=1.0, spot=spot, on_demand=0.5)

    assert (found and found.within) == (hours and timedelta(hours=hours))

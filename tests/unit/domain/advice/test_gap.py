"""Gaps without work, and how many of them an idle timeout covers."""

from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.advice import (
    find_gaps,
    gap_quantile,
    gap_share,
)


def test_a_gap_lasts_from_a_look_without_work_to_the_next_job() -> None:
    looks = [
        (0.0, False),
        (60.0, True),
        (120.0, False),
        (180.0, False),
        (240.0, True),
        (300.0, False),
    ]

    assert find_gaps(looks, [30.0, 200.0]) == [80.0]
    assert find_gaps(looks, [30.0, 200.0, 360.0]) == [80.0, 60.0]
    assert find_gaps([], [1.0]) == []


def test_a_timeout_covers_the_gaps_that_are_not_longer() -> None:
    gaps = [30.0, 600.0, 40.0, 90.0]

    assert (gap_share(gaps, 90.0).covered, gap_share(gaps, 89.0).covered) == (3, 2)
    assert gap_share(gaps, 90.0).share == 0.75
    assert gap_share([], 90.0).share == 0.0


@given(st.lists(st.floats(0.0, 1e5), max_size=40), st.floats(0.01, 1.0))
def test_a_quantile_covers_the_share_that_was_asked_for(gaps: list[float], share: float) -> None:
    timeout = gap_quantile(gaps, share)

    assert not gaps or gap_share(gaps, timeout).share >= share
    assert gaps or timeout == 0.0

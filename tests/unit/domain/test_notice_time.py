import math
import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.notice_time import (
    commit_by,
    deadline_after,
    free_hours,
    should_power_off,
)
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy
from tests.builders import NOW, ON_DEMAND, SPOT, minutes


def test_a_notice_without_a_time_gives_two_minutes() -> None:
    assert deadline_after(NOW) == NOW + minutes(2)


def test_the_last_commit_begins_a_margin_before_the_deadline() -> None:
    policy = Policy(commit_margin=timedelta(seconds=20))

    assert commit_by(NOW + minutes(2), policy) == NOW + timedelta(seconds=100)


@pytest.mark.parametrize(
    ("age", "deadline", "capacity_type", "expected"),
    [
        pytest.param(30, 2, SPOT, False, id="the first hour is free if EC2 ends it"),
        pytest.param(58, 2, SPOT, True, id="reclaimed when the hour is over"),
        pytest.param(57.9, 2, SPOT, False, id="reclaimed just within it"),
        pytest.param(90, 2, SPOT, True, id="past the first hour every second is charged"),
        pytest.param(30, None, SPOT, True, id="no notice"),
        pytest.param(30, 2, ON_DEMAND, True, id="on demand nothing is free"),
        pytest.param(30, -6, SPOT, True, id="EC2 has not come"),
        pytest.param(30, -4, SPOT, False, id="EC2 is a little late"),
        pytest.param(30, -5, SPOT, False, id="EC2 is as late as it may be"),
    ],
)
def test_does_not_end_an_hour_that_is_free(
    age: float, deadline: float | None, capacity_type: CapacityType, expected: bool
) -> None:
    assert expected is should_power_off(
        launched_at=NOW - minutes(age),
        deadline=None if deadline is None else NOW + minutes(deadline),
        capacity_type=capacity_type,
        now=NOW,
    )


def test_the_worked_free_hours() -> None:
    probability = 1 - math.exp(-0.5)
    mean = (1 - math.exp(-0.5) * 1.5) / (0.5 * probability)

    assert probability == pytest.approx(0.393469, abs=5e-7)
    assert mean == pytest.approx(0.458506, abs=5e-7)
    assert free_hours(0.5, 2.0) == pytest.approx(probability * mean)
    assert free_hours(0.5, 2.0) == pytest.approx(0.180408, abs=5e-7)


@pytest.mark.parametrize(
    ("rate", "planned"), [(0.0005, 0.4), (0.02, 3.0), (0.5, 0.3), (2.0, 5.0), (9.0, 0.7)]
)
def test_free_hours_are_what_lives_drawn_at_random_show(rate: float, planned: float) -> None:
    # The same expectation as an integral: lives x with density l e^(-lx), free below min(1, plan).
    window, steps = min(1.0, planned), 20000
    width = window / steps
    middles = ((n + 0.5) * width for n in range(steps))
    expected = sum(x * rate * math.exp(-rate * x) * width for x in middles)

    assert free_hours(rate, planned) == pytest.approx(expected, rel=1e-6)


def test_free_hours_agree_with_a_simulation_of_the_first_hour() -> None:
    draw = random.Random(7)
    lives = [draw.expovariate(0.8) for _ in range(200_000)]
    free = sum(life for life in lives if life < 0.9) / len(lives)

    assert free_hours(0.8, 0.9) == pytest.approx(free, rel=0.02)


def test_the_series_keeps_nine_digits_next_to_its_bound() -> None:
    rate = 0.999e-3
    # From e^-l (1 + l) written out: the sum of (-1)^n l^(n-1) (n-1) / n!, from n = 2 on.
    exact = math.fsum(
        (-1) ** n * rate ** (n - 1) * (n - 1) / math.factorial(n) for n in range(2, 8)
    )

    assert free_hours(rate, 1.0) == pytest.approx(exact, rel=1e-9)


@given(rate=st.floats(0.0, 1e4), planned=st.floats(0.0, 1e4))
def test_free_hours_stay_below_the_hours_lived(rate: float, planned: float) -> None:
    free = free_hours(rate, planned)

    assert 0.0 <= free <= min(1.0, planned)


@given(rate=st.floats(9e-4, 1.1e-3), planned=st.floats(0.01, 2.0))
def test_the_series_meets_the_closed_form(rate: float, planned: float) -> None:
    window = min(1.0, planned)
    exact = (1.0 - math.exp(-rate * window) * (1.0 + rate * window)) / rate

    assert free_hours(rate, planned) == pytest.approx(exact, rel=1e-6, abs=1e-12)

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.checkpointing import (
    LONGEST_INTERVAL,
    SHORTEST_INTERVAL,
    interval_hours,
    is_due,
    slowdown,
)
from spindown.domain.policy import Policy
from tests.builders import minutes


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


@pytest.mark.parametrize(
    ("cost", "rate", "expected"),
    [
        # 2.3, 10.6 and 33 interruptions a day at 10 s a checkpoint.
        pytest.param(10, 2.3 / 24, 866.8, id="calm zone"),
        pytest.param(10, 10.6 / 24, 403.8, id="usual zone"),
        pytest.param(10, 33 / 24, 228.8, id="hot zone"),
        pytest.param(0, 1 / 24, 10.0, id="free checkpoints"),
        pytest.param(10, 1e12, 10.0, id="never a quiet moment"),
        pytest.param(10, 0.0, 1800.0, id="never interrupted"),
    ],
)
def test_the_interval_is_youngs_within_bounds(cost: float, rate: float, expected: float) -> None:
    found = interval_hours(Policy(), cost_hours=cost / 3600, rate=rate)

    assert found * 3600 == pytest.approx(expected, abs=0.1)


@given(cost=st.floats(0, 100), rate=st.floats(0))
def test_the_interval_never_leaves_its_bounds(cost: float, rate: float) -> None:
    found = timedelta(hours=interval_hours(Policy(), cost_hours=cost, rate=rate))

    assert SHORTEST_INTERVAL <= found <= LONGEST_INTERVAL


def test_a_fixed_interval_holds_at_any_rate() -> None:
    policy = Policy(checkpoint_interval=minutes(6))

    assert interval_hours(policy, cost_hours=1.0, rate=0.0) == pytest.approx(0.1)
    assert interval_hours(policy, cost_hours=1.0, rate=9.0) == pytest.approx(0.1)


def test_a_fixed_interval_is_a_second_at_least() -> None:
    policy = Policy(checkpoint_interval=timedelta(0))

    assert interval_hours(policy, cost_hours=1.0, rate=1.0) == pytest.approx(1 / 3600, rel=1e-9)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        pytest.param(1.0, 268.3, id="an hour between interruptions"),
        pytest.param(0.5, 379.5, id="two hours"),
        pytest.param(4.0, 134.2, id="a quarter"),
        pytest.param(0.0, 1800.0, id="never interrupted"),
    ],
)
def test_the_interval_follows_the_rate_of_interruptions(rate: float, expected: float) -> None:
    found = interval_hours(Policy(), cost_hours=10 / 3600, rate=rate)

    assert found * 3600 == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(
    ("items", "elapsed", "due"),
    [
        pytest.param(0, minutes(60), False, id="nothing to commit"),
        pytest.param(49, minutes(4), False, id="too early"),
        pytest.param(50, minutes(0), True, id="enough items"),
        pytest.param(1, minutes(5), True, id="long enough"),
    ],
)
def test_progress_is_committed_by_items_or_time(items: int, elapsed: timedelta, due: bool) -> None:
    policy = Policy(checkpoint_items=50)

    assert is_due(policy, items_since=items, elapsed=elapsed, interval=minutes(5)) is due


def test_without_a_number_of_items_only_time_counts() -> None:
    assert not is_due(Policy(), items_since=10**6, elapsed=minutes(1), interval=minutes(5))


def test_the_worked_slowdown() -> None:
    found = slowdown(rate=0.5, boot=0.05, interval=0.25, cost=0.005)

    assert found == pytest.approx(1.112153, abs=5e-7)


def test_without_interruptions_only_checkpoints_slow_work_down() -> None:
    assert slowdown(rate=0.0, boot=0.05, interval=0.25, cost=0.005) == 1.02
    near = slowdown(rate=1e-12, boot=0.05, interval=0.25, cost=0.005)
    assert near == pytest.approx(1.02, rel=1e-9)


@given(
    rate=st.floats(0, 1e6),
    boot=st.floats(0, 10),
    interval=st.floats(0.001, 10),
    cost=st.floats(0, 1),
)
def test_slowdown_is_finite_and_grows_with_the_rate(
    rate: float, boot: float, interval: float, cost: float
) -> None:
    found = slowdown(rate=rate, boot=boot, interval=interval, cost=cost)
    more = slowdown(rate=rate + 0.1, boot=boot, interval=interval, cost=cost)

    assert math.isfinite(found)
    assert 1.0 <= found <= more * (1 + 1e-12)

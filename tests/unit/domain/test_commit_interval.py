import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.commit_interval import (
    COMMIT_BYTES,
    LONGEST_INTERVAL,
    SHORTEST_INTERVAL,
    DueCommit,
    commit_after,
    commit_due,
    interval_hours,
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
    ("policy", "items", "in_bytes", "elapsed", "results", "state"),
    [
        pytest.param({}, 0, 0, 0, False, False, id="nothing is done"),
        pytest.param({}, 0, 0, 5, False, True, id="only the state can have changed"),
        pytest.param({}, 49, 0, 4.9, False, False, id="too early"),
        pytest.param({}, 1, 0, 5, True, True, id="long enough"),
        pytest.param({}, 10**6, 0, 1, False, False, id="without a number only time counts"),
        pytest.param({"checkpoint_items": 50}, 49, 0, 4, False, False, id="too few items"),
        pytest.param({"checkpoint_items": 50}, 50, 0, 0, True, True, id="enough items"),
        pytest.param({"checkpoint_items": 0}, 0, 0, 0, False, False, id="none is no number"),
        pytest.param({}, 1, COMMIT_BYTES - 1, 0, False, False, id="there is memory"),
        pytest.param({}, 1, COMMIT_BYTES, 0, True, True, id="memory fills"),
        pytest.param({}, 0, COMMIT_BYTES, 0, False, False, id="memory fills behind a gap"),
    ],
)
def test_progress_is_committed_by_items_memory_or_time(
    policy: dict[str, Any],
    items: int,
    in_bytes: int,
    elapsed: float,
    *,
    results: bool,
    state: bool,
) -> None:
    due = commit_due(
        Policy(checkpoint_interval=minutes(5), **policy),
        items=items,
        in_bytes=in_bytes,
        elapsed=minutes(elapsed),
        cost=None,
        rate=0.0,
    )

    assert due == DueCommit(results=results, state=state)


@pytest.mark.parametrize("items", [0, 1])
def test_a_warning_of_ec2_commits_what_there_is(items: int) -> None:
    due = commit_due(
        Policy(), items=items, elapsed=timedelta(0), cost=None, rate=0.0, is_at_risk=True
    )

    assert due == DueCommit(results=items > 0, state=True)


def test_the_next_commit_is_due_by_what_the_last_has_taken() -> None:
    rate = 1 / 10.4

    assert commit_after(Policy(), cost=seconds(10), rate=rate) == pytest.approx(
        seconds(865.3), abs=seconds(0.1)
    )
    assert commit_after(Policy(), cost=None, rate=rate) == pytest.approx(
        seconds(273.6), abs=seconds(0.1)
    )


@pytest.mark.parametrize(("every", "expected"), [(None, 0.1), (50, 0.05), (500, 0.1), (0, 0.001)])
def test_items_shorten_the_interval_of_a_slot(every: int | None, expected: float) -> None:
    policy = Policy(checkpoint_interval=minutes(6), checkpoint_items=every)

    found = interval_hours(policy, cost_hours=1.0, rate=0.0, items_per_hour=1000.0)

    assert found == pytest.approx(expected)


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

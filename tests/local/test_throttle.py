import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.local.hypervisor import Allowance

STEP = 0.05


@given(speed=st.floats(min_value=0.05, max_value=1.0))
def test_a_busy_guest_computes_at_its_speed(speed: float) -> None:
    allowance = Allowance(speed, free_seconds=0.0, saved_seconds=STEP)
    used, runs = 0.0, True
    steps = 2000
    for step in range(steps):
        used += STEP if runs else 0.0
        runs = allowance.lets_run(used, step * STEP)
    assert used / (steps * STEP) == pytest.approx(speed, rel=0.05, abs=2 * STEP / 100)


@given(speed=st.floats(min_value=0.05, max_value=1.0))
def test_no_pause_is_longer_than_one_step_of_work_takes(speed: float) -> None:
    allowance = Allowance(speed, free_seconds=0.0, saved_seconds=STEP)
    used, runs, paused, longest = 0.0, True, 0.0, 0.0
    for step in range(500):
        used += STEP if runs else 0.0
        runs = allowance.lets_run(used, step * STEP)
        paused = 0.0 if runs else paused + STEP
        longest = max(longest, paused)
    assert longest <= STEP / speed + STEP


def test_the_first_cpu_seconds_are_free() -> None:
    allowance = Allowance(0.1, free_seconds=2.0, saved_seconds=STEP)
    assert allowance.lets_run(1.9, 1.9)
    assert allowance.lets_run(2.0, 2.0)
    assert not allowance.lets_run(2.5, 2.5)


def test_idle_time_is_not_saved_up() -> None:
    allowance = Allowance(0.5, free_seconds=0.0, saved_seconds=STEP)
    assert allowance.lets_run(0.0, 0.0)
    assert allowance.lets_run(0.0, 3600.0)
    assert not allowance.lets_run(0.5, 3600.5)

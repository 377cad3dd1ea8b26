from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.idle import (
    LONGEST_TIMEOUT,
    SHORTEST_TIMEOUT,
    cheapest_timeout,
    idle_timeout,
    idle_within,
    poll_wait,
    timeout_heard,
    timeout_told,
    worth_of_boot,
)
from spindown.domain.learning import Knowledge
from spindown.domain.policy import Dispatch, Policy
from spindown.domain.shape import Shape
from tests.builders import AT_ONCE, job_sizes, minutes

gaps = st.lists(st.floats(0.0, 1e5), min_size=1, max_size=40)


def mean_cost(timeout: float, samples: list[float], boot: float) -> float:
    return sum(gap if gap <= timeout else timeout + boot for gap in samples) / len(samples)


@pytest.mark.parametrize(
    ("threshold", "start_within", "seconds"),
    [
        pytest.param(1, 610.0, 42.35, id="not held: one boot serves a boot and a job"),
        pytest.param(2, 610.0, 12.63, id="the worked example: held for 400 s, a job of 80 s"),
        pytest.param(2, 100.0, 42.35, id="there is no time to hold it"),
    ],
)
def test_a_boot_is_worth_less_idling_where_launches_wait(
    threshold: int, start_within: float, seconds: float
) -> None:
    policy = Policy(
        scale_up_threshold=threshold,
        start_within=timedelta(seconds=start_within),
        boot_estimate=timedelta(seconds=90),
        items_per_job_estimate=20.0,
        throughput_estimate=900.0,
    )

    worth = worth_of_boot(Knowledge(), policy).total_seconds()

    assert worth == pytest.approx(seconds, abs=0.01)


def test_the_worth_of_a_boot_goes_by_what_was_learned() -> None:
    policy = Policy(scale_up_threshold=2, start_within=timedelta(seconds=610))
    policy = replace(policy, throughput_estimate=900.0)
    known = Knowledge(boots=(90.0,) * 9, jobs=job_sizes(20.0))

    assert worth_of_boot(known, policy).total_seconds() == pytest.approx(12.63, abs=0.01)


@given(boot=st.floats(1.0, 1000.0), threshold=st.integers(1, 2))
def test_no_boot_is_worth_its_own_length_of_idling(boot: float, threshold: int) -> None:
    policy = Policy(scale_up_threshold=threshold, throughput_estimate=900.0)
    known = Knowledge(boots=(boot,), jobs=job_sizes(20.0))

    assert timedelta(0) < worth_of_boot(known, policy) < timedelta(seconds=min(boot, 80.0))


@pytest.mark.parametrize(
    ("known", "learned", "told"),
    [
        (None, 40.0, 40.0),
        (40.0, 40.0, 40.0),
        (40.0, 44.0, 40.0),
        (40.0, 44.1, 44.1),
        (40.0, 36.0, 40.0),
        (40.0, 35.9, 35.9),
    ],
)
def test_workers_keep_a_timeout_that_is_within_a_tenth(
    known: float | None, learned: float, told: float
) -> None:
    before = None if known is None else timedelta(seconds=known)
    knowledge = Knowledge(gaps=(learned,) * 9, boots=(600.0,))

    assert timeout_told(before, knowledge, AT_ONCE) == timedelta(seconds=told)


def test_a_fixed_timeout_is_told_however_near() -> None:
    policy = Policy(idle_timeout=timedelta(seconds=44))

    assert timeout_told(timedelta(seconds=43), Knowledge(), policy) == timedelta(seconds=44)


@pytest.mark.parametrize(
    ("told", "policy", "expected"),
    [
        pytest.param(40.0, {}, 40.0, id="what was learned"),
        pytest.param(None, {}, 120.0, id="nothing was learned: what a boot is worth"),
        pytest.param(40.0, {"idle_timeout": minutes(9)}, 540.0, id="what is fixed"),
        pytest.param(40.0, {"dispatch": Dispatch.DEDICATED}, 2.0, id="one job, so no other"),
    ],
)
def test_a_worker_goes_by_what_it_was_told(
    told: float | None, policy: dict[str, Any], expected: float
) -> None:
    heard = None if told is None else timedelta(seconds=told)

    found = timeout_heard(heard, Policy(boot_estimate=minutes(3), **policy))

    assert found == timedelta(seconds=expected)


def test_what_is_told_is_for_machines_of_any_job() -> None:
    pool, dedicated = (Policy(dispatch=each) for each in (Dispatch.POOL, Dispatch.DEDICATED))

    assert timeout_told(None, Knowledge(), dedicated) == timeout_told(None, Knowledge(), pool)


@pytest.mark.parametrize(
    ("own", "shape", "expected"),
    [
        (Dispatch.DEDICATED, "", SHORTEST_TIMEOUT),
        (Dispatch.DEDICATED, Shape(vcpus=4).name, minutes(10)),
        (Dispatch.POOL, Shape(vcpus=4, dispatch=Dispatch.DEDICATED).name, SHORTEST_TIMEOUT),
        (Dispatch.POOL, "", minutes(10)),
    ],
)
def test_a_worker_is_idle_as_its_own_shape_may(
    own: Dispatch, shape: str, expected: timedelta
) -> None:
    policy = Policy(dispatch=own, idle_timeout=minutes(10))

    assert idle_within(Knowledge(), policy, shape) == expected + policy.scale_down_delay


def test_a_fixed_timeout_is_taken_as_it_is() -> None:
    policy = Policy(idle_timeout=minutes(45))

    assert idle_timeout(Knowledge(gaps=(1.0,) * 9), policy) == minutes(45)


def test_without_samples_the_timeout_is_what_a_boot_is_worth() -> None:
    # Of a job of six minutes two thirds, and four fifths, of a boot.
    assert idle_timeout(Knowledge(), Policy(boot_estimate=minutes(3))) == minutes(2)
    assert idle_timeout(Knowledge(boots=(90.0,)), AT_ONCE) == timedelta(seconds=72)


def test_a_few_gaps_are_not_yet_a_distribution() -> None:
    assert idle_timeout(Knowledge(gaps=(30.0,) * 4, boots=(90.0,)), AT_ONCE) == minutes(1.2)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param((30.0,) * 5, 30.0, id="short gaps are bridged"),
        pytest.param((3600.0,) * 5, 2.0, id="long ones are not, but one long poll is"),
        pytest.param((30.0, 30.0, 30.0, 30.0, 600.0), 30.0, id="the long one is let go"),
        pytest.param((1.0, 1.0, 1.0, 1.0, 1.0), 2.0, id="never below one long poll"),
        pytest.param((60.0,) * 50 + (1e6,), 60.0, id="a weekend does not count"),
    ],
)
def test_learns_the_timeout_from_gaps(samples: tuple[float, ...], expected: float) -> None:
    knowledge = Knowledge(gaps=samples, boots=(180.0,))

    assert idle_timeout(knowledge, Policy()).total_seconds() == expected


def test_the_worked_example() -> None:
    assert cheapest_timeout([30, 30, 30, 600], 180) == 30
    assert mean_cost(0, [30, 30, 30, 600], 180) * 4 == 720
    assert mean_cost(30, [30, 30, 30, 600], 180) * 4 == 300
    assert mean_cost(600, [30, 30, 30, 600], 180) * 4 == 690


def test_of_equal_timeouts_the_shortest_or_a_little_less_wins() -> None:
    assert cheapest_timeout([10], 10) == 0
    assert cheapest_timeout([10], 10.5) == 10


@pytest.mark.parametrize(
    ("idle", "wait"),
    [
        pytest.param(0, 0, id="at first without a pause"),
        pytest.param(20, 0, id="for twenty seconds"),
        pytest.param(60, 10, id="then a quarter of the time since"),
        pytest.param(3600, 20, id="never more than twenty seconds"),
    ],
)
def test_pauses_longer_the_longer_it_is_idle(idle: float, wait: float) -> None:
    assert poll_wait(timedelta(seconds=idle)).total_seconds() == wait


@given(samples=gaps, boot=st.floats(0.0, 1e4), other=st.floats(0.0, 2e5))
def test_no_other_timeout_costs_less(samples: list[float], boot: float, other: float) -> None:
    best = cheapest_timeout(samples, boot)

    cost = mean_cost(best, samples, boot)
    assert cost <= mean_cost(other, samples, boot) * (1 + 1e-9) + 1e-9


@given(samples=gaps, boot=st.floats(0.0, 1e5))
def test_a_learned_timeout_stays_within_bounds(samples: list[float], boot: float) -> None:
    found = idle_timeout(Knowledge(gaps=tuple(samples), boots=(boot,)), Policy())

    assert SHORTEST_TIMEOUT <= found <= LONGEST_TIMEOUT


def test_a_worker_that_was_just_busy_polls_without_a_pause() -> None:
    assert poll_wait(timedelta(0)) == timedelta(0)
    assert poll_wait(timedelta(seconds=20)) == timedelta(0)


@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_the_longer_idle_the_rarer_the_poll(first: float, second: float) -> None:
    shorter, longer = sorted((first, second))

    waits = poll_wait(timedelta(seconds=shorter)), poll_wait(timedelta(seconds=longer))
    assert timedelta(0) <= waits[0] <= waits[1] <= timedelta(seconds=20)

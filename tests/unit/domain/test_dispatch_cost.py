"""What jobs of the past would have cost from a pool, alone, and side by side."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.dispatch_cost import (
    DispatchCost,
    MachineTerms,
    PastJob,
    cheaper_dispatch,
    compare_dispatches,
)
from spindown.domain.past_cost import LEAST_BILLED
from spindown.domain.policy import Dispatch
from tests.builders import NOW

POOL, DEDICATED, SHARED = Dispatch
HOUR = timedelta(hours=1)


def terms(**changes: Any) -> MachineTerms:
    """Return machines of 1 USD an hour that boot in a minute and wait for another; no job waits."""
    minute, at_once = timedelta(minutes=1), timedelta(0)
    usual = {"alone": 1.0, "shared": 1.0, "boot": minute, "idle": minute, "start_within": at_once}
    return MachineTerms(**{"pool_slots": 1, "shared_slots": 2, **usual, **changes})


def jobs(*at_and_took: tuple[float, float]) -> list[PastJob]:
    """Return jobs by the seconds at which they come, and that they take."""
    return [
        PastJob(at=NOW + timedelta(seconds=at), took=timedelta(seconds=took))
        for at, took in at_and_took
    ]


def costs(found: tuple[DispatchCost, ...]) -> dict[Dispatch, DispatchCost]:
    return {each.dispatch: each for each in found}


@pytest.mark.parametrize(
    ("at_and_took", "pool", "dedicated", "shared"),
    [
        pytest.param([(0, 60)], (180, 1), (120, 1), (180, 1), id="one job"),
        pytest.param([(0, 60), (0, 60)], (360, 2), (240, 2), (180, 1), id="two at once"),
        pytest.param([(0, 60), (150, 60)], (270, 1), (240, 2), (270, 1), id="the next in time"),
        pytest.param([(0, 60), (600, 60)], (360, 2), (240, 2), (360, 2), id="the next too late"),
        pytest.param(
            [(0, 600), (10, 600), (20, 600)], (2160, 3), (1980, 3), (1440, 2), id="three slots"
        ),
    ],
)
def test_what_each_way_would_have_cost(
    at_and_took: list[tuple[float, float]],
    pool: tuple[int, int],
    dedicated: tuple[int, int],
    shared: tuple[int, int],
) -> None:
    found = costs(compare_dispatches(jobs(*at_and_took), terms()))
    told = {name: (round(x.dollars * 3600), x.machines) for name, x in found.items()}
    assert told == {POOL: pool, DEDICATED: dedicated, SHARED: shared}


def test_a_pool_holds_as_many_jobs_as_its_machines_have_slots() -> None:
    found = costs(compare_dispatches(jobs((0, 60), (0, 60)), terms(pool_slots=2)))
    assert (round(found[POOL].dollars * 3600), found[POOL].machines) == (180, 1)


@pytest.mark.parametrize(
    ("start_within", "pool", "shared"),
    [
        pytest.param(119, (5 * 180, 5), (2 * 180 + 180, 3), id="too little to wait"),
        pytest.param(120, (2 * 240 + 180, 3), (240 + 180, 2), id="for one other"),
        pytest.param(900, (60 + 5 * 60 + 60, 1), (60 + 3 * 60 + 60, 1), id="for all others"),
    ],
)
def test_a_job_waits_for_a_machine_at_work_while_it_may(
    start_within: int, pool: tuple[int, int], shared: tuple[int, int]
) -> None:
    patient = terms(start_within=timedelta(seconds=start_within))
    found = costs(compare_dispatches(jobs(*[(0, 60)] * 5), patient))
    told = {name: (round(x.dollars * 3600), x.machines) for name, x in found.items()}
    assert told == {POOL: pool, DEDICATED: (5 * 120, 5), SHARED: shared}


def test_jobs_that_may_wait_are_for_a_pool() -> None:
    at_once = jobs(*[(0, 60)] * 10)
    assert compare_dispatches(at_once, terms(shared=None))[0].dispatch is DEDICATED
    patient = terms(shared=None, start_within=timedelta(minutes=15))
    assert compare_dispatches(at_once, patient)[0].dispatch is POOL


def test_a_minute_is_the_least_that_is_paid() -> None:
    quick = terms(boot=timedelta(seconds=10), idle=timedelta(0))
    found = costs(compare_dispatches(jobs((0, 5)), quick))
    assert found[DEDICATED].dollars == pytest.approx(LEAST_BILLED / HOUR)


def test_short_jobs_in_a_row_are_for_a_pool() -> None:
    found = compare_dispatches(jobs(*((10 * n, 10) for n in range(100))), terms(shared=4.0))
    assert found[0].dispatch is POOL


def test_what_is_not_sold_is_left_out() -> None:
    found = costs(compare_dispatches(jobs((0, 60)), terms(shared=None)))
    assert set(found) == {POOL, DEDICATED}
    assert compare_dispatches([], terms()) == ()


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 900)), min_size=1, max_size=30),
    st.integers(2, 8),
)
def test_no_way_is_paid_less_than_its_work(
    at_and_took: list[tuple[float, float]], slots: int
) -> None:
    found = costs(compare_dispatches(jobs(*at_and_took), terms(shared_slots=slots)))
    work = sum(took for _, took in at_and_took) / 3600
    assert found[POOL].dollars >= work
    assert found[DEDICATED].dollars == pytest.approx(work + len(at_and_took) * 60 / 3600)
    assert found[SHARED].dollars >= work / slots
    assert found[POOL].machines <= found[DEDICATED].machines


@pytest.mark.parametrize(
    ("pool", "shared", "count", "advised"),
    [
        pytest.param(1.0, 0.9, 5, SHARED, id="clearly less"),
        pytest.param(1.0, 0.9, 4, None, id="too few jobs"),
        pytest.param(1.0, 0.96, 100, None, id="a few per cent"),
        pytest.param(0.012, 0.004, 100, None, id="less than a cent"),
        pytest.param(0.02, 0.01, 100, SHARED, id="a cent that is half"),
        pytest.param(1.0, 1.0, 100, None, id="the same"),
    ],
)
def test_only_a_clear_difference_is_advice(
    pool: float, shared: float, count: int, advised: Dispatch | None
) -> None:
    told = {POOL: pool, SHARED: shared}
    found = sorted(
        (DispatchCost(dispatch=way, dollars=cost, machines=1) for way, cost in told.items()),
        key=lambda each: each.dollars,
    )
    assert cheaper_dispatch(found, POOL, jobs=count) is advised
    # Where the present way can be bought no more, another is advice.
    gone = cheaper_dispatch(found, DEDICATED, jobs=100)
    assert gone is found[0].dispatch
    assert cheaper_dispatch([], POOL, jobs=100) is None

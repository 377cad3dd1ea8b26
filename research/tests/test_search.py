"""The search for a cheaper schedule keeps the promise, does every job once, and is never dearer."""

import math
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.compare.integral.bill import Bill
from research.compare.integral.feasible import list_runs
from research.compare.integral.market import Market
from research.compare.integral.search import Machine, Search, join
from tests.simulator.scene import a_listing, a_scenario, a_zone, an_arrival

BOOT, PROMISE, COMMIT = 90.0, 600.0, 0.3
FAST = a_listing("g5.xlarge", speed=2.0, zones={"us-west-2a": a_zone(spot=((0.0, 0.35),))})

Drawn = list[tuple[int, int]]
DRAWN = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 900)), min_size=1, max_size=14)


def _begins(search: Search, machine: Machine) -> list[float]:
    """Return when each job begins, worked out one by one."""
    free, found = machine.ready, []
    for number in machine.jobs:
        job = search.jobs[number]
        found.append(max(free, job.at))
        free = found[-1] + job.work_seconds / machine.speed + COMMIT
    assert machine.ends == pytest.approx(free)
    return found


@settings(max_examples=30, deadline=None)
@given(DRAWN, st.integers(0, 5))
def test_a_search_keeps_promise_and_jobs_and_is_never_dearer(drawn: Drawn, seed: int) -> None:
    jobs = [
        an_arrival(at=60.0 * at, items=1, item_seconds=float(work)) for at, work in sorted(drawn)
    ]
    scenario = a_scenario(*jobs, listings=(a_listing(), FAST))
    market = Market(scenario, is_refunded=False)
    bills = {speed: Bill(scenario, market, speed) for speed in market.hours}
    takes = [job.work_seconds + COMMIT for job in jobs]
    runs = list_runs(jobs, takes, PROMISE, 0.0, BOOT, 1, is_packed=True)
    plans = [(1.0, [number for number, _, _ in run]) for run in runs]
    search = Search(jobs, bills, PROMISE, COMMIT, market.boot, Random(seed))

    before = math.fsum(each.dollars for each in search.improve(plans, 0))
    found = search.improve(plans, 60)

    assert sorted(number for each in found for number in each.jobs) == list(range(len(jobs)))
    for each in found:
        for number, begins in zip(each.jobs, _begins(search, each), strict=True):
            assert -1e-6 <= begins - jobs[number].at <= PROMISE + 1e-6
        assert each.dollars == pytest.approx(bills[each.speed](each.ready, each.ends))
    listed = math.fsum(market.charge(1.0, run[0][1], run[-1][2]) for run in runs)
    assert math.fsum(each.dollars for each in found) <= before + 1e-12 <= listed + 1e-9


def test_two_machines_become_one_where_that_is_cheaper() -> None:
    jobs = [an_arrival(at=at, items=1, item_seconds=200.0) for at in (0.0, 300.0, 500.0)]
    scenario = a_scenario(*jobs)
    market = Market(scenario, is_refunded=False)
    search = Search(jobs, {1.0: Bill(scenario, market, 1.0)}, PROMISE, COMMIT, BOOT, Random(1))

    (one,) = search.improve([(1.0, [0]), (1.0, [1]), (1.0, [2])], 50)

    assert one.jobs == [0, 1, 2]
    # Ready when the first is due, and never idle.
    assert one.ready == pytest.approx(PROMISE)
    assert one.ends == pytest.approx(PROMISE + 3 * (200.0 + COMMIT))


@given(DRAWN, st.integers(0, 14))
def test_rows_joined_are_the_whole_row(drawn: Drawn, cut: int) -> None:
    singles = [(float(work), 60.0 * at + work, 60.0 * at + PROMISE) for at, work in sorted(drawn)]
    empty = (0.0, -math.inf, math.inf)

    def whole(rows: list[tuple[float, float, float]]) -> tuple[float, float, float]:
        return list(accumulate(rows, join, initial=empty))[-1]

    apart = join(whole(singles[:cut]), whole(singles[cut:]))
    assert apart[0] == pytest.approx(whole(singles)[0])
    assert apart[1:] == pytest.approx(whole(singles)[1:])

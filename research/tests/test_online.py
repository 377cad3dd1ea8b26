"""The schedule that is made as jobs come keeps the promise, and knows nothing of what will come."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.compare.integral import online
from research.compare.integral.bill import Bill
from research.compare.integral.market import Market
from research.compare.integral.online import Life, Online
from spindown.simulator import Arrival
from tests.simulator.scene import a_listing, a_scenario, a_zone, an_arrival

PROMISE, COMMIT = 600.0, 0.3
FAST = a_listing("g5.xlarge", speed=2.0, zones={"us-west-2a": a_zone(spot=((0.0, 0.35),))})

Drawn = list[tuple[int, int]]
DRAWN = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 900)), min_size=1, max_size=14)


def _jobs(drawn: Drawn) -> list[Arrival]:
    return [
        an_arrival(at=60.0 * at, items=1, item_seconds=float(work)) for at, work in sorted(drawn)
    ]


def _told(jobs: list[Arrival], seed: int = 1, ahead: float = 0.0) -> Online:
    scenario = a_scenario(*jobs, listings=(a_listing(), FAST))
    market = Market(scenario, is_refunded=False)
    bills = {speed: Bill(scenario, market, speed) for speed in market.hours}
    return Online(jobs, bills, PROMISE, COMMIT, market.boot, Random(seed), ahead)


def _before(instant: float, lives: list[Life], boot: float) -> set[tuple[object, ...]]:
    """Return what has happened before an instant: launches, and jobs that have begun."""
    launches = {(each.speed, each.ready) for each in lives if each.ready - boot < instant}
    starts = {
        (each.speed, each.ready, job, at)
        for each in lives
        for job, at in each.begun
        if at < instant
    }
    return launches | starts


@settings(max_examples=40, deadline=None)
@given(DRAWN, st.integers(0, 5))
def test_every_job_is_done_once_in_time_on_a_machine_that_is_up(drawn: Drawn, seed: int) -> None:
    jobs = _jobs(drawn)
    told = _told(jobs, seed)

    lives = told.run()

    assert sorted(job for each in lives for job, _ in each.begun) == list(range(len(jobs)))
    for each in lives:
        free = each.ready
        for job, begins in each.begun:
            assert begins == pytest.approx(max(free, jobs[job].at))
            assert begins - jobs[job].at <= PROMISE + 1e-6
            free = begins + jobs[job].work_seconds / each.speed + COMMIT
        assert each.dollars == pytest.approx(told.bills[each.speed](each.ready, free))


@settings(max_examples=40, deadline=None)
@given(DRAWN, st.integers(0, 14), st.sampled_from([0.0, 300.0]))
def test_a_job_changes_nothing_before_it_is_known(drawn: Drawn, count: int, ahead: float) -> None:
    jobs = _jobs(drawn)
    first = jobs[:count]
    if not first or count >= len(jobs) or jobs[count].at == first[-1].at:
        return
    known_at = jobs[count].at - ahead
    whole, part = _told(jobs, ahead=ahead), _told(first, ahead=ahead)

    assert _before(known_at, whole.run(), whole.boot) == _before(known_at, part.run(), part.boot)


def test_no_machine_is_launched_for_a_job_that_has_not_come() -> None:
    told = _told(_jobs([(10, 100)]))

    (one,) = told.run()

    assert one.ready == pytest.approx(600.0 + PROMISE)


def test_a_second_job_joins_the_machine_waiting_for_the_first() -> None:
    told = _told(_jobs([(10, 100), (15, 100)]))

    (one,) = told.run()

    assert [job for job, _ in one.begun] == [0, 1]


def test_it_may_help_to_know_a_job_beforehand() -> None:
    # The first machine is gone when the second job comes, for less than a boot.
    jobs = _jobs([(0, 300), (16, 300)])
    scenario = a_scenario(*jobs)

    late = online(scenario, start_within=PROMISE)
    early = online(scenario, start_within=PROMISE, ahead=PROMISE)

    assert early < late
    assert late == pytest.approx(2.0 * online(a_scenario(jobs[0]), start_within=PROMISE), rel=0.02)
    assert math.isfinite(early)

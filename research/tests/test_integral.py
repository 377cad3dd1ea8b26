"""The bound with whole machines: by hand, and below everything that brute force finds."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.compare.integral import Integral, feasible, schedule
from research.compare.integral.age import fair_surcharge, long_hour, short_hour
from research.compare.integral.feasible import list_runs
from research.compare.integral.program import Blocks
from research.compare.whole import wholes
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import Arrival, SimDelays, SimScenario
from tests.simulator.scene import HOUR, a_listing, a_scenario, a_zone, an_arrival

BOOT, PROMISE = 90.0, 600.0
EXTRA = extra_price_per_hour(100)
HOURLY = (0.20 + EXTRA) / HOUR
NO_COMMIT = SimDelays(commit=0.0)
SLOW = a_listing()


def integral(scenario: SimScenario, **changes: float) -> Integral:
    found = schedule.integral(scenario, start_within=PROMISE, **changes)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_lone_job_costs_one_boot_its_work_and_its_commit() -> None:
    found = integral(a_scenario(an_arrival()))

    assert found.parts == 1
    assert found.dollars == pytest.approx((BOOT + 600 + 0.3) * HOURLY)


def test_jobs_far_apart_are_parts_of_their_own() -> None:
    found = integral(a_scenario(an_arrival(at=0.0), an_arrival(at=7200.0), delays=NO_COMMIT))

    assert found.parts == 2
    assert found.dollars == pytest.approx((2 * BOOT + 1200) * HOURLY)


def test_whole_machines_cost_what_fractions_do_not() -> None:
    # One machine cannot start three jobs of 400 s within 10 min, and half a machine more is not
    # to be had.
    jobs = tuple(an_arrival(at=0.0, items=1, item_seconds=400.0) for _ in range(3))
    found = integral(a_scenario(*jobs, delays=NO_COMMIT))

    assert found.dollars == pytest.approx((2 * BOOT + 1200) * HOURLY, rel=1e-3)
    assert found.relaxed < 0.99 * found.dollars


def test_without_refunds_each_hour_costs_its_price() -> None:
    zones = {"us-west-2a": a_zone(reclaims_per_hour=0.1)}
    scenario = a_scenario(an_arrival(), listings=(a_listing(zones=zones),), delays=NO_COMMIT)

    plain = schedule.integral(scenario, start_within=PROMISE, is_refunded=False)

    assert plain is not None
    assert plain.dollars == pytest.approx((BOOT + 600) * HOURLY)
    assert integral(scenario).dollars < plain.dollars


def test_long_lives_are_spared_more_of_an_hour_than_short_ones() -> None:
    zones = {"us-west-2a": a_zone(reclaims_per_hour=0.1)}
    surcharge = fair_surcharge(0.20, 0.1)

    def dollars(seconds: float) -> float:
        job = an_arrival(items=1, item_seconds=seconds)
        return integral(
            a_scenario(job, listings=(a_listing(zones=zones),), delays=NO_COMMIT)
        ).dollars

    short, long = short_hour(0.20, 0.1) + EXTRA, long_hour(0.20, 0.1, surcharge) + EXTRA
    assert dollars(600.0) == pytest.approx((BOOT + 600) * short / HOUR)
    assert dollars(3600.0) == pytest.approx(surcharge + (BOOT + 3600) * long / HOUR)
    assert long < short


def _schedules(jobs: Sequence[Arrival], listings: int) -> Iterator[Sequence[tuple[int, float]]]:
    """Yield which type each job runs on and when it starts, on a grid of two minutes."""
    ways = [
        [(kind, job.at + 120.0 * wait) for kind in range(listings) for wait in range(6)]
        for job in jobs
    ]
    yield from product(*ways)


def _cost(
    jobs: Sequence[Arrival], way: Sequence[tuple[int, float]], prices: Sequence[float]
) -> float:
    """Return the USD of a schedule: work goes to who idled last, a gap is idled or booted."""
    dollars = 0.0
    for kind, (speed, hourly) in enumerate(zip((1.0, 2.0), prices, strict=True)):
        idle: list[float] = []
        spans = sorted(
            (at, at + job.work_seconds / speed)
            for job, (runs_on, at) in zip(jobs, way, strict=True)
            if runs_on == kind
        )
        for begins, ends in spans:
            over = [each for each in idle if each <= begins]
            gap = BOOT
            if over:
                idle.remove(max(over))
                gap = min(gap, begins - max(over))
            idle.append(ends)
            dollars += (gap + ends - begins) * (hourly + EXTRA) / HOUR
    return dollars


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 15), st.integers(1, 12)), min_size=1, max_size=3),
    st.sampled_from([0.3, 0.45]),
    st.sampled_from([3, 60]),
)
def test_no_schedule_is_cheaper(
    drawn: list[tuple[int, int]], fast_price: float, block: int
) -> None:
    jobs = sorted(
        (an_arrival(at=60.0 * at, items=1, item_seconds=47.0 * size) for at, size in drawn),
        key=lambda each: each.at,
    )
    fast = a_listing(
        "g5.xlarge", speed=2.0, zones={"us-west-2a": a_zone(spot=((0.0, fast_price),))}
    )
    scenario = a_scenario(*jobs, listings=(SLOW, fast), delays=NO_COMMIT)

    cheapest = min(_cost(jobs, way, (0.2, fast_price)) for way in _schedules(jobs, 2))

    found = integral(scenario, block=block)
    assert found.dollars <= feasible(scenario, start_within=PROMISE) * (1 + 1e-6)
    assert found.relaxed - 1e-9 <= found.dollars <= cheapest * (1 + 1e-6)


def test_blocks_of_a_program_stay_below_the_whole_of_it() -> None:
    # At least 3 of x and y together, each a whole number in halves of 2: 4 is the least.
    def program(steps: int) -> Blocks:
        blocks = Blocks(steps)
        x, y = (blocks.add_column(step, most=4.0, cost=1.0, whole=True) for step in (0, 1))
        blocks.add_row([(x, 2.0), (y, 2.0)], least=3.0)
        return blocks

    assert program(2).solve(1.0) == pytest.approx((2.0, 1.5))
    assert program(1).solve(1.0) == pytest.approx((1.5, 1.5))


def test_the_table_takes_the_best_bound_of_the_same_traffic() -> None:
    least = {"bounded_wait": 10.0, "sparse_wait": 11.0}
    seed = {f"bound {p}": least for p in ("10 min", "60 min")}
    seed |= {f"ours {p}": {"dollars": 13.2} for p in ("10 min", "60 min")}
    told = {"dollars": 12.0, "found": 12.5, "parts": 3.0, "bounded_wait": 10.0}
    other = told | {"bounded_wait": 9.0}

    table = wholes({"S1": {"1": seed}}, {"S1": {"1": {"10 min": told, "60 min": other}}})

    assert "| S1, 10 min | 3 | 1.200 | 1.200 | 1.250 |  |  | 1.100 | 1.056 |  |" in table
    assert "| S1, 60 min |  |  | 1.100 |  |  |  | 1.200 |  |  |" in table
    assert "mean, 10 min |  |  | 1.200 | 1.250 |  |  | 1.100 | 1.056 |  |" in table
    assert "mean, 60 min |  |  | 1.100 |  |  |  | 1.200 |  |  |" in table
    assert "at 60 minutes" not in table


def test_the_page_tells_what_hearing_of_jobs_on_arrival_costs() -> None:
    bounds = {"bounded_wait": 10.0, "sparse_wait": 10.0}
    seed = {f"bound {p}": bounds for p in ("10 min", "60 min")}
    seed |= {f"ours {p}": {"dollars": 12.0} for p in ("10 min", "60 min")}
    told = {"dollars": 10.5, "found": 10.8, "parts": 1.0, "bounded_wait": 10.0}
    late = told | {"online": 10.95, "foreseen": 10.9}

    page = wholes({"S1": {"1": seed}}, {"S1": {"1": {"10 min": late, "60 min": told}}})

    assert "| 1.080 | 1.090 | 1.095 | 1.143 | 1.111 | 1.096 |" in page
    ten, sixty = (re.findall(r"\d\.\d+", line) for line in page.splitlines() if "L2 in" in line)
    assert ten == ["1.050", "1.080", "1.095", "1.200"]
    assert sixty == ["1.050", "1.080", "1.200"]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 900)), min_size=1, max_size=12),
    st.sampled_from([0.0, 240.0, 600.0]),
    st.sampled_from([1, 3]),
    st.booleans(),
)
def test_every_list_schedule_keeps_the_promise_and_does_all(
    drawn: list[tuple[int, int]], hold: float, opened: int, is_packed: bool
) -> None:
    drawn.sort()
    jobs = [an_arrival(at=60.0 * at, items=1, item_seconds=float(work)) for at, work in drawn]
    takes = [job.work_seconds for job in jobs]

    runs = list_runs(jobs, takes, PROMISE, hold, BOOT, opened, is_packed)

    done = {number: (begins, ends) for run in runs for number, begins, ends in run}
    assert len(done) == sum(map(len, runs)) == len(jobs)
    for number, (begins, ends) in done.items():
        assert 0.0 <= begins - jobs[number].at <= PROMISE
        assert ends - begins == pytest.approx(takes[number])
    for run in runs:
        assert all(ends <= begins <= ends + BOOT for (_, _, ends), (_, begins, _) in pairwise(run))

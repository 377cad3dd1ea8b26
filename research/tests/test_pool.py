"""A pool of workers as SkyPilot's: looks every 20 s, grows by one, goes after 20 quiet minutes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.baseline import RARE, simulate_any
from research.baseline.size import fewest_machines
from spindown.domain.offer import extra_price_per_hour
from tests.simulator.scene import DAY, HOUR, a_listing, a_scenario, a_zone, an_arrival

EXTRA = extra_price_per_hour(100)


def test_the_first_job_gets_a_worker_that_idles_20_min() -> None:
    result = simulate_any(a_scenario(an_arrival(at=32.0)), RARE["pool"], 1)

    # While there is none it looks every 5 s: at 35, then every 20 s. The worker is up at 125, so
    # 135 is the first look that sees nothing wait, and 1,315 the sixtieth.
    assert result.wait.most == pytest.approx(35 + 90 - 32)
    assert result.billed_seconds == pytest.approx(1315 - 35)
    assert result.dollars == pytest.approx((0.20 + EXTRA) * (1315 - 35) / HOUR)


def test_grows_by_a_worker_in_5_min_while_jobs_wait() -> None:
    scenario = a_scenario(*(an_arrival(at=30.0, items=360) for _ in range(5)))
    result = simulate_any(scenario, RARE["pool"], 1, max_workers=9)
    size = {x.seconds: x.booting + x.busy + x.idle for x in result.samples}

    # Looks at 30, 50, ...: the fifteenth in a row that sees too many waiting is at 330. A job
    # takes an hour; when the fourth worker has come one is left waiting, and it grows no more.
    grown = [
        at for at, (a, b) in zip(list(size)[1:], pairwise(size.values()), strict=True) if b > a
    ]
    assert grown == [50.0, 350.0, 650.0, 950.0]
    assert (result.launches, result.jobs_done) == (4, 5)


def test_a_worker_at_work_is_spared_until_its_job_is_done() -> None:
    result = simulate_any(a_scenario(an_arrival(at=30.0, items=720)), RARE["pool"], 1)

    # Nothing waits from 120 s on; its job ends at 7,320 s, and 7,330 is the next look.
    assert result.billed_seconds == pytest.approx(7330 - 30)


def test_a_worker_that_ec2_takes_is_replaced() -> None:
    taken = a_zone(capacity=((0.0, 9.0), (1000.0, 0.0)))
    zones = {"us-west-2a": taken, "us-west-2b": a_zone(spot=((0.0, 0.21),))}
    scenario = a_scenario(an_arrival(items=360), listings=(a_listing(zones=zones),))
    result = simulate_any(scenario, RARE["pool"], 1)

    assert (result.interruptions, result.launches, result.jobs_done) == (1, 2, 1)


def test_a_fixed_pool_is_paid_always_and_sized_by_the_promise() -> None:
    # Eight jobs of ten minutes at once, each to start within ten: four workers.
    scenario = a_scenario(*(an_arrival(at=HOUR) for _ in range(8)))
    result = simulate_any(scenario, RARE["pool-fixed"], 1, max_workers=9)

    assert (result.launches, result.peak, result.wait.most) == (4, 4, 600.0)
    assert result.dollars == pytest.approx(4 * (0.20 + EXTRA) * DAY / HOUR, rel=1e-3)


@pytest.mark.parametrize(
    ("start_within", "most", "fewest"),
    [(1800.0, 9, 1), (1799.0, 9, 2), (600.0, 9, 2), (599.0, 9, 4), (599.0, 3, 3), (0.0, 0, 1)],
)
def test_the_fewest_machines_for_four_jobs_of_10_min_at_once(
    start_within: float, most: int, fewest: int
) -> None:
    scenario = a_scenario(*(an_arrival(at=30.0) for _ in range(4)))
    found = fewest_machines(scenario, throughput=1.0, start_within=start_within, most=most)

    assert found == fewest


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 2000)), min_size=1, max_size=12),
    st.integers(0, 2000),
)
def test_the_fewest_is_the_first_of_all_numbers_that_is_enough(
    jobs: list[tuple[int, int]], within: int
) -> None:
    arrivals = [an_arrival(at=float(at), items=1, item_seconds=float(work)) for at, work in jobs]
    found = fewest_machines(
        a_scenario(*arrivals), throughput=1.0, start_within=within, most=len(jobs)
    )

    # Of at most nineteen jobs all must start in time.
    in_time = (n for n in range(1, len(jobs) + 1) if longest_wait(jobs, n) <= within)
    assert found == next(in_time)


def longest_wait(jobs: list[tuple[int, int]], machines: int) -> int:
    ends: list[int] = []
    longest = 0
    for at, work in sorted(jobs, key=lambda job: job[0]):
        running = sorted(end for end in ends if end > at)
        begins = running[len(running) - machines] if len(running) >= machines else at
        ends.append(begins + work)
        longest = max(longest, begins - at)
    return longest

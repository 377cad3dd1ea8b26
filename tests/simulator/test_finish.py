"""One long job with `finish_within` on the shipped code: waits, buys, moves back, is in time."""

from dataclasses import replace
from datetime import timedelta

from spindown.domain.policy import Policy
from spindown.simulator import Arrival, SimResult, Zone, simulate
from tests.simulator.scene import HOUR, a_listing, a_scenario, a_zone, an_arrival

#: Ten hours; and the same in so many items that it is split into four.
JOB = an_arrival(items=900, item_seconds=40.0)
LARGE_JOB = an_arrival(items=3600)


def finished(
    hours: float,
    *capacity: tuple[float, float],
    zones: dict[str, Zone] | None = None,
    job: Arrival = JOB,
    **changes: object,
) -> SimResult:
    """Return what becomes of the job on a market whose spot comes and goes at these seconds."""
    zones = zones or {"us-west-2a": a_zone(capacity=capacity)}
    scenario = a_scenario(job, listings=(a_listing(zones=zones),), length=hours * HOUR)
    policy = Policy(
        finish_within=timedelta(hours=hours),
        start_within=timedelta(minutes=10),
        max_workers=2,
        checkpoint_interval=timedelta(minutes=5),
    )
    return simulate(scenario, replace(policy, **changes), seed=1)  # type: ignore[arg-type]


def test_spot_that_stays_does_all_of_it() -> None:
    result = finished(12.0)

    assert result.jobs_done == 1
    assert result.launches == 1
    assert result.on_demand_dollars == 0.0


def test_spot_that_comes_back_gets_the_job_back() -> None:
    # It begins on spot, is alone on the market from hour 1 to 4, and has spot again from then on.
    result = finished(13.0, (0.0, 1.0), (1 * HOUR, 0.0), (4 * HOUR, 1.0))

    assert result.sojourn.most < 13 * HOUR
    on_demand = result.on_demand_dollars / result.dollars
    assert 0.0 < on_demand < 0.6
    assert result.redo_seconds < 300


def test_with_time_it_waits_for_spot_and_pays_for_nothing_else() -> None:
    result = finished(20.0, (0.0, 1.0), (1 * HOUR, 0.0), (4 * HOUR, 1.0))

    assert result.on_demand_dollars == 0.0
    assert 12.9 * HOUR < result.sojourn.most < 13.5 * HOUR


def test_without_room_for_a_second_worker_it_stays_on_demand() -> None:
    result = finished(13.0, (0.0, 1.0), (1 * HOUR, 0.0), (4 * HOUR, 1.0), max_workers=1)

    assert result.sojourn.most < 13 * HOUR
    assert result.on_demand_dollars / result.dollars > 0.9


def test_a_job_on_dear_spot_goes_to_cheaper_spot() -> None:
    cheap = a_zone(capacity=((0.0, 0.0), (2 * HOUR, 1.0)))
    dear = replace(a_zone(), spot=((0.0, 0.40),))
    result = finished(13.0, zones={"us-west-2a": dear, "us-west-2b": cheap})

    assert result.launches == 2
    assert result.interruptions == 0
    # Two hours and a half at 0.40, the rest at 0.20, each with 0.016 for volume and address.
    assert 2.5 < result.dollars < 3.1


def test_hourly_reclaims_make_it_late_for_nothing() -> None:
    steps = tuple((hour * 0.75 * HOUR, float(hour % 2 == 0)) for hour in range(40))
    result = finished(13.0, *steps)

    assert result.jobs_done == 1
    assert result.sojourn.most <= 13 * HOUR
    assert result.redo_seconds < 0.02 * 10 * HOUR


def test_parts_of_a_split_job_share_its_deadline_and_workers() -> None:
    result = finished(13.0, (0.0, 1.0), (1 * HOUR, 0.0), job=LARGE_JOB)

    assert result.jobs_done == 1
    assert result.sojourn.most <= 13 * HOUR


def test_short_jobs_with_time_for_several_boots_stay_on_spot() -> None:
    jobs = [an_arrival(at=n * HOUR / 4, items=10, item_seconds=10.0) for n in range(8)]
    scenario = a_scenario(*jobs, listings=(a_listing(),), length=2 * HOUR)
    result = simulate(scenario, Policy(finish_within=timedelta(minutes=40)), seed=1)

    # A loss takes a boot and a hundred seconds, not the half hour between two commits.
    assert result.jobs_done == 8
    assert result.on_demand_dollars == 0.0
    assert result.sojourn.most < 600.0

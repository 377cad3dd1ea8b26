"""Baselines cost what arithmetic says, and lose to the shipped code where it should win."""

from dataclasses import replace

import pytest

from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import BASELINES, SimResult, SimScenario, simulate, simulate_baseline
from spindown.simulator.baseline.fleet import fixed_listing
from spindown.simulator.sample import office_batches, sample_market
from tests.simulator.every_baseline import does_all_work_and_replays, has_slots_as_ours
from tests.simulator.scene import DAY, HOUR, a_listing, a_policy, a_scenario, a_zone, an_arrival

EXTRA = extra_price_per_hour(100)


def test_a_warm_machine_is_paid_for_day_and_night() -> None:
    scenario = a_scenario(an_arrival(at=HOUR))
    result = simulate_baseline(scenario, BASELINES["warm"], 1)

    assert result.dollars == pytest.approx((0.50 + EXTRA) * 24, rel=1e-3)
    assert (result.jobs_done, result.wait.most, result.launches) == (1, 0.0, 1)


def test_the_classic_pays_a_boot_the_work_and_ten_idle_minutes() -> None:
    scenario = a_scenario(an_arrival(at=30.0))
    result = simulate_baseline(scenario, BASELINES["classic-alarm"], 1)

    # Sent at 30 s; the alarm of 120 s is the first to have seen it for 90 s.
    life = 90 + 600 + 600
    assert result.dollars == pytest.approx((0.20 + EXTRA) * life / HOUR)
    assert result.wait.most == pytest.approx(120 - 30 + 90)


def test_work_undone_by_a_reclaim_restarts_from_a_checkpoint() -> None:
    zone = a_zone(capacity=((0.0, 1.0), (HOUR + 100, 0.0), (HOUR + 110, 1.0)))
    scenario = a_scenario(
        an_arrival(at=30.0, items=720), listings=(a_listing(zones={"us-west-2a": zone}),)
    )
    baseline = replace(BASELINES["classic-alarm"], checkpoint_seconds=600.0)
    result = simulate_baseline(scenario, baseline, 1)

    # It works from 210 s; the notice of 3,700 s ends it at 3,820 s, ten seconds into a seventh
    # stretch of ten minutes.
    assert result.redo_seconds == pytest.approx(10)
    assert result.jobs_done == 1


def test_office_hours_cost_a_fraction_of_the_usual_price() -> None:
    scenario = a_scenario(
        *office_batches(seed=1, days=2, work_hours=14),
        listings=sample_market(seed=1, days=2),
        length=2 * DAY,
    )
    ours = simulate(scenario, a_policy(idle_timeout=None), 1)
    warm = simulate_baseline(scenario, BASELINES["warm"], 1)
    classic = simulate_baseline(scenario, BASELINES["classic-alarm"], 1)

    assert ours.jobs_done == warm.jobs_done == classic.jobs_done == ours.jobs
    assert warm.dollars > 5 * ours.dollars
    assert classic.dollars > 1.8 * ours.dollars


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_does_all_work_despite_reclaims_and_replays(name: str) -> None:
    does_all_work_and_replays(lambda scenario: simulate_baseline(scenario, BASELINES[name], 3))


@pytest.mark.parametrize("name", BASELINES)
def test_a_machine_has_as_many_slots_as_ours(name: str) -> None:
    def run(scenario: SimScenario) -> SimResult:
        return simulate_baseline(scenario, BASELINES[name], 1, max_workers=2)

    has_slots_as_ours(run, BASELINES[name])


def test_work_of_several_slots_resumes_from_its_last_marks() -> None:
    zone = a_zone(capacity=((0.0, 1.0), (HOUR, 0.0), (HOUR + 200, 1.0)))
    jobs = [an_arrival(at=30.0 + number, items=720) for number in range(4)]
    scenario = a_scenario(*jobs, listings=(a_listing(zones={"us-west-2a": zone}),), slots="2")
    result = simulate_baseline(scenario, BASELINES["classic-alarm"], 1, max_workers=1)

    assert (result.jobs_done, result.interruptions) == (4, 1)
    # Two jobs, 510 seconds each since the last mark: half of the machine's time each.
    assert result.redo_seconds == pytest.approx((HOUR + 120 - 210) % 600)
    assert result.busy_seconds == pytest.approx(4 * 7200 / 2 + result.redo_seconds)


def test_work_reclaimed_from_several_slots_is_done_first() -> None:
    four = a_zone(spot=((0.0, 0.10),), capacity=((0.0, 1.0), (HOUR, 0.0)))
    listings = (a_listing("g4dn.12xlarge", zones={"us-west-2a": four}), a_listing("g4dn.xlarge"))
    taken = [an_arrival(at=30.0 + n, items=1, item_seconds=4000.0 + 1000.0 * n) for n in range(4)]
    late = an_arrival(at=HOUR, items=10)
    scenario = a_scenario(*taken, late, listings=listings)
    result = simulate_baseline(scenario, BASELINES["classic-alarm"], 1, max_workers=1)

    # 3,000 s of each were marked; the rest is done one after the other, in the one slot there is.
    ends, at = [], 0.0
    for arrival in (*taken, late):
        at += arrival.work_seconds - (3000.0 if arrival in taken else 0.0)
        ends.append(at - arrival.at)
    assert (result.jobs_done, result.interruptions) == (5, 1)
    spread = max(ends) - sum(ends) / len(ends)
    assert result.sojourn.most - result.sojourn.mean == pytest.approx(spread)


@pytest.mark.parametrize("name", ["ours", "warm", "batch"])
def test_work_that_is_under_way_at_the_end_is_paid_as_work(name: str) -> None:
    scenario = a_scenario(an_arrival(item_seconds=1e6), length=HOUR, overtime=HOUR)
    result = (
        simulate(scenario, a_policy(), 1)
        if name == "ours"
        else simulate_baseline(scenario, BASELINES[name], 1)
    )

    assert result.jobs_done == 0
    assert result.busy_seconds == pytest.approx(2 * HOUR - 30 - 90, abs=90)
    assert result.bill["work"] / result.dollars > 0.9


def test_a_machine_per_job_pays_a_boot_each_and_nothing_else() -> None:
    scenario = a_scenario(an_arrival(at=10.0), an_arrival(at=2 * HOUR))
    result = simulate_baseline(scenario, BASELINES["vm-per-job"], 1)

    assert result.launches == 2
    assert result.billed_seconds == pytest.approx(2 * (90 + 600))
    assert result.wait.most == pytest.approx(90)


def test_target_tracking_grows_after_3_and_shrinks_after_15_min() -> None:
    scenario = a_scenario(*(an_arrival(at=30.0) for _ in range(8)))
    result = simulate_baseline(scenario, BASELINES["asg-backlog"], 1, max_workers=16)

    # A job takes ten minutes, so one for each machine: seven wait, seven machines are wanted.
    assert result.peak == 7
    assert result.samples[-1].busy == 0


def test_the_classic_takes_the_cheapest_hour_that_is_to_be_had() -> None:
    dry = a_listing("g4dn.xlarge", zones={"us-west-2a": a_zone(capacity=((0.0, 0.0),))})
    other = a_listing("g5.xlarge", zones={"us-west-2a": a_zone(spot=((0.0, 0.30),))}, speed=2.0)
    scenario = a_scenario(listings=(dry, other), overtime=HOUR)

    result = simulate_baseline(scenario, BASELINES["classic-alarm"], 1)
    assert (result.jobs_done, result.types) == (1, {"g5.xlarge": 1})


def test_a_type_is_cheap_by_time_and_not_by_price_changes() -> None:
    moves = tuple((DAY - 60.0 + number, 0.90) for number in range(50))
    mostly_cheap = a_listing("g4dn.xlarge", zones={"a": a_zone(spot=((0.0, 0.10), *moves))})
    dearer = a_listing("g5.xlarge", zones={"a": a_zone(spot=((0.0, 0.20),))})
    scenario = a_scenario(listings=(dearer, mostly_cheap))

    assert fixed_listing(scenario, BASELINES["asg-backlog"]) is mostly_cheap


def test_a_price_that_nobody_lives_to_see_makes_no_type_dear() -> None:
    late = a_zone(spot=((0.0, 0.10), (DAY, 9.0), (9 * DAY, 9.0)))
    cheap = a_listing("g4dn.xlarge", zones={"a": late})
    dearer = a_listing("g5.xlarge", zones={"a": a_zone(spot=((0.0, 0.20),))})

    found = fixed_listing(
        a_scenario(listings=(dearer, cheap), length=DAY), BASELINES["asg-backlog"]
    )
    assert found is cheap

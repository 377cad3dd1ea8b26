"""Baselines cost what arithmetic says, and lose to the shipped code where it should win."""

from dataclasses import replace

import pytest

from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import simulate
from spindown.simulator.baseline import alarm_and_idle, simulate_baseline, warm_machine
from spindown.simulator.sample import office_batches, sample_market
from tests.simulator.scene import DAY, HOUR, a_listing, a_policy, a_scenario, a_zone, an_arrival

EXTRA = extra_price_per_hour(100)


def test_a_warm_machine_is_paid_for_day_and_night() -> None:
    scenario = a_scenario(an_arrival(at=HOUR))
    result = simulate_baseline(scenario, warm_machine(scenario, "g4dn.xlarge"), 1)

    assert result.dollars == pytest.approx((0.50 + EXTRA) * 24, rel=1e-3)
    assert (result.jobs_done, result.wait.most, result.launches) == (1, 0.0, 1)


def test_the_classic_pays_a_boot_the_work_and_ten_idle_minutes() -> None:
    scenario = a_scenario(an_arrival(at=30.0))
    result = simulate_baseline(scenario, alarm_and_idle(scenario, "g4dn.xlarge"), 1)

    # Sent at 30 s; the alarm of 120 s is the first to have seen it for 90 s.
    life = 90 + 600 + 600
    assert result.dollars == pytest.approx((0.20 + EXTRA) * life / HOUR)
    assert result.wait.most == pytest.approx(120 - 30 + 90)


def test_what_a_reclaim_undoes_is_done_again_from_the_last_checkpoint() -> None:
    zone = a_zone(capacity=((0.0, 1.0), (HOUR + 100, 0.0), (HOUR + 110, 1.0)))
    scenario = a_scenario(
        an_arrival(at=30.0, items=720), listings=(a_listing(zones={"us-west-2a": zone}),)
    )
    baseline = replace(alarm_and_idle(scenario, "g4dn.xlarge"), checkpoint_seconds=600.0)
    result = simulate_baseline(scenario, baseline, 1)

    # It works from 210 s; the notice of 3,700 s ends it at 3,820 s, ten seconds into a seventh
    # stretch of ten minutes.
    assert result.redo_seconds == pytest.approx(10)
    assert result.jobs_done == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_office_hours_cost_a_fraction_of_what_people_pay_for_them(seed: int) -> None:
    scenario = a_scenario(
        *office_batches(seed=seed, days=2, work_hours=14),
        listings=sample_market(seed=seed, days=2),
        length=2 * DAY,
    )
    ours = simulate(scenario, a_policy(idle_timeout=None), seed)
    warm = simulate_baseline(scenario, warm_machine(scenario, "g4dn.xlarge"), seed)
    classic = simulate_baseline(scenario, alarm_and_idle(scenario, "g4dn.xlarge"), seed)

    assert ours.jobs_done == warm.jobs_done == classic.jobs_done == ours.jobs
    assert warm.dollars > 5 * ours.dollars
    assert classic.dollars > 1.8 * ours.dollars

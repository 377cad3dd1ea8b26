"""What a simulation must get right before any of its figures is believed."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from functools import cache
from random import Random

import pytest

from spindown.domain.offer import CapacityType, extra_price_per_hour
from spindown.domain.policy import Rung
from spindown.simulator import (
    BASELINES,
    Arrival,
    Boot,
    Run,
    SimDelays,
    SimResult,
    simulate,
    simulate_baseline,
)
from spindown.simulator.sample import daily_stream, office_batches, sample_market
from tests.simulator.scene import (
    DAY,
    HOUR,
    a_listing,
    a_policy,
    a_scenario,
    a_zone,
    an_arrival,
)

pytestmark = pytest.mark.long


@cache
def an_eventful(seed: int) -> SimResult:
    """Run half a day in which instances are taken away all the time, some without a word."""
    scenario = a_scenario(
        *daily_stream(seed=seed, days=0.5, jobs_a_day=300),
        listings=sample_market(seed=seed, days=1, reclaims=60.0),
        notice_missing=0.3,
        length=DAY / 2,
    )
    return simulate(scenario, a_policy(), seed)


def test_a_run_without_interruption_costs_what_arithmetic_says() -> None:
    result = simulate(a_scenario(an_arrival(at=30.0)), a_policy(), 1)

    # Sent at 30 s, seen by the tick of 60 s; boot 90 s, work 600 s, the last commit 0.3 s, two
    # idle minutes, 5 s to power off.
    life = 90 + 600 + 0.3 + 120 + 5
    assert result.dollars == pytest.approx((0.20 + extra_price_per_hour(100)) * life / HOUR)
    assert result.wait.most == pytest.approx(30 + 90)
    assert result.sojourn.most == pytest.approx(30 + 90 + 600.3)
    assert result.bill["boot"] / result.dollars == pytest.approx(90 / life)
    assert result.bill["idle"] / result.dollars == pytest.approx(125 / life)
    assert result.redo_seconds == pytest.approx(0)


def test_a_faster_gpu_takes_its_share_of_the_time() -> None:
    scenario = a_scenario(an_arrival(at=30.0), listings=(a_listing(speed=4.0),))

    assert simulate(scenario, a_policy(), 1).busy_seconds == pytest.approx(600 / 4 + 0.3)


def test_a_run_of_less_than_a_minute_is_billed_as_a_minute() -> None:
    scenario = a_scenario(
        an_arrival(items=1, item_seconds=1.0), boot=replace(a_scenario().boot, at_least=1, median=1)
    )
    result = simulate(scenario, a_policy(idle_timeout=timedelta(0)), 1)

    extra = extra_price_per_hour(100)
    lived = result.boot_seconds + result.busy_seconds + result.idle_seconds
    assert lived < 60
    assert result.dollars == pytest.approx(0.20 * 60 / HOUR + extra * lived / HOUR)


def test_a_reclaim_in_the_first_hour_bills_volume_and_address() -> None:
    zone = a_zone(capacity=((0.0, 5.0), (600.0, 0.0), (660.0, 5.0)))
    scenario = a_scenario(an_arrival(), listings=(a_listing(zones={"us-west-2a": zone}),))
    run = Run(scenario, a_policy(), 1)
    result = run.run()

    free = [bill for bill in run.world.compute.bills() if bill.is_free]
    assert [bill.instance_dollars for bill in free] == [0.0]
    assert result.interruptions == 1
    assert result.items_done == 60
    assert sum(bill.seconds for bill in free) == pytest.approx(600 + 120 - 60)


def test_the_account_holds_what_a_free_hour_bills() -> None:
    zone = a_zone(reclaims_per_hour=3.0)
    scenario = a_scenario(
        *daily_stream(seed=1, days=0.3, jobs_a_day=300),
        listings=(a_listing(zones={"us-west-2a": zone}),),
        length=DAY / 2,
    )
    run = Run(scenario, a_policy(), 1)
    result = run.run()

    free = [bill for bill in run.world.compute.bills() if bill.is_free]
    assert len(free) > 3
    assert result.accounted_dollars == pytest.approx(result.dollars, rel=0.001)


@pytest.mark.parametrize(("missing", "stood"), [(0.0, 0.0), (1.0, 90.0)])
def test_a_job_waits_for_a_boot_only_where_nobody_was_told(missing: float, stood: float) -> None:
    zone = a_zone(capacity=((0.0, 5.0), (600.0, 0.0), (660.0, 5.0)))
    scenario = a_scenario(
        an_arrival(), listings=(a_listing(zones={"us-west-2a": zone}),), notice_missing=missing
    )
    result = simulate(scenario, a_policy(), 1)

    # A replacement is up before a job is given back to the last moment of two minutes' notice.
    assert result.interruptions == 1
    assert (result.stood.mean, result.stood.most) == (stood, stood)


def test_a_job_given_back_waits_until_there_is_capacity() -> None:
    zone = a_zone(capacity=((0.0, 5.0), (600.0, 0.0), (1200.0, 5.0)))
    spot_only = Rung(after=timedelta(0), capacity_types=frozenset({CapacityType.SPOT}))
    scenario = a_scenario(an_arrival(), listings=(a_listing(zones={"us-west-2a": zone}),))
    result = simulate(scenario, a_policy(ladder=(spot_only,)), 1)

    # Given back 20 s before EC2 takes its worker; the next one is up a boot after 1,200 s.
    assert result.stood.most == pytest.approx(1200 + 90 - (600 + 120 - 20))


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.proof) for n in (1, 2))])
def test_work_is_conserved_however_often_instances_are_taken(seed: int) -> None:
    result = an_eventful(seed)

    assert result.interruptions > 10
    assert result.jobs_done == result.jobs
    assert result.items_done == result.items
    assert result.dead_letters == 0


def test_the_account_of_the_deployment_is_what_ec2_bills() -> None:
    scenario = a_scenario(
        *office_batches(seed=1, days=1, work_hours=5), listings=sample_market(seed=1, days=1)
    )
    result = simulate(scenario, a_policy(), 1)

    assert result.accounted_dollars == pytest.approx(result.dollars, rel=0.01)


def test_the_causes_of_the_bill_add_up_to_it() -> None:
    result = an_eventful(1)

    assert sum(result.bill.values()) == pytest.approx(result.dollars)
    assert min(result.bill.values()) >= 0
    assert result.bill["redo"] > 0


def test_messages_in_the_queue_are_arrivals_times_stay() -> None:
    scenario = a_scenario(
        *daily_stream(seed=2, days=0.25, jobs_a_day=300),
        listings=sample_market(seed=2, days=1, reclaims=60.0),
        notice_missing=0.3,
        length=DAY / 4,
    )
    run, present = Run(scenario, a_policy(), 2), 0.0
    while not run.is_over:
        backlog, due = run.world.queue.backlog(), run.agenda.next_at()
        assert due is not None
        present += (backlog.visible + backlog.in_flight) * (due - run.agenda.now).total_seconds()
        run.step()
    result = run.result()

    # Little's law: L = lambda W, over a span at whose ends nothing is present. The queue is counted
    # here, the stay of each job by the recorder; interrupted jobs go back and forth between them.
    rate = result.jobs / result.seconds
    assert result.interruptions > 3
    assert present / result.seconds == pytest.approx(rate * result.sojourn.mean, rel=1e-9)
    assert result.mean_jobs == pytest.approx(rate * result.sojourn.mean, rel=1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_computed_and_not_redone_is_the_work_that_came(seed: int) -> None:
    hot = a_zone(reclaims_per_hour=4.0)
    scenario = a_scenario(
        *daily_stream(seed=seed, days=0.3, jobs_a_day=300),
        listings=(a_listing(zones={"us-west-2a": hot}),),
        notice_missing=0.3,
        length=0.3 * DAY,
    )
    result = simulate(scenario, a_policy(), seed)

    # All that comes on top is the last commit of each stay in a slot, 0.3 s each.
    stays = result.jobs + result.interruptions
    assert result.redo_seconds > 100
    over = result.busy_seconds - result.redo_seconds - scenario.work_seconds
    assert 0.3 * result.jobs <= over + 0.01 <= 0.3 * stays + 0.02


def test_the_same_seed_gives_the_same_bytes_in_any_process() -> None:
    # Another process has another order of hashes, and nothing that earlier runs have left.
    code = (
        "from tests.simulator.test_calibration import an_eventful; print(an_eventful(1).to_json())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "1"},
        capture_output=True,
        check=True,
        text=True,
    )

    assert done.stdout == an_eventful(1).to_json() + "\n"
    assert json.loads(done.stdout)["jobs_done"] > 0
    assert an_eventful(1).digest != an_eventful(0).digest


def memoryless(jobs: int, *, between: float, service: float) -> list[Arrival]:
    """Return jobs of one item each: times between them and work are exponential, seconds."""
    random, arrivals, at = Random(7), [], 0.0
    for _ in range(jobs):
        at += random.expovariate(1.0 / between)
        work = random.expovariate(1.0 / service)
        arrivals.append(an_arrival(at=at, items=1, item_seconds=work))
    return arrivals


@pytest.mark.parametrize("setup", [pytest.param(30.0, marks=pytest.mark.proof), 240.0])
def test_the_shipped_code_matches_the_queue_with_a_boot(
    setup: float,
) -> None:
    # As below, on the shipped control plane and workers in a world without delays.
    service, between = 60.0, 120.0
    arrivals = memoryless(400, between=between, service=service)
    scenario = a_scenario(
        *arrivals,
        length=arrivals[-1].at,
        boot=Boot(at_least=setup, median=0.0, sigma=0.0),
        delays=SimDelays(event=0.001, ending=0.0, power_off=0.0, described=0.0, commit=0.0),
        nudged=True,
        disorder=1,
    )
    policy = a_policy(max_workers=1, idle_timeout=timedelta(0))
    result = simulate(scenario, policy, 1)

    # Job by job: whoever comes to nobody starts a machine, which ends with the last one's work.
    stays, free_at, launches = [], 0.0, 0
    for each in arrivals:
        is_first = each.at > free_at
        launches += is_first
        free_at = max(free_at, each.at + setup * is_first) + each.work_seconds
        stays.append(free_at - each.at)
    assert result.launches == launches
    assert result.sojourn.mean == pytest.approx(sum(stays) / len(stays), rel=1e-3)
    assert result.sojourn.most == pytest.approx(max(stays), rel=1e-3)
    rate = 1.0 / between
    expected = 1.0 / (1.0 / service - rate)
    expected += (2.0 * setup + rate * setup**2) / (2.0 * (1.0 + rate * setup))
    assert result.sojourn.mean == pytest.approx(expected, rel=0.15)
    assert result.boot_seconds == pytest.approx(launches * setup, rel=1e-3)
    assert result.idle_seconds == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize("setup", [30.0, pytest.param(240.0, marks=pytest.mark.proof)])
def test_a_queue_with_a_boot_waits_as_its_closed_form_says(setup: float) -> None:
    # M/M/1 whose server is switched off when idle (Welch 1964): the mean stay is that of M/M/1
    # and (2 D + l D^2) / (2 (1 + l D)) for a boot of D; a look of 5 s makes D 2.5 s longer.
    service, between = 60.0, 120.0
    arrivals = memoryless(2500, between=between, service=service)
    scenario = a_scenario(
        *arrivals,
        length=arrivals[-1].at,
        boot=Boot(at_least=setup, median=0.0, sigma=0.0),
        listings=(a_listing(),),
    )
    one = replace(BASELINES["vm-per-job"], one_job=False, look_seconds=5.0)
    result = simulate_baseline(scenario, one, 1, max_workers=1)

    boot, rate = setup + 2.5, 1.0 / between
    expected = 1.0 / (1.0 / service - rate)
    expected += (2.0 * boot + rate * boot**2) / (2.0 * (1.0 + rate * boot))
    assert result.sojourn.mean == pytest.approx(expected, rel=0.1)
    # Work is conserved, and what is not work is boots: the machine never idles.
    assert result.busy_seconds == pytest.approx(scenario.work_seconds)
    assert result.boot_seconds == pytest.approx(result.launches * setup)
    assert result.idle_seconds == pytest.approx(0.0, abs=1e-3)

"""What is learned after half a day or a whole one, against the truth of the simulated world."""

from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.domain.learning import (
    Knowledge,
    boot_p50,
    boot_p95,
    checkpoint_cost,
    interruption_rate,
    items_per_job,
    quantile,
    throughput,
)
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.domain.relative_throughput import relative_throughput
from spindown.ledger import Ledger
from spindown.ledger.knowledge import read_knowledge
from spindown.simulator import Arrival, Boot, Run, SimDelays, SimScenario
from spindown.simulator.world import WORKLOAD
from tests.simulator.scene import DAY, HOUR, a_listing, a_policy, a_scenario, a_zone, an_arrival

pytestmark = pytest.mark.long

#: What an estimate may be off.
CLOSE = 0.1
COMMIT = 0.3
SPOT = (Rung(after=timedelta(0), capacity_types=frozenset({CapacityType.SPOT})),)


def after(scenario: SimScenario, policy: Policy, *, days: float = 0.5) -> tuple[Run, Knowledge]:
    """Return a run after some days, and what is known by then."""
    run = Run(scenario, policy, 1)
    while run.agenda.seconds < days * DAY:
        run.step()
    return run, read_knowledge(Ledger(run.world.table, WORKLOAD).read().rates, slots="per-gpu")


def every(seconds: float, arrival: Arrival) -> list[Arrival]:
    """Return a day of arrivals."""
    return [replace(arrival, at=30.0 + n * seconds) for n in range(int(DAY / seconds))]


def items_per_hour(known: Knowledge, policy: Policy, gpu: str = "g4dn.xlarge") -> float:
    return throughput(known, a_listing(gpu).instance_type, policy).items_per_hour


#: Seconds of an item, items of a job, seconds from one job to the next.
JOBS = {
    "10 ms": (0.01, 1000, HOUR),
    "1 s": (1.0, 60, HOUR / 4),
    "90 s": (90.0, 10, HOUR / 2),
    "1 h": (HOUR, 3, 4 * HOUR),
    "10 h": (10 * HOUR, 1, 6 * HOUR),
    "20 h": (20 * HOUR, 1, DAY),
}


# Without a checkpoint nobody may hold a job for 20 hours.
@pytest.mark.parametrize(
    ("name", "keeps_state"),
    [
        *((name, True) for name in ("10 ms", "1 s", "20 h")),
        *((name, False) for name in ("10 ms", "90 s", "10 h")),
        *(pytest.param(name, True, marks=pytest.mark.proof) for name in ("90 s", "1 h", "10 h")),
    ],
)
def test_throughput_is_true(name: str, *, keeps_state: bool) -> None:
    seconds, items, pause = JOBS[name]
    arrival = replace(an_arrival(items=items, item_seconds=seconds), keeps_state=keeps_state)
    # A long item is saved a hundred times.
    often = timedelta(seconds=max(10.0, seconds / 100))
    policy = a_policy(checkpoint_interval=often, throughput_estimate=1000.0)

    days = 1.0 if pause == DAY else 0.5
    _, known = after(a_scenario(*every(pause, arrival)), policy, days=days)

    # A job ends with a commit, during which nothing is computed.
    true = items * HOUR / (items * seconds + COMMIT)
    assert items_per_hour(known, policy) == pytest.approx(true, rel=CLOSE)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_throughput_is_true_where_items_are_unequal(share: float) -> None:
    # A job is one item: of 1 s, or of 200 s.
    every_nth = round(1 / share)
    arrivals = [
        an_arrival(
            30.0 + n * 20.0 * (1 + 9 * share),
            items=1,
            item_seconds=1.0 + 199.0 * (n % every_nth == 0),
        )
        for n in range(1500)
    ]
    policy = a_policy(max_workers=3, throughput_estimate=1000.0)

    _, known = after(a_scenario(*arrivals), policy)

    true = HOUR / (1.0 + 199.0 * share + COMMIT)
    assert items_per_hour(known, policy) == pytest.approx(true, rel=CLOSE)


@pytest.mark.parametrize(
    ("seconds", "items", "keeps_state", "missing"),
    [
        pytest.param(2.0, 900, False, 0.0, id="2 s"),
        pytest.param(HOUR / 2, 4, False, 0.0, id="half an hour"),
        pytest.param(HOUR / 2, 4, False, 1.0, id="half an hour, no notice"),
        pytest.param(HOUR / 2, 4, True, 0.0, id="half an hour, with state"),
        pytest.param(8 * HOUR, 1, True, 0.0, id="8 h, with state", marks=pytest.mark.proof),
        pytest.param(8 * HOUR, 1, True, 1.0, id="8 h, with state, no notice"),
    ],
)
def test_throughput_is_true_where_workers_are_taken(
    seconds: float, items: int, *, keeps_state: bool, missing: float
) -> None:
    # Taken away for a moment every 50 minutes, with notice or without.
    steps = tuple((n * 3000.0 + 60.0 * up, 9.0 * up) for n in range(1, 80) for up in (0, 1))
    zones = {"us-west-2a": a_zone(capacity=((0.0, 9.0), *steps))}
    arrival = replace(an_arrival(items=items, item_seconds=seconds), keeps_state=keeps_state)
    scenario = a_scenario(
        *every(2 * HOUR, arrival), listings=(a_listing(zones=zones),), notice_missing=missing
    )
    policy = a_policy(checkpoint_interval=timedelta(minutes=5), max_workers=4, ladder=SPOT)

    run, known = after(scenario, policy, days=1.0 if seconds > HOUR else 0.5)

    assert run.record.counts["gone"] > 5
    assert items_per_hour(known, policy) == pytest.approx(HOUR / seconds, rel=CLOSE)


def test_an_item_that_two_gpus_worked_on_counts_for_both() -> None:
    # Each GPU is there for 5 hours in 10; an item takes 16 hours on a T4, 8 on one twice as fast.
    ratio = relative_throughput("A10G", 1.0)
    slow = tuple((n * 5 * HOUR, 9.0 * (n % 2 == 0)) for n in range(20))
    fast = tuple((n * 5 * HOUR, 9.0 * (n % 2 == 1)) for n in range(20))
    listings = (
        a_listing(zones={"us-west-2a": a_zone(capacity=slow)}),
        a_listing("g5.xlarge", speed=ratio, zones={"us-west-2a": a_zone(capacity=fast)}),
    )
    job = replace(an_arrival(items=1, item_seconds=16 * HOUR), keeps_state=True)
    policy = a_policy(max_workers=1, ladder=SPOT)

    run, known = after(a_scenario(job, job, job, listings=listings), policy, days=1.5)

    assert run.record.jobs_done >= 1
    assert items_per_hour(known, policy) == pytest.approx(1 / 16, rel=CLOSE)
    assert items_per_hour(known, policy, "g5.xlarge") == pytest.approx(ratio / 16, rel=CLOSE)


@pytest.mark.parametrize("commit", [0.05, 4.0, 60.0])
def test_the_cost_of_a_checkpoint_is_true(commit: float) -> None:
    job = replace(an_arrival(items=1, item_seconds=5 * HOUR), keeps_state=True)
    scenario = a_scenario(job, delays=SimDelays(commit=commit))

    _, known = after(scenario, a_policy())

    assert checkpoint_cost(known).total_seconds() == pytest.approx(commit, rel=CLOSE)


def test_the_size_of_a_job_is_true_where_small_ones_end_soon() -> None:
    # A small job takes 5 s, a large one 8 minutes.
    sizes = [1 if n % 4 else 100 for n in range(700)]
    arrivals = [an_arrival(n * 120.0, items=size, item_seconds=5.0) for n, size in enumerate(sizes)]
    policy = a_policy()

    _, known = after(a_scenario(*arrivals), policy)

    true = sum(sizes) / len(sizes)
    assert items_per_job(known, policy) == pytest.approx(true, rel=CLOSE)


def test_boots_are_true() -> None:
    scenario = a_scenario(
        *every(HOUR / 5, an_arrival(items=3)), boot=Boot(at_least=30.0, median=60.0, sigma=0.36)
    )
    policy = a_policy()

    run, known = after(scenario, policy)

    boots = [
        (worker.checked_in_at, (worker.checked_in_at - worker.launched_at).total_seconds())
        for worker in run.world.workers.values()
        if worker.checked_in_at is not None
    ]
    true = [seconds for _, seconds in sorted(boots)[-len(known.boots) :]]
    assert len(true) == 50
    assert boot_p50(known, policy).total_seconds() == pytest.approx(quantile(true, 0.5), rel=CLOSE)
    assert boot_p95(known, policy).total_seconds() == pytest.approx(quantile(true, 0.95), rel=CLOSE)


def test_gaps_are_true() -> None:
    # After each job of 5 minutes, from its end on, no work for 15 to 45 minutes.
    arrivals, at, true = [], 30.0, []
    for n in range(200):
        arrivals.append(an_arrival(at, items=30))
        pause = 900.0 + 1800.0 * (n * 7 % 10) / 10
        true.append(pause)
        at += 300.0 + 90.0 + pause
    scenario = a_scenario(*(each for each in arrivals if each.at < DAY))
    policy = a_policy(idle_timeout=timedelta(minutes=2))

    _, known = after(scenario, policy)

    assert len(known.gaps) > 20
    assert sum(known.gaps) / len(known.gaps) == pytest.approx(sum(true) / len(true), rel=CLOSE)


def test_the_rate_of_reclaims_is_true() -> None:
    zones = {"us-west-2a": a_zone(reclaims_per_hour=0.5)}
    scenario = a_scenario(
        *(an_arrival(items=100, item_seconds=9000.0) for _ in range(30)),
        listings=(a_listing(zones=zones),),
    )
    policy = a_policy(ladder=SPOT, max_workers=30)

    run, known = after(scenario, policy, days=1.0)

    (record,) = known.pools.values()
    lived = sum(bill.seconds for bill in run.world.compute.bills()) / HOUR
    true = run.record.counts["reclaimed"] / lived
    assert interruption_rate(record, None) == pytest.approx(true, rel=CLOSE)


def test_a_half_done_item_that_saves_state_is_half_the_work() -> None:
    job = replace(an_arrival(items=1, item_seconds=4 * HOUR), keeps_state=True)
    policy = a_policy(
        checkpoint_interval=timedelta(seconds=60), finish_within=timedelta(hours=9), ladder=SPOT
    )
    run = Run(a_scenario(job, replace(job, at=10 * HOUR)), policy, 1)
    while run.agenda.seconds < 12 * HOUR + 90:
        run.step()

    assert run.decision is not None
    (deadline,) = run.decision.deadlines
    assert deadline.work_seconds == pytest.approx(2 * HOUR, rel=CLOSE)

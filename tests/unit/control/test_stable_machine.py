"""Jobs that interruptions keep from any progress get stable machines."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.codec import encode
from spindown.contract.decision import Decision, LaunchRequestRecord, Outcome
from spindown.contract.row import (
    lease_sort_key,
    pool_sort_key,
    requeued_sort_key,
    throughput_sort_key,
)
from spindown.domain.fleet import RequeuedJob, Worker, WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Rung
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.wasted_work import WastedWork
from tests.builders import NOW, ON_DEMAND, SPOT, minutes
from tests.control import ControlWorld, every_spot_pool, pools, with_policy

HOUR = timedelta(hours=1)
#: Two attempts of 4 h on a T4: more than on-demand costs up to there is spent.
WASTED = WastedWork(attempts=3, hours=4.0, boot=0.05, dollars=3.0)


def a_world(wasted_work: WastedWork = WASTED, jobs: int = 1, **policy: Any) -> ControlWorld:
    """Return a world in which one of the waiting jobs has been interrupted again and again."""
    world = with_policy(**policy)
    requeue(world, "job-1", wasted_work)
    world.send(jobs)
    return world


def requeue(world: ControlWorld, job_id: str, wasted_work: WastedWork | None) -> None:
    sent_at = world.now - 9 * HOUR
    job = RequeuedJob(
        job_id=job_id, sent_at=sent_at, items=1, items_done=0, at=world.now, wasted_work=wasted_work
    )
    world.put(requeued_sort_key(job_id), **encode(job))


def kinds(decision: Decision) -> list[str]:
    return [pool.rpartition("/")[2] for pool in pools(decision)]


def test_on_demand_is_bought_without_a_wait() -> None:
    later = Rung(after=10 * HOUR, capacity_types=frozenset({SPOT, ON_DEMAND}))
    at_once = Rung(after=minutes(0), capacity_types=frozenset({SPOT}))
    decision = a_world(ladder=(at_once, later)).tick()

    assert kinds(decision) == ["on-demand"]
    about = {"jobs": 1, "attempts": 3, "hours": 4.0, "dollars": 3.0, "saves": False}
    assert decision.summary.sizing == Reason(ReasonCode.TO_STABLE, about)


@pytest.mark.parametrize("dearest", ["job-1", "job-2"])
def test_the_machine_suits_the_job_that_has_cost_most(dearest: str) -> None:
    world = with_policy()
    for job_id in ("job-1", "job-2"):
        requeue(world, job_id, replace(WASTED, dollars=5.0 if job_id == dearest else 3.0))
    world.send(2)

    about = world.tick().summary.sizing.about

    assert (about["jobs"], about["dollars"]) == (2, 5.0)


def test_a_launch_without_an_answer_counts_with_its_slots() -> None:
    world = with_policy()
    settings = world.workload_settings()
    world.settings.deploy(replace(settings, run=replace(settings.run, slots="4")))
    for number in range(3):
        requeue(world, f"job-{number}", WASTED)
    world.send(3)
    world.compute.ec2.lag = minutes(9)
    sized = []
    for _ in range(3):
        world.compute.lose_next_answer(is_carried_out=False)
        sized.append(world.tick(minutes(1)).summary.sizing.code)

    (lost,) = world.view().launches.values()
    assert (lost.is_for_particular_jobs, lost.count, lost.slots) == (True, 1, 4)
    assert [code is ReasonCode.TO_STABLE for code in sized] == [True, False, False]


def test_one_machine_is_enough_until_it_has_the_job() -> None:
    world = a_world()
    world.tick()

    later = [world.tick(minutes(1)) for _ in range(5)]
    assert not any(each.requests for each in later)
    assert ReasonCode.TO_STABLE not in {each.summary.sizing.code for each in later}
    (worker,) = world.workers()
    assert worker.warm_until is not None


def a_world_with_a_machine(bought: CapacityType, jobs: int = 1) -> tuple[ControlWorld, Worker]:
    """Return a world where one idle machine is up, and jobs wait for which more may be bought."""
    rung = Rung(after=minutes(0), capacity_types=frozenset({bought}))
    later = Rung(after=HOUR, capacity_types=frozenset({SPOT, ON_DEMAND}))
    world = with_policy(max_workers=8, ladder=(rung, later))
    worker = world.launched(jobs)
    assert worker.capacity_type is bought
    return world, worker


#: What it has cost leaves room for another attempt on spot.
EARLY = WastedWork(attempts=1, hours=1.0, boot=0.05, dollars=0.2)


@pytest.mark.parametrize(
    ("wasted_work", "bought", "changes", "interruptions", "suits"),
    [
        pytest.param(EARLY, SPOT, {}, 0.0, True, id="spot that may be risked"),
        pytest.param(EARLY, SPOT, {}, 1000.0, False, id="spot that is taken back all the time"),
        pytest.param(WASTED, SPOT, {}, 0.0, False, id="spot that may not"),
        pytest.param(WASTED, ON_DEMAND, {}, 0.0, True, id="on demand"),
        pytest.param(WASTED, ON_DEMAND, {"migrating_at": NOW}, 0.0, False, id="it leaves"),
    ],
)
def test_an_idle_machine_that_suits_is_enough(
    wasted_work: WastedWork,
    bought: CapacityType,
    changes: dict[str, Any],
    interruptions: float,
    *,
    suits: bool,
) -> None:
    world, worker = a_world_with_a_machine(bought)
    world.change(worker.instance_id, **changes)
    world.put(pool_sort_key(worker.pool), count=interruptions, hours=10.0)
    requeue(world, "job-1", wasted_work)

    decision = world.tick(minutes(1))

    assert (decision.summary.sizing.code is ReasonCode.TO_STABLE) is not suits


@pytest.mark.parametrize(
    ("came_for_one", "is_pinned", "counts"),
    [
        pytest.param(False, False, False, id="a worker of the queue"),
        pytest.param(True, False, True, id="it came for one, and was given another job"),
        pytest.param(True, True, False, id="it came for one, and has it"),
    ],
)
def test_a_busy_machine_counts_that_came_for_one(
    came_for_one: bool, is_pinned: bool, counts: bool
) -> None:
    world, worker = a_world_with_a_machine(ON_DEMAND, jobs=2)
    if came_for_one:
        world.change(worker.instance_id, warm_until=world.now + HOUR)
    world.claim(worker.instance_id, "job-2")
    world.put(lease_sort_key(worker.instance_id, 0), is_pinned=is_pinned)
    requeue(world, "job-1", WASTED)

    decision = world.tick(minutes(1))

    assert (decision.summary.sizing.code is ReasonCode.TO_STABLE) is not counts


def test_a_machine_that_was_given_another_job_still_counts() -> None:
    world = a_world(jobs=2)
    world.tick()
    (worker,) = (each for each in world.workers() if each.capacity_type is ON_DEMAND)
    world.clock.advance(minutes(2))
    world.check_in(worker.instance_id)
    world.claim(worker.instance_id, "job-2")

    bought = [kind for _ in range(6) for kind in kinds(world.tick(minutes(1)))]
    assert "on-demand" not in bought[:3]


def test_other_jobs_go_on_waiting_for_spot() -> None:
    world = a_world(jobs=3, max_workers=4)
    world.run(6)

    bought = [worker.capacity_type for worker in world.workers()]
    assert bought.count(ON_DEMAND) == 1
    assert bought.count(SPOT) >= 1


def test_a_message_that_is_hidden_for_the_moment_counts() -> None:
    world = a_world(jobs=1)
    message = world.queue.receive(wait=minutes(0), visibility=minutes(2))
    assert message is not None

    assert kinds(world.tick()) == ["on-demand"]


def test_a_row_without_a_message_buys_nothing() -> None:
    world = with_policy()
    requeue(world, "gone", WASTED)

    assert world.tick().outcome is Outcome.IDLE


def test_an_early_interruption_keeps_spot_open() -> None:
    """What it has cost still leaves room; going on there pays where nothing is known of a pool."""
    world = a_world(EARLY)

    assert kinds(world.tick()) == ["spot"]


def test_nothing_on_demand_is_told_of() -> None:
    world = a_world()
    world.dry(*(replace(pool, capacity_type=ON_DEMAND) for pool in every_spot_pool()))
    world.tick()
    decision = world.tick(minutes(1))

    assert not world.workers()
    assert decision.summary.sizing.code is ReasonCode.TO_STABLE


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_pinned_job_is_not_moved_back_to_spot(*, is_pinned: bool) -> None:
    """A deadline with much time would move the job to spot."""
    world = a_world(finish_within=100 * HOUR, max_workers=2)
    for gpu in ("T4", "L4", "A10G"):
        samples = {"count": 10_000.0, "hours": 100.0, "reports": 100, "lives": 100}
        world.put(throughput_sort_key(gpu, 1.0), **samples)
    world.tick()
    (worker,) = world.workers(WorkerState.BOOTING)
    world.clock.advance(minutes(2))
    world.check_in(worker.instance_id)
    world.claim(worker.instance_id)
    lease = {"is_pinned": is_pinned, "items": 1000, "sent_at": world.now}
    world.put(lease_sort_key(worker.instance_id, 0), **encode(lease))

    moved: list[LaunchRequestRecord] = []
    for _ in range(5):
        world.beat()
        moved += world.tick(minutes(1)).requests
    assert bool(moved) is not is_pinned


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(
            {"ladder": (Rung(after=minutes(0), capacity_types=frozenset({SPOT})),)}, id="ladder"
        ),
        pytest.param({"max_price_per_hour": 0.5}, id="ceiling"),
        pytest.param({"max_price_per_gpu_hour": 0.5}, id="ceiling of a GPU"),
    ],
)
def test_where_nothing_sure_is_allowed_one_comes_to_give_up(policy: dict[str, Any]) -> None:
    world = a_world(WastedWork(attempts=9, hours=4.0, boot=0.05, dollars=9.0), **policy)

    assert kinds(world.tick()) == ["spot"]

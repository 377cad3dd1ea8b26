"""Jobs that interruptions keep from any progress get machines that stay."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.codec import encode
from spindown.contract.decision import Decision, LaunchRequestRecord, Outcome
from spindown.contract.row import lease_sort, requeued_sort, throughput_sort
from spindown.domain.fleet import RequeuedJob, WorkerState
from spindown.domain.in_vain import InVain
from spindown.domain.policy import Rung
from spindown.domain.reason import ReasonCode
from tests.builders import ON_DEMAND, SPOT, minutes
from tests.control import ControlWorld, every_spot_pool, pools, with_policy

HOUR = timedelta(hours=1)
#: Two attempts of 4 h on a T4: more than on-demand costs up to there is spent.
IN_VAIN = InVain(attempts=3, hours=4.0, boot=0.05, dollars=3.0)


def a_world(in_vain: InVain = IN_VAIN, jobs: int = 1, **policy: Any) -> ControlWorld:
    """Return a world in which one of the waiting jobs has been interrupted again and again."""
    world = with_policy(**policy)
    requeue(world, "job-1", in_vain)
    world.send(jobs)
    return world


def requeue(world: ControlWorld, job_id: str, in_vain: InVain | None) -> None:
    sent_at = world.now - 9 * HOUR
    job = RequeuedJob(
        job_id=job_id, sent_at=sent_at, items=1, items_done=0, at=world.now, in_vain=in_vain
    )
    world.put(requeued_sort(job_id), **encode(job))


def kinds(decision: Decision) -> list[str]:
    return [pool.rpartition("/")[2] for pool in pools(decision)]


def test_on_demand_is_bought_without_a_wait() -> None:
    decision = a_world().tick()

    assert kinds(decision) == ["on-demand"]
    assert decision.summary.sizing.code is ReasonCode.TO_SURER
    assert decision.summary.sizing.about["dollars"] == 3.0


def test_one_machine_is_enough_until_it_has_the_job() -> None:
    world = a_world()
    world.tick()

    assert [len(world.tick(minutes(1)).requests) for _ in range(5)] == [0] * 5
    (worker,) = world.workers()
    assert worker.warm_until is not None


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
    requeue(world, "gone", IN_VAIN)

    assert world.tick().outcome is Outcome.IDLE


def test_an_early_interruption_keeps_spot_open() -> None:
    """What it has cost still leaves room; going on there pays where nothing is known of a pool."""
    world = a_world(InVain(attempts=1, hours=1.0, boot=0.05, dollars=0.2))

    assert kinds(world.tick()) == ["spot"]


def test_nothing_on_demand_is_told_of() -> None:
    world = a_world()
    world.dry(*(replace(pool, capacity_type=ON_DEMAND) for pool in every_spot_pool()))
    world.tick()
    decision = world.tick(minutes(1))

    assert not world.workers()
    assert decision.summary.sizing.code is ReasonCode.TO_SURER


@pytest.mark.parametrize("stays", [True, False])
def test_a_machine_that_stays_is_not_left_for_spot(*, stays: bool) -> None:
    """A deadline with much time would move the job to spot."""
    world = a_world(finish_within=100 * HOUR, max_workers=2)
    for gpu in ("T4", "L4", "A10G"):
        samples = {"count": 10_000.0, "hours": 100.0, "reports": 100, "lives": 100}
        world.put(throughput_sort(gpu, 1.0), **samples)
    world.tick()
    (worker,) = world.workers(WorkerState.BOOTING)
    world.clock.advance(minutes(2))
    world.check_in(worker.instance_id)
    world.claim(worker.instance_id)
    lease = {"stays": stays, "items": 1000, "sent_at": world.now}
    world.put(lease_sort(worker.instance_id, 0), **encode(lease))

    moved: list[LaunchRequestRecord] = []
    for _ in range(5):
        world.beat()
        moved += world.tick(minutes(1)).requests
    assert bool(moved) is not stays


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
    world = a_world(InVain(attempts=9, hours=4.0, boot=0.05, dollars=9.0), **policy)

    assert kinds(world.tick()) == ["spot"]

"""Workers that are told to end and say that they are at work: EC2 ends them."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from spindown.contract.row import worker_sort_key
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.lease import RELEASE_AFTER
from spindown.domain.policy import Policy, WhenSpent
from spindown.domain.reason import ReasonCode
from spindown.domain.termination import ends_within
from tests.builders import minutes
from tests.control import REGION, ControlWorld
from tests.spending import dollars

Forge = Callable[[ControlWorld, str], None]


def beat(world: ControlWorld, instance_id: str, **more: object) -> None:
    """Say, as a worker that was turned may, that it is at work and young."""
    world.put(worker_sort_key(instance_id), **{**_AT_WORK, "heartbeat_at": world.now, **more})


_AT_WORK = {"state": WorkerState.BUSY, "busy_slots": 1, "idle_since": None, "condemned_at": None}


def at_work(world: ControlWorld) -> Worker:
    world.send(1)
    world.tick()
    (booting,) = world.workers(WorkerState.BOOTING)
    world.clock.advance(minutes(2))
    world.check_in(booting.instance_id)
    world.claim(booting.instance_id)
    return world.view().workers[booting.instance_id]


def lived(world: ControlWorld, worker: Worker, forge: Forge, most: timedelta) -> timedelta:
    """Tick until EC2 has ended the instance; return after how long."""
    since = world.now
    while _runs(world, worker.instance_id):
        assert world.now - since <= most, "it runs on"
        forge(world, worker.instance_id)
        # It writes once more between the read of the tick and its writes.
        world.just_before("backlog", lambda: forge(world, worker.instance_id))
        world.tick(world.policy.tick)
    return world.now - since


def _runs(world: ControlWorld, instance_id: str) -> bool:
    found = world.compute.instance(region=REGION, instance_id=instance_id)
    return found.state == "running"


def lose_row(world: ControlWorld, instance_id: str) -> None:
    world.remove(worker_sort_key(instance_id))


def unreadable(world: ControlWorld, instance_id: str) -> None:
    world.put(worker_sort_key(instance_id), state="?", heartbeat_at=world.now)


_FORGED: dict[str, Forge] = {
    "beats": beat,
    "forgets the word": partial(beat, spent_at=None),
}


@pytest.mark.parametrize("forge", _FORGED.values(), ids=_FORGED)
def test_a_worker_that_ignores_the_budget_is_ended(forge: Forge) -> None:
    policy = Policy(when_spent=WhenSpent.STOP, max_workers=1)
    world = ControlWorld(policy=policy, budget=1.0)
    worker = at_work(world)
    hours = 1.0 / worker.price_per_hour

    most = ends_within(policy) + timedelta(hours=hours) + 2 * policy.tick
    lived(world, worker, forge, most)

    world.run(2)
    assert dollars(world) <= 1.0 + worker.price_per_hour * (ends_within(policy) / minutes(60))


@pytest.mark.parametrize("forge", _FORGED.values(), ids=_FORGED)
def test_a_worker_that_finishes_no_job_is_ended(forge: Forge) -> None:
    policy = Policy(when_spent=WhenSpent.FINISH_JOBS, max_workers=1, tick=minutes(5))
    world = ControlWorld(policy=policy, budget=0.1)
    worker = at_work(world)
    hours = timedelta(hours=0.1 / worker.price_per_hour)

    lived(world, worker, forge, hours + RELEASE_AFTER + ends_within(policy) + 2 * policy.tick)

    said = world.run(2)[-1].workers
    assert not said.get(WorkerState.BUSY)


@pytest.mark.parametrize(
    "forge",
    [
        *_FORGED.values(),
        partial(beat, launched_at=None),
        unreadable,
    ],
    ids=[*_FORGED, "has no launch", "cannot be read"],
)
def test_a_worker_that_stays_past_its_lifetime_is_ended(forge: Forge) -> None:
    policy = Policy(max_lifetime=minutes(30), lifetime_grace=minutes(5), max_workers=1)
    world = ControlWorld(policy=policy)
    worker = at_work(world)

    lived(world, worker, forge, minutes(35) + ends_within(policy) + 2 * policy.tick)


def test_the_decision_says_why_and_the_row_ends() -> None:
    policy = Policy(max_lifetime=minutes(30), lifetime_grace=minutes(5), max_workers=1)
    world = ControlWorld(policy=policy)
    worker = at_work(world)

    decisions = world.run(50, beats=True)
    world.send(1)
    decisions += world.run(3, beats=True)

    said = [a.reason.code for d in decisions for a in d.actions if a.subject == worker.instance_id]
    assert ReasonCode.OUTSTAYED in said
    row = world.view().workers[worker.instance_id]
    assert row.state is WorkerState.ENDED
    assert row.reason.code is ReasonCode.OUTSTAYED
    assert not any(worker.instance_id in key for key in world.view().backlog.ends_due)

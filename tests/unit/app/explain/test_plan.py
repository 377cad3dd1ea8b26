"""A plan says what a reconcile would do, and does nothing."""

import pytest

from spindown.app.explain.plan import plan
from tests.control import WORKLOAD, ControlWorld, with_policy
from tests.reading import only_reading


def test_writes_nothing_anywhere() -> None:
    world = ControlWorld()
    world.send(3)

    made = plan(WORKLOAD, only_reading(world.ports))

    assert made.sizing.wanted > 0
    assert world.view().workers == {}


@pytest.mark.parametrize("jobs", [1, 5, 40])
def test_plans_what_the_next_tick_launches(jobs: int) -> None:
    world = ControlWorld()
    world.send(jobs)

    made = plan(WORKLOAD, world.ports)
    decision = world.tick()

    assert made.sizing.wanted == sum(len(a.instances) for a in decision.attempts)
    assert made.candidates.best is not None
    assert str(made.candidates.best.offer) == decision.candidates[0].offer


def test_ranks_offers_even_when_nothing_waits() -> None:
    made = plan(WORKLOAD, ControlWorld().ports)

    assert made.sizing.wanted == 0
    assert made.candidates.best is not None


def test_plans_for_a_backlog_that_was_asked_for() -> None:
    world = ControlWorld()

    assert plan(WORKLOAD, world.ports, jobs=50).backlog.visible == 50
    assert world.queue.backlog().visible == 0


def test_says_what_stops_a_launch_and_ranks_all_the_same() -> None:
    world = with_policy(max_workers=0)
    world.send(3)

    made = plan(WORKLOAD, world.ports)

    assert "max_workers" in made.stopped
    assert made.candidates.best is not None

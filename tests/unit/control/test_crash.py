"""A tick that dies at any port call, before its effect or after it, is made good."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.decision import Outcome
from spindown.contract.row import DEPLOYMENT_PARTITION, LOCK_LEASE, budget_sort_key
from spindown.domain.fleet import LaunchState, WorkerState
from spindown.error import SpindownError
from spindown.memory import PortCall
from tests.builders import minutes
from tests.control import ControlWorld


class Crashed(BaseException):
    """The process is gone: no code of ours may catch it."""


class Fault(Exception):
    """A fault of our own that nobody foresaw."""


def crash_at(
    number: int, *, after: bool, error: type[BaseException] = Crashed
) -> Callable[[PortCall, Callable[[], Any]], Any]:
    count = [0]

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        count[0] += 1
        if count[0] == number and not after:
            raise error
        if count[0] != number:
            return proceed()
        with suppress(SpindownError):
            proceed()
        raise error

    return interfere


def a_world_with_all_to_do() -> ControlWorld:
    """Return a world whose next tick adopts, ends, requeues, charges and launches."""
    world = ControlWorld(budget=100.0)
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(2)
    world.send(300)
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick(minutes(1))
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.clock.advance(minutes(11))
    return world


def calls_of_that_tick() -> int:
    world = a_world_with_all_to_do()
    before = world.calls.total()
    world.tick()
    return world.calls.total() - before


@pytest.mark.parametrize("after", [False, True], ids=["before-its-effect", "after-its-effect"])
@pytest.mark.parametrize("number", range(1, calls_of_that_tick() + 1))
def test_recovers_from_a_crash_at_this_call(number: int, after: bool) -> None:
    world = a_world_with_all_to_do()
    world.interfere = crash_at(number, after=after)
    with pytest.raises(Crashed):
        world.tick()
    world.interfere = None

    world.tick(LOCK_LEASE)
    all_is_made_good(world)


@pytest.mark.parametrize("after", [False, True], ids=["before-its-effect", "after-its-effect"])
@pytest.mark.parametrize("number", range(1, calls_of_that_tick() + 1))
def test_a_fault_of_ours_at_this_call_spares_the_next_tick(number: int, after: bool) -> None:
    world = a_world_with_all_to_do()
    world.interfere = crash_at(number, after=after, error=Fault)
    # What is told after the rows are written may fail without ending the tick.
    with suppress(Fault):
        world.tick()
    world.interfere = None

    # The first call takes the lock: of its own nobody knows yet.
    next_tick = world.tick(LOCK_LEASE if number == 1 else timedelta(seconds=1))

    assert next_tick.outcome is not Outcome.LOCKED
    all_is_made_good(world)


def all_is_made_good(world: ControlWorld) -> None:
    """Let a few ticks go by, then check that the rows are what EC2 shows and what it costs."""
    for _ in range(3):
        for booting in world.workers(WorkerState.BOOTING):
            world.check_in(booting.instance_id)
        world.beat()
        world.tick(minutes(1))

    view = world.view()
    states = {i.instance_id: i.state for i in world.compute.ec2.instances.values()}
    live = {w.instance_id for w in view.workers.values() if w.is_live}
    assert {name for name, state in states.items() if state == "running"} == live
    assert not any(x.state is LaunchState.INTENDED for x in view.launches.values())
    assert len(live) <= world.policy.max_workers
    assert view.leases == ()
    budget = world.table.query(DEPLOYMENT_PARTITION, budget_sort_key(world.now))
    (month,) = budget.values()
    days = sum(day.dollars for day in view.spend.values())
    reserved = sum(x.reserved_usd for x in view.launches.values())
    assert month["dollars"] == pytest.approx(days)
    assert month["committed"] == pytest.approx(days + reserved)
    # The reclaimed one was free but for its extras; each is charged from its launch on, once.
    charged = sum(
        (w.extra_price if w.interruption_counted else w.price_per_hour)
        * ((w.accrued_until or w.launched_at) - w.launched_at)
        / minutes(60)
        for w in view.workers.values()
    )
    assert days == pytest.approx(charged)

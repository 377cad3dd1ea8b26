"""Four nets against a bill that runs on: each holds by itself, with the other three cut."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from spindown.contract.row import worker_sort_key
from spindown.control.plan.terminate import UNKNOWN
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import WhenSpent
from spindown.ec2sim import EndReason
from spindown.memory import PortCall
from spindown.port import DEPLOYMENT
from tests.proof.recovery import DEAD_MAN
from tests.proof.world import MINUTE, ProofWorld, a_world


def up(*counts: int, **policy: Any) -> ProofWorld:
    """Return a world with a worker on each launched instance."""
    world = a_world(**policy)
    for count in counts or (2,):
        world.submit(count)
    world.tick()
    world.clock.advance(2 * MINUTE)
    for instance_id in world.bootable:
        world.boot(instance_id)
    return world


def lives(world: ProofWorld, minutes: float, *, beats: bool = True, ticks: bool = True) -> None:
    """Let minutes pass in which workers only say that they live, and the scaler ticks."""
    for _ in range(round(minutes)):
        world.clock.advance(MINUTE)
        for process in world.live:
            if beats:
                process.beat()
        if ticks:
            world.tick()


def ends(world: ProofWorld) -> dict[str, tuple[datetime, EndReason]]:
    return {
        i.instance_id: (i.ended_at, i.reason)
        for i in world.compute.ec2.instances.values()
        if i.ended_at is not None and i.reason is not None
    }


# The first net: the worker's own idle timeout. No tick, no timer, nobody watches.


def test_an_idle_worker_ends_while_no_function_runs() -> None:
    world = up()
    (process,) = world.live
    process.work()
    done_at = world.now
    while process in world.live:
        world.clock.advance(MINUTE)
        process.retire()

    ((ended_at, reason),) = ends(world).values()
    assert reason == EndReason.POWERED_OFF
    assert ended_at - done_at <= (world.policy.idle_timeout or MINUTE) + MINUTE


def test_a_busy_worker_ends_at_its_lifetime_with_no_function() -> None:
    world = up()
    (process,) = world.live
    process.step(0)
    world.clock.advance(world.policy.max_lifetime)
    process.beat()
    process.retire()
    assert ends(world) == {}, "its job goes first"

    process.work()
    process.retire()

    assert [reason for _, reason in ends(world).values()] == [EndReason.POWERED_OFF]


# The second: the timer on the instance (its script: tests/worker_system/test_deadman.py).


def test_a_timer_ends_a_worker_that_is_gone_with_no_function() -> None:
    world = up()
    (process,) = world.live
    process.step(0)
    process.die()
    world.clock.advance(DEAD_MAN + MINUTE)
    world.power_off(process.instance_id)

    # What the scaler finds when it runs again: no lease, no row that lives, and the job waiting.
    world.tick()
    world.tick(MINUTE)
    view = world.view()
    assert [w.instance_id for w in view.workers.values() if w.is_live and w.checked_in_at] == []
    assert (view.leases, world.queue.backlog().visible) == ((), 1)


# The third: the scaler. Workers never end themselves here, and no timer fires.


def wedge(world: ProofWorld) -> None:
    """Stop the worker in the middle of a job, as SIGSTOP does."""
    world.live[0].step(0)
    world.live[0].step(0)
    lives(world, 25, beats=False)


def never_idle_out(world: ProofWorld) -> None:
    """Let a worker do its work and then ignore its idle limit."""
    world.live[0].work()
    lives(world, 20)


def never_come_up(world: ProofWorld) -> None:
    """Launch an instance that boots and never checks in."""
    world.live[0].work()
    world.submit(2)
    for process in world.live:
        process.leave()
        process.beat()
        process.retire()
    world.tick(MINUTE)
    world.broken |= set(world.bootable)
    lives(world, 40)


@pytest.mark.parametrize("breach", [wedge, never_idle_out, never_come_up], ids=lambda b: b.__name__)
def test_the_scaler_alone_ends_what_breaks_its_contract(
    breach: Callable[[ProofWorld], None],
) -> None:
    world = up()
    first = {i.instance_id for i in world.instances}

    breach(world)

    ended = ends(world)
    assert first <= ended.keys()
    if breach is not never_come_up:
        assert {ended[name][1] for name in first} == {EndReason.TERMINATED_BY_CALL}
    assert not [i for i in world.running if i.instance_id in world.broken]


def test_the_scaler_asks_again_until_ec2_has_ended_an_instance() -> None:
    world = up()
    world.live[0].step(0)
    refused = [0]

    def refuse(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "terminate" and refused[0] < 5:
            refused[0] += 1
            return {}
        return proceed()

    world.interfere = refuse
    lives(world, 30, beats=False)

    assert refused[0] == 5
    assert [reason for _, reason in ends(world).values()][:1] == [EndReason.TERMINATED_BY_CALL]


def test_the_scaler_ends_an_instance_that_has_no_row() -> None:
    world = up()
    (process,) = world.live
    process.die()
    world.remove(worker_sort_key(process.instance_id))
    (launch,) = world.view().launches
    world.remove(f"launch#{launch}")

    lives(world, 20)

    assert ends(world)[process.instance_id][1] == EndReason.TERMINATED_BY_CALL


def test_the_scaler_ends_a_row_without_instance_and_requeues() -> None:
    world = up()
    (process,) = world.live
    process.step(0)
    process.step(0)
    process.die()
    del world.compute.ec2.instances[process.instance_id]

    lives(world, 8)

    row = world.rows()[process.instance_id]
    assert (row.state, row.reason) == (WorkerState.ENDED, UNKNOWN)
    assert world.view().leases == ()
    assert len(world.running) == 1, "the next worker for the job"


def test_a_ledger_outage_that_makes_all_look_stale_ends_nobody() -> None:
    world = a_world()
    world.grow(3)

    # For forty minutes no heartbeat reaches the ledger; leases lapse, all rows look stale.
    lives(world, 40, beats=False)
    assert ends(world) == {}
    lives(world, 2)
    for process in world.live:
        process.work()

    assert ends(world) == {}
    assert world.view().workers.keys() == {p.instance_id for p in world.live}


@pytest.mark.parametrize("count", [1, 2])
def test_a_ledger_outage_ends_no_live_worker_of_one_or_two(count: int) -> None:
    world = a_world()
    while len(world.live) < count:
        world.submit(4)
        world.submit(4)
        world.tick(MINUTE)
        for instance_id in world.bootable[: count - len(world.live)]:
            world.boot(instance_id)
    world.broken |= set(world.bootable)
    for process in world.live:
        process.step(0)
        process.step(0)
        process.beat()
    at_work = {process.instance_id for process in world.live}

    # Neither heartbeats nor ticks get through; leases lapse, the rows look stale.
    lives(world, 40, beats=False, ticks=False)
    world.tick()
    lives(world, 15)

    assert not at_work & ends(world).keys()
    for process in world.live:
        process.work()


# The fourth: alarms and the budget. Nothing ends instances here; a person must hear of it.


def test_what_nobody_can_end_is_told_by_the_idle_metric() -> None:
    world = up()
    world.live[0].work()

    def refuse(call: PortCall, proceed: Callable[[], Any]) -> Any:
        return {} if call.method == "terminate" else proceed()

    world.interfere = refuse
    lives(world, 15)

    assert ends(world) == {}
    # As the alarm wants it: in each of the last 5 minutes.
    ticks = len(world.metrics.values("Ticks"))
    told = world.metrics.values("IdleBeyondExpectation")
    assert len(told) == ticks
    assert min(told[-5:]) >= 1


def spent(when_spent: WhenSpent) -> ProofWorld:
    """Return a world at work whose budget has just been withdrawn, after some minutes."""
    world = up(2, 4, 4, when_spent=when_spent)
    world.live[0].step(0)
    deployment = world.settings.deployment()
    world.settings._deployment = replace(deployment, budget_per_month=0.0)
    # The scaler remembers the deployment's settings for a while.
    world.ports.cache.forget(DEPLOYMENT, "")
    before = len(world.instances)
    lives(world, 5)
    assert len(world.instances) == before
    return world


def test_a_spent_budget_may_stop_launches_and_never_work() -> None:
    world = spent(WhenSpent.STOP_LAUNCHES)

    assert ends(world) == {}
    assert world.view().leases != () or world.live[0].hands[0].message is not None
    assert not any(worker.spent_at for worker in world.rows().values())


def test_a_spent_budget_lets_jobs_in_hand_be_finished() -> None:
    world = spent(WhenSpent.FINISH_JOBS)

    assert ends(world) == {}
    assert world.view().leases != () or world.live[0].hands[0].message is not None
    assert all(worker.spent_at for worker in world.rows().values())

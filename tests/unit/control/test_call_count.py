"""A tick makes few calls, and fewer when nothing goes on."""

from spindown.contract.decision import Outcome
from tests.builders import minutes
from tests.control import ControlWorld, with_policy

LOCK_CALLS = 2


def test_a_tick_without_launch_makes_at_most_3_calls_and_a_lock() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(4, beats=True)
    counts = []
    for _ in range(2):
        world.beat()
        before = world.calls.copy()
        decision = world.tick(minutes(1))
        counts.append((world.calls - before).total() - LOCK_CALLS)
        assert decision.outcome is Outcome.ENOUGH

    assert counts == [3, 3]


def test_a_quiet_tick_of_a_large_fleet_takes_few_transactions() -> None:
    world = with_policy(max_workers=40)
    world.send(4000)
    world.run(2)
    assert len(world.workers()) == 40
    for worker in world.workers():
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-{worker.instance_id}")
    before = world.calls["table.transact"]

    world.tick(minutes(5))

    # 40 workers, each with its row and its launch's, and the rows that they share.
    assert world.calls["table.transact"] - before <= 2
    assert all(w.accrued_until == world.now for w in world.workers())


def test_an_idle_tick_makes_two_calls_besides_the_lock() -> None:
    world = ControlWorld()
    world.tick()
    before = world.calls.copy()

    world.tick(minutes(1))

    assert world.calls - before == {
        "table.write": 1,
        "table.transact": 1,
        "table.query_each": 1,
        "queue.backlog": 1,
    }


def test_a_held_launch_costs_no_look_at_prices() -> None:
    world = with_policy(scale_up_threshold=10, start_within=minutes(30))
    world.tick()
    world.send(2)
    world.tick(minutes(1))
    before = world.calls.total()

    held = world.tick(minutes(1))

    assert held.outcome is Outcome.HELD
    assert world.calls.total() - before - LOCK_CALLS <= 3


def test_a_launch_at_first_try_adds_at_most_3_calls() -> None:
    world = ControlWorld()
    world.send()
    world.tick()
    world.send(200)
    before = world.calls.copy()

    decision = world.tick(minutes(1))

    made = world.calls - before
    assert decision.outcome is Outcome.LAUNCHED
    assert made.total() - LOCK_CALLS <= 6, made

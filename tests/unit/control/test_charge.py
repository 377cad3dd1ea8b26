"""A worker is charged by a row that it cannot write: no second twice, and none is left out."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.event import InterruptionWarning, StateChange
from spindown.contract.row import worker_sort_key
from spindown.control.instance_event import react
from spindown.control.plan.launch_allowance import add_to_budget
from spindown.domain.fleet import LaunchState, Worker, WorkerState
from spindown.error import Unreachable, WriteConflict
from spindown.ledger import Ledger
from spindown.memory import PortCall
from tests.builders import a_launch, a_worker, minutes
from tests.control import REGION, WORKLOAD, ControlWorld, with_policy
from tests.failure import failing
from tests.spending import PRICE, budget_row, charged_for, dollars, two_at_work

HOUR = timedelta(hours=1)


def test_a_worker_is_charged_every_few_minutes_and_at_its_end() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    charged = [(world.run(1, beats=True), dollars(world))[1] for _ in range(8)]

    assert len(set(charged)) == 3
    assert charged[-1] == pytest.approx(PRICE * charged_for(world) / HOUR)
    world.compute.power_off(worker.instance_id)
    world.run(3)

    (ended,) = world.workers(WorkerState.ENDED)
    assert ended.ended_at is not None
    assert ended.accrued_until == ended.ended_at


def test_a_charge_that_loses_a_race_is_made_by_the_next_tick() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(3)
    before = dollars(world)

    # An event comes between our read and our write.
    mark = {"accrued_until": world.now + minutes(1)}
    sort = rows.machine_sort_key(worker.instance_id)
    world.just_before("backlog", lambda: world.put(sort, **mark))
    world.tick(minutes(5))

    assert dollars(world) == pytest.approx(before)
    assert sum(world.metrics.values("Spend")) == pytest.approx(before)


def test_tells_the_spend_of_newcomers_the_fleet_and_the_ended() -> None:
    world = with_policy(max_workers=2)
    gone, stays = two_at_work(world)
    world.run(2)
    world.compute.power_off(gone.instance_id)
    world.run(6)

    assert world.workers(WorkerState.ENDED)
    assert {w.instance_id for w in world.workers(WorkerState.BOOTING)} - {stays.instance_id}
    assert sum(world.metrics.values("Spend")) == pytest.approx(dollars(world))


def test_a_row_unreadable_for_a_while_is_charged_for_all_of_it() -> None:
    world = with_policy(max_workers=2)
    _, bad = two_at_work(world)
    world.run(2)
    sort = rows.worker_sort_key(bad.instance_id)

    world.put(sort, launched_at="some day")
    world.run(3)
    world.put(sort, launched_at=bad.launched_at)
    world.tick(minutes(1))

    assert dollars(world) == pytest.approx(PRICE * charged_for(world) / HOUR)


def test_a_worker_ended_before_its_charge_is_charged_no_more() -> None:
    world = with_policy(max_workers=2)
    gone, bad = two_at_work(world)
    world.run(3)
    world.put(worker_sort_key(bad.instance_id), launched_at="some day")
    charged = dollars(world)
    at = world.now - timedelta(seconds=30)
    event = StateChange(instance_id=gone.instance_id, region=REGION, at=at, state="terminated")
    world.clock.advance(minutes(1))
    world.compute.power_off(gone.instance_id)

    world.just_before("backlog", lambda: react(event, world.ports, holder="event"))
    world.tick()
    # Its place is free: the next tick launches, and the one after it asks EC2.
    world.run(2)

    assert world.view().workers[gone.instance_id].ended_at == at
    assert dollars(world) == pytest.approx(charged)


@pytest.mark.parametrize("call", ["query_each", "backlog", "transact"])
def test_an_event_and_a_tick_charge_no_second_twice(call: str) -> None:
    world = with_policy(max_workers=2)
    gone, _ = two_at_work(world)
    world.run(2)
    ended_at = world.now
    world.compute.power_off(gone.instance_id)
    event = StateChange(
        instance_id=gone.instance_id, region=REGION, at=ended_at, state="terminated"
    )
    world.clock.advance(minutes(1))

    world.just_before(call, lambda: react(event, world.ports, holder="event"))
    world.tick()
    world.tick(minutes(1))

    assert dollars(world) == pytest.approx(PRICE * charged_for(world) / HOUR)


@pytest.mark.parametrize("ticks", [0, 2], ids=["never-charged", "charged-before"])
def test_an_end_by_an_event_makes_a_charging_tick_read_again(ticks: int) -> None:
    world = with_policy(max_workers=2)
    gone, _ = two_at_work(world)
    world.run(ticks)
    world.clock.advance(minutes(1))
    world.compute.power_off(gone.instance_id)
    event = StateChange(
        instance_id=gone.instance_id, region=REGION, at=world.now, state="terminated"
    )

    def meanwhile() -> None:
        # EC2 does not tell the tick that the instance is gone.
        world.interfere = failing(Unreachable("no answer"), "instances", "reclaimed")
        world.tick()
        world.interfere = None

    world.just_before("transact", meanwhile)
    react(event, world.ports, holder="event")
    world.tick(minutes(1))

    assert world.view().workers[gone.instance_id].ended_at == event.at
    assert dollars(world) == pytest.approx(PRICE * charged_for(world) / HOUR)


@pytest.mark.parametrize("pools", [50, 110])
def test_a_fleet_beyond_one_transaction_is_charged_all_the_same(
    pools: int,
) -> None:
    world = ControlWorld()
    world.tick()
    ledger = Ledger(world.table, WORKLOAD)
    workers = [
        a_worker(
            f"i-{n}",
            launch_id=f"launch-{n}",
            zone=f"zone-{n}",
            launched_at=world.now,
            checked_in_at=world.now,
        )
        for n in range(pools)
    ]
    for worker in workers:
        launch = a_launch(
            worker.launch_id, state=LaunchState.LAUNCHED, intended_at=world.now, reserved_usd=0.05
        )
        ledger.write(ledger.put(rows.launch_sort_key(launch.launch_id), launch))
        ledger.write(ledger.put(worker_sort_key(worker.instance_id), worker))
        ledger.write(ledger.put(rows.machine_sort_key(worker.instance_id), worker))
    ledger.write(add_to_budget(world.now, {"committed": pools * 0.05}))
    world.tick(minutes(1))

    world.interfere = _all_but_the_first_transaction()
    world.tick(minutes(1))
    world.interfere = None
    # The lock was not given back either: its lease ends.
    world.tick(minutes(4))

    view, budget = world.view(), budget_row(world)
    hours = sum(rate.hours for sort, rate in view.rates.items() if sort.startswith("rate#pool#"))
    left = sum(launch.reserved_usd for launch in view.launches.values())
    assert hours == pytest.approx(pools * 6 / 60)
    assert dollars(world) == pytest.approx(hours * workers[0].price_per_hour)
    assert budget["dollars"] == pytest.approx(dollars(world))
    assert budget["committed"] == pytest.approx(dollars(world) + left)


def _all_but_the_first_transaction() -> Callable[[PortCall, Callable[[], Any]], Any]:
    """Return what lets one transaction of a tick pass and none after it."""
    passed = 0

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        nonlocal passed
        if call.method == "transact":
            passed += 1
            if passed > 1:
                raise WriteConflict("another transaction is under way")
        return proceed()

    return interfere


def test_a_machine_found_running_is_charged_for_its_refund() -> None:
    world = with_policy(max_workers=1)
    world.send(1)
    world.tick()
    (worker,) = world.workers()
    world.run(6)
    assert dollars(world) > 0.0
    warning = InterruptionWarning(instance_id=worker.instance_id, region=REGION, at=world.now)
    react(warning, world.ports, holder="event")

    # EC2 leaves it out of its answers for a while, though it runs.
    world.interfere = lambda call, proceed: () if call.method == "instances" else proceed()
    world.run(3)
    world.interfere = None
    (refunded,) = world.workers(WorkerState.ENDED)
    spent = dollars(world)
    world.run(12)

    assert refunded.refunded_usd > 0.0
    lived = (refunded.accrued_until or refunded.launched_at) - refunded.launched_at
    assert spent == pytest.approx(refunded.extra_price * (lived / HOUR))
    assert 0.0 < spent == pytest.approx(refunded.charged_usd)
    # Those that have gone to the history count, too.
    known = {**Ledger(world.table, WORKLOAD).read_ended(), **world.view().workers}
    found = known[worker.instance_id]
    assert found.accrued_until is not None
    assert found.refunded_usd == 0.0
    others = sum(_charged(w) for i, w in known.items() if i != worker.instance_id)
    assert dollars(world) == pytest.approx(_charged(found) + others)
    assert budget_row(world)["dollars"] == pytest.approx(dollars(world))
    assert sum(world.metrics.values("Spend")) == pytest.approx(dollars(world))
    (day,) = world.view().spend.values()
    assert day.refunded_seconds == 0.0
    assert refunded.ended_at is not None
    assert found.ended_at is not None
    assert found.ended_at > refunded.ended_at


def test_a_machine_found_running_late_keeps_its_row() -> None:
    world = with_policy(max_workers=1)
    world.send(1)
    world.tick()
    (worker,) = world.workers()
    world.interfere = lambda call, proceed: () if call.method == "instances" else proceed()
    world.run(8)
    assert [w.instance_id for w in world.workers(WorkerState.ENDED)] == [worker.instance_id]
    world.interfere = None

    world.tick(minutes(25))

    found = world.view().workers[worker.instance_id]
    assert found.ended_at is None
    known = [*Ledger(world.table, WORKLOAD).read_ended().values(), *world.workers()]
    assert dollars(world) == pytest.approx(sum(w.charged_usd for w in known))


def test_a_machine_that_runs_on_is_charged_past_its_told_end() -> None:
    world = ControlWorld()
    worker = world.launched()
    gone = StateChange(
        instance_id=worker.instance_id, region=REGION, at=world.now, state="terminated"
    )
    react(gone, world.ports, holder="event")
    told_at = world.now
    # EC2 describes it all the time, and nothing ends it.
    world.interfere = lambda call, proceed: {} if call.method == "terminate" else proceed()
    world.run(30)

    found = world.view().workers[worker.instance_id]
    assert found.gone_at is None
    assert found.accrued_until is not None
    assert found.accrued_until > told_at + minutes(20)


def test_a_made_up_row_is_refunded_nothing() -> None:
    world = ControlWorld()
    worker = world.launched()
    lie = {
        **encode(worker),
        "instance_id": "i-made-up",
        "charged_usd": 100.0,
        "refunded_usd": 100.0,
        "interrupted_at": world.now + minutes(1),
    }
    world.put(worker_sort_key("i-made-up"), **lie)

    charged = [(world.tick(minutes(1)), dollars(world))[1] for _ in range(8)]

    assert min(charged) >= 0.0
    assert budget_row(world)["dollars"] == pytest.approx(dollars(world))


def _charged(worker: Worker) -> float:
    return (
        worker.price_per_hour
        * ((worker.accrued_until or worker.launched_at) - worker.launched_at)
        / HOUR
    )

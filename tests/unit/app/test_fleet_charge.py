"""A fleet charged as a whole: no second twice, none left out, whatever comes between."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.app.interrupt import react
from spindown.app.ledger import Ledger
from spindown.app.port import Key
from spindown.app.spend import add_to_budget
from spindown.contract import row as rows
from spindown.contract.event import StateChange
from spindown.contract.row import (
    worker_sort,
    workload_partition,
)
from spindown.domain.fleet import LaunchState, Worker, WorkerState
from spindown.domain.policy import Policy
from spindown.error import Unreachable, WriteConflict
from spindown.memory import PortCall
from tests.builders import a_launch, a_worker, minutes
from tests.control import REGION, WORKLOAD, ControlWorld, with_policy
from tests.failure import failing
from tests.spending import PRICE, budget_row, dollars, lived, two_at_work

HOUR = timedelta(hours=1)


def test_a_charge_that_loses_a_race_is_made_by_the_next_tick() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(2)
    before = dollars(world)

    # Another charge of the fleet comes between our read and our write.
    world.just_before("backlog", lambda: world.put(rows.BACKLOG, charges=7))
    world.tick(minutes(1))
    lost = dollars(world)
    world.tick(minutes(1))

    assert lost == pytest.approx(before)
    assert dollars(world) == pytest.approx(before + PRICE * 2 / 60)
    assert sum(world.metrics.values("Spend")) == pytest.approx(dollars(world))


def test_tells_the_spend_of_newcomers_the_fleet_and_the_ended() -> None:
    world = with_policy(max_workers=2)
    gone, stays = two_at_work(world)
    world.run(2)
    world.compute.power_off(gone.instance_id)
    world.run(6)

    assert world.workers(WorkerState.ENDED)
    assert {w.instance_id for w in world.workers(WorkerState.BOOTING)} - {stays.instance_id}
    assert sum(world.metrics.values("Spend")) == pytest.approx(dollars(world))


def test_between_first_and_last_charge_a_worker_writes_nothing() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(1))
    first = _own_row(world, worker)

    world.run(3)

    assert _own_row(world, worker) == first
    assert world.view().workers[worker.instance_id].accrued_until == world.now
    assert dollars(world) == pytest.approx(PRICE * (world.now - worker.launched_at) / HOUR)


def test_a_row_unreadable_for_a_while_is_charged_for_all_of_it() -> None:
    world = with_policy(max_workers=2)
    _, bad = two_at_work(world)
    world.run(2)
    sort = rows.worker_sort(bad.instance_id)

    world.put(sort, launched_at="some day")
    world.run(3)
    world.put(sort, launched_at=bad.launched_at)
    world.tick(minutes(1))

    assert dollars(world) == pytest.approx(PRICE * lived(world) / HOUR)


@pytest.mark.parametrize(
    "damage", [{"claims": "many"}, {"charged_until": "some day"}, {"charges": "many"}]
)
@pytest.mark.parametrize("by", ["tick", "event"])
def test_nothing_is_charged_twice_where_the_mark_is_unreadable(
    damage: dict[str, str], by: str
) -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(5, beats=True)
    before = dollars(world)

    world.put(rows.BACKLOG, **damage)
    world.tick(minutes(1))
    world.compute.power_off(worker.instance_id)
    if by == "event":
        event = StateChange(
            instance_id=worker.instance_id, region=REGION, at=world.now, state="terminated"
        )
        react(event, world.ports, holder="event")
    world.run(5)

    assert world.view().workers[worker.instance_id].ended_at is not None
    assert before <= dollars(world) + 1e-9 <= PRICE * lived(world) / HOUR + 2e-9


@pytest.mark.parametrize(
    "damage", [{"claims": "many"}, {"charged_until": "some day"}, {"charges": "many"}]
)
def test_while_the_mark_is_unreadable_each_row_charges_itself(
    damage: dict[str, str],
) -> None:
    world = with_policy(max_workers=2)
    gone, _ = two_at_work(world)
    world.run(2)

    world.put(rows.BACKLOG, **damage)
    world.run(3)
    damaged = dollars(world)
    lived_so_far = lived(world)
    world.compute.power_off(gone.instance_id)
    world.run(3)

    assert damaged == pytest.approx(PRICE * lived_so_far / HOUR)
    assert dollars(world) == pytest.approx(PRICE * lived(world) / HOUR)


def test_a_tick_that_ends_a_worker_charges_the_others_too() -> None:
    world = with_policy(max_workers=2)
    gone, other = two_at_work(world)
    world.run(2)
    world.compute.power_off(gone.instance_id)
    while not world.tick(minutes(1)).ended:
        pass

    assert world.view().workers[other.instance_id].accrued_until == world.now


def test_an_event_charges_nobody_where_the_mark_is_lost() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(5, beats=True)
    world.remove(rows.BACKLOG)
    world.compute.power_off(worker.instance_id)
    event = StateChange(
        instance_id=worker.instance_id, region=REGION, at=world.now, state="terminated"
    )

    assert not react(event, world.ports, holder="event").acted
    world.run(3)

    assert dollars(world) == pytest.approx(PRICE * lived(world) / HOUR)


def test_a_worker_ended_before_its_charge_is_charged_no_more() -> None:
    world = with_policy(max_workers=2)
    gone, bad = two_at_work(world)
    world.run(2)
    world.put(worker_sort(bad.instance_id), launched_at="some day")
    charged = dollars(world)
    at = world.now - timedelta(seconds=30)
    event = StateChange(instance_id=gone.instance_id, region=REGION, at=at, state="terminated")
    world.clock.advance(minutes(1))
    world.compute.power_off(gone.instance_id)

    world.just_before("backlog", lambda: react(event, world.ports, holder="event"))
    world.tick()

    assert world.view().workers[gone.instance_id].ended_at == at
    assert dollars(world) == pytest.approx(charged)


@pytest.mark.parametrize("call", ["query", "backlog", "transact"])
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

    assert dollars(world) == pytest.approx(PRICE * lived(world) / HOUR)


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
    assert dollars(world) == pytest.approx(PRICE * lived(world) / HOUR)


def test_each_end_of_a_burst_is_charged_by_its_own_event() -> None:
    world = ControlWorld(policy=Policy(max_workers=10))
    world.send(1000)
    world.tick()
    world.clock.advance(minutes(2))
    started = [w.instance_id for w in world.workers(WorkerState.BOOTING)]
    for instance_id in started:
        world.check_in(instance_id)
        world.compute.power_off(instance_id)
    first, *others = started

    def end(instance_id: str) -> bool:
        event = StateChange(
            instance_id=instance_id, region=REGION, at=world.now, state="terminated"
        )
        return react(event, world.ports, holder="event").acted

    def another_first(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "transact" and others:
            world.interfere = None
            end(others.pop())
            world.interfere = another_first
        return proceed()

    world.interfere = another_first

    assert len(started) == 10
    assert end(first)
    assert dollars(world) == pytest.approx(PRICE * lived(world) / HOUR)


def test_reservations_beyond_one_charge_are_returned_in_the_end() -> None:
    world = ControlWorld()
    world.tick()
    launches = [
        a_launch(
            f"launch-{n}", state=LaunchState.LAUNCHED, intended_at=world.now, reserved_usd=0.05
        )
        for n in range(45)
    ]
    workers = [
        a_worker(f"i-{n}", launch_id=f"launch-{n}", launched_at=world.now, checked_in_at=world.now)
        for n in range(45)
    ]
    ledger = Ledger(world.table, WORKLOAD)
    for launch, worker in zip(launches, workers, strict=True):
        ledger.write(ledger.put(rows.launch_sort(launch.launch_id), launch))
        ledger.write(ledger.put(worker_sort(worker.instance_id), worker))
    ledger.write(add_to_budget(world.now, {"committed": 45 * 0.05}))

    world.run(3)
    spent = 45 * workers[0].price_per_hour * 3 / 60
    while_running = dict(budget_row(world))
    world.run(40)

    assert while_running["dollars"] == pytest.approx(spent)
    # Of five launches what was given back stands from the first charge on.
    assert 45 * 0.05 < while_running["committed"] < 45 * 0.05 + 5 * spent / 45
    assert budget_row(world)["committed"] == pytest.approx(budget_row(world)["dollars"])


@pytest.mark.parametrize(("pools", "is_together"), [(50, True), (60, False), (110, False)])
def test_a_fleet_beyond_one_transaction_is_charged_all_the_same(
    pools: int, is_together: bool
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
        ledger.write(ledger.put(rows.launch_sort(launch.launch_id), launch))
        ledger.write(ledger.put(worker_sort(worker.instance_id), worker))
    ledger.write(add_to_budget(world.now, {"committed": pools * 0.05}))
    world.tick(minutes(1))

    world.interfere = _all_but_the_first_transaction()
    world.tick(minutes(1))
    world.interfere = None
    # The lock was not given back either: its lease ends.
    world.tick(minutes(4))

    assert (world.view().backlog.charged_until == world.now) is is_together
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


def _own_row(world: ControlWorld, worker: Worker) -> dict[str, Any] | None:
    key = Key(partition=workload_partition(WORKLOAD), sort=worker_sort(worker.instance_id))
    return world.table.get(key)

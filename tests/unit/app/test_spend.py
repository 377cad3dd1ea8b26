"""Accounting: every second once, refunds included, the budget's reservations given back."""

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
    DEPLOYMENT_PARTITION,
    budget_sort,
    worker_sort,
    workload_partition,
)
from spindown.domain.fleet import LaunchState, Worker, WorkerState
from spindown.error import Unreachable
from tests.builders import a_launch, a_worker, minutes
from tests.control import REGION, WORKLOAD, ControlWorld, with_policy
from tests.failure import failing

HOUR = timedelta(hours=1)
PRICE = 0.20 + 100 * 0.08 / 730 + 0.005


def test_charges_every_second_of_a_worker_once() -> None:
    world = ControlWorld()
    worker = world.launched()
    lease = world.claim(worker.instance_id)
    world.run(4, beats=True)
    world.finish(lease)
    world.compute.power_off(worker.instance_id)
    world.run(10)

    # EC2 is asked every other minute: what it says is late by that at most.
    lived = world.compute.bills()[0].seconds / 3600
    assert PRICE * lived <= _dollars(world) <= PRICE * (lived + 2 / 60) + 1e-9
    day = _day(world)
    paid = day.boot_seconds + day.busy_seconds + day.idle_seconds
    assert paid / 3600 * PRICE == pytest.approx(_dollars(world))
    assert sum(world.metrics.values("Spend")) == pytest.approx(_dollars(world))


def test_splits_paid_time_into_boot_and_busy() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(3))

    day = _day(world)
    assert (day.boot_seconds, day.busy_seconds, day.idle_seconds) == (120, 180, 0)


def test_a_charge_that_loses_a_race_is_made_by_the_next_tick() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(2)
    before = _day(world).dollars

    # Another charge of the fleet comes between our read and our write.
    world.just_before("backlog", lambda: world.put(rows.BACKLOG, charges=7))
    world.tick(minutes(1))
    lost = _day(world).dollars
    world.tick(minutes(1))

    assert lost == pytest.approx(before)
    assert _day(world).dollars == pytest.approx(before + PRICE * 2 / 60)
    assert sum(world.metrics.values("Spend")) == pytest.approx(_day(world).dollars)


def test_between_its_first_charge_and_its_last_a_worker_is_charged_without_a_write_of_its_own() -> (
    None
):
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(1))
    first = _own_row(world, worker)

    world.run(3)

    assert _own_row(world, worker) == first
    assert world.view().workers[worker.instance_id].accrued_until == world.now
    assert _dollars(world) == pytest.approx(PRICE * (world.now - worker.launched_at) / HOUR)


def test_a_worker_whose_row_cannot_be_read_for_a_while_is_charged_for_all_of_it() -> None:
    world = with_policy(max_workers=2)
    _, bad = _two_at_work(world)
    world.run(2)
    sort = rows.worker_sort(bad.instance_id)

    world.put(sort, launched_at="some day")
    world.run(3)
    world.put(sort, launched_at=bad.launched_at)
    world.tick(minutes(1))

    assert _dollars(world) == pytest.approx(PRICE * _lived(world) / HOUR)


@pytest.mark.parametrize(
    "damage", [{"claims": "many"}, {"charged_until": "some day"}, {"charges": "many"}]
)
@pytest.mark.parametrize("by", ["tick", "event"])
def test_nothing_is_charged_twice_where_nobody_can_read_how_far_the_fleet_was_charged(
    damage: dict[str, str], by: str
) -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(5, beats=True)
    before = _dollars(world)

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
    assert before <= _dollars(world) + 1e-9 <= PRICE * _lived(world) / HOUR + 2e-9


@pytest.mark.parametrize("call", ["query", "backlog", "transact"])
def test_an_event_that_ends_a_worker_and_a_tick_charge_no_second_twice(call: str) -> None:
    world = with_policy(max_workers=2)
    gone, _ = _two_at_work(world)
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

    assert _dollars(world) == pytest.approx(PRICE * _lived(world) / HOUR)


@pytest.mark.parametrize("ticks", [0, 2], ids=["never-charged", "charged-before"])
def test_a_tick_that_charges_while_an_event_ends_a_worker_has_it_look_again(ticks: int) -> None:
    world = with_policy(max_workers=2)
    gone, _ = _two_at_work(world)
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
    assert _dollars(world) == pytest.approx(PRICE * _lived(world) / HOUR)


def test_an_instance_that_an_event_ends_during_a_tick_is_charged_no_further() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.run(2)
    gone_at = world.now
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.clock.advance(minutes(1))
    event = StateChange(
        instance_id=worker.instance_id, region=REGION, at=gone_at, state="terminated"
    )

    world.just_before("backlog", lambda: react(event, world.ports, holder="event"))
    world.tick()

    assert world.view().workers[worker.instance_id].accrued_until == gone_at
    assert _dollars(world) == pytest.approx(0.0)


def test_the_first_hour_of_a_reclaimed_spot_instance_is_free() -> None:
    world = ControlWorld()
    worker = world.launched()
    lease = world.claim(worker.instance_id)
    world.run(20, beats=True)
    world.finish(lease)
    charged = _day(world).dollars
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.run(3)

    assert charged == pytest.approx(PRICE * 22 / 60)
    assert _day(world).dollars == pytest.approx(0.0, abs=1e-9)


def test_after_the_first_hour_a_reclaimed_instance_is_charged() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    for _ in range(20):
        world.tick(minutes(4))
        world.beat()
    charged = _day(world).dollars
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.run(2)

    assert _day(world).dollars >= charged > PRICE


def test_a_reservation_is_given_back_as_the_worker_accrues_and_when_it_ends() -> None:
    world = ControlWorld(budget=50.0)
    worker = world.launched()
    reserved = _budget(world)["committed"]
    lease = world.claim(worker.instance_id)
    world.tick(minutes(1))
    while_running = _budget(world)
    world.finish(lease)
    world.compute.power_off(worker.instance_id)
    world.run(30)
    after = _budget(world)

    assert reserved > 0
    # What has accrued comes out of the reservation, not on top of it.
    assert while_running["committed"] == pytest.approx(reserved)
    assert after["committed"] == pytest.approx(after["dollars"])
    assert after["dollars"] == pytest.approx(_dollars(world))


def test_reservations_of_more_launches_than_fit_into_one_charge_are_given_back_in_the_end() -> None:
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
    while_running = dict(_budget(world))
    world.run(40)

    assert while_running["dollars"] == pytest.approx(spent)
    # Of five launches what was given back stands from the first charge on.
    assert 45 * 0.05 < while_running["committed"] < 45 * 0.05 + 5 * spent / 45
    assert _budget(world)["committed"] == pytest.approx(_budget(world)["dollars"])


def test_counts_what_the_same_hours_would_have_cost_on_demand() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(1))

    day = _day(world)
    assert day.on_demand_dollars / day.dollars == pytest.approx((PRICE - 0.20 + 0.526) / PRICE)


def test_keeps_how_the_gpu_was_used_while_busy() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick()
    world.put(worker_sort(worker.instance_id), gpu_percent=20.0, vram_percent=40.0, vram_gib=6.4)
    world.tick(minutes(1))
    world.put(worker_sort(worker.instance_id), gpu_percent=50.0, vram_percent=10.0, vram_gib=1.6)
    world.tick(minutes(1))

    day = _day(world)
    assert day.gpu_seconds == pytest.approx(120.0)
    assert day.gpu_percent_seconds == pytest.approx(60 * 20.0 + 60 * 50.0)
    assert day.vram_percent_seconds == pytest.approx(60 * 40.0 + 60 * 10.0)
    assert day.vram_gib_max == 6.4
    assert (world.metric("GpuPercent"), world.metric("VramPercent")) == (50.0, 10.0)


def test_a_machine_without_a_gpu_tells_nothing_of_one() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(1))

    assert _day(world).gpu_seconds == 0.0
    assert world.metrics.values("GpuPercent") == []


def _two_at_work(world: ControlWorld) -> tuple[Worker, Worker]:
    world.send(1000)
    world.tick()
    world.clock.advance(minutes(2))
    started = world.workers(WorkerState.BOOTING)
    for worker in started:
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-{worker.instance_id}")
    first, second = started
    return first, second


def _lived(world: ControlWorld) -> timedelta:
    """Return how long all workers have lived together, as their rows tell."""
    lived = [(w.ended_at or world.now) - w.launched_at for w in world.view().workers.values()]
    return sum(lived, timedelta(0))


def _own_row(world: ControlWorld, worker: Worker) -> dict[str, Any] | None:
    key = Key(partition=workload_partition(WORKLOAD), sort=worker_sort(worker.instance_id))
    return world.table.get(key)


def _day(world: ControlWorld) -> Any:
    return world.view().spend[f"{world.now:%Y-%m-%d}"]


def _dollars(world: ControlWorld) -> float:
    return sum(day.dollars for day in world.view().spend.values())


def _budget(world: ControlWorld) -> dict[str, Any]:
    key = Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort(world.now))
    return world.table.get(key) or {}

"""Accounting: every second once, refunds included, the budget's reservations given back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spindown.contract.event import StateChange
from spindown.contract.row import BUDGET, DEPLOYMENT_PARTITION, SpendRow, worker_sort_key
from spindown.control.instance_event import react
from spindown.control.spend import days_to_tell, items_since_yesterday, last_days
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import extra_price_per_hour
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.termination import DRAINED_FOR
from tests.builders import minutes
from tests.control import REGION, ControlWorld
from tests.spending import PRICE, budget_row, dollars

HOUR = timedelta(hours=1)
#: USD an hour of volume and address.
EXTRA = extra_price_per_hour(100)


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
    assert PRICE * lived <= dollars(world) <= PRICE * (lived + 2 / 60) + 1e-9
    day = _day(world)
    paid = day.boot_seconds + day.busy_seconds + day.idle_seconds
    assert paid / 3600 * PRICE == pytest.approx(dollars(world))
    assert sum(world.metrics.values("Spend")) == pytest.approx(dollars(world))


def test_splits_paid_time_into_boot_and_busy() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(3))

    day = _day(world)
    assert (day.boot_seconds, day.busy_seconds, day.idle_seconds) == (120, 180, 0)


def test_an_instance_ended_by_an_event_is_charged_no_further() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.run(2)
    gone_at = world.now
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.clock.advance(minutes(1))
    event = StateChange(
        instance_id=worker.instance_id, region=REGION, at=gone_at, state="terminated"
    )

    react(event, world.ports, holder="event")
    world.tick()

    assert world.view().workers[worker.instance_id].accrued_until == gone_at
    assert dollars(world) == pytest.approx(EXTRA * ((gone_at - worker.launched_at) / HOUR))


def test_a_first_hour_refunds_all_but_volume_and_address() -> None:
    world = ControlWorld()
    worker = world.launched()
    lease = world.claim(worker.instance_id)
    world.run(20, beats=True)
    world.finish(lease)
    charged = _day(world).dollars
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.run(3)

    # Two minutes have passed since the last charge.
    assert charged == pytest.approx(PRICE * 20 / 60)
    day = _day(world)
    lived = day.boot_seconds + day.busy_seconds + day.idle_seconds
    assert day.refunded_seconds == pytest.approx(lived)
    assert day.dollars == pytest.approx(EXTRA * lived / 3600)


def test_a_refund_goes_to_the_days_and_months_that_were_charged() -> None:
    world = ControlWorld(budget=50.0)
    midnight = datetime(world.now.year + 1, 1, 1, tzinfo=UTC)
    world.clock.advance(midnight - minutes(20) - world.now)
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(38, beats=True)
    days, months = _dollars_of(world)
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.queue.receive(wait=timedelta(0), visibility=HOUR)
    while not world.workers(WorkerState.ENDED):
        world.tick(minutes(1))

    assert [len(days), len(months)] == [2, 2]
    assert min(*days, *months) > 0.0
    (worker,) = world.workers(WorkerState.ENDED)
    assert worker.accrued_until is not None
    kept = [EXTRA * span / HOUR for span in (minutes(20), worker.accrued_until - midnight)]
    left, of_months = _dollars_of(world)
    # The day of a charge is that of its end: five minutes' worth may lie on the other side.
    assert left == pytest.approx(kept, abs=5 * PRICE / 60 + 1e-9)
    assert of_months == pytest.approx(left)
    assert sum(left) == pytest.approx(sum(kept))


def _dollars_of(world: ControlWorld) -> tuple[list[float], list[float]]:
    """Return what the days and the months have cost."""
    days = world.view().spend.values()
    months = world.table.query(DEPLOYMENT_PARTITION, BUDGET).values()
    return [day.dollars for day in days], [month["dollars"] for month in months]


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


def test_a_reservation_is_returned_by_accrual_and_at_the_end() -> None:
    world = ControlWorld(budget=50.0)
    worker = world.launched()
    reserved = budget_row(world)["committed"]
    lease = world.claim(worker.instance_id)
    world.tick(minutes(1))
    while_running = budget_row(world)
    world.finish(lease)
    world.compute.power_off(worker.instance_id)
    world.run(30)
    after = budget_row(world)

    assert reserved > 0
    # What has accrued comes out of the reservation, not on top of it.
    assert while_running["committed"] == pytest.approx(reserved)
    assert after["committed"] == pytest.approx(after["dollars"])
    assert after["dollars"] == pytest.approx(dollars(world))


def test_counts_what_the_same_hours_would_have_cost_on_demand() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(5))

    day = _day(world)
    assert day.on_demand_dollars / day.dollars == pytest.approx((PRICE - 0.20 + 0.526) / PRICE)


def test_keeps_how_the_gpu_was_used_while_busy() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick()
    world.put(
        worker_sort_key(worker.instance_id), gpu_percent=20.0, vram_percent=40.0, vram_gib=6.4
    )
    world.tick(minutes(5))
    world.put(
        worker_sort_key(worker.instance_id), gpu_percent=50.0, vram_percent=10.0, vram_gib=1.6
    )
    world.tick(minutes(5))

    day = _day(world)
    assert day.gpu_seconds == pytest.approx(600.0)
    assert day.gpu_percent_seconds == pytest.approx(300 * 20.0 + 300 * 50.0)
    assert day.vram_percent_seconds == pytest.approx(300 * 40.0 + 300 * 10.0)
    assert day.vram_gib_max == 6.4
    assert (world.metric("GpuPercent"), world.metric("VramPercent")) == (50.0, 10.0)


def test_a_machine_without_a_gpu_tells_nothing_of_one() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(1))

    assert _day(world).gpu_seconds == 0.0
    assert world.metrics.values("GpuPercent") == []


@pytest.mark.parametrize("ticks", [2, 3], ids=["instances-next", "reclaims-next"])
@pytest.mark.parametrize("away", [HOUR / 2, 12 * HOUR], ids=["described", "forgotten"])
def test_a_drained_worker_is_charged_until_it_powered_off(ticks: int, away: timedelta) -> None:
    world = ControlWorld()
    worker = world.launched()
    world.empty_the_queue()
    world.run(ticks)
    world.change(
        worker.instance_id,
        state=WorkerState.DRAINED,
        reason=Reason(ReasonCode.IDLE),
        heartbeat_at=world.now,
    )
    world.compute.power_off(worker.instance_id)
    lived = world.now - worker.launched_at

    world.tick(away)
    world.run(2)

    assert dollars(world) <= PRICE * (lived + DRAINED_FOR) / HOUR + 1e-9


def test_a_gone_worker_is_charged_for_no_more_silence_than_live() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.run(2, beats=True)
    world.compute.power_off(worker.instance_id)
    lived = world.now - worker.launched_at

    world.tick(12 * HOUR)

    borne = Policy().heartbeat_stale_after
    (ended,) = world.workers(WorkerState.ENDED)
    assert ended.ended_at == ended.launched_at + lived + borne
    assert dollars(world) == pytest.approx(PRICE * (lived + borne) / HOUR)


def test_a_worker_condemned_for_silence_is_charged_until_gone() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.clock.advance(minutes(20))
    world.change(worker.instance_id, state=WorkerState.CONDEMNED, condemned_at=world.now)
    # It ran until we ended it, whatever it said.
    world.compute.terminate(region=REGION, instance_ids=[worker.instance_id])

    world.tick(minutes(1))

    (ended,) = world.workers(WorkerState.ENDED)
    assert ended.ended_at == world.now


def test_a_worker_without_check_in_is_charged_until_gone() -> None:
    world = ControlWorld()
    world.send()
    (instance_id,) = [i for a in world.tick().requests for i in a.instances]
    world.compute.power_off(instance_id)
    world.queue.receive(wait=timedelta(0), visibility=HOUR)

    # Nobody knows for how long it has tried to boot.
    world.tick(minutes(30))

    assert dollars(world) == pytest.approx(PRICE / 2)


def _day(world: ControlWorld) -> Any:
    return world.view().spend[f"{world.now:%Y-%m-%d}"]


def test_the_last_day_goes_on_over_midnight() -> None:
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    days = {
        "2026-01-04": SpendRow(dollars=4.0, items=40, idle_seconds=100.0),
        "2026-01-05": SpendRow(dollars=1.0, items=10, busy_seconds=50.0, launches=1),
        "2026-01-03": SpendRow(dollars=99.0, items=1),
    }

    late = last_days(days, noon.replace(hour=23, minute=59, second=59))
    half = last_days(days, noon)
    early = last_days({name: days[name] for name in ("2026-01-04",)}, noon.replace(hour=0))

    assert late.dollars == pytest.approx(1.0, abs=1e-3)
    assert late.items == pytest.approx(10, abs=1e-2)
    assert (half.dollars, half.items, half.launches) == (3.0, 30.0, 1.0)
    assert (half.idle_seconds, half.busy_seconds, half.paid_seconds) == (50.0, 50.0, 100.0)
    assert (early.dollars, early.items) == (4.0, 40.0)
    assert last_days({}, noon).items == 0
    first = {"2026-01-04": SpendRow(items=9)}
    evening = noon.replace(day=4, hour=22)
    assert last_days(first, noon, begun=evening).items == 9
    assert last_days(first, noon, begun=evening - timedelta(days=1)).items == 4.5


def test_the_cost_of_an_item_does_not_begin_anew_at_midnight() -> None:
    world = ControlWorld()
    midnight = world.now.replace(hour=0, minute=0) + timedelta(days=1)
    world.put_day(world.now, dollars=8.0, items=100, busy_seconds=3600.0, idle_seconds=1200.0)
    world.clock.advance(midnight - world.now - minutes(3))

    world.run(6)

    assert world.metrics.values("CostPerItem") == pytest.approx([0.08] * 6)
    assert world.metrics.values("IdleShare") == pytest.approx([25.0] * 6)


@pytest.mark.parametrize(
    ("items_a_day", "days"),
    # At noon: today's, half of the oldest day's, and whole days between.
    [(10, 1), (7, 1), (6, 2), (3, 3), (1, 10), (0, 1)],
)
def test_the_cost_of_an_item_is_that_of_the_last_ten(items_a_day: int, days: int) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    rows = {
        f"2026-01-{day:02}": SpendRow(dollars=5.0 * items_a_day, items=items_a_day)
        for day in range(1, 32)
    }

    found = days_to_tell(rows, noon)

    assert found == days
    window = last_days(rows, noon, found)
    assert window.cost_per_item == (pytest.approx(5.0) if items_a_day else None)


def test_few_long_items_a_day_have_a_cost_too() -> None:
    world = ControlWorld()
    for ago in range(6):
        world.put_day(world.now - timedelta(days=ago), dollars=15.0, items=3, busy_seconds=3600.0)

    world.run(1)

    assert world.metrics.values("CostPerItem") == pytest.approx([5.0])


@pytest.mark.parametrize(("day", "items"), [(5, 1), (4, 1), (3, 0)])
def test_items_of_two_days_count(day: int, items: int) -> None:
    days = {f"2026-01-0{day}": SpendRow(items_failed=1)}

    assert items_since_yesterday(days, datetime(2026, 1, 5, 12, tzinfo=UTC)) == items

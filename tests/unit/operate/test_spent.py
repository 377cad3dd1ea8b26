"""All commands tell the same dollars, cost of an item and saving of the same span."""

from datetime import timedelta

import pytest

from spindown.cli.batches import _say_spent
from spindown.cli.demo.bill import read_bill
from spindown.cli.render.saving import say_span_until
from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.row import SpendRow
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.ledger import Ledger
from spindown.operate.cost import read_cost
from spindown.operate.month_bill import read_month
from spindown.operate.spent import Spent, spent_of
from spindown.operate.status import read_status
from spindown.port import Key, Write
from tests.builders import a_worker
from tests.control import WORKLOAD, ControlWorld

HOUR = timedelta(hours=1)


def launched(world: ControlWorld, ago: timedelta) -> None:
    """Put a machine into history that ran for an hour."""
    gone = a_worker(
        "i-gone",
        launched_at=world.now - ago,
        state=WorkerState.ENDED,
        ended_at=world.now - ago + HOUR,
        accrued_until=world.now - ago + HOUR,
        on_demand_price=0.5,
    )
    key = Key(partition=rows.history_partition(WORKLOAD), sort=rows.worker_sort_key("i-gone"))
    world.table.write(Write(key=key, set=encode(gone)))


def a_first_day() -> ControlWorld:
    """Return a workload on its first day: a machine of history, and one that runs uncharged."""
    world = ControlWorld()
    launched(world, 2 * HOUR)
    day = SpendRow(
        dollars=0.2,
        on_demand_dollars=0.5,
        items=1000,
        boot_seconds=600.0,
        busy_seconds=2400.0,
        idle_seconds=600.0,
    )
    world.put_day(world.now, day)
    world.send(1)
    world.run(3)
    return world


def ledger_of(world: ControlWorld) -> Ledger:
    return Ledger(world.table, WORKLOAD)


def spent_in(world: ControlWorld) -> Spent:
    ledger = ledger_of(world)
    return spent_of(ledger, ledger.read(), world.now)


def test_every_command_tells_the_same_of_the_same_span() -> None:
    world = a_first_day()
    ledger, now = ledger_of(world), world.now
    spent = spent_in(world)

    status = read_status(
        WORKLOAD,
        ledger=ledger,
        queues={"": world.queue},
        dead_letters=world.dead_letters,
        budget_usd=None,
        refusal="",
        now=now,
    )
    cost = read_cost(WORKLOAD, ledger=ledger, policy=Policy(), now=now, days=7)
    month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    (bill,) = read_month(
        {WORKLOAD: ledger},
        deployment="demo",
        start=month,
        end=now,
        now=now,
        without_addresses=frozenset(),
        alarm_metrics=0,
    ).workloads
    demo = read_bill(WORKLOAD, ledger=ledger, store=world.objects, start=month, end=now)

    assert spent.saving.against_on_demand is not None
    assert spent.saving.against_warm is not None
    assert {status.saving, cost.saving, bill.saving, demo.saving} == {spent.saving}
    costs = {status.last_day.cost_per_item, cost.days[-1].window.cost_per_item, bill.cost_per_item}
    assert costs == {spent.last().cost_per_item}
    assert demo.cost is not None
    assert demo.cost.all_in in costs
    assert status.today.dollars == pytest.approx(bill.dollars) == pytest.approx(demo.spend.dollars)


def test_a_first_day_is_compared_from_its_first_launch_on() -> None:
    world = a_first_day()
    saving = spent_in(world).saving

    assert spent_in(world).begun < world.now - 2 * HOUR + timedelta(seconds=1)
    # A machine for two hours, and not since midnight.
    assert saving.warm_dollars == pytest.approx(
        saving.on_demand_dollars / paid_hours(spent_in(world)) * 2, rel=0.1
    )


def test_a_list_of_batches_says_the_span_once() -> None:
    world = a_first_day()

    cost, saved = _say_spent(spent_in(world))

    span = say_span_until(world.now, spent_in(world).begun, 1)
    assert (span in cost, span in saved) == (True, False)


def paid_hours(spent: Spent) -> float:
    return spent.last().paid_seconds / 3600


def test_without_work_nothing_is_saved() -> None:
    world = ControlWorld()

    assert spent_in(world).saving.against_warm is None
    assert spent_in(world).today == SpendRow()


def test_work_that_began_yesterday_counts_from_its_first_launch() -> None:
    world = ControlWorld()
    yesterday = world.now - timedelta(days=1)
    evening = yesterday.replace(hour=22, minute=0, second=0, microsecond=0)
    launched(world, world.now - evening)
    world.put_day(yesterday, SpendRow(dollars=1.0, on_demand_dollars=2.0))

    assert spent_in(world).begun == evening


def test_a_day_before_yesterday_counts_from_its_midnight() -> None:
    world = ControlWorld()
    world.put_day(world.now - timedelta(days=2), SpendRow(dollars=1.0, on_demand_dollars=2.0))
    spent = spent_in(world)

    assert spent.begun == (world.now - timedelta(days=2)).replace(
        hour=0, minute=0, second=0, microsecond=0
    )

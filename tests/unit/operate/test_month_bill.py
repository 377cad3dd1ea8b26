"""The bill of a month is what the ledger has, what runs included."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from spindown.cli.render.month_bill import render_bill, render_export_comparison
from spindown.cli.render.saving import PAID, say_saving
from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.row import SpendRow
from spindown.domain.fleet import WorkerState
from spindown.domain.month_bill import (
    BillRow,
    CostKind,
    ExportComparison,
    Gap,
    Grouping,
    KindDifference,
    MonthBill,
    rows_of,
)
from spindown.domain.past_cost import Saving
from spindown.error import BadInput
from spindown.ledger import Ledger
from spindown.operate.cost_export import read_export
from spindown.operate.month_bill import compare_month, month_span, read_month
from spindown.port import Key, Write
from tests.builders import a_worker
from tests.control import WORKLOAD, ControlWorld
from tests.cost_export import CUR_COLUMNS, Used, cur_row, write_csv

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def a_world() -> ControlWorld:
    """Return a workload with a day of work today and one yesterday."""
    world = ControlWorld()
    day = SpendRow(
        dollars=2.0,
        on_demand_dollars=6.0,
        items=1000,
        jobs=10,
        busy_seconds=5400.0,
        idle_seconds=1200.0,
        boot_seconds=600.0,
        launches=1,
    )
    world.put_day(world.now, day)
    world.put_day(world.now - DAY, replace(day, dollars=1.0))
    return world


def bill_of(world: ControlWorld, *, days: int = 2) -> MonthBill:
    midnight = world.now.replace(hour=0, minute=0, second=0, microsecond=0)
    return read_month(
        {WORKLOAD: Ledger(world.table, WORKLOAD)},
        deployment="demo",
        start=midnight - (days - 1) * DAY,
        end=world.now,
        now=world.now,
        without_addresses=frozenset(),
        alarm_metrics=17,
    )


def screen_of(bill: MonthBill, grouping: Grouping = Grouping.KIND) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        for part in render_bill(bill, rows_of(bill, grouping), grouping):
            console.print(part, soft_wrap=True)
    return captured.get()


def put_worker(world: ControlWorld, instance: str, dollars: float, **changes: object) -> None:
    worker = a_worker(
        instance,
        launched_at=world.now - 3 * HOUR,
        state=WorkerState.ENDED,
        ended_at=world.now - HOUR,
        accrued_until=world.now - HOUR,
        charged_usd=dollars,
        price_per_hour=0.5,
        extra_price=0.02,
        on_demand_price=1.5,
        **changes,
    )
    key = Key(partition=rows.history_partition(WORKLOAD), sort=rows.worker_sort_key(instance))
    world.table.write(Write(key=key, set=encode(worker)))


def test_the_days_of_the_month_are_summed() -> None:
    bill = bill_of(a_world())

    assert bill.booked == pytest.approx(3.0)
    (one,) = bill.workloads
    assert (one.items, one.jobs) == (2000, 20)
    assert one.saving.against_on_demand == pytest.approx(0.75)


def test_failed_items_are_told_beside_those_that_are_done() -> None:
    world = a_world()
    world.put_day(world.now, SpendRow(dollars=1.0, items=1, items_failed=7, jobs=1))
    bill = bill_of(world)

    assert (bill.workloads[0].items, bill.workloads[0].items_failed) == (1001, 7)
    assert "7 failed" in screen_of(bill)


def test_the_control_plane_costs_in_a_month_without_work_too() -> None:
    world = ControlWorld()
    before = world.now - timedelta(days=40)
    world.put_day(before, SpendRow(dollars=1.0, items=1000, jobs=10))
    idle, worked = bill_of(world, days=1), bill_of(a_world(), days=1)

    hours = [sum(each.listed for each in bill.control) for bill in (idle, worked)]
    assert idle.booked == 0.0
    assert 0.0 < hours[0] < hours[1]


@pytest.mark.parametrize("grouping", list(Grouping))
def test_of_few_items_a_bill_tells_no_cost(grouping: Grouping) -> None:
    world = ControlWorld()
    world.put_day(world.now, SpendRow(dollars=1.0, items=9, items_failed=7, jobs=1))
    bill = bill_of(world, days=1)

    shown = screen_of(bill, grouping)

    assert bill.workloads[0].cost_per_item is None
    assert "$" not in shown


def test_what_is_not_recorded_is_not_told_as_nothing() -> None:
    told = next(line for line in screen_of(bill_of(a_world())).splitlines() if "data" in line)

    assert told.split()[:2] == ["data", "-"]


def test_a_day_before_the_span_is_only_in_the_trend() -> None:
    bill = bill_of(a_world(), days=1)

    assert bill.booked == pytest.approx(2.0)
    assert bill.workloads[0].trend == pytest.approx(1.0)


def test_what_runs_is_billed_up_to_now() -> None:
    world = a_world()
    bill = bill_of(world)
    world.send(1)
    world.run(5)

    later = bill_of(world)

    assert later.booked > bill.booked
    assert sum(one.dollars for one in later.machines) == pytest.approx(
        later.booked - bill.booked, rel=1e-6
    )


def test_instances_of_history_are_told_by_type_and_kind() -> None:
    world = a_world()
    put_worker(world, "i-1", 1.0)
    put_worker(world, "i-2", 2.0, instance_type="g6.xlarge")

    bill = bill_of(world)
    by_type = {row.name: row.dollars for row in rows_of(bill, Grouping.TYPE)}
    by_kind = {row.name: row.dollars for row in rows_of(bill, Grouping.KIND)}

    assert by_type["g6.xlarge spot"] == pytest.approx(2.0)
    assert by_kind[CostKind.ADDRESSES] == pytest.approx(4 * 0.005)
    assert by_kind[CostKind.DISKS] == pytest.approx(4 * 0.015)


def test_the_screen_marks_what_is_an_estimate() -> None:
    world = a_world()
    put_worker(world, "i-1", 3.0)

    shown = screen_of(bill_of(world))

    assert "machines" in shown
    # `rightsize` counts less.
    assert PAID in shown
    control = next(line for line in shown.splitlines() if line.startswith("control plane"))
    assert "~" in control
    assert "75 % less" in shown
    assert "12.00 USD" in shown
    assert "(estimates)" in shown


def test_all_dollars_of_a_bill_have_as_many_places() -> None:
    rows = [
        BillRow(name=name, dollars=dollars)
        for name, dollars in (("machines", 0.0214), ("disks", 0.0009), ("data", 0.0))
    ]
    bill = bill_of(a_world())

    def shown(rows: list[BillRow]) -> list[str]:
        table = list(render_bill(bill, rows, Grouping.KIND))[1]
        console = Console(width=120)
        with console.capture() as captured:
            console.print(table)
        return [line.split()[1] for line in captured.get().splitlines()[1:]]

    assert shown(rows) == ["0.0214", "0.0009", "0.0000", "0.0223"]
    large = [replace(rows[0], dollars=1234.5), *rows[1:]]
    assert shown(large) == ["1,234.50", "<0.01", "0.00", "1,234.50"]


def test_a_difference_of_less_than_is_shown_has_no_sign() -> None:
    now = datetime(2026, 6, 9, tzinfo=UTC)
    kinds = zip(CostKind, (3.0, 2.0, 1.0, 0.3), (3.0, 1.5, 1.001, 0.1 + 0.2), strict=False)
    found = ExportComparison(
        start=now - DAY,
        end=now,
        kinds=tuple(
            KindDifference(kind=kind, booked=booked, billed=billed, is_estimate=False)
            for kind, booked, billed in kinds
        ),
        gaps={},
    )
    console = Console(width=120)
    with console.capture() as captured:
        for part in render_export_comparison(found, source="CUR", tags=frozenset()):
            console.print(part)

    rows = captured.get().splitlines()
    told = [
        line.split()[-1]
        for kind in list(CostKind)[:4]
        for line in rows
        if line.startswith(f"{kind.value} ")
    ]
    assert told == ["0.00", "-0.50", "<0.01", "0.00"]


def test_a_month_without_work_says_so() -> None:
    assert f"{WORKLOAD}: nothing" in screen_of(bill_of(ControlWorld()))


def test_a_saving_below_zero_is_said_as_a_loss() -> None:
    saving = Saving(dollars=3.0, on_demand_dollars=2.0, warm_dollars=None)

    assert say_saving(saving).startswith("50 % more")


@pytest.mark.parametrize(
    ("month", "start", "end"),
    [
        (None, datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 6, 9, 12, tzinfo=UTC)),
        ("2026-05", datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)),
        ("2025-12", datetime(2025, 12, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_month_is_one_of_utc(month: str | None, start: datetime, end: datetime) -> None:
    assert month_span(month, datetime(2026, 6, 9, 12, tzinfo=UTC)) == (start, end)


@pytest.mark.parametrize("month", ["June", "2026-13", "2026-07"])
def test_another_month_is_refused(month: str) -> None:
    with pytest.raises(BadInput, match="--month"):
        month_span(month, datetime(2026, 6, 9, 12, tzinfo=UTC))


def test_books_are_held_against_an_export(tmp_path: Path) -> None:
    world = a_world()
    put_worker(world, "i-0123456789abcdef0", 1.0)
    bill = bill_of(world)
    tags = {"spindown:deployment": "demo"}
    lines = [
        Used(
            at=world.now - ago * HOUR,
            dollars=0.49,
            amount=1.0,
            resource="i-0123456789abcdef0",
            tags=tags,
        )
        for ago in (3, 2)
    ]
    lines.append(Used(at=world.now - HOUR, dollars=0.1, amount=1.0))
    path = write_csv(tmp_path / "cur.csv", CUR_COLUMNS, [cur_row(line) for line in lines])
    export = read_export(
        [path],
        start=bill.start,
        end=bill.end,
        deployment="demo",
        workloads=[WORKLOAD],
        instances=[one.instance_id for one in bill.machines],
    )

    found = compare_month(
        {WORKLOAD: Ledger(world.table, WORKLOAD)},
        export,
        bill,
        now=world.now,
        without_addresses=frozenset(),
        alarm_metrics=0,
    )

    (machines,) = (one for one in found.kinds if one.kind is CostKind.MACHINES)
    assert (machines.booked, machines.billed) == pytest.approx((0.96, 0.98))
    console = Console(width=120)
    with console.capture() as captured:
        for part in render_export_comparison(found, source="CUR 2.0, USD", tags=export.tags):
            console.print(part)
    assert f"+0.02  {Gap.PRICE}" in captured.get()
    assert "spindown:deployment" in captured.get()

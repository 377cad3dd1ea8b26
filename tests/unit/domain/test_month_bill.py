"""A bill shares out what the books have, and tells why AWS's own differs."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.cli.render.saving import say_saving
from spindown.domain.control_cost import estimate_control
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.month_bill import (
    BilledDay,
    CostExport,
    CostKind,
    ExportLine,
    Gap,
    Grouping,
    LineType,
    MachineCost,
    MonthBill,
    WorkloadBill,
    compare_with_export,
    cost_within,
    rows_of,
)
from spindown.domain.past_cost import CostWindow, Saving, saving_over, share_out
from tests.builders import NOW, a_worker

HOUR = timedelta(hours=1)


def an_ended(hours: float, dollars: float, **changes: Any) -> Worker:
    """Return a worker that ended now after so many hours, all of it charged."""
    return a_worker(
        state=WorkerState.ENDED,
        launched_at=NOW - hours * HOUR,
        ended_at=NOW,
        accrued_until=NOW,
        charged_usd=dollars,
        **changes,
    )


def within(worker: Worker, *, start: float = 100, end: float = 0, **changes: bool) -> MachineCost:
    """Return what it has cost from so many hours ago to so many hours ago."""
    found = cost_within(
        worker,
        "ocr",
        start=NOW - start * HOUR,
        end=NOW - end * HOUR,
        now=NOW,
        has_addresses=changes.get("has_addresses", True),
    )
    assert found is not None
    return found


def test_a_machine_is_told_from_its_disk_and_address() -> None:
    cost = within(an_ended(2, 0.60, price_per_hour=0.30, extra_price=0.02))

    assert (cost.machine, cost.disk, cost.address) == pytest.approx((0.56, 0.03, 0.01))
    assert cost.dollars == pytest.approx(0.60)


def test_a_month_has_its_share_of_a_machine() -> None:
    cost = within(an_ended(2, 0.60, price_per_hour=0.30, extra_price=0.02), start=1)

    assert (cost.dollars, cost.hours) == pytest.approx((0.30, 1.0))


def test_a_machine_without_an_address_has_only_a_disk() -> None:
    cost = within(an_ended(2, 0.60, extra_price=0.02), has_addresses=False)

    assert (cost.disk, cost.address) == pytest.approx((0.04, 0.0))


def test_a_refunded_machine_costs_its_disk_and_address() -> None:
    cost = within(an_ended(0.5, 0.01, extra_price=0.02, refunded_usd=0.14))

    assert cost.machine == 0.0
    assert cost.dollars == pytest.approx(0.01)
    assert cost.refunded == pytest.approx(0.14)


def test_what_runs_is_paid_up_to_now() -> None:
    running = a_worker(launched_at=NOW - HOUR, price_per_hour=0.22)

    assert within(running).dollars == pytest.approx(0.22)


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_minute_is_paid_of_a_machine_that_has_just_begun(has_ended: bool) -> None:
    young = a_worker(launched_at=NOW - timedelta(seconds=20), price_per_hour=0.30, extra_price=0.0)
    if has_ended:
        paid: dict[str, Any] = {
            "accrued_until": NOW + timedelta(seconds=40),
            "charged_usd": 0.30 / 60,
        }
        young = replace(young, state=WorkerState.ENDED, ended_at=NOW, **paid)

    cost = within(young, end=0)

    assert (cost.dollars, cost.hours) == pytest.approx((0.30 / 60, 1 / 60))


@pytest.mark.parametrize(("start", "end"), [(5.0, 3.0), (0.0, -5.0)])
def test_a_machine_of_another_time_is_not_there(start: float, end: float) -> None:
    found = cost_within(
        an_ended(2, 0.60),
        "ocr",
        start=NOW - start * HOUR,
        end=NOW - end * HOUR,
        now=NOW,
        has_addresses=True,
    )

    assert found is None


def a_day(**changes: float) -> BilledDay:
    window = CostWindow(
        **{
            "dollars": 10.0,
            "items": 1000,
            "items_redone": 200,
            "launches": 2,
            "boot_seconds": 100.0,
            "busy_seconds": 800.0,
            "idle_seconds": 100.0,
            **changes,
        }
    )
    return BilledDay(
        window=window, on_demand_dollars=25.0, minimum_seconds=40.0, items_failed=0, jobs=3
    )


def a_bill(**days: BilledDay) -> MonthBill:
    machines = [
        within(an_ended(2, 6.0, extra_price=0.02)),
        within(a_worker("i-2", launched_at=NOW - HOUR, instance_type="g6.xlarge")),
    ]
    dollars = sum(day.window.dollars for day in days.values())
    one = WorkloadBill(
        workload="ocr",
        days=days,
        before=CostWindow(
            dollars=5.0,
            items=1000,
            items_redone=0,
            launches=1,
            boot_seconds=0.0,
            busy_seconds=10.0,
            idle_seconds=0.0,
        ),
        machines=tuple(machines),
        begun=NOW,
        saving=Saving(dollars=dollars, on_demand_dollars=25.0, warm_dollars=100.0),
    )
    control = estimate_control(hours=24, workloads=1, jobs=3, alarm_metrics=17)
    return MonthBill(
        deployment="demo", start=NOW - 24 * HOUR, end=NOW, workloads=(one,), control=control
    )


@pytest.mark.parametrize("grouping", list(Grouping))
def test_every_grouping_has_the_same_total(grouping: Grouping) -> None:
    bill = a_bill(**{"2026-06-01": a_day(), "2026-06-02": a_day(dollars=3.0)})

    rows = rows_of(bill, grouping)

    assert sum(row.dollars for row in rows) == pytest.approx(bill.dollars)
    assert bill.booked == pytest.approx(13.0)


def test_causes_share_a_day_by_paid_seconds() -> None:
    parts = share_out(a_day().window, minimum_seconds=40.0)

    assert parts["work"][0] == pytest.approx(10 * 0.8 * 5 / 6)
    assert parts["redo"][0] == pytest.approx(10 * 0.8 / 6)
    assert sum(dollars for dollars, _ in parts.values()) == pytest.approx(10.0)
    assert (0.4, 40.0) in [pytest.approx(part) for part in parts.values()]


def test_the_trend_is_that_of_an_item() -> None:
    (one,) = a_bill(day=a_day()).workloads

    assert one.trend == pytest.approx(1.0)


@pytest.mark.parametrize(("busy_hours", "count"), [(0.0, 1), (24.0, 1), (30.0, 2)])
def test_as_many_warm_machines_as_the_work_fills(busy_hours: float, count: int) -> None:
    saving = saving_over(
        dollars=3.0,
        on_demand_dollars=20.0,
        busy_seconds=busy_hours * 3600,
        paid_seconds=40 * 3600,
        span=timedelta(days=1),
    )

    assert saving.warm_machines == count
    assert saving.warm_dollars == pytest.approx(12.0 * count)
    assert saving.against_on_demand == pytest.approx(0.85)


@pytest.mark.parametrize(
    ("minutes", "is_early", "share"),
    [
        pytest.param(1, True, None, id="it would flip with each minute"),
        pytest.param(59.9, True, None, id="just before"),
        pytest.param(60, False, 0.9, id="an hour"),
        pytest.param(120, False, 0.95, id="two hours"),
    ],
)
def test_a_saving_against_kept_warm_waits_for_an_hour(
    minutes: float, is_early: bool, share: float | None
) -> None:
    saving = saving_over(
        dollars=0.04,
        on_demand_dollars=0.1,
        busy_seconds=600.0,
        paid_seconds=900.0,
        span=timedelta(minutes=minutes),
    )

    assert saving.is_early is is_early
    assert saving.against_warm == (None if share is None else pytest.approx(share))
    assert saving.against_on_demand == pytest.approx(0.6)
    assert ("too early" in say_saving(saving)) is is_early
    assert ("too early" in say_saving(saving, shortly=True)) is is_early


def test_nothing_is_saved_against_what_is_not_known() -> None:
    saving = Saving(dollars=3.0, on_demand_dollars=0.0, warm_dollars=None)

    assert (saving.against_on_demand, saving.against_warm) == (None, None)


def a_line(instance: str = "i-1", dollars: float = 0.56, **changes: object) -> ExportLine:
    base = ExportLine(
        kind=CostKind.MACHINES,
        line_type=LineType.USAGE,
        resource_id=instance,
        dollars=dollars,
        amount=2.0,
    )
    return replace(base, **changes)  # type: ignore[arg-type] # named by the tests


def gaps_of(*lines: ExportLine, machines: list[MachineCost] | None = None) -> dict[Gap, float]:
    export = CostExport(
        source="CUR 2.0",
        lines=lines,
        begin=NOW - 24 * HOUR,
        end=NOW,
        tags=frozenset(),
        currency="USD",
    )
    booked = machines or [within(an_ended(2, 0.60, price_per_hour=0.30, extra_price=0.02))]
    found = compare_with_export(booked, (), export, start=NOW - 24 * HOUR, end=NOW)
    (kind,) = (one for one in found.kinds if one.kind is CostKind.MACHINES)
    others = (Gap.DISCOUNT, Gap.CREDIT, Gap.TAX)
    parts = sum(dollars for gap, dollars in found.gaps.items() if gap not in others)
    assert parts == pytest.approx(kind.difference, abs=1e-4)
    return {gap: round(dollars, 4) for gap, dollars in found.gaps.items()}


def test_books_that_are_right_have_no_gap() -> None:
    assert gaps_of(a_line()) == {}


@pytest.mark.parametrize(
    ("line", "gaps"),
    [
        pytest.param({"amount": 2.5, "dollars": 0.70}, {Gap.TIME: 0.14}, id="longer"),
        pytest.param({"dollars": 0.66}, {Gap.PRICE: 0.10}, id="dearer"),
        pytest.param({"dollars": 0.0}, {Gap.NOT_CHARGED: -0.56}, id="not charged"),
        pytest.param(
            {"instance": "i-9"}, {Gap.UNKNOWN: 0.56, Gap.ABSENT: -0.56}, id="another instance"
        ),
    ],
)
def test_a_gap_has_its_cause(line: dict[str, object], gaps: dict[Gap, float]) -> None:
    changes = {name: value for name, value in line.items() if name != "instance"}
    instance = str(line.get("instance", "i-1"))

    assert gaps_of(replace(a_line(instance), **changes)) == gaps  # type: ignore[arg-type] # as above


def test_a_charge_for_a_reclaimed_machine_is_told() -> None:
    refunded = within(an_ended(0.5, 0.01, extra_price=0.02, refunded_usd=0.14))

    assert gaps_of(a_line(dollars=0.14), machines=[refunded]) == {Gap.REFUND: 0.14}


def test_tax_credits_and_discounts_are_no_gap_of_machines() -> None:
    lines = [
        a_line(line_type=LineType.TAX, dollars=0.05),
        a_line(line_type=LineType.CREDIT, dollars=-0.30),
        a_line(line_type=LineType.DISCOUNT, dollars=-0.02),
    ]

    found = gaps_of(a_line(), *lines)

    assert found == {Gap.TAX: 0.05, Gap.CREDIT: -0.30, Gap.DISCOUNT: -0.02}


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0, 5), st.floats(0, 50)), max_size=8))
def test_gaps_sum_to_the_difference(lines: list[tuple[int, float, float]]) -> None:
    gaps_of(*(a_line(f"i-{n}", dollars, amount=hours) for n, dollars, hours in lines))

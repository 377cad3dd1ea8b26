"""The bill of a month in tables and sentences. Reads nothing."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from spindown.cli.render.saving import (
    ALL_IN,
    PAID,
    SAVED,
    format_item_cost,
    item_cost_cell,
    say_saving,
    say_usd,
    usd_places,
)
from spindown.cli.render.table import make_table
from spindown.domain.month_bill import (
    BillRow,
    ExportComparison,
    Grouping,
    KindDifference,
    MonthBill,
    WorkloadBill,
)
from spindown.error import printable
from spindown.reason_text import say_count


def render_bill(
    bill: MonthBill, rows: Sequence[BillRow], grouping: Grouping
) -> Iterator[RenderableType]:
    """Yield the bill: its rows and their sum, and for each workload items and savings."""
    yield (
        f"{bill.deployment}, {bill.start:%Y-%m-%d} to {bill.end:%Y-%m-%d %H:%M} UTC, in USD; "
        f"~ marks an estimate; machines: {PAID}"
    )
    yield _table(rows, grouping)
    for one in bill.workloads:
        yield from _workload_lines(one, bill.start)
    if any(one.days for one in bill.workloads):
        yield f"{ALL_IN} {SAVED}"


def _table(rows: Sequence[BillRow], grouping: Grouping) -> Table:
    has_items = any(row.items is not None for row in rows)
    numbers = ("USD", "hours", *(("items", "cost") if has_items else ()))
    table = make_table(grouping.value, numbers=numbers)
    table.add_column("")
    total = sum(row.dollars for row in rows)
    places = usd_places(total)
    for row in rows:
        cells = [
            row.name,
            _dollars(row, places),
            "" if row.hours is None else f"{row.hours:,.2f}",
        ]
        if has_items:
            items = row.items
            cost = "" if items is None else item_cost_cell(row.dollars, items)
            cells += ["" if items is None else f"{items:,.0f}", cost]
        table.add_row(*(Text(printable(cell)) for cell in (*cells, row.note)))
    rest = [""] * (len(numbers) - 1)
    sign = "~" if any(row.is_estimate for row in rows) else ""
    table.add_row("total", f"{sign}{say_usd(total, places)}", *rest, "", style="bold")
    return table


def _dollars(row: BillRow, places: int) -> str:
    if not row.is_recorded:
        return "-"
    return f"{'~' if row.is_estimate else ''}{say_usd(row.dollars, places)}"


def _workload_lines(one: WorkloadBill, start: datetime) -> Iterator[str]:
    if not one.days:
        yield f"{one.workload}: nothing was paid for"
        return
    text = f"{one.workload}: {say_count(round(one.items), 'item')} done"
    if one.items_failed:
        text += f", {one.items_failed:,} failed"
    if (cost := one.cost_per_item) is not None:
        text += f", {format_item_cost(cost)}, all in"
    elif one.items > 0:
        text += ", too few to say what one costs"
    if one.trend is not None:
        text += f" ({one.trend:+.0%} on the span before)".replace("%", " %")
    yield text
    if said := say_saving(one.saving):
        since = max(one.begun, start)
        yield f"    since {since:%Y-%m-%d %H:%M} UTC {said}"
    if refunded := sum(each.refunded for each in one.machines):
        which = "of machines that EC2 took back in their first hour"
        yield f"    not charged: {say_usd(refunded)} USD {which}"


def render_export_comparison(
    found: ExportComparison, *, source: str, tags: frozenset[str]
) -> Iterator[RenderableType]:
    """Yield the books beside an export: by kind, then the difference of machines by cause."""
    yield ""
    yield (
        f"Beside AWS's export ({source}), {found.start:%Y-%m-%d %H:%M} to "
        f"{found.end:%Y-%m-%d %H:%M} UTC, as far as both reach"
    )
    table = make_table("", numbers=("booked", "billed", "difference"))
    places = usd_places(max(found.booked, found.billed))
    for one in found.kinds:
        table.add_row(one.kind.value, *_differences(one, places))
    for gap in found.gaps:
        if gap.value in _OTHERS:
            dollars = found.gaps[gap]
            table.add_row(gap.value, "", say_usd(dollars, places), _signed(dollars, places))
    difference = found.billed - found.booked
    totals = (say_usd(found.booked, places), say_usd(found.billed, places))
    table.add_row("total", *totals, _signed(difference, places), style="bold")
    yield table
    causes = [gap for gap in found.gaps if gap.value not in _OTHERS]
    if causes:
        yield "Difference of machines, by cause:"
        yield from (f"    {_signed(found.gaps[gap], places)}  {gap.value}" for gap in causes)
    if tags:
        yield f"Tags of ours in it: {', '.join(sorted(tags))}"
    else:
        yield (
            "No tag of ours is in it, so only instances are recognised, by their ids: activate "
            "`spindown:deployment` as a cost allocation tag (AWS Billing)."
        )


_OTHERS = frozenset({"discounts", "credits and refunds", "tax"})


def _differences(one: KindDifference, places: int) -> Iterator[str]:
    yield f"{'~' if one.is_estimate else ''}{say_usd(one.booked, places)}"
    yield say_usd(one.billed, places)
    yield _signed(one.difference, places)


def _signed(dollars: float, places: int) -> str:
    said = say_usd(abs(dollars), places)
    if abs(dollars) < 10**-places / 2:
        return said
    return f"{'+' if dollars > 0 else '-'}{said}"

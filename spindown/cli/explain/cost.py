"""``spindown cost``: what an item has cost, day by day and week by week."""

import json
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.table import Table

from spindown.cli import option
from spindown.cli.render.saving import (
    ALL_IN,
    SAVED,
    format_item_cost,
    item_cost_cell,
    say_saving,
    say_usd,
    usd_places,
)
from spindown.cli.render.screen import print_parts
from spindown.cli.render.table import make_table
from spindown.cli.session import open_session
from spindown.contract.codec import encode
from spindown.control.policy_edit import effective_policy
from spindown.domain.cost_rise import AcceptedCost, RiseFound
from spindown.operate.cost import CostSpan, CostTrend, read_cost


def cost(
    workload: option.Workload,
    *,
    days: Annotated[int, typer.Option(min=1, max=90, help="Days to show, of UTC.")] = 14,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Show what an item has cost over days and weeks, and whether that is usual."""
    session = open_session(config, deployment=deployment, local=local)
    with session.told_if_slow():
        deployed, edit = session.workload(workload), session.edit(workload)
        ledger = session.ledger(workload)
        found = read_cost(
            workload,
            ledger=ledger,
            policy=effective_policy(deployed, edit, ledger.read().policy).policy,
            now=session.aws.clock.now(),
            days=days,
        )
    if as_json:
        print(json.dumps(encode(found)))
        return
    print_parts(render_cost(found))


def render_cost(found: CostTrend) -> Iterator[RenderableType]:
    """Yield what a person reads."""
    if not (found.days or found.weeks):
        yield f"{found.workload}: nothing has been spent yet"
    if found.days or found.weeks:
        yield _table(found)
    if found.rise is not None:
        yield _say_rise(found.rise, found.workload)
    if said := say_saving(found.saving):
        yield f"last 7 days: {said}"
    yield from (say_accepted(each) for each in found.accepted[-1:])
    if found.days or found.weeks:
        yield f"{ALL_IN} {SAVED}"


def _table(found: CostTrend) -> Table:
    table = make_table("UTC days", numbers=("dollars", "items", "cost", "boot", "idle"))
    spans = (*found.weeks, *found.days)
    places = usd_places(max(span.window.dollars for span in spans))
    for span in spans:
        table.add_row(*_cells(span, places))
    return table


def _cells(span: CostSpan, places: int) -> Iterator[str]:
    window = span.window
    yield span.first if span.first == span.last else f"{span.first} to {span.last}"
    yield say_usd(window.dollars, places)
    yield f"{window.items:,.0f}"
    yield item_cost_cell(window.dollars, window.items)
    paid = window.paid_seconds
    for seconds in (window.boot_seconds, window.idle_seconds):
        yield f"{seconds / paid:.0%}" if paid > 0 else ""


def _say_rise(found: RiseFound, workload: str) -> str:
    usual, now = found.rise.usual.cost_per_item, found.now.cost_per_item
    return (
        f"alarm since {found.rise.since:%Y-%m-%d %H:%M} UTC: "
        f"{format_item_cost(now)} instead of {format_item_cost(usual)}, the {now / usual:.2f}-fold."
        f" It ends when the cost is down, or with `spindown policy accept-cost {workload}`."
    )


def say_accepted(accepted: AcceptedCost) -> str:
    """Return who has accepted which cost, and when."""
    cost = format_item_cost(accepted.dollars)
    return f"{accepted.at:%Y-%m-%d %H:%M:%S} UTC  accepted {cost}  by {accepted.by}"

"""A bill on paper: what was done, by which instances and why, at what cost an item."""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spindown.app.bill import CostReport, RankingChange
from spindown.cli.render.screen import format_item_cost, format_seconds
from spindown.domain.reason import ReasonCode
from spindown.wording import say

#: EC2's own words for how an instance ended, and ours.
_ENDINGS = {
    "Server.SpotInstanceTermination": "reclaimed, without notice",
    "Server.SpotInstanceShutdown": "reclaimed, without notice",
    "Client.InstanceInitiatedShutdown": "ended itself",
    "Client.UserInitiatedShutdown": "terminated from outside",
}
_ENDED: Mapping[ReasonCode, str] = {
    ReasonCode.NONE: "running",
    ReasonCode.INTERRUPTED: "reclaimed, with notice",
    ReasonCode.IDLE: "ended itself: idle",
}

_DAY = timedelta(days=1)
#: Characters of an instance's id that tell it apart.
_ID = 10
#: From where on a factor of one decimal says enough.
_TOLD_IN_TIMES = 1.5


def render_bill(bill: CostReport) -> RenderableType:
    """Return a bill as tables and sentences."""
    parts: list[RenderableType] = [*_instance_lines(bill), Text()]
    if bill.refusals:
        parts += [Text("Refused by EC2", style="bold"), _refusal_table(bill), Text()]
    if bill.ranking is not None:
        parts += [Text(ranking_sentence(bill.ranking)), Text()]
    parts.append(_cost_table(bill))
    return Group(*parts)


def _instance_lines(bill: CostReport) -> Iterator[Text]:
    """Yield a line an instance, and below it why it was taken; nothing is cut off."""
    width = max((len(entry.offer) for entry in bill.instances), default=0)
    yield Text("Instances", style="italic")
    heading = f"{'instance':{_ID}}  {'offer':{width}}  {'$/h':>5}  {'lived':>5}  ended"
    yield Text(heading, style="bold")
    for entry in bill.instances:
        lived = format_seconds((entry.ended_at or bill.end) - entry.launched_at)
        why = entry.ended_because
        said = _ENDINGS.get(str(why.about.get("state_reason", "")))
        ended = said or _ENDED.get(why.code) or say(why)
        price = f"{entry.price_per_hour:.3f}"
        name = entry.instance_id[:_ID]
        yield Text(f"{name:{_ID}}  {entry.offer:{width}}  {price:>5}  {lived:>5}  {ended}")
        yield Text(f"{'':{_ID}}  {entry.why}", style="dim")


def _refusal_table(bill: CostReport) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for refusal in bill.refusals:
        table.add_row(f"{refusal.times} x", refusal.code, refusal.pool)
    return table


def ranking_sentence(ranking: RankingChange) -> str:
    """Say what learning has done to the order of offers."""
    best = f"{ranking.last} at {format_item_cost(ranking.last_cost)}"
    if not ranking.differs_from_price:
        return f"The best offer is {best}; it is also the cheapest by the hour."
    sentence = f"The best offer is {best}, not {ranking.cheapest}, the cheapest by the hour."
    if ranking.first_cost is not None and ranking.first_cost > ranking.last_cost:
        sentence += f" Before anything was measured {ranking.first} was expected to be the best;"
        sentence += f" it costs {_compare(ranking.first_cost / ranking.last_cost)} an item."
    return sentence


def _compare(factor: float) -> str:
    """Say how many times as much something costs, if it costs more."""
    if factor >= _TOLD_IN_TIMES:
        return f"{factor:.1f} times as much"
    more = round((factor - 1.0) * 100)
    return f"{more} % more" if more else "hardly more"


def _cost_table(bill: CostReport) -> Table:
    spend, paid = bill.spend, bill.paid_seconds
    table = Table(title="Cost", title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("items committed", f"{spend.items:,}", f"{spend.items_failed:,} failed")
    table.add_row("items computed again", f"{spend.items_redone:,}", "after interruptions")
    for name, seconds in (
        ("boot", spend.boot_seconds),
        ("busy", spend.busy_seconds),
        ("idle", spend.idle_seconds),
    ):
        share = seconds / paid if paid else 0.0
        table.add_row(f"paid for {name}", f"{seconds:,.0f} s", f"{share:.0%}")
    table.add_row("dollars", f"${spend.dollars:.5f}", f"over {format_seconds(_span(bill))}")
    if bill.cost is not None:
        table.add_row("cost per item, busy", format_item_cost(bill.cost.busy))
        table.add_row(
            "cost per item, all in", format_item_cost(bill.cost.all_in), style="bold green"
        )
    if bill.kept_warm is not None and _span(bill):
        # Over the span itself it would look cheap: others have done its work meanwhile.
        a_day = bill.kept_warm * (_DAY / _span(bill))
        note = "a day, with work or without: the first instance's type on demand"
        table.add_row("one machine kept warm", f"${a_day:,.2f}", note)
    return table


def _span(bill: CostReport) -> timedelta:
    return bill.end - bill.start

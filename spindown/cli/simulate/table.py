"""The comparison in the terminal."""

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spindown.cli.render.screen import format_wait
from spindown.cli.simulate.alternative import Role
from spindown.cli.simulate.comparison import Comparison, ComparisonRow, at_their_speed, say_obstacle
from spindown.config import format_duration
from spindown.domain.policy import Policy
from spindown.reason_text import say_count
from spindown.simulator import SimResult
from spindown.simulator.scenario import DAY

_HOUR = 3600.0
_FEW_HOURS = 10.0
#: Column -> from which width of the screen on it is shown; a narrow one keeps cost and wait.
_COLUMNS = {
    "USD": 0,
    "USD a month": 104,
    "x ours": 0,
    "USD/1000 items": 90,
    "wait p50": 76,
    "wait p95": 0,
    "launches": 76,
}
#: A way that costs so many times ours counts as more expensive.
_CHEAPER_FROM = 1.05
#: USD for 1,000 items from which on cents are left out.
_MANY_DOLLARS = 1000.0
#: Times ``start_within`` from which 95 % of jobs start late, and not a little beyond it.
_LATE = 1.1


def render_comparison(comparison: Comparison, *, width: int) -> RenderableType:
    """Return inputs, a table of all ways, and what no policy can do better; width in characters."""
    below = [*_legend(comparison), *_sentences(comparison)]
    return Group(*_inputs(comparison), Text(), _table(comparison, width), Text(), *below)


def _legend(comparison: Comparison) -> Iterator[Text]:
    """Yield what each row is."""
    for row in comparison.rows:
        yield Text(f"{row.name}: {row.title}", style="dim")


def _inputs(comparison: Comparison) -> Iterator[Text]:
    gathered = comparison.gathered
    traffic = gathered.traffic
    yield Text(f"{say_work(comparison)}, in {format_days(traffic.length)}: {traffic.source}")
    yield Text(f"Prices: {gathered.prices.source}. Policy: {gathered.subject.source}.")
    for note in gathered.notes:
        yield Text(f"Assumed: {note}.", style="dim")


def say_work(comparison: Comparison) -> str:
    """Say how much work there is."""
    ours = comparison.ours
    hours = ours.work_seconds / _HOUR
    text = f"{hours:,.0f}" if hours >= _FEW_HOURS else f"{hours:.2g}"
    return (
        f"{say_count(ours.jobs, 'job')}, {say_count(ours.items, 'item')}, {text} hours of work "
        f"on {comparison.gathered.subject.reference}"
    )


def _table(comparison: Comparison, width: int) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    shown = [name for name, least in _COLUMNS.items() if width >= least]
    for name in shown:
        table.add_column(name, justify="right", no_wrap=True)
    for row in (*comparison.rows, *comparison.frontier):
        cells = dict(zip(_COLUMNS, _cells(row), strict=True))
        table.add_row(row.name, *(cells[name] for name in shown), style=_STYLES[row.role])
    return table


#: Below it two decimals would round by more than a twentieth.
_FEW_DOLLARS = 0.1
_STYLES = {Role.OURS: "bold green", Role.BASELINE: "", Role.FRONTIER: "cyan"}


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    return (
        f"{row.dollars:,.2f}",
        f"{row.dollars_a_month:,.2f}",
        say_times(row),
        *say_done(row),
        f"{row.launches:,}",
    )


def say_times(row: ComparisonRow) -> str:
    """Return how many times ours a way costs; nothing where work was left undone."""
    return "-" if row.times_ours is None else f"{row.times_ours:.2f}"


def say_done(row: ComparisonRow) -> tuple[str, str, str]:
    """Return cost of 1,000 items, and both waits; nothing of them if no item was done."""
    if not math.isfinite(row.dollars_per_1000_items):
        return "-", "-", "-"
    dollars = row.dollars_per_1000_items
    text = f"{dollars:,.0f}" if dollars >= _MANY_DOLLARS else f"{dollars:.4g}"
    return text, format_wait(row.wait_p50), format_wait(row.wait_p95)


def _sentences(comparison: Comparison) -> Iterator[Text]:
    if said := work_alone_sentence(comparison):
        yield Text(said)
    if said := ceiling_sentence(comparison.ours, comparison.outcomes[0].alternative.policy):
        yield Text(said, style="yellow")
    if comparison.frontier and (said := speed_sentence(comparison)):
        yield Text(said)
    for said in unfinished_sentences(comparison):
        yield Text(said, style="yellow")


def ceiling_sentence(result: SimResult, policy: Policy) -> str:
    """Say that more workers would start jobs sooner; "": they start in time, or there is room."""
    promise = policy.start_within
    is_late = result.wait.p95 > _LATE * promise.total_seconds() and policy.finish_within is None
    if not is_late or result.peak < policy.max_workers:
        return ""
    late = f"Jobs start later than start_within = {format_duration(promise)} asks for, since"
    ceiling = f"max_workers = {policy.max_workers:,}"
    return f"{late} at times all of {ceiling} are busy: more of them would start jobs sooner."


def unfinished_sentences(comparison: Comparison) -> Iterator[str]:
    """Say who has left work undone, and where settings or the budget keep it from being done."""
    budget = comparison.gathered.subject.budget_per_month
    names: dict[tuple[int, bool], list[str]] = {}
    for row in (*comparison.rows, *comparison.frontier):
        if row.unfinished:
            names.setdefault((row.unfinished, row.role is Role.BASELINE), []).append(row.name)
    for (unfinished, is_baseline), those in names.items():
        # Names of promises have commas of their own.
        named = ("; " if any("," in name for name in those) else ", ").join(those)
        each, their = (" each", "their") if len(those) > 1 else ("", "its")
        undone = say_count(unfinished, "job")
        said = f"{named} left {undone} undone{each}; {their} cost is that of the rest."
        if not is_baseline:
            said += f" {obstacle}" if (obstacle := say_obstacle(comparison)) else ""
            if budget is not None:
                said += f" Launches stop at the budget of ${budget:,.2f} a month."
        yield said


def speed_sentence(comparison: Comparison) -> str:
    """Say what the same speed costs here, of each way that we can be as fast as."""
    factors, faster = at_their_speed(comparison)
    parts = []
    cheaper = [f"{name} {factor:.1f}" for name, factor in factors if factor >= _CHEAPER_FROM]
    others = [f"{name} {factor:.2f}" for name, factor in factors if factor < _CHEAPER_FROM]
    if cheaper:
        named = ", ".join(cheaper)
        parts.append(
            f"No slower than each of them, this policy is cheaper by a factor of: {named}."
        )
    if others:
        named = ", ".join(others)
        parts.append(f"At their speed this policy is no cheaper; they cost, over it: {named}.")
    if faster:
        named = ", ".join(faster)
        parts.append(f"None of the promises tried is as fast as {named}: that takes warm_workers.")
    return " ".join(parts)


def work_alone_sentence(comparison: Comparison) -> str:
    """Say what the work alone would cost; "": this policy has left work undone."""
    if comparison.ratio is None:
        return ""
    alone = say_dollars(comparison.work_alone)
    return (
        f"The work alone, without a boot or an idle second, costs {alone} at the lowest price of "
        f"these days; this policy pays {comparison.ratio:.2f} times that."
    )


def say_dollars(dollars: float) -> str:
    """Return money to the cent, and with two digits where that would be next to nothing."""
    return f"${dollars:.2g}" if 0.0 < dollars < _FEW_DOLLARS else f"${dollars:,.2f}"


def format_days(seconds: float) -> str:
    """Return the length of a span as people say it."""
    if seconds < 2 * DAY:
        return "1 hour" if seconds == _HOUR else f"{seconds / _HOUR:.3g} hours"
    return f"{seconds / DAY:.1f}".removesuffix(".0") + " days"

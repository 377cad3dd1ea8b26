"""What something has cost, and what was saved, in the same words everywhere. Reads nothing."""

import math
from datetime import datetime, timedelta

from spindown.domain.past_cost import CostWindow, Saving, told_cost
from spindown.reason_text import say_number

#: What the cost of an item is, wherever it is told.
ALL_IN = (
    "An item's cost, all in: what was billed for machines, boots and idle time included, for each "
    "finished item."
)
#: What something saved is, wherever it is told.
SAVED = (
    "Saved against on demand: the hours of the same machines at their on-demand prices. Against "
    "kept warm: as many such machines as the work fills, on demand all the time."
)
#: What the cost of a batch or a job is, wherever it is told.
AT_WORK = "machines' time at work on it; boots and idle time come on top"
#: What the dollars of a bill are, where those at work are told too.
PAID = "all paid time of machines, boots and idle time included"

_CENT = 0.01
#: USD; sums of floats that should be equal differ by less.
_NOTHING = 1e-9
_NEARLY_ALL = 0.995


def usd_places(largest: float) -> int:
    """Return with how many places all dollars of a table are told, by the largest."""
    return 2 if abs(largest) >= 1.0 else 4 if abs(largest) >= _CENT else 6


def say_usd(dollars: float, places: int | None = None) -> str:
    """Return dollars with cents; below a cent with as many places as show something.

    ``places``: those of a table, where something is never shown as nothing; None: it stands alone.
    """
    if places is not None:
        unit = 10.0**-places
        is_hidden = _NOTHING < abs(dollars) < unit / 2
        return f"<{unit:.{places}f}" if is_hidden else f"{dollars:,.{places}f}"
    if dollars == 0.0 or abs(dollars) >= _CENT:
        return f"{dollars:,.2f}"
    places = max(4, -math.floor(math.log10(abs(dollars))))
    return f"{dollars:.{places}f}"


#: USD; a cheaper item's cost is given for 1,000 items.
_LEAST_ALONE = 0.1
_TOO_FEW = "too few items"


def format_item_cost(dollars: float) -> str:
    """Return the cost of an item, or of 1,000 cheap ones, with three significant digits."""
    if dollars >= _LEAST_ALONE:
        return f"${say_number(dollars)} an item"
    return f"${say_number(dollars * 1000)} for 1,000 items"


def item_cost_cell(dollars: float, items: float) -> str:
    """Return the cost of an item for a table; "": none was done, or nothing was paid."""
    if items <= 0.0 or dollars <= 0.0:
        return ""
    cost = told_cost(dollars, items)
    return _TOO_FEW if cost is None else format_item_cost(cost)


def say_item_cost(window: CostWindow, span: str, week: CostWindow) -> str:
    """Return what an item has cost, and by how much the week's differ; "" before the first.

    Args:
        window: of which span.
        span: that span in words, as ``in 24 hours``.
        week: the last seven days; of a workload that is younger than the span both are the same.
    """
    if window.items <= 0.0 or window.dollars <= 0.0:
        return ""
    cost = window.cost_per_item
    if cost is None:
        return f"{_TOO_FEW} {span} to say what one costs"
    said = f"{format_item_cost(cost)} all in, {span}"
    usual = week.cost_per_item
    if usual is None or week == window:
        return said
    return f"{said} ({cost / usual - 1:+.0%} on 7 days)".replace("%", " %")


def say_span_until(now: datetime, begun: datetime | None, days: int) -> str:
    """Return a span of days before ``now`` in words; of one that began within it, since when."""
    if begun is not None and now - begun < timedelta(days=days):
        since = f"{begun:%H:%M} UTC" if begun.date() == now.date() else f"{begun:%Y-%m-%d}"
        return f"since {since}"
    return "in 24 hours" if days == 1 else f"in {days} days"


def say_saving(saving: Saving, *, shortly: bool = False) -> str:
    """Return what was saved, in a clause; "" if nothing is known. It is an estimate.

    ``shortly``: without dollars.
    """
    parts = []
    if (share := saving.against_on_demand) is not None:
        other = "" if shortly else f" (that would be {say_usd(saving.on_demand_dollars)} USD)"
        parts.append(f"{_share(share)} on demand{other}")
    if saving.warm_dollars is not None and (share := saving.against_warm) is not None:
        other = "" if shortly else f" (that would be {say_usd(saving.warm_dollars)} USD)"
        parts.append(f"{_share(share)} {_warm(saving)}{other}")
    elif saving.is_early and parts:
        parts.append("too early to compare with machines kept warm")
    return ", ".join(parts) + " (estimates)" if parts else ""


def _warm(saving: Saving) -> str:
    count = saving.warm_machines
    return f"{'one machine' if count == 1 else f'{count} machines'} kept warm"


def _share(share: float) -> str:
    """Return a share in whole percent; all of it is never said of something that was paid."""
    percent = f"{abs(share):.0%}" if not _NEARLY_ALL < share < 1.0 else "over 99%"
    return f"{percent} {'less' if share >= 0 else 'more'} than".replace("%", " %")

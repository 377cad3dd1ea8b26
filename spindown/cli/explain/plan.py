"""``spindown plan``: what the next tick would do, from which offers, and why that many."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from spindown.cli import option
from spindown.cli.render.decision import say_shapes
from spindown.cli.render.line import told_if_slow
from spindown.cli.render.saving import format_item_cost
from spindown.cli.render.screen import print_parts
from spindown.cli.render.table import make_table
from spindown.cli.session import open_session
from spindown.contract.codec import encode
from spindown.control.plan.action import ActionKind
from spindown.control.plan.launch_need import LaunchNeed
from spindown.control.plan.launch_request import LaunchWorkers
from spindown.domain.ranking import Candidate, CostParts, Rejection
from spindown.domain.reason import ReasonCode
from spindown.operate.plan import MonthBudget, PlannedTick, plan_next_tick
from spindown.reason_text import say, say_action, say_count, say_number, say_waiting

_SHOWN = 20
_COLUMNS = ("$/h", "items/h", "from", "$/1000 items")
#: On the narrowest screens.
_LEAST = ("$/h", "$/1000 items")
#: What price and cost are made of; shown where there is room for it.
_PRICES = ("alone", "volume", "IPv4")
_PARTS = tuple(each.name for each in fields(CostParts))
#: Columns -> what they are parts of, below the table.
_UNITS = {
    _PARTS: f"{', '.join(_PARTS)}: parts of $/1000 items",
    _PRICES: f"{', '.join(_PRICES)}: parts of $/h",
}
#: Columns of no screen.
_UNLIMITED = 10_000


class Sort(StrEnum):
    """What the table is sorted by; the launch follows the policy all the same."""

    COST = "cost"
    PRICE = "price"


def plan(
    workload: option.Workload,
    *,
    backlog: Annotated[
        int | None,
        typer.Option(min=0, max=10**9, help="Jobs waiting, instead of the queue's own number."),
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every offer, and the reason for each not taken.")
    ] = False,
    sort: Annotated[Sort, typer.Option(help="What the table is sorted by.")] = Sort.COST,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Show what the next tick would do, from which offers, and why. Changes nothing."""
    with told_if_slow(local=local):
        session = open_session(config, deployment=deployment, local=local)
        session.workload(workload)
        made = plan_next_tick(workload, session.control_ports(), jobs=backlog)
    candidates = sort_candidates(made, sort)
    if as_json:
        print(json.dumps(plan_to_json(made, candidates)))
        return
    print_parts(render_plan(made, candidates, show_all=show_all))


def render_plan(
    made: PlannedTick, candidates: Sequence[Candidate], *, show_all: bool
) -> Iterator[RenderableType]:
    """Yield what a person reads: the table, what is left out and why, and the launch."""
    shown = candidates if show_all else candidates[:_SHOWN]
    yield _Table(shown)
    if len(candidates) > len(shown):
        yield f"... and {len(candidates) - len(shown)} more; --all shows them."
    if any(candidate.offer.estimated for candidate in shown):
        yield "~ no spot price is known: estimated by spot_price_ratio_estimate"
    yield from _say_rejections(made, show_all=show_all)
    yield from (say(note) for note in made.notes)
    yield from _say_actions(made)
    yield from say_shapes(made.shapes)
    if made.month is not None:
        yield _say_month(made.month)
    if made.warm_hours:
        yield _say_warm(made)
    yield _sentence(made)


def sort_candidates(made: PlannedTick, sort: Sort) -> Sequence[Candidate]:
    """Return the candidates in their own order, or the cheapest by the hour first."""
    found = made.candidates.candidates
    return sorted(found, key=lambda c: c.offer.price) if sort is Sort.PRICE else found


@dataclass(frozen=True, slots=True)
class _Table:
    """The candidates, with as much of what price and cost are made of as there is room for."""

    candidates: Sequence[Candidate]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table; no number in it is cut off, and no offer folded if that can be."""
        # Asked without a limit, since a table never needs more than it is given; for its whole
        # lines, since one that is narrowed folds what offers are called.
        unlimited = options.update(width=_UNLIMITED)
        for names in (_COLUMNS + _PARTS + _PRICES, _COLUMNS + _PARTS, _COLUMNS, _LEAST):
            table = self._table(names)
            if Measurement.get(console, unlimited, table).maximum <= options.max_width:
                break
        yield table

    def _table(self, names: Sequence[str]) -> Table:
        parts = [note for columns, note in _UNITS.items() if columns[0] in names]
        caption = "; ".join(parts) if parts else None
        table = make_table("offer", numbers=names)
        table.caption, table.caption_justify = caption, "left"
        for candidate in self.candidates:
            words = dict(zip(_COLUMNS + _PARTS + _PRICES, _words(candidate), strict=True))
            cells = (str(candidate.offer), *(words[name] for name in names))
            table.add_row(*map(Text, cells))
        return table


def _words(candidate: Candidate) -> Iterator[str]:
    """Yield what a row says in each of all columns."""
    yield f"{candidate.offer.price:.3f}" + ("~" if candidate.offer.estimated else "")
    yield f"{candidate.items_per_hour:,.0f}"
    yield candidate.speed_source
    yield say_number(candidate.cost_per_item * 1000, 4)
    yield from _part_words(candidate)
    yield from _price_words(candidate)


def _price_words(candidate: Candidate) -> Iterator[str]:
    offer = candidate.offer
    for price in (offer.instance_price, offer.volume_price, offer.address_price):
        yield f"{price:.4f}"


def _part_words(candidate: Candidate) -> Iterator[str]:
    least = candidate.cost_per_item / 1000
    for part in candidate.parts.signed().values():
        yield say_number(part * 1000) if abs(part) > least else "0"


def _say_rejections(made: PlannedTick, *, show_all: bool) -> Iterator[str]:
    grouped: dict[str, list[str]] = {}
    for rejection in made.candidates.rejected:
        grouped.setdefault(rejection.constraint, []).append(
            f"{rejection.offer}: {say(rejection.reason)}"
        )
    for constraint, reasons in sorted(grouped.items()):
        left_out = f"{say_count(len(reasons), 'offer')} left out by {constraint}"
        if show_all:
            yield f"{left_out}:"
            yield from (f"  {reason}" for reason in reasons)
        else:
            such_as = ", such as" if len(reasons) > 1 else ":"
            yield f"{left_out}{such_as} {reasons[0]}"


def _say_actions(made: PlannedTick) -> Iterator[str]:
    """Yield what the tick would do besides launching, a line each."""
    for action in made.actions:
        if action.kind != ActionKind.LAUNCH:
            why = say(action.reason)
            yield f"would {say_action(action)}" + (f": {why}" if why else "")


def _say_month(month: MonthBudget) -> str:
    return (
        "Budget of the month, of the whole deployment: "
        f"${month.spent:.2f} of ${month.whole:.2f} spent, "
        f"${month.reserved:.2f} set aside, ${month.left:.2f} left for launches; "
        f"when it is used up: {month.when_spent.value}."
    )


def _say_warm(made: PlannedTick) -> str:
    best = made.candidates.best
    hours = f"{made.warm_hours:,.0f} worker-hours a month are kept warm"
    if best is None:
        return f"{hours}."
    return f"{hours}: about {made.warm_hours * best.offer.price:,.0f} USD on {best.offer}."


def _sentence(made: PlannedTick) -> str:
    choice, candidates = made.plan.choice, made.candidates
    waiting, need = say_waiting(made.queue.visible), choice.sizing.reason
    waiting += "." if need.code is ReasonCode.NOTHING_WAITS else f"; {say(need)}."
    if choice.blocked_by:
        return f"{waiting} Nothing is launched{_of(choice.need)}: {say(choice.blocked_by)}."
    best = candidates.best
    if best is None:
        nearest, none = candidates.nearest, say(candidates.why_none())
        hint = f" The nearest: {nearest.offer}: {say(nearest.reason)}." if nearest else ""
        return f"{waiting} No offer may be taken{_of(choice.need)}: {none}.{hint}"
    has_budget = made.month is not None
    launches = [_say_launch(x, has_budget=has_budget) for x in made.launches if x.requests]
    would = f"Would launch {', and '.join(launches)}." if launches else "Nothing is launched now."
    short = [_say_shortage(launch) for launch in made.launches if launch.ends_early]
    return " ".join([waiting, would, *short])


def _say_launch(launch: LaunchWorkers, *, has_budget: bool) -> str:
    number, first = str(launch.count), launch.first
    number += _whose(launch)
    if first is None:
        return number
    sentence = f"{number}, first {first.offer} at {format_item_cost(first.cost_per_item)}"
    if not has_budget:
        return sentence
    aside = sum(request.reserved_usd for request in launch.requests)
    return f"{sentence}, ${aside:.2f} set aside"


def _say_shortage(launch: LaunchWorkers) -> str:
    """Return why a launch asks for fewer workers than its need."""
    first = "more" if launch.requests else "worker"
    return f"No {first}{_whose(launch)}: {say(launch.ends_early)}."


def _of(need: LaunchNeed) -> str:
    return f" of {need.shape}" if need.shape else ""


def _whose(launch: LaunchWorkers) -> str:
    """Return for which jobs a launch is, unless it is for any."""
    if launch.choice.need.shape and not launch.choice.need.is_for_particular_jobs:
        return f" of {launch.choice.need.shape}"
    if launch.choice.need.wasted_work is not None:
        return " for jobs that interruptions keep from any progress"
    return " for jobs that migrate" if launch.choice.need.is_for_particular_jobs else ""


def plan_to_json(
    made: PlannedTick, candidates: Sequence[Candidate] | None = None
) -> dict[str, Any]:
    """Return a plan for programs, with its candidates in their own order if none is given."""
    if candidates is None:
        candidates = sort_candidates(made, Sort.COST)
    rejected = made.candidates.rejected
    return {
        "workload": made.workload,
        "queue": encode(made.queue),
        "shapes": [encode(each) for each in made.shapes],
        "demand": encode(made.demand),
        "sizing": encode(made.plan.choice.sizing),
        "blocked_by": encode(made.plan.choice.blocked_by),
        "launches": [_launch_to_json(launch) for launch in made.launches],
        "actions": [encode(action) for action in made.actions],
        "notes": [encode(note) for note in made.notes],
        "pricing": next(
            (encode(x.about) for x in made.notes if x.code is ReasonCode.PRICING_APPLIED), None
        ),
        "warm_hours": made.warm_hours,
        "month": None if made.month is None else encode(made.month),
        "next_try_at": encode(made.next_try_at),
        "candidates": [encode(candidate) for candidate in candidates],
        "rejected": [_rejection_to_json(rejection) for rejection in rejected],
    }


def _launch_to_json(launch: LaunchWorkers) -> dict[str, Any]:
    return {
        "count": launch.count,
        "is_for_particular_jobs": launch.choice.need.is_for_particular_jobs,
        "shape": launch.choice.need.shape,
        "ends_early": encode(launch.ends_early),
        "requests": [
            {
                "count": request.count,
                "reserved_usd": request.reserved_usd,
                "region": request.region,
                "pools": [str(pool) for pool in request.pools],
            }
            for request in launch.requests
        ],
    }


def _rejection_to_json(rejection: Rejection) -> dict[str, Any]:
    return {
        "offer": encode(rejection.offer),
        "constraint": rejection.constraint,
        "reason": encode(rejection.reason),
        "retry_at": encode(rejection.retry_at),
    }

"""A decision on the screen: its outcome, the candidate list, and what came of each request."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from spindown.cli.render.screen import format_seconds
from spindown.cli.render.table import make_table
from spindown.contract.decision import (
    CandidateRecord,
    DeadlineRecord,
    Decision,
    Outcome,
    ShapeRecord,
)
from spindown.contract.event import ALARM, NUDGE, TICK
from spindown.operate.why import Why
from spindown.reason_text import (
    name_of,
    say,
    say_action,
    say_asked_pools,
    say_count,
    say_mode,
    say_notes,
    say_number,
    say_outcome,
    say_shape,
)

_COLOURS = {
    Outcome.LAUNCHED: "green",
    Outcome.HELD: "yellow",
    Outcome.REFUSED: "magenta",
    Outcome.NOTHING_FITS: "bold red",
    Outcome.BLOCKED: "bold red",
}
#: Outcomes that their own sentence does not name.
_UNTOLD = frozenset({Outcome.ENOUGH, Outcome.HELD, Outcome.BLOCKED})
#: Who asks for a tick -> words.
_WOKEN_BY = {
    TICK: "the timer",
    NUDGE: "a command",
    ALARM: "the alarm of the queue",
    "notice": "the notice of an interruption",
    "state-change": "the end of an instance",
}
#: Deadlines that are spelled out, those with the least slack.
_DEADLINES = 5
_UNLIMITED = 1000
#: How the counts of workers begin (``contract.decision.summary_counts``).
_WORKERS = "workers_"
_PARTS = ("work", "boot", "redo", "idle", "refund", "transfer")


def render_decision(decision: Decision, *, confirmed: str | None, top: int) -> RenderableType:
    """Return one decision, with the first ``top`` candidates of its list.

    ``confirmed`` says that it still held later (``say_confirmed``).
    """
    parts: list[RenderableType] = [_headline(decision)]
    parts += [Text(f"  {line}") for line in _lines(decision)]
    if confirmed:
        parts.append(Text(f"  {confirmed}", style="dim"))
    if decision.candidates:
        parts.append(_Candidates(decision, top))
    parts += [Text(f"  {line}") for line in _reasons(decision, top)]
    return Group(*parts)


def say_confirmed(found: Why, decision: Decision) -> str | None:
    """Return that a decision still held later, with what was counted then."""
    at, counts = found.confirmed_at, found.counts
    if at is None or at <= decision.at:
        return None
    workers = {
        name.removeprefix(_WORKERS): round(number)
        for name, number in counts.items()
        if name.startswith(_WORKERS)
    }
    counted = _say_counts(
        round(counts.get("visible", 0)), round(counts.get("in_flight", 0)), workers
    )
    return f"{say_same(at)}: {counted}"


def say_same(at: datetime) -> str:
    """Return that nothing else was decided at that time."""
    return f"decided the same at {at:%Y-%m-%d %H:%M:%S} UTC"


def _say_counts(visible: int, in_flight: int, workers: Mapping[str, int]) -> str:
    listed = ", ".join(f"{count} {state}" for state, count in workers.items())
    return f"{visible} waiting, {in_flight} in flight; workers: {listed or 'none'}"


def _headline(decision: Decision) -> Text:
    line = Text(f"{decision.at:%Y-%m-%d %H:%M:%S} UTC  ", style="bold")
    said, style = (
        say_outcome(decision.outcome, decision.summary),
        _COLOURS.get(decision.outcome, ""),
    )
    if decision.outcome in _UNTOLD:
        return line.append(decision.outcome.value, style=style).append(f": {said}")
    return line.append(said, style=style)


def _lines(decision: Decision) -> Iterator[str]:
    counts = _say_counts(decision.visible, decision.in_flight, decision.workers)
    source = _WOKEN_BY.get(decision.source, decision.source)
    yield f"{counts}; woken by {source or 'nothing known'}"
    sizing = decision.sizing
    if sizing is not None:
        need = sizing.need_items_per_hour
        # A surplus is no need: the number would only puzzle.
        missing = f" for {need:,.0f} items/h" if need > 0 else ""
        yield f"wanted {sizing.wanted} more{missing}: {say(sizing.reason)}"
    yield from say_shapes(decision.shapes)
    yield from (_deadline(each) for each in decision.deadlines[:_DEADLINES])
    for action in decision.actions:
        if action.kind != "launch":
            why = say(action.reason)
            yield f"did {say_action(action)}" + (f": {why}" if why else "")
    if decision.policy_refusal:
        yield f"the live policy is refused: {decision.policy_refusal}"
    yield from say_notes(decision)
    if decision.bad_rows:
        yield f"rows that cannot be read: {', '.join(decision.bad_rows)}"


def say_shapes(shapes: Iterable[ShapeRecord]) -> Iterator[str]:
    """Yield the queue and the fleet of each shape as a line, but for those that have nothing."""
    for each in shapes:
        if each.visible or each.in_flight or each.workers or each.wanted:
            text = f"{say_shape(each.shape)}: {each.visible} waiting, {each.in_flight} in flight, "
            text += f"{say_count(each.workers, 'worker')}, wanted {each.wanted} more"
            yield text + (f": {say(each.blocked_by)}" if each.blocked_by else "")


def _deadline(each: DeadlineRecord) -> str:
    """Return one deadline as a line: when, how much work, how much slack, what that asks for."""
    work, slack = _length(each.work_seconds), _length(abs(each.slack_seconds))
    text = f"{name_of(each)}: due {each.due_at:%Y-%m-%d %H:%M:%S} UTC, {work} of work, "
    text += slack + (" too little" if each.slack_seconds < 0 else " of slack")
    if each.on:
        moves = f", may move to {each.moves_to}" if each.moves_to else ""
        return f"{text}; runs on {each.on}{moves}"
    until = f" until {each.waits_until:%H:%M:%S} UTC" if each.waits_until else ""
    return f"{text}; {say_mode(each)}{until}"


def _length(seconds: float) -> str:
    try:
        return format_seconds(timedelta(seconds=seconds))
    except (ValueError, OverflowError):
        return f"{seconds:g} s"


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The first candidates of a decision; the parts of their cost where there is room for them."""

    decision: Decision
    top: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table; what an offer is called is never cut off."""
        table = self._table(_PARTS)
        # Asked without a limit, since a table never needs more than it is given; for its whole
        # lines, since one that is narrowed cuts heads off and folds what came of an offer.
        need = Measurement.get(console, options.update(width=_UNLIMITED), table).maximum
        yield table if need <= options.max_width else self._table(())

    def _table(self, parts: Sequence[str]) -> Table:
        numbers = ("$/h", "items/h", "from", "$/1000 items", *parts)
        table = make_table("  offer", numbers=numbers)
        table.add_column("what came of it")
        by_offer = say_asked_pools(self.decision)
        for number, candidate in enumerate(self.decision.candidates):
            if number < self.top or candidate.offer in by_offer:
                fate = by_offer.get(candidate.offer, "not reached")
                table.add_row(*map(Text, (*_row(candidate, parts), fate)))
        return table


def _row(candidate: CandidateRecord, parts: Sequence[str]) -> Iterator[str]:
    yield f"  {candidate.offer}"
    yield f"{candidate.price_per_hour:.3f}"
    yield f"{candidate.items_per_hour:,.0f}"
    yield candidate.speed_source
    yield say_number(candidate.cost_per_item * 1000, 4)
    for part in parts:
        dollars, least = candidate.parts.get(part, 0.0), candidate.cost_per_item / 1000
        yield say_number(dollars * 1000) if abs(dollars) > least else "0"


def _reasons(decision: Decision, top: int) -> Iterator[str]:
    by_offer = say_asked_pools(decision)
    hidden = sum(c.offer not in by_offer for c in decision.candidates[top:])
    if hidden:
        yield f"and {say_count(hidden, 'more candidate')}, more expensive by the item: not reached"
    for left_out in decision.rejections:
        offers = say_count(left_out.offers, "offer")
        why = f"{left_out.example}: {say(left_out.reason)}"
        yield f"{offers} left out by {left_out.constraint}: {why}"
    for request in decision.requests:
        yield f"request {request.launch_id} for {request.count}: {request.outcome}"
        for refusal in request.refusals:
            where = refusal.pool or "the whole request"
            yield f"  {where}: {refusal.kind}, {refusal.code}: {refusal.message}"

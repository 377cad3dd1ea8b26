"""``spindown why``: the last decisions as carried out, and what stands in the way now."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from spindown.cli import option
from spindown.cli.explain.plan import plan_to_json
from spindown.cli.option import place_given
from spindown.cli.render.decision import render_decision, say_confirmed, say_same
from spindown.cli.render.line import told_if_slow
from spindown.cli.render.screen import TextConsole, format_seconds, open_console
from spindown.cli.session import open_session
from spindown.contract.codec import encode
from spindown.contract.decision import Decision
from spindown.domain.fleet import Worker
from spindown.domain.reason import ReasonCode
from spindown.operate.plan import PlannedTick
from spindown.operate.why import Why, explain
from spindown.reason_text import say, say_count, say_dead_letters, say_number, say_waiting

#: Instances that were lost lately are told up to so many.
_LOST_SHOWN = 3


def why(
    workloads: option.Workloads = None,
    *,
    last: Annotated[int, typer.Option(min=1, max=10_000, help="How many decisions.")] = 3,
    top: Annotated[int, typer.Option(min=0, max=10_000, help="Candidates shown of each.")] = 10,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Tell the last decisions, and why nothing runs if nothing does. Changes nothing."""
    with told_if_slow(local=local):
        session = open_session(config, deployment=deployment, local=local)
        names = workloads or session.deployment.workloads
        for name in names:
            session.workload(name)
        ports = session.control_ports()
        found = [explain(name, ports, last=last) for name in names]
    if as_json:
        print(json.dumps([to_json(entry) for entry in found]))
        return
    show(open_console(), found, top)


def show(console: TextConsole, found: Sequence[Why], top: int) -> None:
    """Print the decisions of each workload, with the first ``top`` candidates of each."""
    for entry in found:
        console.rule(entry.workload, align="left")
        now = f"{say_count(entry.running, 'worker')} running or booting."
        console.print(Text(now if entry.running else say_now(entry)))
        if not entry.decisions:
            console.print("There is no decision yet: the scaler has not ticked.")
        if entry.dead_letters:
            console.print(say_dead_letters(entry.dead_letters, entry.workload))
        sized = (f"{n}: {say(reason)}" for n, why in entry.sizes.items() for reason in why)
        for line in (*_say_all_lost(entry.lost), *entry.failing, *sized):
            console.print(line)
        _show_decisions(console, entry, top)
        for key in entry.unreadable:
            console.print(Text(f"{key} cannot be read by this version."))


def say_now(found: Why) -> str:
    """Return why nothing runs now, what would fit, and when it is tried next."""
    made = found.now
    if made is None:
        return f"Nothing runs. What would be launched cannot be said: {found.unknown}."
    choice = made.plan.choice
    if made.queue.is_empty or (found.next_tries and not made.queue.visible):
        why = "no message can be received" if found.next_tries else "nothing waits"
    else:
        reason = choice.blocked_by or choice.sizing.reason
        why = f"{say_waiting(made.queue.visible)}; {say(reason)}"
    parts = (f"Nothing runs: {why}.", _say_offer(made), _say_try(found))
    return " ".join(filter(None, parts))


def _say_offer(made: PlannedTick) -> str:
    candidates = made.candidates
    best, nearest = candidates.best, candidates.nearest
    if best is not None:
        price = f"{best.offer.price:.3f} USD/h"
        cost = f"{say_number(best.cost_per_item * 1000, 4)} USD for 1000 items"
        return f"{best.offer} would fit, at {price} and {cost}."
    none = f"No offer may be taken: {say(candidates.why_none())}"
    if nearest is None:
        return f"{none}."
    # What stops every launch rules the nearest out as well; no setting is to blame for it.
    if nearest.reason == made.plan.choice.blocked_by:
        return ""
    return f"{none}; the nearest is {nearest.offer}: {say(nearest.reason)}."


def _say_try(found: Why) -> str:
    due = found.now.next_try_at if found.now else None
    if found.next_tries and (found.now is None or not found.now.queue.visible):
        # Told with the jobs that wait for it.
        return ""
    if found.now and found.now.plan.choice.blocked_by.code is ReasonCode.MAX_WORKERS:
        # No tick changes that: what does was told with it.
        return ""
    if due is None and found.barred:
        return f"The next message would launch nothing: {say(found.barred)}."
    if due is None:
        return "The next message is a reason to launch."
    return f"The next launch is tried at {due:%H:%M:%S} UTC, in {format_seconds(due - found.at)}."


def _show_decisions(console: TextConsole, entry: Why, top: int) -> None:
    """Print each decision, of those that look the same but for their times only the newest."""
    shown = list[Segment]()
    for number, decision in enumerate(entry.decisions):
        looks = _render(console, replace(decision, at=entry.at), None, top)
        before, shown = shown, list(console.render(looks))
        if shown == before:
            console.print(Text(f"  {say_same(decision.at)}", style="dim"))
            continue
        console.print()
        console.print(_render(console, decision, None if number else entry, top))


def _render(console: TextConsole, decision: Decision, of: Why | None, top: int) -> RenderableType:
    """Return a decision, or that it cannot be shown: the others are shown all the same.

    ``of`` is given for the newest, which a later tick may have confirmed.
    """
    try:
        confirmed = say_confirmed(of, decision) if of else None
        shown = render_decision(decision, confirmed=confirmed, top=top)
        return Segments(console.render(shown))
    except Exception as exc:  # noqa: BLE001 - whatever it is, the line says it
        return Text(f"{decision.key} cannot be shown: {exc!r}")


def _say_all_lost(lost: Sequence[Worker]) -> Iterator[str]:
    """Yield the last that were lost, and how many more there are."""
    latest = sorted(lost, key=lambda worker: worker.ended_at or worker.launched_at, reverse=True)
    yield from map(_say_lost, latest[:_LOST_SHOWN])
    if (more := len(latest) - _LOST_SHOWN) > 0:
        said = f"and {say_count(more, 'more instance')} ended before"
        yield f"{said}: `spindown status --ended` lists them"


def _say_lost(worker: Worker) -> str:
    at = f"{worker.ended_at:%Y-%m-%d %H:%M:%S} UTC" if worker.ended_at else "an unknown time"
    return f"{worker.instance_id} ({worker.pool}) ended at {at}: {say(worker.reason)}"


def to_json(found: Why) -> dict[str, Any]:
    """Return it for programs; the commands that its sentences name find the same deployment."""
    return {
        "workload": found.workload,
        "at": encode(found.at),
        "decisions": [encode(decision) for decision in found.decisions],
        "unreadable": list(found.unreadable),
        "confirmed_at": encode(found.confirmed_at),
        "counts": dict(found.counts),
        "running": found.running,
        "lost": [encode(worker) for worker in found.lost],
        "failing": list(map(place_given, found.failing)),
        "next_tries": encode(found.next_tries),
        "dead_letters": found.dead_letters,
        "now": plan_to_json(found.now) if found.now else None,
        "unknown": found.unknown,
        "barred": encode(found.barred),
        "sizes": encode(found.sizes),
    }

"""``spindown drain``: end a fleet without losing work, and wait until nothing is billed."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from threading import Event
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from spindown.cli import option
from spindown.cli.render.line import confirm, goes_on, noted_if_slow, print_aside, print_line
from spindown.cli.render.screen import open_console, show_live
from spindown.cli.session import Session, open_session
from spindown.control.policy_edit import current_policy
from spindown.error import BadInput, SpindownError, Throttled, Unreachable
from spindown.operate.drain import (
    Remainder,
    begin_drain,
    end_drain,
    read_remainder,
    say_unread,
    terminate_all,
)
from spindown.port import ControlPorts
from spindown.reason_text import say_count, say_waiting

_GENTLY = (
    "Each worker ends after the jobs in its hands, once it hears of it at a heartbeat; what it "
    "takes until then is done too."
)

_AT_ONCE = (
    "Its machines are ended at once; jobs in hand begin again from their last commit once there is "
    "room for a worker again."
)


class DrainUndone(SpindownError):
    """A drain was taken back by somebody else; the text is one sentence."""


def drain(  # noqa: PLR0913 - each is an option of the command line
    workload: Annotated[str | None, typer.Argument(help="Workload to drain.")] = None,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Every workload.")] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Terminate all instances, busy ones too, after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --now: do not ask.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="Take a drain back: let launches go on as before it.")
    ] = False,
    every: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between two updates.")
    ] = 2.0,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Stop launching, let workers finish their jobs, and wait until none runs."""
    if (workload is not None) is is_all:
        raise BadInput("WORKLOAD", workload, "name one workload, or give --all")
    if undo and now:
        raise BadInput("--undo", "--now", "give one of them")
    whom = "all workloads" if workload is None else workload
    print_aside(f"taking back the drain of {whom} ..." if undo else f"looking at {whom} ...")
    session = open_session(config, deployment=deployment, local=local)
    names = [workload] if workload is not None else list(session.deployment.workloads)
    ports = session.control_ports()
    with session.told_if_slow():
        if workload is not None:
            session.workload(workload)
        is_asked = now and not yes
        question = say_end([read_remainder(name, ports) for name in names]) if is_asked else ""
    if undo:
        _undo(session, names, ports, as_json=as_json)
        return
    if question:
        confirm(question, err=as_json)
    way_back = f"spindown drain {'--all' if is_all else workload} --undo{session.options}"
    stays = "what launches nothing more stays so, and its workers finish what they have in hand"
    with goes_on(f"{stays}; take it back with: {way_back}"):
        refused = begin_each(names, ports, session.nudge, is_told=not as_json)
        if now or len(refused) < len(names):
            looks = _looks(
                names, ports, now=now, every=every, check=session.check_there, refused=refused
            )
            _follow(looks, way_back, now=now, as_json=as_json)
    for error in refused.values():
        raise error


def _follow(
    looks: Iterable[Sequence[Remainder]], way_back: str, *, now: bool, as_json: bool
) -> None:
    """Show what is left until nothing is, and the command that undoes the drain."""
    if as_json:
        _print_changes(looks, way_back)
        return
    print_line(_AT_ONCE if now else _GENTLY)
    print_line(f"To go on: {way_back}")
    _show(looks)


def say_end(left: Sequence[Remainder]) -> str:
    """Return the question before instances are terminated; "": there are none."""
    instances = sum(len(remainder.instances) for remainder in left)
    busy = sum(len(entry.leases) for remainder in left for entry in remainder.workers)
    unread = sorted({what for remainder in left for what in remainder.unread})
    if not instances and not unread:
        return ""
    jobs = f"{say_count(busy, 'job')} {'begins' if busy == 1 else 'begin'}"
    more = f", and others if there are any ({', '.join(unread)} cannot be read)" if unread else ""
    return f"Terminate {say_count(instances, 'instance')}{more}? {jobs} again from the last commit"


def begin_each(
    names: Sequence[str], ports: ControlPorts, nudge: Callable[[str], object], *, is_told: bool
) -> Mapping[str, SpindownError]:
    """Begin to drain workloads, and tell of each; return those that could not, each with why."""
    refused: dict[str, SpindownError] = {}
    for name in names:
        try:
            with noted_if_slow(f"draining {name} ..."):
                begin_drain(name, ports)
                nudge(name)
        except SpindownError as exc:
            refused[name] = exc
            print_aside(f"{name} may launch more, since its drain was refused: {exc}")
            continue
        if is_told:
            print_line(f"{name}: launches nothing more.")
            sys.stdout.flush()
    return refused


def _undo(session: Session, names: Sequence[str], ports: ControlPorts, *, as_json: bool) -> None:
    """Take drains back, and tell of each workload whether it had one."""
    for name in names:
        with session.told_if_slow():
            was_drained = end_drain(name, ports)
            if was_drained:
                session.nudge(name)
        if as_json:
            print(json.dumps({"workload": name, "was_drained": was_drained}), flush=True)
            continue
        said = "was not drained by a live edit" if not was_drained else "launches again"
        if current_policy(name, ports)[1].max_workers == 0:
            command = f"spindown policy set {name} max_workers=1{session.options}"
            said = f"`max_workers` is 0: nothing is launched; change it with: {command}"
        print_line(f"{name}: {said}")


def _show(looks: Iterable[Sequence[Remainder]]) -> None:
    """Show what is left until nothing is; where that is no screen, say so of a long silence."""
    console = open_console()
    screens = (Group(*map(render_remainder, left)) for left in looks)
    with nullcontext() if console.is_terminal else noted_if_slow("waiting until nothing runs ..."):
        show_live(console, screens)


def _looks(
    names: Sequence[str],
    ports: ControlPorts,
    *,
    now: bool,
    every: float,
    check: Callable[[], None] = lambda: None,
    refused: Collection[str] = (),
) -> Iterator[Sequence[Remainder]]:
    """Yield what is left until nothing is; with ``now`` terminate instances in between.

    What gives no answer keeps nothing else from its end. ``check`` is called before each look.
    Nobody waits for the workloads that have ``refused`` to drain: they may launch again.

    Raises:
        DrainUndone: the live policy has room for a worker again.
        SpindownError: instances may not be terminated; all others have been asked to end.
    """
    pause = Event()
    while True:
        check()
        left = [read_remainder(name, ports) for name in names]
        draining = [remainder for remainder in left if remainder.workload not in refused]
        if undone := [remainder.workload for remainder in draining if remainder.has_room]:
            raise DrainUndone(_say_undone(undone, names))
        yield left
        failed: list[SpindownError] = []
        are_asked = True
        for remainder in left if now else ():
            try:
                terminate_all(remainder, ports)
            except (Throttled, Unreachable):
                # They are in the next look again.
                are_asked = False
            except SpindownError as exc:
                failed.append(exc)
        if failed:
            raise failed[0]
        if are_asked and all(remainder.is_empty for remainder in draining):
            return
        pause.wait(every)


def _say_undone(undone: Sequence[str], names: Sequence[str]) -> str:
    others = ", ".join(name for name in names if name not in undone)
    more = f"; launching nothing more stays in force for {others}" if others else ""
    return f"the drain of {', '.join(undone)} was taken back, so launches go on{more}"


def _print_changes(looks: Iterable[Sequence[Remainder]], way_back: str) -> None:
    """Print a JSON line for each workload of which something else is left than before."""
    before: dict[str, Mapping[str, object]] = {}
    for left in looks:
        for remainder in left:
            told = tell_remainder(remainder, way_back)
            known = before.get(remainder.workload, {})
            if {**known, "at": told["at"]} != told:
                before[remainder.workload] = told
                print(json.dumps(told), flush=True)


def tell_remainder(remainder: Remainder, undo: str) -> Mapping[str, object]:
    """Return what is left of a fleet as JSON, and the command that undoes the drain."""
    return {
        "workload": remainder.workload,
        "at": remainder.at.isoformat(),
        "is_empty": remainder.is_empty,
        "is_heard": remainder.is_heard,
        "launching": remainder.launching,
        "waiting": remainder.waiting,
        "workers": [
            {
                "instance_id": entry.worker.instance_id,
                "state": entry.word,
                "jobs": [
                    {"job_id": lease.job_id, "items_done": lease.items_done, "items": lease.items}
                    for lease in entry.leases
                ],
            }
            for entry in remainder.workers
        ],
        "instances": [instance.instance_id for instance in remainder.instances],
        # Without why: that may have other words each time.
        "unread": list(remainder.unread),
        "undo": undo,
    }


def render_remainder(remainder: Remainder) -> Text:
    """Return what is left of a fleet in one line."""
    line = Text(f"{remainder.workload}: ", style="bold")
    if remainder.is_empty:
        line.append("nothing runs", style="green")
        left = f", and {say_waiting(remainder.waiting)}" if remainder.waiting else ""
        return line.append(left, style="yellow")
    words = Counter(entry.word for entry in remainder.workers)
    known = {entry.worker.instance_id for entry in remainder.workers}
    ending = sum(instance.instance_id not in known for instance in remainder.instances)
    parts = [f"{count} {word}" for word, count in sorted(words.items())]
    parts += [f"{ending} powering off"] if ending else []
    parts += [f"{remainder.launching} launching"] if remainder.launching else []
    is_waiting = not remainder.is_heard and "ledger" not in remainder.unread
    parts += ["the next tick puts it in force"] if is_waiting else []
    parts += [say_unread(remainder.unread)] if remainder.unread else []
    jobs = [
        f"{lease.job_id} {lease.items_done}/{lease.items or '?'}"
        for entry in remainder.workers
        for lease in entry.leases
    ]
    line.append(", ".join(parts), style="yellow")
    return line.append(f"; working on: {', '.join(jobs)}" if jobs else "", style="dim")

"""``spindown drain``: end a fleet without losing work, and wait until nothing is billed."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Event
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from spindown.cli import option
from spindown.cli.render.line import print_line
from spindown.cli.render.screen import open_console, show_live
from spindown.cli.session import Session, open_session
from spindown.error import BadInput, SpindownError, Throttled, Unreachable
from spindown.operate.drain import (
    Remainder,
    begin_drain,
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


def drain(  # noqa: PLR0913 - each is an option of the command line
    workload: Annotated[str | None, typer.Argument(help="Workload to drain.")] = None,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Every workload.")] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Terminate all instances, busy ones too, after asking.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --now: do not ask.")] = False,
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
    session = open_session(config, deployment=deployment, local=local)
    names = [workload] if workload is not None else list(session.deployment.workloads)
    ports = session.control_ports()
    with session.told_if_slow():
        for name in names:
            session.workload(name)
        is_asked = now and not yes
        question = say_end([read_remainder(name, ports) for name in names]) if is_asked else ""
    if question:
        typer.confirm(question, abort=True, err=as_json)
    with session.told_if_slow():
        ways_back = _begin(session, names, ports)
    looks = _looks(names, ports, now=now, every=every)
    if as_json:
        _print_changes(looks, ways_back)
        return
    for name, commands in ways_back.items():
        how = _AT_ONCE if now else _GENTLY
        print_line(f"{name}: launches nothing more. {how} To go on:")
        for command in commands:
            print_line(f"  {command}")
    sys.stdout.flush()
    screens = (Group(*map(render_remainder, left)) for left in looks)
    show_live(open_console(), screens)


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


def _begin(
    session: Session, names: Sequence[str], ports: ControlPorts
) -> Mapping[str, Sequence[str]]:
    """Begin to drain workloads; return workload -> the commands that undo it."""
    ways_back = {}
    for name in names:
        commands = begin_drain(name, ports)
        session.nudge(name)
        ways_back[name] = [f"{command}{session.options}" for command in commands]
    return ways_back


def _looks(
    names: Sequence[str], ports: ControlPorts, *, now: bool, every: float
) -> Iterator[Sequence[Remainder]]:
    """Yield what is left until nothing is; with ``now`` terminate instances in between.

    What gives no answer keeps nothing else from its end.

    Raises:
        SpindownError: instances may not be terminated; all others have been asked to end.
    """
    pause = Event()
    while True:
        left = [read_remainder(name, ports) for name in names]
        yield left
        if all(remainder.is_empty for remainder in left):
            return
        failed: list[SpindownError] = []
        for remainder in left if now else ():
            try:
                terminate_all(remainder, ports)
            except (Throttled, Unreachable):
                # They are in the next look again.
                continue
            except SpindownError as exc:
                failed.append(exc)
        if failed:
            raise failed[0]
        pause.wait(every)


def _print_changes(
    looks: Iterable[Sequence[Remainder]], ways_back: Mapping[str, Sequence[str]]
) -> None:
    """Print a JSON line for each workload of which something else is left than before."""
    before: dict[str, Mapping[str, object]] = {}
    for left in looks:
        for remainder in left:
            told = tell_remainder(remainder, ways_back[remainder.workload])
            known = before.get(remainder.workload, {})
            if {**known, "at": told["at"]} != told:
                before[remainder.workload] = told
                print(json.dumps(told), flush=True)


def tell_remainder(remainder: Remainder, undo: Sequence[str]) -> Mapping[str, object]:
    """Return what is left of a fleet as JSON, and the commands that undo the drain."""
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
        "undo": list(undo),
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

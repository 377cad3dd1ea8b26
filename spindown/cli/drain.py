"""``spindown drain``: end a fleet without losing work, and wait until nothing is billed."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from threading import Event
from typing import Annotated

import typer
from rich.text import Text

from spindown.cli import option
from spindown.cli.render.count import say_waiting
from spindown.cli.render.line import print_line
from spindown.cli.render.screen import follow, open_console
from spindown.cli.session import Session, open_session
from spindown.error import BadInput
from spindown.operate.drain import Remainder, begin_drain, read_remainder, terminate_all
from spindown.port import ControlPorts


def drain(
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
) -> None:
    """Stop launching, let workers finish their jobs, and wait until none runs."""
    if (workload is not None) is is_all:
        raise BadInput("WORKLOAD", workload, "name one workload, or give --all")
    session = open_session(config, deployment=deployment, local=local)
    names = [workload] if workload is not None else list(session.deployment.workloads)
    for name in names:
        session.workload(name)
    ports = session.control_ports()
    question = say_end([read_remainder(name, ports) for name in names]) if now and not yes else ""
    if question:
        typer.confirm(question, abort=True)
    _begin(session, names, ports)
    follow(open_console(), _looks(names, ports, now=now, every=every))


def say_end(left: Sequence[Remainder]) -> str:
    """Return the question before instances are terminated; "": there are none."""
    instances = sum(len(remainder.instances) for remainder in left)
    busy = sum(len(entry.leases) for remainder in left for entry in remainder.workers)
    if not instances:
        return ""
    what = "1 instance" if instances == 1 else f"{instances} instances"
    jobs = "1 job begins" if busy == 1 else f"{busy} jobs begin"
    return f"Terminate {what}? {jobs} again from the last commit"


def _begin(session: Session, names: Sequence[str], ports: ControlPorts) -> None:
    for name in names:
        way_back = begin_drain(name, ports)
        session.nudge(name)
        print_line(
            f"{name}: launches nothing more. Each worker ends after the jobs in its hands, once it "
            "hears of it at a heartbeat; what it takes until then is done too. To go on:"
        )
        for command in way_back:
            print_line(f"  {command}{session.options}")
    sys.stdout.flush()


def _looks(names: Sequence[str], ports: ControlPorts, *, now: bool, every: float) -> Iterator[Text]:
    """Yield what is left until nothing is; with ``now`` terminate instances in between."""
    pause = Event()
    while True:
        left = [read_remainder(name, ports) for name in names]
        yield Text("\n").join(map(render_remainder, left))
        if all(remainder.is_empty for remainder in left):
            return
        if now:
            for remainder in left:
                terminate_all(remainder, ports)
        pause.wait(every)


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
    parts += [] if remainder.is_heard else ["the next tick puts it in force"]
    jobs = [
        f"{lease.job_id} {lease.items_done}/{lease.items or '?'}"
        for entry in remainder.workers
        for lease in entry.leases
    ]
    line.append(", ".join(parts), style="yellow")
    return line.append(f"; working on: {', '.join(jobs)}" if jobs else "", style="dim")

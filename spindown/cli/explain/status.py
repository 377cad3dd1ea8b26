"""``spindown status`` and ``spindown watch``: one screen, once or live."""

import json
from collections.abc import Iterator, Sequence
from threading import Event
from typing import Annotated

import typer
from rich.console import Group, RenderableType

from spindown.cli import option
from spindown.cli.render.screen import follow, open_console, render_status
from spindown.cli.session import Session, open_session
from spindown.contract.codec import encode
from spindown.operate.status import Status


def status(
    workloads: option.Workloads = None,
    *,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Show queue, workers, jobs and dollars."""
    session = open_session(config, deployment=deployment, local=local)
    found = _read(session, workloads)
    if as_json:
        print(json.dumps([encode(entry) for entry in found]))
        return
    open_console().print(Group(*(render_status(entry) for entry in found)))


def watch(
    workloads: option.Workloads = None,
    *,
    every: Annotated[
        float, typer.Option(min=0.2, max=3600, help="Seconds between two looks.")
    ] = 2.0,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Show the same live, until Ctrl-C; as JSON, one line a look."""
    session = open_session(config, deployment=deployment, local=local)
    pause = Event()
    if as_json:
        while True:
            print(json.dumps([encode(entry) for entry in _read(session, workloads)]), flush=True)
            pause.wait(every)
    follow(open_console(), _looks(session, workloads, every, pause))


def _looks(
    session: Session, workloads: Sequence[str] | None, every: float, pause: Event
) -> Iterator[RenderableType]:
    while True:
        yield Group(*(render_status(entry) for entry in _read(session, workloads)))
        pause.wait(every)


def _read(session: Session, workloads: Sequence[str] | None) -> list[Status]:
    return [session.status(name) for name in workloads or session.deployment.workloads]

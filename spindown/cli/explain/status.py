"""``spindown status`` and ``spindown watch``: one screen, once or live."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from threading import Event
from typing import Annotated, Any

import typer
from rich.console import Group

from spindown.cli import option
from spindown.cli.option import place_given
from spindown.cli.render.batch import render_batch
from spindown.cli.render.line import goes_on, told_if_slow
from spindown.cli.render.screen import open_console, render_status, show_live
from spindown.cli.session import Session, find_workload, open_session
from spindown.contract.codec import encode
from spindown.error import Throttled, Unreachable
from spindown.operate.batch_status import BatchDetail, read_detail
from spindown.operate.status import Status


def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORKLOAD|BATCH|JOB]...",
            help="What to show; all workloads of the deployment if none.",
        ),
    ] = None,
    *,
    ended: option.Ended = False,
    workload: option.OfWorkload = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Show queue, workers, jobs and dollars; of a batch, how far it is and what failed."""
    with told_if_slow(local=local):
        session = open_session(config, deployment=deployment, local=local)
        known = session.deployment.workloads
        found = [_read_one(session, name, workload) for name in names or known]
    if as_json:
        print(json.dumps([to_json(entry) for entry in found]))
        return
    now = session.aws.clock.now()
    parts = [
        render_status(entry, ended=ended)
        if isinstance(entry, Status)
        else render_batch(entry, now, session.options)
        for entry in found
    ]
    open_console().print(Group(*parts))


def to_json(found: Status | BatchDetail) -> dict[str, Any]:
    """Return it for programs; the commands that its sentences name find the same deployment."""
    row: dict[str, Any] = encode(found)
    if isinstance(found, Status):
        row["decision"] = place_given(found.decision)
        row["notes"] = list(map(place_given, found.notes))
        row["troubles"] = list(map(place_given, found.troubles))
    return row


def _read_one(session: Session, name: str, workload: str | None) -> Status | BatchDetail:
    if name in session.deployment.workloads and workload is None:
        return session.status(name)
    workloads = ", ".join(sorted(session.deployment.workloads))
    owner, jobs = find_workload(
        session,
        name,
        workload=workload,
        argument="WORKLOAD, BATCH or JOB",
        wanted=f", or a workload ({workloads})",
    )
    return read_detail(
        name,
        jobs,
        owner,
        session.work_store(owner),
        session.outlook(owner),
        session.ledger(owner).read_ended_one,
    )


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
    whom = workloads[0] if workloads and len(workloads) == 1 else "--all"
    with goes_on(f"the work goes on; end it with: spindown drain {whom}{session.options}"):
        looks = _looks(session, workloads, every, Event())
        if as_json:
            for look in looks:
                print(json.dumps([to_json(entry) for entry in look]), flush=True)
        else:
            show_live(open_console(), (Group(*map(render_status, look)) for look in looks))


def _looks(
    session: Session, workloads: Sequence[str] | None, every: float, pause: Event
) -> Iterator[list[Status]]:
    """Look once, and return that and what there is from then on, without end.

    The first look is made before a live screen is there, which no note may be written over.
    """
    with session.told_if_slow():
        first = _read(session, workloads)
    return chain([first], _later_looks(session, workloads, every, pause))


def _later_looks(
    session: Session, workloads: Sequence[str] | None, every: float, pause: Event
) -> Iterator[list[Status]]:
    """Yield what there is; without an answer of AWS that is nothing, this time.

    Raises:
        SpindownError: there is nobody any more who could answer.
    """
    while True:
        pause.wait(every)
        session.check_there()
        with suppress(Throttled, Unreachable):
            yield _read(session, workloads)


def _read(session: Session, workloads: Sequence[str] | None) -> list[Status]:
    return [session.status(name) for name in workloads or session.deployment.workloads]

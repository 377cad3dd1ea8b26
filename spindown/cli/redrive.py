"""``spindown redrive``: send again what did not come to an end, and remove what never can."""

import json
from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.render.line import print_aside, print_line
from spindown.cli.session import Session, open_session
from spindown.cli.submit import announce
from spindown.config import format_duration
from spindown.contract.codec import encode
from spindown.error import BadInput
from spindown.job.failed_item import send_failed_again
from spindown.job.lost_message import LOOKED_AT_AFTER, redrive_lost
from spindown.job.redrive import Redriven, RedriveOutcome, Unsendable, find_unsendable
from spindown.job.redrive import redrive as send_back

_LEFT = frozenset({RedriveOutcome.OTHER_BODY, RedriveOutcome.NOT_STORED, RedriveOutcome.UNREADABLE})
#: Characters of a body that a line shows.
_BODY_SHOWN = 200


def redrive(  # noqa: PLR0913 - each is an option of the command line
    workload: option.Workload,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB|BATCH|MESSAGE]...",
            help="Jobs to send back; all dead letters if none. With --lost and --items: batches.",
        ),
    ] = None,
    *,
    lost: Annotated[
        bool, typer.Option("--lost", help="Send again the jobs whose messages are gone.")
    ] = False,
    items: Annotated[
        bool, typer.Option("--items", help="Send again the failed items of batches that are over.")
    ] = False,
    malformed: Annotated[
        bool, typer.Option("--malformed", help="List the dead letters that cannot be sent back.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove what --malformed lists, or messages named.")
    ] = False,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Send dead letters back to their queue; committed results stay. Exit 1 if one is left."""
    given = [
        name
        for name, is_given in (("--lost", lost), ("--items", items), ("--malformed", malformed))
        if is_given
    ]
    if len(given) > 1:
        raise BadInput("options", given, "give one of them at a time")
    if remove and not malformed:
        raise BadInput("--remove", None, "write it with --malformed")
    session = open_session(config, deployment=deployment, local=local)
    if items:
        _send_items(session, workload, names or [], as_json=as_json)
    elif malformed:
        _list_malformed(session, workload, set(names or ()), remove=remove, as_json=as_json)
    else:
        _send_jobs(session, workload, set(names or ()), lost=lost, as_json=as_json)


def _send_jobs(
    session: Session, workload: str, named: set[str], *, lost: bool, as_json: bool
) -> None:
    ports = session.work_ports(workload)
    redriven = (
        redrive_lost(workload, ports, batches=sorted(named))
        if lost
        else send_back(workload, ports, jobs=named)
    )
    found, is_all, is_malformed = set(), True, False
    try:
        for one in redriven:
            found.add(one.job_id)
            is_all = is_all and one.outcome not in _LEFT
            is_malformed = is_malformed or one.outcome in _STUCK
            print_line(json.dumps(encode(one)) if as_json else describe(one))
    finally:
        if found:
            session.nudge(workload)
    if is_malformed:
        command = f"spindown redrive {workload} --malformed{session.options}"
        print_aside(f"{command} shows what cannot be sent back, and removes it if asked")
    if not lost and (missing := sorted(named - found)):
        remedy = f"name jobs in the dead-letter queue of {workload}"
        raise BadInput("JOB", missing[0] if len(missing) == 1 else missing, remedy)
    if not found and not as_json:
        what = "lost job" if lost else "dead letter to send back"
        print_aside(f"{workload} has no {what}")
    if lost and not named:
        least = format_duration(LOOKED_AT_AFTER)
        print_aside(f"batches younger than {least} are looked at only if they are named")
    if not is_all:
        raise typer.Exit(1)


_STUCK = frozenset({RedriveOutcome.OTHER_BODY, RedriveOutcome.UNREADABLE})


def _send_items(session: Session, workload: str, batches: list[str], *, as_json: bool) -> None:
    if not batches:
        raise BadInput("BATCH", None, "name the batches whose failed items are sent again")
    queue, store = session.queue(workload), session.work_store(workload)
    for batch_id in batches:
        sent = send_failed_again(batch_id, workload, queue=queue, store=store)
        session.nudge(workload)
        announce(sent, session.options, as_json=as_json)


def _list_malformed(
    session: Session, workload: str, messages: set[str], *, remove: bool, as_json: bool
) -> None:
    ports = session.work_ports(workload)
    found = set()
    for one in find_unsendable(ports, remove=remove, messages=messages):
        found.add(one.message_id)
        line = {**encode(one), "removed": remove}
        print_line(json.dumps(line) if as_json else describe_unsendable(one, removed=remove))
    if missing := sorted(messages - found):
        remedy = f"name messages that `spindown redrive {workload} --malformed` lists"
        raise BadInput("MESSAGE", missing[0] if len(missing) == 1 else missing, remedy)
    if not found and not as_json:
        print_aside(f"{workload} has no dead letter that cannot be sent back")
    if found and not remove:
        print_aside("--remove deletes them with their bodies, or only the messages named")
        raise typer.Exit(1)


def describe_unsendable(one: Unsendable, *, removed: bool) -> str:
    """Return a dead letter that cannot be sent back in a line."""
    word = "removed" if removed else "left"
    reason = one.letter_reason or one.reason
    return f"{one.message_id}: {word}: {reason}; body: {one.body[:_BODY_SHOWN]}"


def describe(one: Redriven) -> str:
    """Return the outcome of one dead letter in a line."""
    match one.outcome:
        case RedriveOutcome.SENT:
            why = f" (given up: {one.reason})" if one.reason else ""
            return f"{one.job_id}: sent back{why}"
        case RedriveOutcome.OVER:
            return f"{one.job_id}: already over, so its dead letter was deleted"
        case RedriveOutcome.SENT_AGAIN:
            return f"{one.job_id}: sent again, for its message was gone"
        case RedriveOutcome.NOT_STORED:
            return f"{one.job_id}: its message is gone and no copy is stored; submit it again"
        case RedriveOutcome.OTHER_BODY:
            return f"{one.job_id}: left where it is: another job has this id; submit it anew"
        case RedriveOutcome.UNREADABLE:
            return f"left where it is: {one.reason}"

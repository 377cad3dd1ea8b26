"""``spindown redrive``: send dead letters, or jobs whose messages are gone, to their queue."""

import json
from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.render.screen import print_aside, print_line
from spindown.cli.session import open_session
from spindown.config import format_duration
from spindown.contract.codec import encode
from spindown.error import BadInput
from spindown.job.lost import LOOKED_AT_AFTER, redrive_lost
from spindown.job.redrive import Redriven, RedriveOutcome
from spindown.job.redrive import redrive as send_back

_LEFT = frozenset({RedriveOutcome.OTHER_BODY, RedriveOutcome.NOT_STORED, RedriveOutcome.UNREADABLE})


def redrive(
    workload: option.Workload,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB|BATCH]...",
            help="Jobs to send back; all dead letters if none. With --lost: batches.",
        ),
    ] = None,
    *,
    lost: Annotated[
        bool, typer.Option("--lost", help="Send again the jobs whose messages are gone.")
    ] = False,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Send dead letters back to their queue; committed results stay. Exit 1 if one is left."""
    session = open_session(config, deployment=deployment, local=local)
    named = set(jobs or ())
    ports = session.work_ports(workload)
    redriven = (
        redrive_lost(workload, ports, batches=sorted(named))
        if lost
        else send_back(workload, ports, jobs=named)
    )
    found, is_all = set(), True
    try:
        for one in redriven:
            found.add(one.job_id)
            is_all = is_all and one.outcome not in _LEFT
            print_line(json.dumps(encode(one)) if as_json else describe(one))
    finally:
        if found:
            session.nudge(workload)
    if not lost and (missing := sorted(named - found)):
        remedy = f"name jobs in the dead-letter queue of {workload}"
        raise BadInput("JOB", missing[0] if len(missing) == 1 else missing, remedy)
    if lost and not named:
        least = format_duration(LOOKED_AT_AFTER)
        print_aside(f"batches younger than {least} are looked at only if they are named")
    if not is_all:
        raise typer.Exit(1)


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

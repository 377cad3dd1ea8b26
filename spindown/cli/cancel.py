"""``spindown cancel``: stop a job or a batch; its committed results stay."""

import json
from collections.abc import Sequence
from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.render.line import print_aside, print_line
from spindown.cli.session import Session, find_workload, open_session
from spindown.contract.codec import encode
from spindown.error import BadInput
from spindown.job.cancel import Cancelled, CancelOutcome
from spindown.job.cancel import cancel as cancel_jobs
from spindown.reason_text import say_items


def cancel(
    names: Annotated[list[str], typer.Argument(metavar="JOB|BATCH...", help="Jobs or batches.")],
    *,
    workload: option.OfWorkload = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Cancel jobs or batches; committed results stay. Exit 1 if one could not be cancelled."""
    session = open_session(config, deployment=deployment, local=local)
    # All names are looked up before the first job is touched.
    is_all, unclaimed = True, 0
    for owner, jobs in _find_all(session, names, workload):
        for one in cancel_jobs(owner, jobs, session.work_ports(owner)):
            is_all = is_all and one.outcome is not CancelOutcome.NEWER_SCHEMA
            unclaimed += not one.was_claimed and one.outcome is CancelOutcome.CANCELLED
            print_line(json.dumps(encode(one)) if as_json else describe(one))
    if unclaimed:
        print_aside(
            f"{unclaimed:,} had never been claimed: what is sent under their ids from now on goes "
            "to the dead-letter queue"
        )
    if not is_all:
        raise typer.Exit(1)


def describe(one: Cancelled) -> str:
    """Return the outcome of one job in a line."""
    if one.outcome is CancelOutcome.NEWER_SCHEMA:
        return (
            f"{one.job_id}: not cancelled: a later version wrote it, so that version must cancel it"
        )
    if one.outcome is CancelOutcome.OVER:
        return f"{one.job_id}: already {one.state}{_say_letter(one)}"
    over = one.items_done + one.items_failed
    done = f", {say_items(one.items_done, one.items_failed, None)}" if over else ""
    held = "; its worker drops it within a `heartbeat_interval`" if one.was_held else ""
    return f"{one.job_id}: cancelled{done}{held}{_say_letter(one)}"


def _say_letter(one: Cancelled) -> str:
    """Return what became of a job's dead letter; "": it had none that is known."""
    if one.is_letter_deleted:
        return "; its dead letter is deleted"
    if not one.was_given_up:
        return ""
    return (
        "; its dead letter was not found: another reader may hide it for 15 minutes, then "
        "cancel it again (whoever sends it back meanwhile sends nothing)"
    )


def _find_all(
    session: Session, names: Sequence[str], workload: str | None
) -> list[tuple[str, tuple[str, ...]]]:
    argument = "BATCH or JOB"
    try:
        return [
            find_workload(session, each, workload=workload, argument=argument) for each in names
        ]
    except BadInput:
        if len(names) > 1:
            print_aside("nothing was cancelled, for one of the names is wrong")
        raise

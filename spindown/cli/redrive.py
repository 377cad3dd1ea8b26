"""``spindown redrive``: send again what did not come to an end, and remove what never can."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated

import typer

from spindown.cli import option
from spindown.cli.render.line import print_aside, print_line, told_if_slow
from spindown.cli.session import Session, open_session
from spindown.cli.submit import announce
from spindown.cli.wait import sending
from spindown.config import format_duration
from spindown.contract.codec import encode
from spindown.contract.job.batch import Batch
from spindown.contract.job.message import JobMessage
from spindown.contract.log import is_one_of
from spindown.control.market import types_on_sale
from spindown.domain.offer import InstanceType
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason
from spindown.domain.retry_or_dead_letter import MAX_RECEIVE_COUNT
from spindown.error import BadInput, SpindownError
from spindown.job.lost_message import LOOKED_AT_AFTER, redrive_lost
from spindown.job.redrive import DeadLetter, Redriven, RedriveOutcome, find_dead_letters
from spindown.job.redrive import redrive as send_back
from spindown.job.redrive_item import say_given_up, send_failed_again
from spindown.job.result import read_batch, read_progress
from spindown.job.route import why_forbidden
from spindown.port import ObjectStore
from spindown.reason_text import say_count

_LEFT = frozenset(
    {
        RedriveOutcome.OTHER_BODY,
        RedriveOutcome.NOT_STORED,
        RedriveOutcome.UNREADABLE,
        RedriveOutcome.FORBIDDEN,
    }
)
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
    list_: Annotated[
        bool, typer.Option("--list", help="List the dead letters with their reasons; send none.")
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
        for name, is_given in (
            ("--lost", lost),
            ("--items", items),
            ("--list", list_),
            ("--malformed", malformed),
        )
        if is_given
    ]
    if len(given) > 1:
        raise BadInput("options", given, "give one of them at a time")
    if remove and not malformed:
        raise BadInput("options", ["--remove"], "write --malformed too, which it is for")
    session = open_session(config, deployment=deployment, local=local)
    if items:
        _send_items(session, workload, names or [], as_json=as_json)
    elif list_:
        with told_if_slow(local=local):
            _list_letters(session, workload, set(names or ()), as_json=as_json)
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
        else send_back(workload, ports, jobs=named, forbids=_refusals(session, workload))
    )
    found, outcomes = set[str](), Counter[RedriveOutcome]()
    try:
        for one in redriven:
            found.add(one.job_id or "")
            outcomes[one.outcome] += 1
            print_line(json.dumps(encode(one)) if as_json else describe(one))
    finally:
        if found:
            session.nudge(workload)
    if refused := outcomes[RedriveOutcome.FORBIDDEN]:
        print_aside(
            f"{say_count(refused, 'job')} {'is' if refused == 1 else 'are'} left, since {workload} "
            "still refuses what they ask for: change what the reasons name, then redrive again"
        )
    if outcomes.keys() & _STUCK:
        command = f"spindown redrive {workload} --malformed{session.options}"
        print_aside(f"{command} shows what cannot be sent back, and removes it if asked")
    if not lost and (missing := _find_missing(named, found)):
        # Of several names one is looked at, which the remedy names.
        remedy = _say_missing(missing[0], workload, session.work_store(workload))
        raise BadInput("JOB", missing[0] if len(missing) == 1 else missing, remedy)
    if not found and not as_json:
        what = "lost job" if lost else "dead letter to send back"
        again = f"spindown redrive {workload} --items BATCH{session.options}"
        more = "" if lost else f"; items that failed are sent again by: {again}"
        print_aside(f"{workload} has no {what}{more}")
    if lost and not named:
        least = format_duration(LOOKED_AT_AFTER)
        print_aside(f"batches younger than {least} are looked at only if they are named")
    if outcomes.keys() & _LEFT:
        raise typer.Exit(1)


def _find_missing(named: Collection[str], found: Collection[str]) -> Sequence[str]:
    """Return the names of which nothing was found; of a split job its children are found."""
    return sorted(name for name in named if not any(is_one_of(one, (name,)) for one in found))


def _say_missing(name: str, workload: str, store: ObjectStore) -> str:
    """Return what to do about a name of which there is no dead letter."""
    remedy = f"name jobs in the dead-letter queue of {workload}"
    if batch := _find_batch(name, store):
        again = f"`spindown redrive {workload} --items {name}`"
        given_up = say_given_up(batch, workload, store)
        return given_up or f"{remedy}, or send failed items again: {again}"
    with suppress(SpindownError):
        job = read_progress(name, store)
        if job.is_given_up:
            hidden = "another reader may hide its letter for 15 minutes, then redrive it again"
            return f"{remedy}: this one was given up, and {hidden}"
        if job.is_over:
            return f"{remedy}: this one is {job.word}"
        if job.state is not None:
            return f"{remedy}: this one is {job.word}, as one that was sent back is"
    return remedy


def _find_batch(name: str, store: ObjectStore) -> Batch | None:
    """Return the batch of this name; None: there is none that can be read."""
    with suppress(SpindownError):
        return read_batch(name, store)
    return None


def _refusals(session: Session, workload: str) -> Callable[[JobMessage], Reason]:
    """Return what tells why a job would be refused again, by the policy as it stands."""
    settings = session.workload(workload)

    @cache
    def terms() -> tuple[Policy, Collection[InstanceType]]:
        ports = session.control_ports()
        return session.policy(workload), types_on_sale(settings, ports, ports.clock.now())

    def why(job: JobMessage) -> Reason:
        policy, sold = terms()
        disk = settings.run.root_volume_gib
        return why_forbidden(job, policy, settings.requirements, disk, sold=sold)

    return why


_STUCK = frozenset({RedriveOutcome.OTHER_BODY, RedriveOutcome.UNREADABLE})


def _send_items(session: Session, workload: str, batches: list[str], *, as_json: bool) -> None:
    if not batches and workload not in (known := session.deployment.workloads):
        owner = known[0] if len(known) == 1 else "WORKLOAD"
        remedy = f"name the workload first: `spindown redrive {owner} --items {workload}`"
        raise BadInput("workload", workload, remedy)
    if not batches:
        raise BadInput("BATCH", None, "name the batches whose failed items are sent again")
    queue, store = session.queue(workload), session.work_store(workload)
    command = f"spindown redrive {workload}"
    for batch_id in batches:
        with sending() as state:
            state.options = session.options
            state.repeated = f"{command} --items {batch_id}{session.options}"
            sent = send_failed_again(batch_id, workload, queue=queue, store=store, begun=state.note)
            if state.batch is not None:
                session.nudge(workload)
        if state.batch is None:
            lost = f"{command} --lost {sent.batch_id}{session.options}"
            print_aside(
                f"the failed items of {batch_id} were sent before, in {sent.batch_id}; if that "
                f"was broken off, send what was not with: {lost}"
            )
        announce(sent, session.options, as_json=as_json)


def _list_letters(session: Session, workload: str, named: set[str], *, as_json: bool) -> None:
    found = set[str]()
    for one in find_dead_letters(session.work_ports(workload)):
        if named and one.message_id not in named and not is_one_of(one.job_id, named):
            continue
        found |= {one.job_id, one.message_id}
        print_line(json.dumps(encode(one)) if as_json else describe_letter(one))
    if missing := _find_missing(named, found):
        remedy = f"name jobs or messages that `spindown redrive {workload} --list` lists"
        raise BadInput("JOB or MESSAGE", missing[0] if len(missing) == 1 else missing, remedy)
    if not found and not as_json:
        print_aside(f"{workload} has no dead letter")


def describe_letter(one: DeadLetter) -> str:
    """Return a dead letter in a line: its job, the message as it was sent, and why."""
    why = one.letter_reason or one.reason or f"SQS gave it up after {MAX_RECEIVE_COUNT} receives"
    return f"{one.job_id or 'no job'}  message {one.message_id}: {why}"


def _list_malformed(
    session: Session, workload: str, messages: set[str], *, remove: bool, as_json: bool
) -> None:
    ports = session.work_ports(workload)
    found = set()
    for one in find_dead_letters(ports, unsendable=True, remove=remove, messages=messages):
        found.add(one.message_id)
        line = {**encode(one), "removed": remove}
        print_line(json.dumps(line) if as_json else describe_unsendable(one, removed=remove))
    if missing := sorted(messages - found):
        remedy = f"name messages that `spindown redrive {workload} --malformed` lists"
        raise BadInput("MESSAGE", missing[0] if len(missing) == 1 else missing, remedy)
    if not found and not as_json:
        print_aside(f"{workload} has no dead letter that cannot be sent back")
    if found and not remove:
        print_aside(
            f"remove them with their bodies, or only those whose message you name: "
            f"spindown redrive {workload} --malformed --remove{session.options}"
        )
        raise typer.Exit(1)


def describe_unsendable(one: DeadLetter, *, removed: bool) -> str:
    """Return a dead letter that cannot be sent back in a line."""
    word = "removed" if removed else "left"
    reason = one.letter_reason or one.reason
    return f"message {one.message_id}: {word}: {reason}; body: {one.body[:_BODY_SHOWN]}"


_SAYS = {
    RedriveOutcome.SENT: "{one.job_id}: sent back",
    RedriveOutcome.OVER: "{one.job_id}: already over, so its dead letter was deleted",
    RedriveOutcome.SENT_AGAIN: "{one.job_id}: sent again, for its message was gone",
    RedriveOutcome.NOT_STORED: (
        "{one.job_id}: its message is gone and no copy is stored; submit it again"
    ),
    RedriveOutcome.OTHER_BODY: (
        "{one.job_id}: left where it is: another job has this id; submit it anew"
    ),
    RedriveOutcome.FORBIDDEN: (
        "{one.job_id}: left where it is, since it would be refused again: {one.reason}"
    ),
    RedriveOutcome.UNREADABLE: "{name}: left where it is: {one.reason}",
}


def describe(one: Redriven) -> str:
    """Return the outcome of one dead letter in a line."""
    is_told = one.outcome is RedriveOutcome.SENT and one.reason
    why = f" (given up: {one.reason})" if is_told else ""
    names = (one.job_id, one.message_id and f"message {one.message_id}")
    name = ", ".join(filter(None, names)) or "a batch"
    return _SAYS[one.outcome].format(one=one, name=name) + why

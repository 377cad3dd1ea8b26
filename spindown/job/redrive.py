"""Send dead letters back to their queue, with a clean failure count.

For each dead letter, first a conditional write clears failures and losses in the manifest. Then a
message is sent to the queue. Last, the dead letter is deleted. After a crash, run it again: the
count stays cleared, and of two messages of one job the manifest lets only one have an effect.
Committed results stay. ``redrive_item`` sends failed items again, ``lost_message`` a job whose
message is gone.
"""

import json
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from itertools import islice

from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import JobMessage, parse_job, with_id
from spindown.contract.log import is_one_of
from spindown.domain.reason import NO_REASON, Reason
from spindown.domain.wasted_work import NOTHING_WASTED
from spindown.error import ContractError, NewerSchema, NotFound, PreconditionFailed, Unreachable
from spindown.job.lease_row import is_held
from spindown.job.manifest_store import StoredManifest, is_other_body, load_manifest, save_manifest
from spindown.job.message import copy_message, delete, read_stored
from spindown.port import Message, WorkPorts
from spindown.reason_text import say

#: A long poll asks all of SQS's servers. A message is hidden long enough to be seen once.
WAIT = timedelta(seconds=2)
HIDDEN_FOR = timedelta(minutes=15)
#: Of more letters than are looked at while they are hidden, the first are received again. After so
#: many in a row that are known, none is taken to be left.
_KNOWN_IN_A_ROW = 1000
#: Tries to write a manifest that others write too.
_TRIES = 5
_STORED_BODIES = "jobs/"


class RedriveOutcome(StrEnum):
    """The outcome for one dead letter, or for one job without a message."""

    SENT = "sent"
    #: The job has completed since, or was cancelled or split: there is nothing to do.
    OVER = "over"
    #: The job of its id was claimed with other items or parameters. It stays where it is.
    OTHER_BODY = "other-body"
    #: Its message was gone, and was sent again.
    SENT_AGAIN = "sent-again"
    #: Its message is gone, and what it asked for was never stored, or too long ago.
    NOT_STORED = "not-stored"
    #: It is not a job, or a later version has worked on it. It stays where it is.
    UNREADABLE = "unreadable"
    #: Its workload would refuse it again at once: by its type, by what it asks for, or since no
    #: such machine is sold. It stays where it is.
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """One dead letter, or one job without a message, that was handled."""

    #: None: it cannot be read, and its letter does not say.
    job_id: str | None
    outcome: RedriveOutcome
    #: Of the dead letter as it was sent to the workload; "": there is none.
    message_id: str = ""
    #: Why the job became a dead letter, why it is refused still, or why the letter cannot be read.
    reason: str = ""


#: What stays in the dead-letter queue.
_LEFT = frozenset({RedriveOutcome.OTHER_BODY, RedriveOutcome.FORBIDDEN, RedriveOutcome.UNREADABLE})


def _forbids_nothing(_: JobMessage) -> Reason:
    return NO_REASON


def redrive(
    workload: str,
    ports: WorkPorts,
    *,
    jobs: Collection[str] = (),
    forbids: Callable[[JobMessage], Reason] = _forbids_nothing,
    letters_at_most: int = sys.maxsize,
) -> Iterator[Redriven]:
    """Send dead letters back one after the other, each job once; yield each when it is done.

    A job may fail again at once. Its new letter is left for another call.

    Args:
        workload: whose.
        ports: the world; both queues are the workload's.
        jobs: only jobs with these ids, and children of these; empty: all.
        forbids: tells why a job would be refused again at once; NO_REASON: it would not.
        letters_at_most: how many are looked at.
    """
    left: dict[str, str] = {}
    handled: set[str | None] = set()
    try:
        for letter, is_new in islice(_each_letter(ports, left), letters_at_most):
            # Of one that cannot be read, what the worker said that gave it up.
            job_id = letter.attributes.get("job_id") or None
            try:
                job = read_dead_letter(letter, ports)
                job_id = job.job_id
                if job_id in handled or not _is_named(job_id, jobs):
                    continue
                done = _redrive_one(letter, job, workload, ports, forbids)
            except (ContractError, NotFound) as exc:
                unread, why = RedriveOutcome.UNREADABLE, str(exc)
                done = Redriven(job_id=job_id, outcome=unread, reason=why)
            if done.outcome not in _LEFT:
                handled.add(job_id)
                del left[letter.message_id]
            elif not is_new or not _is_named(job_id, jobs):
                continue
            yield replace(done, message_id=_original_id(letter))
            if jobs and handled.issuperset(jobs):
                return
    finally:
        ports.dead_letters.show(list(left.values()))


def _is_named(job_id: str | None, jobs: Collection[str]) -> bool:
    return not jobs or is_one_of(job_id or "", jobs)


def _each_letter(ports: WorkPorts, left: dict[str, str]) -> Iterator[tuple[Message, bool]]:
    """Yield each dead letter, and whether it is new, until there seems to be no other.

    Args:
        ports: the world.
        left: message id -> receipt handle of those that are hidden, which is kept here. Bodies
            have a MiB each, and there may be very many.
    """
    known = 0
    while known < _KNOWN_IN_A_ROW:
        letter = ports.dead_letters.receive(wait=WAIT, visibility=HIDDEN_FOR)
        if letter is None:
            return
        is_new = letter.message_id not in left
        known = 0 if is_new else known + 1
        left[letter.message_id] = letter.receipt_handle
        yield letter, is_new


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One message in the dead-letter queue."""

    #: Of the message as it was sent to the workload: what is in this queue may be a copy.
    message_id: str
    #: "": it is no job.
    job_id: str
    #: Why it is no job that can be sent back, or is another's; "": it can be.
    reason: str
    #: Why it is a dead letter, and its code, as its attributes say; "": they do not.
    letter_reason: str
    code: str
    body: str


def find_dead_letters(
    ports: WorkPorts,
    *,
    unsendable: bool = False,
    remove: bool = False,
    messages: Collection[str] = (),
) -> Iterator[DeadLetter]:
    """Yield the dead letters; each is put back.

    Args:
        ports: the world.
        unsendable: only those that a redrive leaves for good: no jobs, or bodies of other jobs'
            ids. One that a later version wrote is not among them: that version may send it back.
        remove: whether to delete each, once the caller has taken it.
        messages: only those with these ids; empty: all.
    """
    left: dict[str, str] = {}
    try:
        for letter, is_new in _each_letter(ports, left):
            if not is_new or (messages and _original_id(letter) not in messages):
                continue
            job_id, reason = _look_at(letter, ports)
            if unsendable and not reason:
                continue
            said = letter.attributes
            yield DeadLetter(
                message_id=_original_id(letter),
                job_id=job_id or said.get("job_id", ""),
                reason=reason,
                letter_reason=said.get("reason", ""),
                code=said.get("code", ""),
                body=letter.body,
            )
            if remove:
                delete(letter.receipt_handle, ports.dead_letters)
                del left[letter.message_id]
    finally:
        ports.dead_letters.show(list(left.values()))


def _look_at(letter: Message, ports: WorkPorts) -> tuple[str, str]:
    """Return which job a dead letter is, and why it cannot be sent back.

    "" and "": a later version wrote it, and can.
    """
    job_id = ""
    try:
        job = read_dead_letter(letter, ports)
        job_id = job.job_id or ""
        job = read_stored(job, ports.objects)
        stored = load_manifest(job_id, ports.objects)
    except NewerSchema:
        return job_id, ""
    except (ContractError, NotFound) as exc:
        return job_id, str(exc)
    is_other = stored is not None and is_other_body(stored.manifest, job)
    return job_id, f"another job has the id {job_id}" if is_other else ""


def read_dead_letter(letter: Message, ports: WorkPorts) -> JobMessage:
    """Return the job of a dead letter under its original id."""
    return with_id(parse_job(_read_body(letter, ports)), _original_id(letter))


def _original_id(letter: Message) -> str:
    return letter.attributes.get("original_message_id", letter.message_id)


def _read_body(letter: Message, ports: WorkPorts) -> str:
    """Return the body; it is in S3 if it left no room for the letter's attributes."""
    try:
        row = json.loads(letter.body)
    except (ValueError, RecursionError):
        return letter.body
    key = row.get("body_key") if isinstance(row, dict) else None
    if isinstance(key, str) and key.startswith(_STORED_BODIES):
        return ports.objects.get(key).data.decode(errors="replace")
    return letter.body


def _redrive_one(
    letter: Message,
    job: JobMessage,
    workload: str,
    ports: WorkPorts,
    forbids: Callable[[JobMessage], Reason],
) -> Redriven:
    job = read_stored(job, ports.objects)
    reason = letter.attributes.get("reason", "")
    stored = load_manifest(job.job_id or "", ports.objects)
    if stored is not None and is_other_body(stored.manifest, job):
        return Redriven(job_id=job.job_id, outcome=RedriveOutcome.OTHER_BODY, reason=reason)
    is_given_up = stored is None or stored.manifest.state in _GOES_ON
    if is_given_up and (why := forbids(job)):
        return Redriven(job_id=job.job_id, outcome=RedriveOutcome.FORBIDDEN, reason=say(why))
    is_over = not _forget_failures(job, workload, ports)
    if not is_over:
        ports.queue.send([copy_message(letter, job, ports.objects)])
    delete(letter.receipt_handle, ports.dead_letters)
    return Redriven(
        job_id=job.job_id,
        outcome=RedriveOutcome.OVER if is_over else RedriveOutcome.SENT,
        reason=reason,
    )


#: States of a job that a message can make go on.
_GOES_ON = frozenset({JobState.FAILED, JobState.RUNNING})


def _forget_failures(job: JobMessage, workload: str, ports: WorkPorts) -> bool:
    """Clear a job's failures; False if it is over."""
    job_id = job.job_id or ""
    for _ in range(_TRIES):
        stored = load_manifest(job_id, ports.objects)
        now = ports.clock.now()
        if stored is None or is_held(stored.manifest, workload, ports.table, now):
            return True
        if stored.manifest.state not in _GOES_ON:
            return False
        fresh = _forgotten(stored)
        if fresh == stored.manifest:
            return True
        try:
            save_manifest(fresh, stored.etag, ports)
        except PreconditionFailed:
            continue
        return True
    raise Unreachable(f"{job_id}: other writers keep changing its manifest; redrive it again")


def _forgotten(stored: StoredManifest) -> Manifest:
    return replace(
        stored.manifest,
        epoch=stored.epoch_floor,
        state=JobState.RUNNING,
        failures=(),
        wasted_work=NOTHING_WASTED,
        losses=0,
        released=True,
        reason="",
        code="",
        finished_at=None,
        sent_at=None,
    )

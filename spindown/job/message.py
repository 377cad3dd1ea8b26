"""What is done with a message besides working on it: put back, sent anew, moved to the DLQ.

Whatever leaves here carries the job's id, so a copy can never become another job. A copy is
sent before the original is deleted: a crash in between leaves two messages of one job, of which
the manifest lets only one do anything (``domain.lease.claim_verdict``).
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.contract.codec import decode_instant, encode_instant
from spindown.contract.job.message import (
    MESSAGE_BYTES_MAX,
    JobMessage,
    derived_id,
    encode_job,
    encode_stored,
    parse_job,
    parse_stored,
    stored_key,
    with_id,
)
from spindown.domain.reason import ReasonCode
from spindown.domain.retry_or_dead_letter import RENEW_RECEIVES
from spindown.error import ContractError, StaleHandle
from spindown.port import JobQueue, Message, ObjectStore, Outgoing, WorkPorts

#: SQS keeps a message at most 14 days; a copy is sent well before.
RENEW_AFTER = timedelta(days=7)
#: The attributes that copies keep: which learned sizes a job was routed by, and when its first
#: message was sent. Any other is a sender's, and SQS allows ten.
SIZED, _FIRST_SENT = "sized", "first_sent"
#: SQS allows these in attribute values besides what is printable.
_ALLOWED_BLANKS = "\t\n"
_ATTRIBUTE_CHARACTERS = 1000
#: What ``intake`` writes there takes a few hundred bytes.
_SIZED_BYTES_MAX = 16 * 1024


def put_back(message: Message, wait: timedelta, queue: JobQueue) -> None:
    """Hide a message for ``wait`` and leave it to whoever receives it then."""
    try:
        queue.extend(message.receipt_handle, max(wait, timedelta(0)))
    except StaleHandle:
        # It is visible already, or somebody else has it.
        return


def delete(receipt_handle: str, queue: JobQueue) -> bool:
    """Delete a message; False if the handle no longer holds it."""
    try:
        queue.delete(receipt_handle)
    except StaleHandle:
        return False
    return True


def near_expiry(message: Message, now: datetime) -> bool:
    """Tell whether a message nears one of SQS's limits and must be replaced by a copy."""
    return now - message.sent_at >= RENEW_AFTER or message.receive_count >= RENEW_RECEIVES


def resend(message: Message, job: JobMessage, ports: WorkPorts) -> None:
    """Replace a message by a fresh copy under the same job id."""
    ports.queue.send([copy_message(message, job, ports.objects, carried(message))])
    delete(message.receipt_handle, ports.queue)


def renew(message: Message, ports: WorkPorts) -> bool:
    """Replace a message that was only looked at if it nears one of SQS's limits; tell whether.

    Else those who look often would move it to the dead-letter queue, where nothing says why.
    """
    if not near_expiry(message, ports.clock.now()):
        return False
    try:
        resend(message, with_id(parse_job(message.body), message.message_id), ports)
    except ContractError:
        return False
    return True


def dead_letter(
    message: Message,
    job: JobMessage,
    reason: str,
    log: str,
    ports: WorkPorts,
    *,
    code: str = "",
    dollars: float = 0.0,
) -> None:
    """Move the message of a job that failed for good to the dead-letter queue.

    Args:
        message: of the job.
        job: what it asks for.
        reason: why, for a person.
        log: where a person finds what happened.
        ports: the world.
        code: why, for programs; "": there is none.
        dollars: USD that interruptions have cost since its last progress; for an item that took
            too long, all that the job has cost.
    """
    texts = {"reason": reason, "code": code, "job_id": job.job_id or "", "log": log}
    attributes = _clean(texts | ({"dollars": f"{dollars:.4f}"} if dollars else {}), message)
    ports.dead_letters.send([copy_message(message, job, ports.objects, attributes)])
    delete(message.receipt_handle, ports.queue)


def dead_letter_untouched(
    message: Message,
    reason: str,
    ports: WorkPorts,
    *,
    code: ReasonCode = ReasonCode.NONE,
    job_id: str = "",
) -> None:
    """Move a message that nobody may work on to the dead-letter queue, its body untouched.

    Args:
        message: it is no job, or not the job that its id stands for.
        reason: why, for a person.
        ports: the world.
        code: why, for programs.
        job_id: which job it names, if any.
    """
    attributes = _clean({"reason": reason, "code": code.value, "job_id": job_id}, message)
    outgoing = Outgoing(body=message.body, tenant=message.tenant, attributes=attributes)
    ports.dead_letters.send([_shorten(outgoing, message, ports)])
    delete(message.receipt_handle, ports.queue)


def _shorten(outgoing: Outgoing, message: Message, ports: WorkPorts) -> Outgoing:
    """Return a dead letter that SQS takes: a body without room for attributes lies in S3."""
    if outgoing.bytes <= MESSAGE_BYTES_MAX:
        return outgoing
    key = f"jobs/{derived_id(message.message_id)}/message"
    ports.objects.put(key, message.body.encode())
    return replace(outgoing, body=json.dumps({"body_key": key}))


def copy_message(
    message: Message,
    job: JobMessage,
    objects: ObjectStore,
    attributes: Mapping[str, str] | None = None,
) -> Outgoing:
    """Return a copy with its job id; one that would be too large is stored, and sent by digest."""
    tenant = job.tenant or message.tenant
    copy = Outgoing(body=encode_job(job), tenant=tenant, attributes=attributes or {})
    if copy.bytes <= MESSAGE_BYTES_MAX:
        return copy
    data, stored = encode_stored(job)
    objects.put(stored_key(job.job_id or "", stored.stored or ""), data)
    return replace(copy, body=encode_job(stored))


def carried(message: Message) -> dict[str, str]:
    """Return the attributes that a copy of a message keeps.

    None of a sender's: it may fill a message, and a copy has an id more.
    """
    text = message.attributes.get(SIZED, "")
    kept = {SIZED: text} if 0 < len(text.encode()) <= _SIZED_BYTES_MAX else {}
    return {**kept, _FIRST_SENT: encode_instant(first_sent_at(message))}


def first_sent_at(message: Message) -> datetime:
    """Return when the message was sent of which this one may be a copy.

    A sender may say that this was earlier. Then a cancel of its job counts as later, and it is
    deleted where it would be a dead letter.
    """
    try:
        return min(decode_instant(message.attributes.get(_FIRST_SENT, "")), message.sent_at)
    except ValueError:
        return message.sent_at


def read_stored(job: JobMessage, objects: ObjectStore) -> JobMessage:
    """Return all that a message asks for; what it only names is read from the bucket.

    Raises:
        NotFound: nothing is stored under its digest, or no longer.
        NewerSchema, ContractError: this version cannot read it, or it was damaged.
    """
    if job.stored is None:
        return job
    return parse_stored(objects.get(stored_key(job.job_id or "", job.stored)).data, job)


def _clean(attributes: Mapping[str, str], message: Message) -> Mapping[str, str]:
    """Return attributes that SQS takes: not empty, printable, short."""
    shown = {**attributes, "original_message_id": message.message_id}
    cleaned = {
        name: "".join(c if c.isprintable() or c in _ALLOWED_BLANKS else "?" for c in value)
        for name, value in shown.items()
    }
    return {name: value[:_ATTRIBUTE_CHARACTERS] for name, value in cleaned.items() if value}

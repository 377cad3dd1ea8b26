"""Resend old messages before SQS drops them, when no worker claims them.

A queue keeps a message for 12 days; a worker that claims a message after 7 days resends it. While
nothing is launched, for example because the month's budget is spent, nobody claims. SQS tells the
age of a message only with the message. The ledger says how long the queue has not been empty,
which bounds the age of its messages without a call; a scan is made only when it is due.

A copy is sent before the original is deleted. A crash in between leaves two messages of one job;
the manifest lets only one have an effect (``domain.lease.claim_verdict``). A message without an id
gets one here, the same that a claim would give it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.contract.codec import decode, encode, from_json
from spindown.contract.job.message import MESSAGE_BYTES_MAX, derived_id, parse_job, with_id
from spindown.contract.row import BACKLOG, BacklogRow, control_partition
from spindown.error import ContractError, NewerSchema, NotFound
from spindown.job.message import (
    RENEW_AFTER,
    carried,
    copy_message,
    delete,
    near_expiry,
    put_back,
)
from spindown.job.shape_queue import queues_of
from spindown.port import ControlPorts, JobQueue, Key, Message, ObjectStore, Outgoing, Write

#: A long poll asks all of SQS's servers, so that an empty answer means something.
_WAIT = timedelta(seconds=1)
#: After so many young messages in a row the rest is young too: a standard queue returns roughly
#: the oldest first.
_YOUNG_AT_MOST = 50
#: The scaler may have been down for so long while messages arrived.
_UNSEEN_FOR = timedelta(days=2)
#: Time to the next scan; each scan counts as a receive of every message that it sees. Sooner if
#: this one ran out of time.
_NEXT_SCAN = timedelta(days=1)
_AGAIN_SOON = timedelta(hours=1)
#: Messages stay hidden for so much longer than the scan; if it dies, they show again then.
_HIDDEN_LONGER = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resent:
    """The outcome of the scan of one queue."""

    workload: str
    #: Messages that were replaced by a copy.
    resent: int = 0
    #: Old messages that stay: a later version wrote them, or an id makes them too large.
    left: int = 0
    #: Whether every visible message was seen.
    is_whole: bool = True
    #: Why nothing could be done.
    why: str = ""


def resend_all(
    ports: ControlPorts, *, store_of: Callable[[str], ObjectStore], until: datetime
) -> list[Resent]:
    """Resend every workload's old messages; an error in one does not stop the others.

    Each has an equal share of the time that is left: what one leaves is the others'.

    Args:
        ports: the world.
        store_of: a workload's part of the bucket.
        until: start nothing after this instant.
    """
    scans = []
    workloads = ports.deployment().workloads
    for number, workload in enumerate(workloads):
        now = ports.clock.now()
        share = now + (until - now) / (len(workloads) - number)
        try:
            scan = resend(workload, ports, store=store_of(workload), until=share)
        except Exception as exc:  # noqa: BLE001 - an edge: the others' messages must not be lost
            scan = Resent(workload=workload, is_whole=False, why=str(exc) or type(exc).__name__)
        if scan is not None:
            scans.append(scan)
    return scans


def resend(
    workload: str, ports: ControlPorts, *, store: ObjectStore, until: datetime
) -> Resent | None:
    """Replace a queue's old messages with copies; None if none can be old yet.

    Args:
        workload: whose queue.
        ports: the world.
        store: the workload's part of the bucket, for items that leave no room for an id.
        until: start nothing after this instant.
    """
    key = Key(partition=control_partition(workload), sort=BACKLOG)
    row = decode(BacklogRow, ports.table.get(key) or {})
    if not _is_due(row, ports.clock.now()):
        return None
    settings, _ = ports.settings.workload(workload)
    scans = [
        _QueueScan(queue, store, ports.clock.now, until) for queue in queues_of(ports, settings)
    ]
    again_at = min(scan.run() for scan in scans)
    ports.table.write(Write(key=key, set=encode({"resend_at": again_at})))
    return Resent(
        workload=workload,
        resent=sum(scan.found.resent for scan in scans),
        left=sum(scan.found.left for scan in scans),
        is_whole=all(scan.found.is_whole for scan in scans),
    )


def _is_due(row: BacklogRow, now: datetime) -> bool:
    if row.filled_since is None or now - row.filled_since < RENEW_AFTER - _UNSEEN_FOR:
        return False
    return row.resend_at is None or now >= row.resend_at


class _QueueScan:
    """One scan of a queue: each visible message is received once."""

    def __init__(
        self, queue: JobQueue, store: ObjectStore, now: Callable[[], datetime], until: datetime
    ) -> None:
        self._queue = queue
        self._store = store
        self._now = now
        self._until = until
        self.found = Resent(workload="")

    def run(self) -> datetime:
        """Resend old messages; return when to scan again."""
        held: list[Message] = []
        in_a_row = left = 0
        is_whole = False
        try:
            while self._now() < self._until and in_a_row < _YOUNG_AT_MOST:
                message = self._receive()
                if message is None:
                    is_whole = True
                    break
                is_old = self._is_old(message)
                if is_old and self._resend(message):
                    in_a_row = 0
                    continue
                held.append(message)
                in_a_row += 1
                left += is_old
        finally:
            for message in held:
                put_back(message, timedelta(0), self._queue)
        self.found = replace(self.found, left=left, is_whole=is_whole)
        is_done = is_whole or in_a_row >= _YOUNG_AT_MOST
        return self._now() + (_NEXT_SCAN if is_done else _AGAIN_SOON)

    def _receive(self) -> Message | None:
        try:
            return self._queue.receive(wait=_WAIT, visibility=self._hidden_for())
        except NotFound:
            # That of a shape, which is yet to be made.
            return None

    def _hidden_for(self) -> timedelta:
        return self._until - self._now() + _HIDDEN_LONGER

    def _is_old(self, message: Message) -> bool:
        """Tell whether it would be too old for a claimer before the next look, or is worn."""
        now = self._now()
        return near_expiry(message, now) or now - message.sent_at >= RENEW_AFTER - _NEXT_SCAN

    def _resend(self, message: Message) -> bool:
        copy = self._copy(message)
        if copy is None:
            return False
        self._queue.send([copy])
        delete(message.receipt_handle, self._queue)
        self.found = replace(self.found, resent=self.found.resent + 1)
        return True

    def _copy(self, message: Message) -> Outgoing | None:
        try:
            job = with_id(parse_job(message.body), message.message_id)
        except NewerSchema:
            return self._copy_newer(message)
        except ContractError:
            # No job: whoever claims it moves it to the dead letters, and may do so twice.
            return Outgoing(body=message.body, tenant=message.tenant)
        copy = copy_message(message, job, self._store, carried(message))
        return copy if copy.bytes <= MESSAGE_BYTES_MAX else None

    def _copy_newer(self, message: Message) -> Outgoing | None:
        """Return a copy of what only a later version reads: untouched, but for the job's id."""
        row = from_json("message", message.body)
        row.setdefault("job_id", derived_id(message.message_id))
        copy = Outgoing(body=json.dumps(row), tenant=message.tenant, attributes=message.attributes)
        return copy if copy.bytes <= MESSAGE_BYTES_MAX else None

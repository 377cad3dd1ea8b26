"""The job queue on SQS.

SQS reports success for a delete with an outdated receipt handle. This is the one promise of the
port that this adapter cannot keep.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from spindown.aws.error import translated
from spindown.contract.queue import HIDDEN_FOR, KEPT_FOR, POLL
from spindown.domain.fleet import Backlog
from spindown.domain.retry_or_dead_letter import MAX_RECEIVE_COUNT
from spindown.error import (
    ContractError,
    NotFound,
    PreconditionFailed,
    StaleHandle,
    Throttled,
)
from spindown.port import Clock, Message, Outgoing

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType
    from mypy_boto3_sqs.type_defs import MessageTypeDef, SendMessageBatchRequestEntryTypeDef

#: SQS quotas of one batch: entries, and bytes of all of them together.
BATCH_ENTRIES_MAX = 10
BATCH_BYTES_MAX = 1024 * 1024

#: How often a batch is tried with the entries that SQS has failed to take.
_ROUNDS = 3

#: Codes for a receipt handle that has lost its message. Twelve hours after the receive it is
#: InvalidParameterValue, as for text that never was a handle.
_STALE: Mapping[str, type[StaleHandle]] = {"InvalidParameterValue": StaleHandle}


#: Codes of a queue that is there with other attributes.
_ALREADY: Mapping[str, type[PreconditionFailed]] = {
    "QueueAlreadyExists": PreconditionFailed,
    "QueueNameExists": PreconditionFailed,
}


def find_queue(client: "SQSClient", name: str) -> tuple[str, Mapping[str, str]]:
    """Return the URL and the tags of a queue, by its name (raises NotFound)."""
    with translated():
        url = client.get_queue_url(QueueName=name)["QueueUrl"]
        return url, client.list_queue_tags(QueueUrl=url).get("Tags", {})


class SqsJobQueue:
    """JobQueue on one SQS standard queue."""

    def __init__(self, client: "SQSClient", url: str, clock: Clock) -> None:
        self._client = client
        self._url = url
        self._clock = clock

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send messages in batches; raise if one was not accepted."""
        for batch in _batches(messages):
            left = [_entry(str(index), outgoing) for index, outgoing in enumerate(batch)]
            for _ in range(_ROUNDS):
                left = self._send_batch(left)
                if not left:
                    break
            else:
                raise Throttled(f"SQS did not take {len(left)} of the {len(batch)} messages sent")

    def receive(self, *, wait: timedelta, visibility: timedelta) -> Message | None:
        """Take one message, waiting at most 20 s."""
        with translated():
            answer = self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=1,
                WaitTimeSeconds=_seconds(wait),
                VisibilityTimeout=_seconds(visibility),
                MessageSystemAttributeNames=[
                    "ApproximateReceiveCount",
                    "SentTimestamp",
                    "MessageGroupId",
                ],
                MessageAttributeNames=["All"],
            )
        received = answer.get("Messages", [])
        return _message(received[0], self._clock.now()) if received else None

    def extend(self, receipt_handle: str, visibility: timedelta) -> None:
        """Hide the message for ``visibility`` from now; zero requeues it."""
        with translated(_STALE):
            self._client.change_message_visibility(
                QueueUrl=self._url,
                ReceiptHandle=receipt_handle,
                VisibilityTimeout=_seconds(visibility),
            )

    def show(self, receipt_handles: Sequence[str]) -> None:
        """Requeue messages in batches; a handle that has lost its message is left out."""
        for start in range(0, len(receipt_handles), BATCH_ENTRIES_MAX):
            left = list(receipt_handles[start : start + BATCH_ENTRIES_MAX])
            for _ in range(_ROUNDS):
                left = self._show_batch(left)
                if not left:
                    break
            else:
                raise Throttled(f"SQS did not requeue {len(left)} of the messages")

    def _show_batch(self, receipt_handles: Sequence[str]) -> list[str]:
        """Requeue one batch; return the handles with which SQS has failed for now."""
        with translated(_STALE):
            answer = self._client.change_message_visibility_batch(
                QueueUrl=self._url,
                Entries=[
                    {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": 0}
                    for number, handle in enumerate(receipt_handles)
                ],
            )
        failed = answer.get("Failed", [])
        return [receipt_handles[int(one["Id"])] for one in failed if not one["SenderFault"]]

    def delete(self, receipt_handle: str) -> None:
        """Delete the message for good."""
        with translated(_STALE):
            self._client.delete_message(QueueUrl=self._url, ReceiptHandle=receipt_handle)

    def backlog(self) -> Backlog:
        """Return SQS's approximate numbers."""
        with translated():
            answer = self._client.get_queue_attributes(
                QueueUrl=self._url,
                AttributeNames=[
                    "ApproximateNumberOfMessages",
                    "ApproximateNumberOfMessagesNotVisible",
                    "ApproximateNumberOfMessagesDelayed",
                ],
            )
        counts = answer["Attributes"]
        return Backlog(
            visible=int(counts["ApproximateNumberOfMessages"]),
            in_flight=int(counts["ApproximateNumberOfMessagesNotVisible"]),
            delayed=int(counts["ApproximateNumberOfMessagesDelayed"]),
        )

    def create(self, *, dead_letters: str, tags: Mapping[str, str]) -> None:
        """Make the queue, encrypted as that of dead letters is; it takes none of another queue.

        SQS answers alike for one that is there with the same attributes.
        """
        with translated():
            of_letters = self._client.get_queue_attributes(
                QueueUrl=dead_letters, AttributeNames=["QueueArn", "KmsMasterKeyId"]
            )["Attributes"]
        letters, key = of_letters["QueueArn"], of_letters.get("KmsMasterKeyId")
        encrypted: Mapping[QueueAttributeNameType, str] = (
            {"KmsMasterKeyId": key} if key else {"SqsManagedSseEnabled": "true"}
        )
        name = self._url.rpartition("/")[2]
        redrive = {"deadLetterTargetArn": letters, "maxReceiveCount": MAX_RECEIVE_COUNT}
        policy = _only_by_tls(f"{letters.rpartition(':')[0]}:{name}")
        try:
            with translated(_ALREADY):
                self._client.create_queue(
                    QueueName=name,
                    Attributes={
                        "MessageRetentionPeriod": str(_seconds(KEPT_FOR)),
                        "ReceiveMessageWaitTimeSeconds": str(_seconds(POLL)),
                        "VisibilityTimeout": str(_seconds(HIDDEN_FOR)),
                        **encrypted,
                        "RedrivePolicy": json.dumps(redrive),
                        "RedriveAllowPolicy": json.dumps({"redrivePermission": "denyAll"}),
                        "Policy": json.dumps(policy),
                    },
                    # Without tags no right to tag is needed.
                    **({"tags": tags} if tags else {}),
                )
        except PreconditionFailed:
            # It is there, as an earlier version has made it.
            return

    def remove(self) -> None:
        """Delete the queue with all its messages."""
        try:
            with translated():
                self._client.delete_queue(QueueUrl=self._url)
        except NotFound:
            return

    def _send_batch(
        self, entries: "Sequence[SendMessageBatchRequestEntryTypeDef]"
    ) -> "list[SendMessageBatchRequestEntryTypeDef]":
        """Send one batch; return the entries that SQS failed to accept."""
        with translated():
            answer = self._client.send_message_batch(QueueUrl=self._url, Entries=entries)
        failed = {failure["Id"]: failure for failure in answer.get("Failed", [])}
        for failure in failed.values():
            if failure["SenderFault"]:
                said = failure.get("Message", failure["Code"])
                raise ContractError("message", said, "send what SQS accepts")
        return [entry for entry in entries if entry["Id"] in failed]


def _only_by_tls(arn: str) -> Mapping[str, object]:
    """Return the policy of a queue that nobody reaches but by TLS, as the deploy's queues have."""
    statement = {
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": "sqs:*",
        "Resource": arn,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def _batches(messages: Sequence[Outgoing]) -> Iterator[Sequence[Outgoing]]:
    batch: list[Outgoing] = []
    size = 0
    for outgoing in messages:
        if outgoing.bytes > BATCH_BYTES_MAX:
            raise ContractError("message", f"{outgoing.bytes} bytes", "send at most 1 MiB")
        if len(batch) == BATCH_ENTRIES_MAX or size + outgoing.bytes > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], 0
        batch.append(outgoing)
        size += outgoing.bytes
    if batch:
        yield batch


def _entry(entry_id: str, outgoing: Outgoing) -> "SendMessageBatchRequestEntryTypeDef":
    entry: SendMessageBatchRequestEntryTypeDef = {
        "Id": entry_id,
        "MessageBody": outgoing.body,
        "MessageAttributes": {
            name: {"DataType": "String", "StringValue": value}
            for name, value in outgoing.attributes.items()
        },
    }
    if outgoing.delay:
        entry["DelaySeconds"] = _seconds(outgoing.delay)
    if outgoing.tenant is not None:
        entry["MessageGroupId"] = outgoing.tenant
    return entry


def _message(message: "MessageTypeDef", received_at: datetime) -> Message:
    system = message["Attributes"]
    return Message(
        message_id=message["MessageId"],
        body=message["Body"],
        receipt_handle=message["ReceiptHandle"],
        receive_count=int(system["ApproximateReceiveCount"]),
        sent_at=datetime.fromtimestamp(int(system["SentTimestamp"]) / 1000, UTC),
        received_at=received_at,
        tenant=system.get("MessageGroupId"),
        attributes={
            name: attribute["StringValue"]
            for name, attribute in message.get("MessageAttributes", {}).items()
            if "StringValue" in attribute
        },
    )


def _seconds(duration: timedelta) -> int:
    # Rounded up: half a second of visibility must not become zero.
    return math.ceil(duration.total_seconds())

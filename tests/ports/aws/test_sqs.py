"""What SQS answers and a simulated one does not."""

import json
from collections.abc import Iterator
from datetime import timedelta

import boto3
import pytest
from botocore.stub import Stubber

from spindown.aws.sqs import SqsJobQueue
from spindown.error import AccessDenied, ContractError, NotFound, StaleHandle, Throttled
from spindown.memory import MemoryClock
from spindown.port import Outgoing

URL = "https://sqs.us-east-1.amazonaws.com/1/q"


@pytest.fixture
def both(session: boto3.Session, clock: MemoryClock) -> Iterator[tuple[SqsJobQueue, Stubber]]:
    client = session.client("sqs")
    with Stubber(client) as stub:
        yield SqsJobQueue(client, URL, clock), stub
        stub.assert_no_pending_responses()


@pytest.mark.parametrize(
    "code", ["MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue"]
)
def test_a_handle_that_lost_its_message_is_stale(
    both: tuple[SqsJobQueue, Stubber], code: str
) -> None:
    queue, stub = both
    stub.add_client_error("change_message_visibility", code)
    stub.add_client_error("delete_message", code)

    with pytest.raises(StaleHandle):
        queue.extend("handle", timedelta(0))
    with pytest.raises(StaleHandle):
        queue.delete("handle")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("RequestThrottled", Throttled),
        ("AWS.SimpleQueueService.NonExistentQueue", NotFound),
        ("AccessDenied", AccessDenied),
        ("OverLimit", Throttled),
    ],
)
def test_an_error_of_the_queue_is_no_stale_handle(
    both: tuple[SqsJobQueue, Stubber], code: str, expected: type[Exception]
) -> None:
    queue, stub = both
    stub.add_client_error("change_message_visibility", code)
    with pytest.raises(expected):
        queue.extend("handle", timedelta(0))


def test_a_part_of_a_second_is_not_rounded_to_nothing(
    both: tuple[SqsJobQueue, Stubber],
) -> None:
    queue, stub = both
    stub.add_response(
        "change_message_visibility",
        {},
        {"QueueUrl": URL, "ReceiptHandle": "handle", "VisibilityTimeout": 1},
    )
    queue.extend("handle", timedelta(milliseconds=1))


def _sent(*ids: str) -> dict[str, object]:
    return {
        "QueueUrl": URL,
        "Entries": [
            {"Id": entry_id, "MessageBody": f"body {entry_id}", "MessageAttributes": {}}
            for entry_id in ids
        ],
    }


def _failed(*ids: str, is_ours: bool = False) -> dict[str, object]:
    return {
        "Successful": [],
        "Failed": [
            {"Id": i, "SenderFault": is_ours, "Code": "InternalError", "Message": "not taken"}
            for i in ids
        ],
    }


THREE = [Outgoing(body=f"body {number}") for number in range(3)]


def test_sends_again_only_what_sqs_failed_to_take(both: tuple[SqsJobQueue, Stubber]) -> None:
    queue, stub = both
    stub.add_response("send_message_batch", _failed("0", "2"), _sent("0", "1", "2"))
    stub.add_response("send_message_batch", _failed("2"), _sent("0", "2"))
    stub.add_response("send_message_batch", _failed(), _sent("2"))

    queue.send(THREE)


def test_gives_up_when_sqs_goes_on_failing(both: tuple[SqsJobQueue, Stubber]) -> None:
    queue, stub = both
    for _ in range(3):
        stub.add_response("send_message_batch", _failed("0"))

    with pytest.raises(Throttled):
        queue.send(THREE)


def test_says_what_was_wrong_with_a_message(both: tuple[SqsJobQueue, Stubber]) -> None:
    queue, stub = both
    stub.add_response("send_message_batch", _failed("1", is_ours=True))

    with pytest.raises(ContractError, match="not taken"):
        queue.send(THREE)


def test_shows_again_only_what_sqs_failed_to_show(both: tuple[SqsJobQueue, Stubber]) -> None:
    queue, stub = both
    stub.add_response("change_message_visibility_batch", _failed("0", "2"), _shown("a", "b", "c"))
    stub.add_response(
        "change_message_visibility_batch", _failed("0", is_ours=True), _shown("a", "c")
    )

    queue.show(["a", "b", "c"])


def test_gives_up_when_sqs_goes_on_hiding(both: tuple[SqsJobQueue, Stubber]) -> None:
    queue, stub = both
    for _ in range(3):
        stub.add_response("change_message_visibility_batch", _failed("0"))

    with pytest.raises(Throttled):
        queue.show(["a"])


def _shown(*handles: str) -> dict[str, object]:
    entries = [
        {"Id": str(number), "ReceiptHandle": handle, "VisibilityTimeout": 0}
        for number, handle in enumerate(handles)
    ]
    return {"QueueUrl": URL, "Entries": entries}


def test_a_queue_is_encrypted_as_that_of_dead_letters(
    session: boto3.Session, clock: MemoryClock
) -> None:
    client, key = (
        session.client("sqs"),
        "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    )
    letters = client.create_queue(QueueName="ours--dlq", Attributes={"KmsMasterKeyId": key})
    url = letters["QueueUrl"].replace("--dlq", "--c4m8")
    queue = SqsJobQueue(client, url, clock)

    asked = list[object]()
    client.meta.events.register(
        "provide-client-params.sqs.CreateQueue",
        lambda params, **_: asked.append(json.loads(params["Attributes"]["RedriveAllowPolicy"])),
    )
    queue.create(dead_letters=letters["QueueUrl"], tags={"team": "vision"})

    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert found["KmsMasterKeyId"] == key
    assert asked == [{"redrivePermission": "denyAll"}]
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "vision"}

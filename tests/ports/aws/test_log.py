"""Lines of a log on their way to CloudWatch Logs: in batches, in order, and never in the way."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import EndpointConnectionError
from botocore.stub import ANY, Stubber

from spindown.aws.cloudwatch import BATCH_BYTES, BATCH_EVENTS, EVENT_BYTES, MESSAGE_BYTES, LogStream
from spindown.aws.wiring import Aws
from spindown.memory import MemoryClock

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient

GROUP = "/spindown/worker"
PLACE = {"logGroupName": GROUP, "logStreamName": "i-1"}


@pytest.fixture
def client(session: boto3.Session) -> "CloudWatchLogsClient":
    return session.client("logs")


@pytest.fixture
def stub(client: "CloudWatchLogsClient") -> Iterator[Stubber]:
    with Stubber(client) as stub:
        yield stub
        stub.assert_no_pending_responses()


@pytest.fixture
def waiting(client: "CloudWatchLogsClient", clock: MemoryClock) -> LogStream:
    """Return a stream with one line that waits to be sent."""
    stream = LogStream(client, GROUP, "i-1")
    stream.add("a", clock.now())
    return stream


def _batch(*messages: str) -> Mapping[str, Any]:
    return {**PLACE, "logEvents": [{"timestamp": ANY, "message": one} for one in messages]}


def _flush(client: "CloudWatchLogsClient", stream: LogStream) -> Sequence[Sequence[Any]]:
    """Flush; return the events of each request."""
    batches: list[Sequence[Any]] = []

    def answer(params: Mapping[str, Any], **_: object) -> tuple[AWSResponse, Mapping[str, Any]]:
        batches.append(json.loads(params["body"])["logEvents"])
        return AWSResponse("http://logs", 200, HTTPHeaders(), None), {}

    # An answer stands for the request (botocore's hook before-call), which the stubs do not say.
    hooks: Any = client.meta.events
    hooks.register("before-call.logs.PutLogEvents", answer)
    stream.flush()
    return batches


def test_lines_arrive_in_order_of_time_in_a_stream_that_is_made(
    session: boto3.Session, aws: Aws
) -> None:
    # The service refuses lines that are two weeks old, as a clock moved by hand would give.
    now = aws.clock.now()
    client = session.client("logs")
    client.create_log_group(logGroupName=GROUP)
    stream = aws.log_stream(GROUP, "i-1")
    stream.add("second", now + timedelta(seconds=1))
    stream.add("first", now)
    stream.flush()
    stream.add("third", now + timedelta(seconds=2))
    stream.flush()
    events = client.get_log_events(logGroupName=GROUP, logStreamName="i-1", startFromHead=True)[
        "events"
    ]

    assert [event["message"] for event in events] == ["first", "second", "third"]
    assert events[0]["timestamp"] == int(now.timestamp() * 1000)


def test_nothing_to_send_is_no_request(stub: Stubber, client: "CloudWatchLogsClient") -> None:
    LogStream(client, GROUP, "i-1").flush()


@pytest.mark.parametrize(
    ("count", "length", "batches"),
    [
        pytest.param(BATCH_EVENTS + 5, 1, [BATCH_EVENTS, 5], id="events"),
        pytest.param(3, BATCH_BYTES // 2 // 2 - EVENT_BYTES, [3], id="just fits"),
        pytest.param(9, BATCH_BYTES // 4 - EVENT_BYTES, [4, 4, 1], id="bytes"),
    ],
)
def test_no_batch_is_larger_than_the_api_allows(
    client: "CloudWatchLogsClient",
    clock: MemoryClock,
    count: int,
    length: int,
    batches: list[int],
) -> None:
    stream = LogStream(client, GROUP, "i-1")
    for _ in range(count):
        stream.add("x" * length, clock.now())

    assert [len(batch) for batch in _flush(client, stream)] == batches


def test_no_batch_spans_more_than_a_day(client: "CloudWatchLogsClient", clock: MemoryClock) -> None:
    stream = LogStream(client, GROUP, "i-1")
    for hours in range(0, 40, 4):
        stream.add("x", clock.now() + timedelta(hours=hours))

    for batch in _flush(client, stream):
        times = [event["timestamp"] for event in batch]
        assert max(times) - min(times) <= timedelta(days=1).total_seconds() * 1000


def test_a_line_longer_than_an_event_may_be_is_cut(
    client: "CloudWatchLogsClient", clock: MemoryClock
) -> None:
    stream = LogStream(client, GROUP, "i-1")
    stream.add("\N{EURO SIGN}" * MESSAGE_BYTES, clock.now())
    ((event,),) = _flush(client, stream)

    assert event["message"] == "\N{EURO SIGN}" * (MESSAGE_BYTES // 3)


@pytest.mark.parametrize(
    "code", ["ThrottlingException", "AccessDeniedException", "ServiceUnavailableException"]
)
def test_what_cannot_be_sent_waits_and_keeps_its_place(
    stub: Stubber,
    clock: MemoryClock,
    waiting: LogStream,
    caplog: pytest.LogCaptureFixture,
    code: str,
) -> None:
    stub.add_client_error("put_log_events", code)
    waiting.flush()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    waiting.add("b", clock.now())
    stub.add_response("put_log_events", {}, _batch("a", "b"))
    waiting.flush()
    assert waiting.take_dropped() == 0


def test_a_broken_connection_stops_nobody(
    client: "CloudWatchLogsClient", waiting: LogStream, caplog: pytest.LogCaptureFixture
) -> None:
    def break_connection(**_: object) -> None:
        raise EndpointConnectionError(endpoint_url="http://logs")

    client.meta.events.register("before-call.logs.PutLogEvents", break_connection)
    waiting.flush()

    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_refused_batch_is_dropped_and_counted(stub: Stubber, waiting: LogStream) -> None:
    stub.add_client_error("put_log_events", "InvalidParameterException")
    waiting.flush()
    waiting.flush()
    assert (waiting.take_dropped(), waiting.take_dropped()) == (1, 0)


def test_the_oldest_lines_are_dropped_when_too_much_waits(
    stub: Stubber, client: "CloudWatchLogsClient", clock: MemoryClock
) -> None:
    stream = LogStream(client, GROUP, "i-1", waiting_bytes=3 * (EVENT_BYTES + 1))
    for message in "abcd":
        stream.add(message, clock.now())
    stub.add_client_error("put_log_events", "ThrottlingException")
    stream.flush()
    stream.add("e", clock.now())
    stub.add_response("put_log_events", {}, _batch("c", "d", "e"))
    stream.flush()
    assert stream.take_dropped() == 2


def test_a_stream_that_another_has_just_made_is_taken(stub: Stubber, waiting: LogStream) -> None:
    stub.add_client_error("put_log_events", "ResourceNotFoundException")
    stub.add_client_error("create_log_stream", "ResourceAlreadyExistsException")
    stub.add_response("put_log_events", {}, _batch("a"))
    waiting.flush()


def test_a_stream_that_cannot_be_made_stops_nobody(stub: Stubber, waiting: LogStream) -> None:
    stub.add_client_error("put_log_events", "ResourceNotFoundException")
    stub.add_client_error("create_log_stream", "ResourceNotFoundException")
    waiting.flush()

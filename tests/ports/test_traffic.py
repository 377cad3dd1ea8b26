"""What every TrafficHistory promises, on CloudWatch as in memory."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from spindown.aws.cloudwatch import CloudWatchTrafficHistory
from spindown.memory import MemoryClock, MemoryTrafficHistory
from spindown.port import Sent, TrafficHistory

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)

Record = Callable[[str, datetime, int], None]


@pytest.fixture
def clock() -> MemoryClock:
    return MemoryClock(NOW)


@pytest.fixture(params=["memory", "cloudwatch"])
def told(
    request: pytest.FixtureRequest, session: boto3.Session, clock: MemoryClock
) -> tuple[TrafficHistory, Record]:
    """A history, and how to let messages have come."""
    if request.param == "memory":
        memory = MemoryTrafficHistory()
        return memory, memory.record
    client = session.client("cloudwatch")

    def record(queue: str, at: datetime, messages: int) -> None:
        client.put_metric_data(
            Namespace="AWS/SQS",
            MetricData=[
                {
                    "MetricName": "NumberOfMessagesSent",
                    "Dimensions": [{"Name": "QueueName", "Value": queue}],
                    "Timestamp": at,
                    "Value": messages,
                    "Unit": "Count",
                }
            ],
        )

    return CloudWatchTrafficHistory(client, clock), record


def test_counts_the_messages_of_each_minute_oldest_first(
    told: tuple[TrafficHistory, Record],
) -> None:
    history, record = told
    record("counts", NOW - 10 * MINUTE, 3)
    record("counts", NOW - 30 * MINUTE, 1)
    record("counts", NOW - 10 * MINUTE + timedelta(seconds=20), 2)
    record("counts", NOW - 20 * MINUTE, 0)

    assert list(history.sent("counts", since=NOW - DAY, until=NOW)) == [
        Sent(at=NOW - 30 * MINUTE, period=60.0, messages=1),
        Sent(at=NOW - 10 * MINUTE, period=60.0, messages=5),
    ]


def test_keeps_queues_and_spans_apart(told: tuple[TrafficHistory, Record]) -> None:
    history, record = told
    record("spans-other", NOW - 10 * MINUTE, 7)
    record("spans", NOW - 2 * DAY, 1)
    record("spans", NOW - DAY, 2)
    record("spans", NOW - MINUTE, 4)
    seen = history.sent("spans", since=NOW - DAY, until=NOW - MINUTE)

    assert [sent.messages for sent in seen] == [2]


def test_a_queue_that_nothing_was_sent_to_has_no_history(
    told: tuple[TrafficHistory, Record],
) -> None:
    history, _ = told
    assert list(history.sent("silent", since=NOW - DAY, until=NOW)) == []


def _answer(*points: tuple[datetime, float], token: str = "") -> Mapping[str, Any]:
    return {
        "MetricDataResults": [
            {
                "Id": "sent",
                "Timestamps": [at for at, _ in points],
                "Values": [value for _, value in points],
            }
        ],
        **({"NextToken": token} if token else {}),
    }


def test_reads_each_age_at_a_period_that_cloudwatch_still_has(
    session: boto3.Session, clock: MemoryClock
) -> None:
    client = session.client("cloudwatch")
    with Stubber(client) as stub:
        asked: list[Mapping[str, Any]] = []
        client.meta.events.register(
            "provide-client-params.cloudwatch.GetMetricData",
            lambda params, **_: asked.append(params),
        )
        stub.add_response("get_metric_data", _answer((NOW - DAY, 2.0), token="more"))
        stub.add_response("get_metric_data", _answer((NOW - 2 * DAY, 1.0)))
        stub.add_response("get_metric_data", _answer((NOW - 20 * DAY, 5.0), (NOW - 16 * DAY, 0.0)))
        stub.add_response("get_metric_data", _answer((NOW - 70 * DAY, 9.0)))
        history = CloudWatchTrafficHistory(client, clock)
        seen = history.sent("old", since=NOW - 80 * DAY + timedelta(seconds=7), until=NOW)

    assert [(sent.messages, sent.period) for sent in seen] == [
        (9, 3600.0),
        (5, 300.0),
        (1, 60.0),
        (2, 60.0),
    ]
    spans = [
        (call["StartTime"], call["EndTime"], call["MetricDataQueries"][0]["MetricStat"]["Period"])
        for call in asked
    ]
    hour = timedelta(hours=1)
    assert spans[0] == (NOW - 15 * DAY + hour, NOW, 60)
    assert spans[-2] == (NOW - 63 * DAY + hour, NOW - 15 * DAY + hour, 300)
    assert spans[-1] == (NOW - 80 * DAY, NOW - 63 * DAY + hour, 3600)


def test_no_message_is_counted_at_two_periods_where_these_meet(session: boto3.Session) -> None:
    odd = NOW + timedelta(minutes=17, seconds=23)
    client = session.client("cloudwatch")
    asked: list[Mapping[str, Any]] = []
    with Stubber(client) as stub:
        client.meta.events.register(
            "provide-client-params.cloudwatch.GetMetricData",
            lambda params, **_: asked.append(params),
        )
        for _ in range(3):
            stub.add_response("get_metric_data", _answer())
        history = CloudWatchTrafficHistory(client, MemoryClock(odd))
        history.sent("odd", since=odd - 80 * DAY, until=odd + timedelta(seconds=37))

    spans = [
        (call["StartTime"], call["EndTime"], call["MetricDataQueries"][0]["MetricStat"]["Period"])
        for call in asked
    ]
    for (begin, _, _), (_, end, period) in pairwise(spans):
        assert begin == end
        assert end.timestamp() % period == 0
    minutes, fives, _ = (begin for begin, _, _ in spans)
    hour = timedelta(hours=1)
    assert 15 * DAY - 2 * hour <= odd - minutes <= 15 * DAY - hour
    assert 63 * DAY - 2 * hour <= odd - fives <= 63 * DAY - hour

"""What every LogSource promises, on CloudWatch Logs as in memory."""

import itertools
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.error import NotFound
from spindown.memory import MemoryLog
from spindown.port import LogSource
from tests.local.waiting import until
from tests.ports.real_account import LATE, PREFIX, TAGS

Put = Callable[[str, datetime, str], None]

_names = (f"/{PREFIX}/{number}" for number in itertools.count())


def _on_cloudwatch(session: boto3.Session, aws: Aws) -> tuple[LogSource, Put]:
    client: Any = session.client("logs")
    group = next(_names)
    client.create_log_group(logGroupName=group, tags=TAGS)

    def put(stream: str, at: datetime, message: str) -> None:
        written = aws.log_stream(group, stream)
        written.add(message, at)
        written.flush()
        # CloudWatch shows an event some seconds after it has taken it.
        until(lambda: is_shown(stream, message), seconds=LATE, every=1.0)

    def is_shown(stream: str, message: str) -> bool:
        shown = client.filter_log_events(logGroupName=group, logStreamNames=[stream])
        return any(one["message"] == message for one in shown["events"])

    return aws.log_source(group), put


@pytest.fixture(params=["memory", "cloudwatch"])
def log(request: pytest.FixtureRequest) -> tuple[LogSource, Put]:
    if request.param == "cloudwatch":
        fixture = request.getfixturevalue
        return _on_cloudwatch(fixture("session"), fixture("aws"))
    memory = MemoryLog()
    return memory, memory.put


@pytest.fixture
def now(aws: Aws) -> datetime:
    # CloudWatch refuses what is two weeks old; it knows milliseconds only.
    return aws.clock.now().replace(microsecond=0)


def _line(job_id: str, text: str) -> str:
    return json.dumps({"event": "user_output", "job_id": job_id, "text": text})


def test_events_come_oldest_first_whoever_wrote_them(
    log: tuple[LogSource, Put], now: datetime
) -> None:
    source, put = log
    put("i-1", now, "first")
    put("i-1", now + timedelta(seconds=2), "third")
    put("i-2", now + timedelta(seconds=1), "second")

    found = list(source.read(since=now))

    assert [(one.stream, one.message) for one in found] == [
        ("i-1", "first"),
        ("i-2", "second"),
        ("i-1", "third"),
    ]
    assert [one.at for one in found] == [now + timedelta(seconds=n) for n in range(3)]


def test_what_is_earlier_is_left_out(log: tuple[LogSource, Put], now: datetime) -> None:
    source, put = log
    put("i-1", now - timedelta(milliseconds=1), "earlier")
    put("i-1", now, "now")

    assert [one.message for one in source.read(since=now)] == ["now"]


def test_only_events_of_the_jobs_and_their_children(
    log: tuple[LogSource, Put], now: datetime
) -> None:
    source, put = log
    for job_id in ("a", "a.00001", "a.b", "ab", "c"):
        put("i-1", now, _line(job_id, job_id))
    put("i-1", now, "no JSON")
    put("i-1", now, '["job_id", "a"]')
    put("i-1", now, '{"job_id": ["a"]}')

    found = [json.loads(one.message)["job_id"] for one in source.read(since=now, jobs=["a", "c"])]

    assert found == ["a", "a.00001", "c"]


def test_many_jobs_are_more_than_a_pattern_holds(log: tuple[LogSource, Put], now: datetime) -> None:
    source, put = log
    put("i-1", now, _line("job-7", "ours"))
    put("i-1", now, _line("other", "of another"))

    found = list(source.read(since=now, jobs=[f"job-{number}" for number in range(500)]))

    assert [json.loads(one.message)["text"] for one in found] == ["ours"]


def test_only_one_stream(log: tuple[LogSource, Put], now: datetime) -> None:
    source, put = log
    put("i-1", now, "one")
    put("i-2", now, "two")

    assert [one.message for one in source.read(since=now, stream="i-2")] == ["two"]


def test_a_group_that_is_not_there_is_said(aws: Aws, now: datetime) -> None:
    with pytest.raises(NotFound):
        next(aws.log_source(f"/{PREFIX}/none").read(since=now))

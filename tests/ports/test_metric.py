"""Metrics in the embedded metric format, printed and logged, and in memory."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import boto3
import pytest

from spindown.aws.cloudwatch import PrintedMetricSink, metric_events
from spindown.aws.wiring import Aws
from spindown.memory import MemoryClock, MemoryMetricSink
from spindown.port import Datum
from tests.ports.conftest import ComesTo
from tests.ports.real_account import PREFIX, TAGS

OCR = {"Deployment": "prod", "Workload": "ocr"}
BACKLOG = Datum(name="Backlog", value=3, dimensions=OCR)
BOOT = Datum(name="BootSeconds", value=41.5, dimensions=OCR)
DRY = Datum(name="LaunchRequests", value=2, dimensions=OCR | {"Outcome": "capacity"})


def _printed(clock: MemoryClock, data: Sequence[Datum]) -> list[Mapping[str, Any]]:
    stream = io.StringIO()
    PrintedMetricSink(stream, clock).emit(data)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_prints_one_line_for_each_set_of_dimensions(clock: MemoryClock) -> None:
    first, second = _printed(clock, [BACKLOG, DRY, BOOT])

    assert first == {
        "_aws": {
            "Timestamp": int(clock.now().timestamp() * 1000),
            "CloudWatchMetrics": [
                {
                    "Namespace": "Spindown",
                    "Dimensions": [["Deployment", "Workload"]],
                    "Metrics": [
                        {"Name": "Backlog", "Unit": "Count"},
                        {"Name": "BootSeconds", "Unit": "Seconds"},
                    ],
                }
            ],
        },
        "Deployment": "prod",
        "Workload": "ocr",
        "Backlog": 3,
        "BootSeconds": 41.5,
    }
    assert second["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [
        ["Deployment", "Outcome", "Workload"]
    ]
    assert (second["Outcome"], second["LaunchRequests"]) == ("capacity", 2)


def test_a_reason_stands_beside_a_metric_and_is_no_dimension(clock: MemoryClock) -> None:
    untold = Datum(name="Untold", value=2, dimensions=OCR, reason="sns:Publish is refused")

    plain, event = _printed(clock, [BACKLOG, untold])

    assert event["reason"] == "sns:Publish is refused"
    assert event["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["Deployment", "Workload"]]
    assert "reason" not in plain


def test_values_of_one_metric_go_together(clock: MemoryClock) -> None:
    (event,) = _printed(clock, [BOOT] * 3)
    assert event["BootSeconds"] == [41.5, 41.5, 41.5]


def test_no_event_holds_more_values_than_the_format_allows(clock: MemoryClock) -> None:
    events = _printed(clock, [BOOT] * 250)
    assert [len(event["BootSeconds"]) for event in events] == [100, 100, 50]


def test_no_data_is_no_event(clock: MemoryClock) -> None:
    assert _printed(clock, []) == []


def test_drops_a_metric_that_no_table_knows(
    clock: MemoryClock, caplog: pytest.LogCaptureFixture
) -> None:
    stray = Datum(name="Stray", value=1, dimensions=OCR)

    assert len(metric_events([stray, BACKLOG], clock.now())) == 1
    assert metric_events([stray], clock.now()) == []
    assert "Stray" in caplog.text


def test_logs_events_among_the_lines_of_a_stream(
    session: boto3.Session, aws: Aws, comes_to: ComesTo
) -> None:
    client = session.client("logs")
    group = f"/{PREFIX}/ocr"
    client.create_log_group(logGroupName=group, tags=TAGS)
    stream = aws.log_stream(group, "i-1")
    sink = aws.logged_metrics(stream)
    sink.emit([BACKLOG])
    sink.emit([DRY])
    sink.emit([])
    stream.flush()

    def workloads() -> list[str]:
        events = client.get_log_events(logGroupName=group, logStreamName="i-1", startFromHead=True)[
            "events"
        ]
        return [json.loads(event["message"])["Workload"] for event in events]

    comes_to(workloads, ["ocr", "ocr"])


def test_memory_keeps_metrics_to_be_looked_at() -> None:
    sink = MemoryMetricSink()
    sink.emit([BACKLOG, BOOT])
    sink.emit([DRY])

    assert sink.data == (BACKLOG, BOOT, DRY)
    assert sink.values("Backlog") == [3]

"""What other systems hear of a job arrives as it was said, in memory and on EventBridge."""

import json
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.contract.job.event import COMPLETED, FAILED, JobEvent, job_event
from spindown.contract.job.manifest import JobState, Manifest, Part
from spindown.domain.retry_or_dead_letter import Failure
from spindown.error import Unreachable
from spindown.memory import MemoryJobEvents

FAILED_STATE = JobState.FAILED
AT = datetime(2026, 11, 21, 12, tzinfo=UTC)


def an_event(
    job_id: str = "j", state: JobState = JobState.COMPLETED, *, failed: int = 0
) -> JobEvent:
    manifest = Manifest(
        job_id=job_id,
        epoch=2,
        owner="i-1/0",
        state=state,
        items=3,
        parts=(Part(key="k", first=0, last=2, bytes=1, sha256="s", failed=failed),),
        failures=(Failure(at=AT, instance_id="i-1", epoch=1, kind="failure", reason="r"),),
        interruptions=1,
        busy_seconds=12.34567,
        cost_usd=0.0012345678,
        batch_id="b",
        finished_at=AT,
        reason="2 failures" if state is JobState.FAILED else "",
    )
    return job_event(manifest, deployment="lab", workload="ocr", now=AT)


def test_an_event_says_how_a_job_ended_and_where_results_are() -> None:
    event = an_event(state=JobState.FAILED, failed=1)
    assert event.detail_type == FAILED
    detail = json.loads(event.detail)
    assert detail["at"] == "2026-11-21T12:00:00.000000Z"
    assert (detail["items"], detail["items_failed"], detail["attempts"]) == (3, 1, 2)
    assert (detail["busy_seconds"], detail["cost_usd"]) == (12.346, 0.001235)
    assert detail["manifest"] == "workloads/ocr/jobs/j/manifest.json"
    assert detail["reason"] == "2 failures"


@pytest.fixture
def fresh(session: boto3.Session) -> boto3.Session:
    """Return a session that no other test listens to."""
    return boto3.Session(region_name=session.region_name)


def test_events_go_to_the_default_bus_ten_a_request(fresh: boto3.Session) -> None:
    requests: list[list[dict[str, Any]]] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        requests.append(params["Entries"])

    fresh.events.register("before-parameter-build.eventbridge.PutEvents", note)
    Aws(fresh).job_events().send(
        [*(an_event(f"j{n}") for n in range(12)), an_event("bad", FAILED_STATE)]
    )

    assert [len(entries) for entries in requests] == [10, 3]
    entries = [entry for request in requests for entry in request]
    assert {entry["Source"] for entry in entries} == {"spindown.lab.ocr"}
    assert [entry["DetailType"] for entry in entries] == [COMPLETED] * 12 + [FAILED]
    assert [json.loads(entry["Detail"])["job_id"] for entry in entries][-2:] == ["j11", "bad"]
    assert not any("EventBusName" in entry for entry in entries)


def test_an_event_that_is_refused_is_told(fresh: boto3.Session) -> None:
    def refuse(parsed: dict[str, Any], **_: Any) -> None:
        parsed |= {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure"}]}

    fresh.events.register("after-call.eventbridge.PutEvents", refuse)
    with pytest.raises(Unreachable, match="InternalFailure"):
        Aws(fresh).job_events().send([an_event()])


def test_memory_keeps_what_was_sent_and_can_fall_silent() -> None:
    events = MemoryJobEvents()
    events.send([an_event()])
    events.is_reachable = False
    with pytest.raises(Unreachable):
        events.send([an_event("k")])
    assert [event.job_id for event in events.sent] == ["j"]

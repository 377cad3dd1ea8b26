"""From a message sent to its first item done, in the local system at a tick of two seconds.

What EC2 and the guest's boot take is simulated (0.1 s each here, and subtracted): the rest is
ours and the emulator's, from the alarm or tick through the functions to the worker's first
result. Several messages are sent one after another, each to an empty fleet; every other one
is followed by a nudge, as ``spindown submit`` does.
"""

import json
import statistics
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spindown.cli.session import Session, connect
from spindown.contract.job.manifest import JobState
from spindown.error import NotFound
from spindown.job.result import read_manifest
from spindown.local.system import LocalSystem
from tests.bench.record import record
from tests.local.waiting import until
from tests.local.world import at_once, write_config

pytestmark = pytest.mark.bench

LIMIT_S = 5.0
MESSAGES = 6
_POLICY = """
[workload.count.policy]
idle_timeout = "1s"
tick = "2s"
boot_estimate = "1s"
heartbeat_interval = "3s"
heartbeat_stale_after = "30s"
lease_duration = "15s"
"""


def finished_at(session: Session, job_id: str) -> datetime | None:
    try:
        manifest = read_manifest(job_id, session.work_store("count"))
    except NotFound:
        return None
    return manifest.finished_at if manifest.state is JobState.COMPLETED else None


def latency(system: LocalSystem, session: Session, number: int) -> float:
    queue = session.workload("count").queue_url
    until(lambda: all(i.state == "terminated" for i in system.status().instances), seconds=60)
    job_id, sent_at = f"job-{number}", datetime.now(UTC)
    body = json.dumps({"items": ["one"], "job_id": job_id})
    system.client("sqs").send_message(QueueUrl=queue, MessageBody=body)
    if number % 2:
        session.nudge("count")
    done_at = until(lambda: finished_at(session, job_id), seconds=60)
    assert done_at is not None
    boot = timedelta(seconds=0.2)
    return (done_at - sent_at - boot).total_seconds()


def test_every_message_is_served_and_its_latency_measured(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    (tmp_path / "code" / "count.py").write_text(
        "from spindown.user import Result\n\n\n"
        "def run(batch, ctx):\n    return [Result(item, 1) for item in batch]\n",
        encoding="utf-8",
    )
    config.write_text(config.read_text(encoding="utf-8") + _POLICY, encoding="utf-8")
    with LocalSystem(config, scenario=at_once(), state=tmp_path / "state") as system:
        system.deploy()
        session = connect(system.deployment, system.region)
        taken = [latency(system, session, number) for number in range(MESSAGES)]
    record(
        "latency",
        {
            "messages": MESSAGES,
            "median_s": round(statistics.median(taken), 2),
            "with_nudge_median_s": round(statistics.median(taken[1::2]), 2),
            "slowest_s": round(max(taken), 2),
            "limit_s": LIMIT_S,
            "tick_s": system._tick.total_seconds(),
        },
    )
    assert len(taken) == MESSAGES

"""A program of any kind, deployed and run: interrupted, resumed from its checkpoint, told of."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.ec2sim import EndReason
from tests.e2e.world import ROOT, SWIFT, World, deployed, found
from tests.local.world import at_once

pytestmark = pytest.mark.proof

STEPS = 100_000

_CONFIG = f"""
[deployment]
name = "e2e"
region = "us-east-1"
zones = ["us-east-1a", "us-east-1b"]

[workload.simulate.run]
command = ["{sys.executable}", "simulate.py"]
code = "simulate"
batch_size = 1
item_timeout = "5m"
stop_grace = "1s"

[workload.simulate.policy]
{SWIFT}checkpoint_interval = "1s"
commit_margin = "1s"

[workload.picture.run]
image = "render:1"

[workload.picture.policy]
tick = "1s"
start_within = "1s"
max_workers = 1
boot_estimate = "1s"
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("program")
    shutil.copytree(ROOT / "examples" / "simulate", directory / "simulate")
    path = directory / "spindown.toml"
    path.write_text(_CONFIG, encoding="utf-8")
    hidden = directory / "hidden"
    hide_runtimes(hidden)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(hidden), prepend=os.pathsep)
        with deployed(path, at_once().model_copy(update={"interruption": ()})) as world:
            yield world


def hide_runtimes(directory: Path) -> None:
    """Let no worker find a container runtime that this machine may have."""
    directory.mkdir()
    for name in ("docker", "podman", "nerdctl"):
        (directory / name).write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        (directory / name).chmod(0o755)


def source_of(world: World) -> str:
    return f"spindown.{world.session.deployment.name}.simulate"


def hear_jobs(world: World) -> str:
    """Make a rule as docs/batches.md shows it; return the URL of the queue that it feeds."""
    sqs, bus = world.system.client("sqs"), world.system.client("events")
    url = str(sqs.create_queue(QueueName="heard")["QueueUrl"])
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    pattern = {
        "source": [source_of(world)],
        "detail-type": ["Spindown Job Completed"],
    }
    bus.put_rule(Name="jobs-done", EventPattern=json.dumps(pattern))
    targets = [{"Id": "queue", "Arn": attributes["Attributes"]["QueueArn"]}]
    bus.put_targets(Rule="jobs-done", Targets=targets)
    return url


def test_a_program_resumes_from_its_checkpoint(world: World) -> None:
    url = hear_jobs(world)
    world.send("simulate", {"items": [{"steps": 10}, {"steps": STEPS}], "job_id": "heat"})
    first = world.worker_at_work("simulate")
    store = world.session.work_store("simulate")
    found(lambda: list(store.list("state/heat/")))
    world.system.market.interrupt(first.instance_id, notice=timedelta(seconds=8))

    second = world.worker_at_work("simulate", first.instance_id)
    done = world.finished("heat")

    assert (done.state, done.interruptions) == ("completed", 1)
    assert second.instance_id != first.instance_id
    short, long = (record["result"] for record in world.records("heat"))
    assert (short["steps"], long["steps"]) == (10, STEPS)
    assert long["resumed_at"] > 0
    reasons = {one.instance_id: one.reason for one in world.instances("simulate")}
    assert reasons[first.instance_id] is EndReason.RECLAIMED

    log = world.spindown("logs", "heat").stdout
    assert "== heat, attempt 1 ==\nitem 0: from step 0 of 10\n" in log
    assert f"item 1: from step {long['resumed_at']} of {STEPS}" in log

    sqs = world.system.client("sqs")

    def hear() -> Any:
        return sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1).get("Messages")

    [message] = found(hear)
    event = json.loads(message["Body"])
    assert event["source"] == source_of(world)
    assert event["detail-type"] == "Spindown Job Completed"
    assert (event["detail"]["job_id"], event["detail"]["interruptions"]) == ("heat", 1)
    assert event["detail"]["manifest"] == "workloads/simulate/jobs/heat/manifest.json"


def test_without_a_container_runtime_an_instance_ends(world: World) -> None:
    world.send("picture", {"items": ["a"]})

    def look() -> str | None:
        ledger = world.session.ledger("picture")
        rows = {**ledger.read_ended(), **ledger.read().workers}.values()
        return next(
            (str(row.reason.about["fault"]) for row in rows if row.unfit_at is not None), None
        )

    assert "run.image needs a container runtime" in found(look)

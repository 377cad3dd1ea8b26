"""Deploy, change, destroy: the core stack in the embedded emulator, by ``cdk`` itself."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from spindown.contract import tag
from spindown.local import environment
from spindown.local.deployment import deploy, destroy
from spindown.local.system import LocalSystem
from tests.e2e.world import PATIENCE, TICK
from tests.local.waiting import until
from tests.local.world import a_system

pytestmark = pytest.mark.proof

CONFIG = """
[deployment]
name = "{name}"
region = "us-east-1"
zones = {zones}

[workload.sleep.run]
entrypoint = "sleep:run"
code = "code"

[workload.sleep.policy]
max_workers = 2
start_within = "{start_within}"
idle_timeout = "10m"
"""

#: Never done: only who terminates the instance ends it.
CODE = """
import time

def run(batch, ctx):
    while True:
        time.sleep(1)
"""


def write_project(
    directory: Path,
    *,
    name: str = "life",
    start_within: str = "1m",
    zones: Sequence[str] = ("us-east-1a", "us-east-1b"),
) -> Path:
    (directory / "code").mkdir(exist_ok=True, parents=True)
    (directory / "code" / "sleep.py").write_text(CODE, encoding="utf-8")
    path = directory / "spindown.toml"
    config = CONFIG.format(name=name, start_within=start_within, zones=json.dumps(zones))
    path.write_text(config, encoding="utf-8")
    return path


@pytest.fixture
def system(tmp_path: Path) -> Iterator[LocalSystem]:
    with a_system(write_project(tmp_path), tick=TICK) as started:
        yield started


def physical_ids(system: LocalSystem, stack: str) -> Mapping[str, tuple[str, str]]:
    """Return logical id -> type and physical id."""
    found = system.client("cloudformation").describe_stack_resources(StackName=stack)
    return {
        one["LogicalResourceId"]: (one["ResourceType"], one["PhysicalResourceId"])
        for one in found["StackResources"]
    }


def of_deployment(system: LocalSystem, name: str) -> Mapping[str, Any]:
    """Return what is there under a deployment's name, by kind."""
    tables = system.client("dynamodb").list_tables()["TableNames"]
    queues = system.client("sqs").list_queues().get("QueueUrls", [])
    functions = system.client("lambda").list_functions()["Functions"]
    schedules = system.client("scheduler").list_schedules()["Schedules"]
    parameters = system.client("ssm").get_parameters_by_path(
        Path=f"/spindown/{name}", Recursive=True
    )
    alarms = system.client("cloudwatch").describe_alarms()["MetricAlarms"]
    return {
        "tables": [one for one in tables if one.startswith(f"{name}--")],
        "queues": sorted(url.rpartition("/")[2] for url in queues if f"/{name}--" in url),
        "functions": sorted(
            one["FunctionName"] for one in functions if one["FunctionName"].startswith(f"{name}--")
        ),
        "schedules": sorted(
            one["Name"] for one in schedules if one["Name"].startswith(f"{name}--")
        ),
        "parameters": sorted(one["Name"] for one in parameters["Parameters"]),
        "alarms": sorted(
            one["AlarmName"] for one in alarms if one["AlarmName"].startswith(f"{name}--")
        ),
    }


NOTHING: Mapping[str, Any] = {
    kind: [] for kind in ("tables", "queues", "functions", "schedules", "parameters", "alarms")
}


def deployed(name: str) -> Mapping[str, Any]:
    """Return what one deployment of one workload has under its name."""
    return {
        "tables": [f"{name}--ledger"],
        "functions": [f"{name}--{one}" for one in ("interruption", "offers", "scaler", "teardown")],
        "schedules": [f"{name}--offers", f"{name}--sleep--tick"],
        "parameters": [
            f"/spindown/{name}/{one}"
            for one in ("builder/group", "builder/subnet", "deployment", "workload/sleep")
        ],
        "alarms": [f"{name}--sleep--backlog"],
    }


def running(system: LocalSystem, name: str) -> list[str]:
    return [
        one.instance_id
        for one in system.market.instances()
        if one.tags.get(tag.DEPLOYMENT) == name and one.state != "terminated"
    ]


def zones_of(system: LocalSystem, name: str) -> Mapping[str, str]:
    return {
        one.instance_id: one.zone
        for one in system.market.instances()
        if one.instance_id in running(system, name)
    }


def send(system: LocalSystem, name: str) -> None:
    queue = system.client("sqs").get_queue_url(QueueName=f"{name}--sleep")["QueueUrl"]
    system.client("sqs").send_message(QueueUrl=queue, MessageBody=json.dumps({"items": ["a"]}))


def test_a_deployment_lives_changes_and_goes_with_its_instances(
    system: LocalSystem, tmp_path: Path
) -> None:
    system.deploy()
    was = physical_ids(system, "life-core")
    found = of_deployment(system, "life")
    assert {kind: found[kind] for kind in deployed("life")} == deployed("life")
    assert {"life--sleep", "life--sleep--dlq"} <= set(found["queues"])

    write_project(tmp_path, start_within="2m")
    system.deploy()

    now = physical_ids(system, "life-core")
    kept = ("AWS::DynamoDB::GlobalTable", "AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::EC2::VPC")
    assert len([kind for kind, _ in now.values() if kind in kept]) == 6
    for name, (kind, physical_id) in was.items():
        if kind in kept:
            assert now[name] == (kind, physical_id)
    settings = system.client("ssm").get_parameter(Name="/spindown/life/workload/sleep")
    assert json.loads(settings["Parameter"]["Value"])["policy"]["start_within"] == 120.0

    send(system, "life")
    until(lambda: running(system, "life"), seconds=PATIENCE)
    system.destroy()

    assert running(system, "life") == []
    assert of_deployment(system, "life") == NOTHING
    (bucket,) = (found for kind, found in now.values() if kind == "AWS::S3::Bucket")
    assert system.client("s3").head_bucket(Bucket=bucket)


def test_a_deploy_without_a_zone_ends_its_workers_and_goes_on(
    system: LocalSystem, tmp_path: Path
) -> None:
    system.deploy()
    send(system, "life")
    until(lambda: running(system, "life"), seconds=PATIENCE)
    ((before, zone),) = zones_of(system, "life").items()
    stays = "us-east-1b" if zone == "us-east-1a" else "us-east-1a"

    write_project(tmp_path, zones=[stays])
    system.deploy()

    assert before not in running(system, "life")
    until(lambda: set(zones_of(system, "life").values()) == {stays}, seconds=PATIENCE)


def test_two_deployments_side_by_side_do_not_see_each_other(
    system: LocalSystem, tmp_path: Path
) -> None:
    system.deploy()
    other, state = write_project(tmp_path / "other", name="second"), tmp_path / "second"
    state.mkdir()
    how = {
        "stacks": ["second-core"],
        "state": state,
        "environment": environment.outer_environment()
        | environment.aws_environment(system.endpoint, system.region),
    }
    deploy(other, **how, log=tmp_path / "second.log")  # type: ignore[arg-type]
    for name in ("life", "second"):
        found = of_deployment(system, name)
        assert {kind: found[kind] for kind in deployed(name)} == deployed(name)

    for name in ("life", "second"):
        send(system, name)
    for name in ("life", "second"):
        until(lambda: running(system, name), seconds=PATIENCE)  # noqa: B023 - used at once
    destroy(other, **how, log=tmp_path / "destroy.log")  # type: ignore[arg-type]

    assert (running(system, "second"), of_deployment(system, "second")) == ([], NOTHING)
    assert running(system, "life")
    assert {kind: of_deployment(system, "life")[kind] for kind in deployed("life")} == deployed(
        "life"
    )

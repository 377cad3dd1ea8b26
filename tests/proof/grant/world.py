"""A small deployment under IAM that does nothing unless a test makes it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spindown.cli.session import Session, connect
from spindown.ec2sim import Ec2Instance
from spindown.job.result import JobProgress, read_progress
from spindown.local import emulator
from spindown.local.system import LocalSystem
from spindown.port import ObjectStore
from tests.e2e.world import PATIENCE
from tests.local.waiting import until
from tests.local.world import a_system
from tests.proof.grant.enforcement import Enforcement
from tests.proof.grant.image_builder import ImageBuilderWorld

WORKER = "WorkloadcountFleetRole"
SCALER = "ControlScalerRole"
INTERRUPTION = "ControlInterruptionRole"
OFFERS = "ControlOffersRole"
INTAKE = "ControlIntakeRole"
TEARDOWN = "ControlTeardownFunctionRole"
TRIGGER = "ControlTriggerRole"

#: No tick comes by itself while a test runs.
_NEVER = timedelta(days=1)

CONFIG = """
[deployment]
name = "iam"
region = "us-east-1"
zones = ["us-east-1a", "us-east-1b"]

[workload.other.run]
entrypoint = "count:run"
code = "code"

[workload.typed.run]
entrypoint = "count:run"
code = "code"

[[workload.typed.policy.types]]
name = "small"
memory_gib = 4

[[workload.typed.policy.types]]
name = "huge"
memory_gib = 8000

[workload.count]
inputs = ["s3://papers/2026/"]

[workload.count.run]
entrypoint = "count:run"
code = "code"
secrets = { TOKEN = "hub/token", PASSWORD = "/count/password" }

[workload.count.policy]
idle_timeout = "1s"
max_workers = 1
boot_estimate = "1s"
start_within = "1s"
heartbeat_interval = "1s"
"""

CODE = """
import os

from spindown.user import Result

def run(batch, ctx):
    for item in batch:
        yield Result(item, {"token": os.environ["TOKEN"], "password": os.environ["PASSWORD"]})
"""


class FunctionFailed(AssertionError):
    """A function ended with an error, which Lambda describes so."""


@dataclass(frozen=True)
class World:
    """A deployment under IAM, and what its tests do with it as its owner."""

    system: LocalSystem
    session: Session
    iam: Enforcement
    #: The beginning of a role's name -> its name.
    roles: Mapping[str, str]
    #: Hears what people are told, and of jobs that are over.
    inbox: str
    #: When all began anew, each time.
    since: list[datetime]

    @property
    def store(self) -> ObjectStore:
        """Return the workload's part of the bucket."""
        return self.session.work_store("count")

    def client(self, service: str) -> Any:
        """Return a client of the owner's."""
        return self.system.client(service)

    def invoke(self, function: str, event: object) -> Mapping[str, Any]:
        """Run a function; return what it answers (FunctionFailed)."""
        answer = self.client("lambda").invoke(
            FunctionName=f"iam--{function}", Payload=json.dumps(event).encode()
        )
        said: Mapping[str, Any] | None = json.loads(answer["Payload"].read() or b"null")
        if "FunctionError" in answer:
            raise FunctionFailed(said)
        return said or {}

    def tick(self, workload: str = "count") -> Mapping[str, Any]:
        """Tick."""
        return self.invoke("scaler", {"source": "spindown.tick", "workload": workload})

    def send(self, body: object, workload: str = "count") -> None:
        """Drop a message on the queue; a text goes as it is."""
        text = body if isinstance(body, str) else json.dumps(body)
        url = self.session.workload(workload).queue_url
        self.client("sqs").send_message(QueueUrl=url, MessageBody=text)

    def progress(self, job_id: str) -> JobProgress:
        """Return how far a job is."""
        return read_progress(job_id, self.store)

    def buried(self, workload: str = "count") -> int:
        """Return how many messages lie in the dead-letter queue."""
        return self.session.aws.queue(self.session.workload(workload).dlq_url).backlog().visible

    def shape_queues(self, workload: str) -> list[str]:
        """Return the URLs of the queues of shapes that a workload has."""
        prefix = f"iam--{workload}--c"
        return list(self.client("sqs").list_queues(QueueNamePrefix=prefix).get("QueueUrls", ()))

    def heard(self) -> list[str]:
        """Return what was said since the last look."""
        sqs, texts = self.client("sqs"), []
        while found := sqs.receive_message(QueueUrl=self.inbox).get("Messages"):
            for message in found:
                texts.append(message["Body"])
                sqs.delete_message(QueueUrl=self.inbox, ReceiptHandle=message["ReceiptHandle"])
        return texts

    def running(self) -> list[Ec2Instance]:
        """Return the instances that have not ended."""
        return [one for one in self.system.market.instances() if one.state != "terminated"]

    def launched(self) -> list[Ec2Instance]:
        """Return the instances that were launched since all began anew."""
        return [one for one in self.system.market.instances() if one.launched_at >= self.since[-1]]

    def console(self, instance: Ec2Instance) -> str:
        """Return what an instance has written to its console."""
        path = self.system.hypervisor.console_path(instance.instance_id)
        return path.read_text(encoding="utf-8")

    def logged(self, instance_id: str) -> list[str]:
        """Return what an instance has written to the log group of its workload."""
        logs = self.client("logs")
        group = "/spindown/iam/worker/count"
        found = logs.describe_log_streams(logGroupName=group)["logStreams"]
        if instance_id not in {one["logStreamName"] for one in found}:
            return []
        events = logs.get_log_events(logGroupName=group, logStreamName=instance_id)["events"]
        return [event["message"] for event in events]

    def begin_anew(self) -> None:
        """Leave no instance, no row and no message, and no denial."""
        running = self.running()
        if running:
            ids = [one.instance_id for one in running]
            self.client("ec2").terminate_instances(InstanceIds=ids)
            until(lambda: not self.running(), seconds=PATIENCE)
        table = self.client("dynamodb")
        for item in table.scan(TableName="iam--ledger")["Items"]:
            key = {name: item[name] for name in ("pk", "sk")}
            table.delete_item(TableName="iam--ledger", Key=key)
        for name in ("count", "typed"):
            settings = self.session.workload(name)
            for url in (settings.queue_url, settings.dlq_url, self.inbox):
                self.client("sqs").purge_queue(QueueUrl=url)
        for name in ("count", "typed", "gone"):
            for url in self.shape_queues(name):
                self.client("sqs").delete_queue(QueueUrl=url)
        self.iam.denied.clear()
        self.since.append(datetime.now(UTC))

    def forget(self) -> None:
        """Let every function start afresh at its next call, remembering nothing."""
        # MiniStack reads the environment when it is imported.
        from ministack.core import lambda_runtime  # noqa: PLC0415

        until(lambda: not lambda_runtime.workers_in_use(), seconds=PATIENCE)
        self.system.gateway.call(emulator.renew_functions)


def deployed(directory: Path, *, rules: str = "") -> Iterator[World]:
    """Yield a deployment under IAM, which is taken down after.

    Args:
        directory: an empty one for its project.
        rules: further keys of ``[deployment]``, a line each.
    """
    (directory / "code").mkdir()
    (directory / "code" / "count.py").write_text(CODE, encoding="utf-8")
    (directory / "spindown.toml").write_text(
        CONFIG.replace("zones =", f"{rules}zones ="), encoding="utf-8"
    )
    iam = Enforcement()
    system = a_system(
        directory / "spindown.toml",
        tick=_NEVER,
        credentials=iam.credentials,
        emulate=ImageBuilderWorld(iam.allows).load,
    )
    with system, iam.on(system):
        _prepare(system)
        system.deploy()
        # The first hour of a deployment.
        assert iam.denied == []
        iam.learn_profiles()
        session = connect("iam", system.region)
        yield World(system, session, iam, _find_roles(system), _listen(system, session), [])


def _prepare(system: LocalSystem) -> None:
    s3 = system.client("s3")
    s3.create_bucket(Bucket="papers")
    s3.put_object(Bucket="papers", Key="2026/a.txt", Body=b"a")
    system.client("secretsmanager").create_secret(Name="hub/token", SecretString="t")
    system.client("ssm").put_parameter(Name="/count/password", Value="p", Type="SecureString")


def _find_roles(system: LocalSystem) -> dict[str, str]:
    found = system.client("cloudformation").describe_stack_resources(StackName="iam-core")
    return {
        one["LogicalResourceId"][:-8]: one["PhysicalResourceId"]
        for one in found["StackResources"]
        if one["ResourceType"] == "AWS::IAM::Role"
    }


def _listen(system: LocalSystem, session: Session) -> str:
    """Let one queue hear what people are told and what other systems hear of jobs."""
    sqs, events = system.client("sqs"), system.client("events")
    url = sqs.create_queue(QueueName="inbox")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    allow = {
        "Effect": "Allow",
        "Principal": {"Service": ["events.amazonaws.com", "sns.amazonaws.com"]},
        "Action": "sqs:SendMessage",
        "Resource": arn["QueueArn"],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    system.client("sns").subscribe(
        TopicArn=session.deployment.topic, Protocol="sqs", Endpoint=arn["QueueArn"]
    )
    events.put_rule(Name="inbox", EventPattern=json.dumps({"source": ["spindown.iam.count"]}))
    events.put_targets(Rule="inbox", Targets=[{"Id": "inbox", "Arn": arn["QueueArn"]}])
    return str(url)

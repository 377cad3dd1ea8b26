"""A small deployment for tests of the local system: its spindown.toml and a function."""

import io
import json
import re
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from spindown.local.market import Scenario
from spindown.local.market.scenario import parse_scenario
from spindown.local.system import LocalSystem

ROLE = "arn:aws:iam::000000000000:role/test"

#: Sends what it is invoked with to the queue that bears its own name.
RECORDER = """
import json, os
import boto3

def handler(event, context):
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=os.environ["AWS_LAMBDA_FUNCTION_NAME"])["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=json.dumps(event))
    return {"endpoint": os.environ["AWS_ENDPOINT_URL"]}
"""


def write_config(directory: Path, *, name: str = "test") -> Path:
    """Write a spindown.toml of one workload with its code; return its path."""
    code = directory / "code"
    code.mkdir(parents=True, exist_ok=True)
    (code / "count.py").write_text("def run(batch, ctx):\n    return []\n", encoding="utf-8")
    path = directory / "spindown.toml"
    path.write_text(
        f"""
[deployment]
name = "{name}"
region = "us-east-1"
zones = ["us-east-1a", "us-east-1b"]

[workload.count.run]
entrypoint = "count:run"
code = "code"
""",
        encoding="utf-8",
    )
    return path


def a_system(config: Path, **more: Any) -> LocalSystem:
    """Return a local system that is not yet started, its state beside spindown.toml."""
    given = {"scenario": at_once(), **more}
    return LocalSystem(config, state=config.parent / "state", port=0, **given)


def at_once() -> Scenario:
    """Return the shipped default scenario with instances that boot and end in no time."""
    return parse_scenario(at_once_text(), origin="at_once.toml")


def at_once_text() -> str:
    """Return the file of that scenario."""
    shipped = files("spindown.local").joinpath("scenario", "default.toml")
    text = shipped.read_text(encoding="utf-8")
    return re.sub(r"^(pending|boot|ending) = .*$", r'\1 = "0.1s"', text, flags=re.MULTILINE)


def launch(system: LocalSystem, instance_type: str = "g6.xlarge") -> str:
    """Launch one spot instance from a template of its own; return its id."""
    ec2 = system.client("ec2")
    template = ec2.create_launch_template(
        LaunchTemplateName="guest",
        LaunchTemplateData={
            "ImageId": "ami-12345678",
            "InstanceInitiatedShutdownBehavior": "terminate",
            "IamInstanceProfile": {"Name": "worker"},
        },
    )["LaunchTemplate"]
    (subnet, *_) = ec2.describe_subnets(
        Filters=[{"Name": "availability-zone", "Values": ["us-east-1a"]}]
    )["Subnets"]
    answer = ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": template["LaunchTemplateId"],
                    "Version": "1",
                },
                "Overrides": [{"InstanceType": instance_type, "SubnetId": subnet["SubnetId"]}],
            }
        ],
        SpotOptions={"AllocationStrategy": "capacity-optimized-prioritized"},
        TargetCapacitySpecification={
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": "spot",
        },
    )
    return str(answer["Instances"][0]["InstanceIds"][0])


class Recorder:
    """A function of the local system, and the events that it was invoked with."""

    def __init__(self, system: LocalSystem, name: str, code: str = RECORDER) -> None:
        self._sqs = system.client("sqs")
        self._url = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("main.py", code)
        made = system.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=ROLE,
            Handler="main.handler",
            Code={"ZipFile": archive.getvalue()},
            Timeout=30,
        )
        self.arn: str = made["FunctionArn"]

    def events(self) -> list[dict[str, Any]]:
        """Return the events since the last look, oldest first."""
        answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
        messages = answer.get("Messages", [])
        for message in messages:
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(message["Body"]) for message in messages]

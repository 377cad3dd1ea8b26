"""The command that sends dead letters back, on a simulated account."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from spindown.cli.redrive import redrive
from spindown.contract.codec import encode
from spindown.contract.settings import (
    DeploymentSettings,
    WorkloadSettings,
    deployment_parameter,
    workload_parameter,
)
from spindown.error import BadInput

REGION = "eu-west-1"
CONFIG = f"""
[deployment]
name = "lab"
region = "{REGION}"
zones = ["{REGION}a"]

[workload.ocr.run]
entrypoint = "job:run"
code = "code"
"""


class Account:
    """A deployment as far as a redrive sees it."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "spindown.toml"
        self.config.write_text(CONFIG)
        self._sqs: Any = boto3.client("sqs", region_name=REGION)
        self.queue = self._sqs.create_queue(QueueName="lab-ocr")["QueueUrl"]
        self.dead_letters = self._sqs.create_queue(QueueName="lab-ocr-dlq")["QueueUrl"]
        s3: Any = boto3.client("s3", region_name=REGION)
        s3.create_bucket(Bucket="store", CreateBucketConfiguration={"LocationConstraint": REGION})
        deployment = DeploymentSettings(
            name="lab",
            region=REGION,
            table="lab-ledger",
            bucket="store",
            workloads=("ocr",),
            scaler="lab-scaler",
        )
        workload = WorkloadSettings(
            name="ocr",
            queue_url=self.queue,
            dlq_url=self.dead_letters,
            log_group="/spindown/lab/worker/ocr",
            outposts={},
        )
        ssm: Any = boto3.client("ssm", region_name=REGION)
        for name, value in (
            (deployment_parameter("lab"), deployment),
            (workload_parameter("lab", "ocr"), workload),
        ):
            ssm.put_parameter(Name=name, Value=json.dumps(encode(value)), Type="String")

    def bury(self, job_id: str) -> None:
        body = json.dumps({"job_id": job_id, "items": [1]})
        reason = {"DataType": "String", "StringValue": "no such model"}
        self._sqs.send_message(
            QueueUrl=self.dead_letters, MessageBody=body, MessageAttributes={"reason": reason}
        )

    def waiting(self, url: str) -> int:
        name = "ApproximateNumberOfMessages"
        answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        return int(answer["Attributes"][name])


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with mock_aws():
        yield Account(tmp_path)


def test_sends_back_what_lies_there_and_says_why_it_did(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.bury("a")

    redrive("ocr", config=account.config)

    assert capsys.readouterr().out == "a: sent back (given up: no such model)\n"
    assert (account.waiting(account.queue), account.waiting(account.dead_letters)) == (1, 0)


def test_prints_for_programs(account: Account, capsys: pytest.CaptureFixture[str]) -> None:
    account.bury("a")

    redrive("ocr", config=account.config, as_json=True)

    said = json.loads(capsys.readouterr().out)
    assert said == {"job_id": "a", "outcome": "sent", "reason": "no such model"}


def test_names_a_job_that_is_not_there(account: Account) -> None:
    account.bury("a")

    with pytest.raises(BadInput, match="JOB is 'b': name jobs that lie in the dead-letter queue"):
        redrive("ocr", ["b"], config=account.config)

    assert account.waiting(account.dead_letters) == 1

"""A deployment of one workload or more on a simulated account, as the commands see it."""

import hashlib
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3

from spindown.cli.session import open_session
from spindown.contract.codec import encode
from spindown.contract.job.manifest import JobState, Manifest, Part, encode_manifest, manifest_key
from spindown.contract.row import requeued_sort_key, worker_partition
from spindown.contract.settings import (
    DeploymentSettings,
    WorkloadSettings,
    deployment_parameter,
    live_parameter,
    workload_parameter,
)
from spindown.domain.fleet import RequeuedJob
from spindown.domain.policy import JobType, Policy
from spindown.port import Key, Write

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

    def __init__(self, directory: Path, *others: str) -> None:
        self.config = directory / "spindown.toml"
        self.config.write_text(CONFIG)
        self._sqs: Any = boto3.client("sqs", region_name=REGION)
        self._ssm: Any = boto3.client("ssm", region_name=REGION)
        s3: Any = boto3.client("s3", region_name=REGION)
        self._s3 = s3
        s3.create_bucket(Bucket="store", CreateBucketConfiguration={"LocationConstraint": REGION})
        deployment = DeploymentSettings(
            name="lab",
            region=REGION,
            table="lab--ledger",
            bucket="store",
            workloads=("ocr", *others),
            scaler="lab--scaler",
        )
        self._put(deployment_parameter("lab"), deployment)
        self.queue, self.dead_letters = self._make("ocr")
        for other in others:
            self._make(other)

    def _make(self, workload: str) -> tuple[str, str]:
        queue, dead_letters = (
            self._sqs.create_queue(
                QueueName=f"lab--{workload}{end}", tags={"spindown:bucket": "store"}
            )["QueueUrl"]
            for end in ("", "--dlq")
        )
        self.settings = settings = WorkloadSettings(
            name=workload,
            queue_url=queue,
            dlq_url=dead_letters,
            log_group=f"/spindown/lab/worker/{workload}",
            regions={},
        )
        self._put(workload_parameter("lab", workload), settings)
        return queue, dead_letters

    def _put(self, name: str, settings: object) -> None:
        self._put_text(name, json.dumps(encode(settings)))

    def _put_text(self, name: str, text: str) -> None:
        self._ssm.put_parameter(Name=name, Value=text, Type="String", Overwrite=True)

    def declare(self, deployed: str, live: str) -> None:
        """Deploy a workload with a type of jobs, which a live edit replaces by another."""
        policy = Policy(types=(JobType(name=deployed),))
        self._put(workload_parameter("lab", "ocr"), replace(self.settings, policy=policy))
        self._put_text(live_parameter("lab", "ocr"), json.dumps({"types": [{"name": live}]}))

    def hide_settings(self) -> None:
        """Let nobody read the settings."""
        self._ssm.delete_parameter(Name=deployment_parameter("lab"))

    def tag_queue(self, key: str, value: str) -> None:
        """Tag the queue, as a deploy does."""
        self._sqs.tag_queue(QueueUrl=self.queue, Tags={key: value})

    def take_at_most(self, size: int) -> None:
        """Have the queue refuse messages of more bytes."""
        attributes = {"MaximumMessageSize": str(size)}
        self._sqs.set_queue_attributes(QueueUrl=self.queue, Attributes=attributes)

    def bury(self, job_id: str) -> None:
        body = json.dumps({"job_id": job_id, "items": [1]})
        reason = {"DataType": "String", "StringValue": "no such model"}
        self._sqs.send_message(
            QueueUrl=self.dead_letters, MessageBody=body, MessageAttributes={"reason": reason}
        )

    def bury_text(self, text: str, original: str = "") -> None:
        """Send what is no job to the dead-letter queue; ``original``: the message it was."""
        known = {"DataType": "String", "StringValue": original}
        self._sqs.send_message(
            QueueUrl=self.dead_letters,
            MessageBody=text,
            MessageAttributes={"original_message_id": known} if original else {},
        )

    def store(self, key: str, data: bytes) -> None:
        """Put an object into the workload's part of the bucket."""
        self._s3.put_object(Bucket="store", Key=f"workloads/ocr/{key}", Body=data)

    def commit(self, job_id: str, data: bytes, *, failed: int = 0) -> None:
        """Store a completed job of one item whose part holds these bytes."""
        part = Part(
            key=f"jobs/{job_id}/parts/0.jsonl",
            first=0,
            last=0,
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            failed=failed,
        )
        self.store(part.key, data)
        job = Manifest(
            job_id=job_id, epoch=1, owner="i-1/0", state=JobState.COMPLETED, parts=(part,)
        )
        self.store(manifest_key(job_id), encode_manifest(job))

    def take(self, *, delete: bool = False) -> dict[str, Any]:
        """Receive one message of the queue, and perhaps delete it; return its body."""
        (message,) = self._sqs.receive_message(QueueUrl=self.queue)["Messages"]
        if delete:
            handle = message["ReceiptHandle"]
            self._sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=handle)
        body: dict[str, Any] = json.loads(message["Body"])
        return body

    def put_back(self, job_id: str, at: datetime) -> None:
        """Have the ledger know before when nobody can receive a job that has begun."""
        session = open_session(self.config, deployment=None, local=False)
        keys = (("pk", "HASH"), ("sk", "RANGE"))
        dynamo: Any = boto3.client("dynamodb", region_name=REGION)
        dynamo.create_table(
            TableName="lab--ledger",
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
            AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        row = RequeuedJob(job_id=job_id, sent_at=at, items=1, items_done=0, at=at, next_try_at=at)
        key = Key(partition=worker_partition("ocr"), sort=requeued_sort_key(job_id))
        session.table.write(Write(key=key, set=encode(row)))

    def waiting(self, url: str) -> int:
        name = "ApproximateNumberOfMessages"
        answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])
        return int(answer["Attributes"][name])

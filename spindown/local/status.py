"""What the local system is doing, as plain values for a screen or JSON."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spindown.contract.job.manifest import JOBS
from spindown.contract.location import work_root

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient

    from spindown.local.market import LocalMarket

#: Paths of the endpoint at which a system tells its status, and which workloads have begun a job;
#: and at which it hears that something else was deployed.
STATUS_PATH = "/_spindown/status"
WITH_JOBS_PATH = "/_spindown/with-jobs"
CHANGED_PATH = "/_spindown/changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """One queue and how many messages wait in it or are being worked on."""

    name: str
    url: str
    visible: int
    in_flight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """One instance of the market, ended ones included.

    The price is that of the instance alone at its launch, in USD per hour: a process has neither
    volume nor address.
    """

    instance_id: str
    instance_type: str
    zone: str
    capacity_type: str
    state: str
    price_per_hour: float
    #: File with what its guest has printed.
    console: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemStatus:
    """The whole local system."""

    endpoint: str
    region: str
    deployment: str
    pid: int
    queues: tuple[QueueStatus, ...]
    functions: tuple[str, ...]
    instances: tuple[InstanceStatus, ...]


def find_with_jobs(s3: "S3Client") -> tuple[str, ...]:
    """Return the workloads of which a job has begun, by what lies in the buckets."""
    root = work_root("")[:-1]
    found = set()
    for bucket in s3.list_buckets()["Buckets"]:
        name = bucket["Name"]
        for page in s3.get_paginator("list_objects_v2").paginate(
            Bucket=name, Prefix=root, Delimiter="/"
        ):
            for one in page.get("CommonPrefixes", []):
                jobs = f"{one['Prefix']}{JOBS}"
                if s3.list_objects_v2(Bucket=name, Prefix=jobs, MaxKeys=1).get("Contents"):
                    found.add(one["Prefix"].removeprefix(root).rstrip("/"))
    return tuple(sorted(found))


def queue_statuses(sqs: "SQSClient") -> tuple[QueueStatus, ...]:
    """Ask SQS for every queue."""
    found = []
    for page in sqs.get_paginator("list_queues").paginate():
        for url in page.get("QueueUrls", []):
            answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
            attributes = answer["Attributes"]
            found.append(
                QueueStatus(
                    name=url.rpartition("/")[2],
                    url=url,
                    visible=int(attributes["ApproximateNumberOfMessages"]),
                    in_flight=int(attributes["ApproximateNumberOfMessagesNotVisible"]),
                )
            )
    return tuple(sorted(found, key=lambda one: one.name))


def function_names(functions: "LambdaClient") -> tuple[str, ...]:
    """Ask Lambda for every function."""
    pages = functions.get_paginator("list_functions").paginate()
    return tuple(sorted(one["FunctionName"] for page in pages for one in page["Functions"]))


def instance_statuses(
    market: "LocalMarket", console_path: Callable[[str], Path]
) -> tuple[InstanceStatus, ...]:
    """Return every instance that ever was, oldest first."""
    return tuple(
        InstanceStatus(
            instance_id=one.instance_id,
            instance_type=one.instance_type,
            zone=one.zone,
            capacity_type=one.capacity_type.value,
            state=one.state.value,
            price_per_hour=one.price_per_hour,
            console=str(console_path(one.instance_id)),
        )
        for one in market.instances()
    )

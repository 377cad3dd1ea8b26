"""A market of two types, and one on EC2 whose services answer by hand."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.stub import Stubber

from spindown.aws.market import Ec2Market
from spindown.domain.offer import InstanceType
from spindown.memory import MemoryClock

REGION = "us-east-1"
G6 = InstanceType(
    name="g6.xlarge",
    vcpus=4,
    memory_mib=16384,
    architecture="x86_64",
    gpu_name="L4",
    gpu_manufacturer="NVIDIA",
    gpu_count=1,
    gpu_memory_mib=22888,
)
M7 = InstanceType(name="m7i.large", vcpus=2, memory_mib=8192, architecture="x86_64")


class Answers:
    """An Ec2Market whose services are answered here."""

    def __init__(self, session: boto3.Session, clock: MemoryClock) -> None:
        ec2, pricing = session.client("ec2"), session.client("pricing")
        quotas = session.client("service-quotas")
        self.ec2, self.pricing, self.quotas = Stubber(ec2), Stubber(pricing), Stubber(quotas)
        self.market = Ec2Market(lambda _: ec2, lambda: pricing, lambda _: quotas, clock)


def a_spot_entry(zone: str, price: str, minute: int) -> Mapping[str, Any]:
    return {
        "AvailabilityZone": zone,
        "InstanceType": "g6.xlarge",
        "SpotPrice": price,
        "Timestamp": datetime(2026, 1, 1, 0, minute, tzinfo=UTC),
    }

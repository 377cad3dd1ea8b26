"""An account in memory, and the names of what is in it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spindown.error import NotFound
from spindown.memory import MemoryAccount
from spindown.port import Account, AlarmView, ImageView, SubnetView, Subscriber

REGION = "us-east-1"
ZONE = f"{REGION}a"
PARAMETER = "/images/worker"
INPUT = "s3://documents/scans/"
SCHEDULE, OFF = "lab--ocr--tick", "lab--offers"
SPARE, SPARE_OFF = "lab--ocr--tick", "lab--scan--tick"
ALARM, TURNED_OFF = "lab--ocr--idle", "lab--untold"
ABSENT_TOPIC = f"arn:aws:sns:{REGION}:123456789012:absent"
ABSENT_KEY = f"arn:aws:kms:{REGION}:123456789012:key/00000000-0000-0000-0000-000000000000"


@dataclass
class World:
    """An account, and the names of what is in it."""

    account: Account
    image_id: str
    subnet_id: str
    key: str
    topic: str


def in_memory() -> World:
    image = ImageView(
        image_id="ami-1",
        architecture="x86_64",
        state="available",
        root_gib=30,
        root_device="/dev/sda1",
    )
    subnet = SubnetView(subnet_id="subnet-1", zone=ZONE, free_addresses=4091, vpc_id="vpc-1")
    topic = f"arn:aws:sns:{REGION}:123456789012:lab--alarms"
    well = AlarmView(state="OK", since=datetime(2026, 1, 1, tzinfo=UTC), acts=True)
    account = MemoryAccount(
        schedules={(REGION, SCHEDULE): True, (REGION, OFF): False},
        rules={(REGION, SPARE): True, (REGION, SPARE_OFF): False},
        alarm_views={
            (REGION, ALARM): well,
            (REGION, TURNED_OFF): replace(well, acts=False),
            (REGION, "other--idle"): well,
        },
        topics={topic: (Subscriber(protocol="sms", endpoint="+1555", is_confirmed=True),)},
        parameters={(REGION, PARAMETER): image.image_id},
        images={(REGION, image.image_id): image},
        networks={(REGION, subnet.subnet_id): subnet},
        unreadable={
            name: NotFound("it is not there")
            for name in ("absent", "s3://absent/", "/absent/secret", "absent/secret", ABSENT_KEY)
        },
    )
    return World(
        account=account,
        image_id=image.image_id,
        subnet_id=subnet.subnet_id,
        key="arn",
        topic=topic,
    )

"""What the roles of the test deployment call upon, and what is known of their requests."""

from collections.abc import Sequence

from spindown.contract import tag
from tests.infra.policy import REGION, STORE, Call, ours

#: Stand for the archives, whose names are digests.
CODE = "arn:aws:s3:::<code>"
KIT = "arn:aws:s3:::<kit>"

TABLE = ours("dynamodb", "table/lab--ledger")
QUEUE = ours("sqs", "lab--rich")
DEAD_LETTERS = ours("sqs", "lab--rich--dlq")
#: That of people and one of a shape, of each workload.
WORK_QUEUES = ("plain", "plain--c0m8", "rich", "rich--c4m16")
SHAPE_QUEUE = ours("sqs", "lab--rich--c4m16")
HERE = {"aws:RequestedRegion": [REGION]}
OURS = {f"aws:RequestTag/{tag.DEPLOYMENT}": ["lab"]}
BEARS_OURS = {f"aws:ResourceTag/{tag.DEPLOYMENT}": ["lab"]}

TEMPLATES = [
    ours("ec2", f"launch-template/Workload{name}")
    for name in (
        "plainFleetTemplatex8664",
        "richFleetTemplatearm64",
        "richFleetTemplatex8664",
    )
]


def rows(action: str, partition: str) -> Call:
    """Return a call on rows of one partition."""
    return Call(f"dynamodb:{action}", TABLE, {"dynamodb:LeadingKeys": [partition]})


def objects(actions: Sequence[str], *keys: str) -> list[Call]:
    return [Call(f"s3:{action}", f"{STORE}/{key}") for action in actions for key in keys]

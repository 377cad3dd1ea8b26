"""What the roles of the test deployment call upon, and what is known of their requests."""

from collections.abc import Sequence

from spindown.contract import tag
from tests.infra.policy import ACCOUNT, REGION, STORE, Call, ours

#: What CDK keeps assets in, and archives in it: of whatever release, since instances of the release
#: before may still boot.
ASSETS = f"arn:aws:s3:::cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"
_ANY_RELEASE = f"{'0' * 64}.zip"
CODE = f"{ASSETS}/spindown/code/lab/rich/{_ANY_RELEASE}"
CODES_OF_OTHERS = [
    f"{ASSETS}/spindown/code/lab/{workload}/{_ANY_RELEASE}" for workload in ("plain", "rich2")
] + [f"{ASSETS}/spindown/code/lab2/rich/{_ANY_RELEASE}"]
KIT = f"{ASSETS}/spindown/kit/{_ANY_RELEASE}"

TABLE = ours("dynamodb", "table/lab--ledger")
QUEUE = ours("sqs", "lab--rich")
DEAD_LETTERS = ours("sqs", "lab--rich--dlq")
#: That of people and one of a shape, of each workload.
WORK_QUEUES = ("plain", "plain--c0m8", "rich", "rich--c4m16")
SHAPE_QUEUE = ours("sqs", "lab--rich--c4m16")
HERE = {"aws:RequestedRegion": [REGION]}
OURS = {f"aws:RequestTag/{tag.DEPLOYMENT}": ["lab"]}
BEARS_OURS = {
    f"aws:ResourceTag/{tag.DEPLOYMENT}": ["lab"],
    f"aws:ResourceTag/{tag.REGION}": [REGION],
}

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

"""A worker that lacks one statement of its role fails at what that statement is for.

A real worker, which the real scaler launched, works off a few messages under its role. What comes
of it with the whole role is known; without a statement just what the statement serves is missing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from tests.e2e.world import PATIENCE
from tests.local.waiting import until
from tests.proof.grant.world import WORKER, World, deployed

pytestmark = pytest.mark.proof

JOBS = frozenset({"listed", "uploaded", "torn", "left"})
#: What comes of a run: jobs without a failed item, and what is told of them in which way.
WHOLE = JOBS | {"buried", "logged", "measured", "told"}
#: All that a worker does once it has started.
WORK = WHOLE - {"logged"}

#: Statement -> what is missing without it.
SERVES: Mapping[str, frozenset[str]] = {
    "": frozenset(),
    # It does not start, and tells why.
    "ReadCode": WORK,
    "ReadParameters": WORK,
    "ReadSecrets": WORK,
    "KeepOwnRows": WORK,
    # It gets no message, or cannot take up its job.
    "WorkQueue": WORK,
    "KeepResults": JOBS | {"measured", "told"},
    # A list of items may be there already; the epochs of a torn manifest are those of its parts.
    "SeeMissingObjects": frozenset({"listed", "torn"}),
    # It is fixed by its last good version.
    "SeeVersions": frozenset({"torn"}),
    # How the last owner ended stands in history.
    "ReadOwnHistory": frozenset({"left"}),
    # By which policy it should work, nobody tells.
    "ReadPolicy": WORK,
    "ReadUploads": frozenset({"uploaded"}),
    "ReadInputs": frozenset({"listed"}),
    "ListInputs1": frozenset({"listed"}),
    "GiveUpJobs": frozenset({"buried"}),
    "KeepUsage": frozenset({"measured"}),
    "TellOfJobs": frozenset({"told"}),
    "WriteLog": frozenset({"logged"}),
}

#: What no run here can tell apart, with the reason; `tests/infra/test_grant_use.py` takes each
#: from the template and sees which of the worker's calls is refused then.
NOT_RUN = {
    "KeepJobs": "it is for jobs in hand while a deploy adds the first type or removes the last",
    "ReadKit": "an instance is installed by user data here, which calls the aws command line",
    "UseKeys": "MiniStack decrypts for S3, Secrets Manager and SSM without asking KMS",
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    yield from deployed(tmp_path_factory.mktemp("iam"))


@pytest.mark.parametrize("sid", SERVES, ids=lambda sid: sid or "with the whole role")
def test_a_worker_misses_just_what_a_statement_is_for(world: World, sid: str) -> None:
    world.begin_anew()
    jobs = {name: f"{name}-{sid}" for name in JOBS}
    measured = set(measurements(world))
    role = world.roles[WORKER]

    with world.iam.without(role, sid) if sid else nullcontext():
        send_work(world, jobs)
        assert world.tick()["outcome"] == "launched"
        until(lambda: not world.running(), seconds=PATIENCE)
        denied = list(world.iam.denied)

    (instance,) = world.launched()
    done = {name for name, job_id in jobs.items() if is_done(world, job_id)}
    signs = {
        "buried": world.buried(),
        "logged": world.logged(instance.instance_id),
        "measured": set(measurements(world)) - measured,
        "told": world.heard(),
    }
    assert SERVES[sid] == WHOLE - done - {name for name, sign in signs.items() if sign}
    assert {one.role for one in denied} == ({role} if sid else set())


def test_no_statement_of_the_role_is_left_out(world: World) -> None:
    found = world.iam.statements(world.roles[WORKER])

    assert found | {"UseKeys"} == (SERVES.keys() - {""}) | NOT_RUN.keys()


def test_a_worker_cannot_do_what_is_not_its_own(world: World) -> None:
    keys = world.iam.keys_of(world.roles[WORKER])
    session = boto3.Session(
        keys.access_key, keys.secret_key, keys.token, region_name=world.system.region
    )
    make: Any = session.client
    made: dict[str, Any] = {
        name: make(name, endpoint_url=world.system.endpoint)
        for name in ("dynamodb", "events", "iam", "lambda", "s3", "secretsmanager", "sqs", "ssm")
    }
    bucket = world.session.bucket
    other = world.session.workload("other")
    calls: dict[str, Callable[[], Any]] = {
        "another workload's manifest": lambda: made["s3"].get_object(
            Bucket=bucket, Key="workloads/other/jobs/j/manifest.json"
        ),
        "another workload's upload": lambda: made["s3"].get_object(
            Bucket=bucket, Key="workloads/other/inputs/b/a"
        ),
        "the catalogue": lambda: made["s3"].put_object(
            Bucket=bucket, Key="offers/catalogue.json", Body=b""
        ),
        "an input": lambda: made["s3"].put_object(Bucket="papers", Key="2026/a.txt", Body=b""),
        "what is not declared": lambda: made["s3"].get_object(Bucket="papers", Key="2025/a.txt"),
        "another queue": lambda: made["sqs"].receive_message(QueueUrl=other.queue_url),
        "its dead letters": lambda: made["sqs"].receive_message(
            QueueUrl=world.session.workload("count").dlq_url
        ),
        "another workload's rows": lambda: made["dynamodb"].get_item(
            TableName="iam--ledger", Key={"pk": {"S": "c#other"}, "sk": {"S": "policy"}}
        ),
        **{
            f"a row of its own {sort}": partial(
                made["dynamodb"].update_item,
                TableName="iam--ledger",
                Key={"pk": {"S": "c#count"}, "sk": {"S": sort}},
                UpdateExpression="SET x = :x",
                ExpressionAttributeValues={":x": {"S": "x"}},
            )
            for sort in ("lock", "launch#count-1-1", "policy", "breaker", "spend#2026-11-20")
        },
        "a change of history": lambda: made["dynamodb"].delete_item(
            TableName="iam--ledger", Key={"pk": {"S": "h#count"}, "sk": {"S": "worker#i-1"}}
        ),
        **{
            f"an event of {', '.join(sources)}": partial(
                made["events"].put_events,
                Entries=[
                    {"Source": source, "DetailType": "Spindown Job Failed", "Detail": "{}"}
                    for source in sources
                ],
            )
            for sources in (
                ["mine"],
                ["spindown.iam.other"],
                ["spindown.iam.count", "spindown.iam.other"],
            )
        },
        "a scan": lambda: made["dynamodb"].scan(TableName="iam--ledger"),
        "the settings": lambda: made["ssm"].get_parameter(Name="/spindown/iam/deployment"),
        "another secret": lambda: made["secretsmanager"].get_secret_value(SecretId="hub/other"),
        "the scaler": lambda: made["lambda"].invoke(FunctionName="iam--scaler"),
        "its own role": lambda: made["iam"].list_role_policies(RoleName=keys.role),
    }
    allowed = []
    for name, call in calls.items():
        try:
            call()
        except ClientError as error:
            if "AccessDenied" in error.response["Error"]["Code"]:
                continue
            allowed.append(f"{name}: {error}")
        else:
            allowed.append(name)

    assert allowed == []


def send_work(world: World, jobs: Mapping[str, str]) -> None:
    """Send a message of each kind."""
    store = world.store
    store.put("inputs/up.txt", b"u")
    store.put(manifest_key(jobs["torn"]), b"{")
    left = Manifest(job_id=jobs["left"], epoch=1, owner="i-9/0", state=JobState.RUNNING)
    store.put(manifest_key(jobs["left"]), encode_manifest(left))
    sources: dict[str, Any] = {
        "listed": {"prefix_uri": "s3://papers/2026/"},
        "uploaded": {"items": [f"{world.session.work_uri('count')}inputs/up.txt"]},
        "torn": {"items": ["a"]},
        "left": {"items": ["a"]},
    }
    for name, source in sources.items():
        world.send({**source, "job_id": jobs[name]})
    world.send("no job at all")


def is_done(world: World, job_id: str) -> bool:
    found = world.progress(job_id)
    return found.state is JobState.COMPLETED and not found.items_failed


def measurements(world: World) -> list[str]:
    return [one.key for one in world.session.store.list("measured/")]

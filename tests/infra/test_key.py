"""Whatever a key of the bucket has in its parts, it is written and read by who is meant to.

In IAM ``*`` matches a slash too, and people name the files that they upload and that items leave.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import DefaultStackSynthesizer

from spindown import config
from spindown.infra.shared.resources import DeploymentBucket
from spindown.infra.shared.stack import DeploymentStack
from spindown.operate.iam_policy import Whose, policy
from tests.infra.assembly import PLAIN, Assembly, make_app, write_project
from tests.infra.call.role import CALLS
from tests.infra.policy import (
    ACCOUNT,
    REGION,
    STORE,
    Call,
    Statement,
    read_denials,
    read_statements,
    resolve,
)

PUT, GET = "s3:PutObject", "s3:GetObject"
#: What a bucket policy may have (Amazon S3 User Guide, "Bucket policies").
POLICY_BYTES = 20 * 1024

#: Names of folders that mean something elsewhere in the bucket.
PARTS = [
    *("batches", "open", "submitted", "jobs", "inputs", "state", "bodies", "offers", "decisions"),
    *("workloads/rich/open", "workloads/rich/jobs/j", "workloads/plain/batches", "folders/plain"),
]
ONCE = ["batches/b.json", "open/b", "submitted/b/00000.jsonl"]
WORKERS = ["plain", "rich"]


def may(statements: list[Statement], denials: list[Statement], call: Call) -> bool:
    return any(one.allows(call) for one in statements) and not any(
        one.allows(call) for one in denials
    )


def worker(assembly: Assembly, workload: str) -> list[Statement]:
    return read_statements(assembly, f"Workload{workload}FleetRole")


def person(role: str, workload: str) -> list[Statement]:
    whose = Whose(
        deployment="lab",
        account=ACCOUNT,
        regions=[REGION],
        workloads=[workload],
        bucket=STORE.rpartition(":")[2],
    )
    return [
        Statement(one["Sid"], one["Action"], one["Resource"], conditions(one))
        for one in policy(role, whose)["Statement"]
    ]


def conditions(statement: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    found = statement.get("Condition", {})
    return {
        operator: {
            key: wanted if isinstance(wanted, list) else [wanted] for key, wanted in of.items()
        }
        for operator, of in found.items()
    }


def on(action: str, key: str, **context: str) -> Call:
    known = {name.replace("_", "-"): [value] for name, value in context.items()}
    return Call(action, f"{STORE}/{key}", {"aws:ResourceAccount": [ACCOUNT], **known})


@pytest.mark.parametrize("part", PARTS)
def test_an_item_leaves_files_in_folders_of_any_name(assembly: Assembly, part: str) -> None:
    denials = read_denials(assembly)

    for key in (
        f"workloads/plain/jobs/j/parts/1-0-9/0/{part}/a.png",
        f"workloads/plain/jobs/j/parts/1-0-9/0/{part}",
        f"workloads/plain/state/j/{part}/a",
    ):
        for action in (PUT, GET):
            assert may(worker(assembly, "plain"), denials, on(action, key))
            assert not may(worker(assembly, "rich"), denials, on(action, key))
            for who in ("submitter", "runner"):
                assert not may(person(who, "plain"), denials, on(action, key))
        assert may(person("operator", "plain"), denials, on(GET, key))


@pytest.mark.parametrize("part", PARTS)
def test_a_submit_uploads_folders_of_any_name(assembly: Assembly, part: str) -> None:
    denials = read_denials(assembly)

    for key in (f"workloads/plain/inputs/{part}/a.png", f"workloads/plain/inputs/b/x/{part}/a.png"):
        assert may(person("submitter", "plain"), denials, on(PUT, key))
        assert may(person("operator", "plain"), denials, on(PUT, key))
        assert may(worker(assembly, "plain"), denials, on(GET, key))
        assert not may(worker(assembly, "plain"), denials, on(PUT, key))
        assert not may(worker(assembly, "rich"), denials, on(GET, key))
        for who, workload in (("submitter", "rich"), ("runner", "plain")):
            assert not may(person(who, workload), denials, on(PUT, key))


@pytest.mark.parametrize("workload", WORKERS)
@pytest.mark.parametrize("key", ONCE)
def test_what_a_submit_writes_once_it_writes_once(
    assembly: Assembly, workload: str, key: str
) -> None:
    denials = read_denials(assembly)
    whole = f"workloads/{workload}/{key}"

    for who in ("submitter", "operator"):
        once = Call(PUT, f"{STORE}/{whole}", {**on(PUT, whole).context, "s3:if-none-match": ["*"]})
        assert may(person(who, workload), denials, once)
        assert not may(person(who, workload), denials, on(PUT, whole))


@pytest.mark.parametrize("part", PARTS)
def test_no_function_writes_what_an_item_leaves(assembly: Assembly, part: str) -> None:
    denials = read_denials(assembly)
    key = f"workloads/plain/jobs/j/parts/1-0-9/0/{part}/a.png"

    for role in CALLS:
        if not role.startswith("Workload"):
            assert not may(read_statements(assembly, role), denials, on(PUT, key))


def test_the_policy_of_the_bucket_has_room_for_all(tmp_path: Path) -> None:
    """As many workloads as a deployment has, of names as long as they may be."""
    project = write_project(tmp_path, PLAIN.format(image=""))
    app = make_app(project, tmp_path / "out")
    stack = DeploymentStack(
        app,
        deployment=config.load(project).deployment,
        part="core",
        holds="a bucket",
        synthesizer=DefaultStackSynthesizer(),
    )
    DeploymentBucket(
        stack, "Store", workloads=[f"w{number:02}".ljust(31, "x") for number in range(36)]
    )
    app.synth()
    made = Assembly(project, tmp_path / "out", stack.stack_name)

    (document,) = (one["PolicyDocument"] for one in made.all_of("AWS::S3::BucketPolicy"))
    bytes_max = 0
    for one in document["Statement"]:
        arns = [resolve(made, arn) for arn in one["Resource"]]
        longest = [arn.replace(STORE, f"arn:aws-us-gov:s3:::{'b' * 63}") for arn in arns]
        bytes_max += len(json.dumps({**one, "Resource": longest}))
    assert bytes_max <= POLICY_BYTES

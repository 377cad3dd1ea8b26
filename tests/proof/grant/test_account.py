"""A deployment by all rules of an account works under IAM, within the boundary of its roles.

MiniStack limits each call by the boundary of its role, as AWS does; EC2 is the market's, which
knows no IAM. It asks KMS for nothing: of the key only that all is deployed with it is seen here.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindown.local.environment import ACCOUNT
from spindown.local.system import LocalSystem
from tests.e2e.world import PATIENCE
from tests.local.waiting import until
from tests.proof.grant.test_worker import is_done
from tests.proof.grant.world import SCALER, WORKER, FunctionFailed, World, deployed

pytestmark = pytest.mark.proof

Statements = list[dict[str, Any]]
KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
TAGS = {"team": "vision", "cost:center": "12"}
RULES = f"""
tags = {{ team = "vision", "cost:center" = "12" }}
permissions_boundary = "limits"
role_path = "/team/"
role_name_prefix = "acme-"
log_retention = "7d"
kms_key_arn = "{KEY}"
"""


def printed_boundary(config: Path) -> Statements:
    """Return the statements of the boundary that the product prints."""
    command = [str(Path(sys.executable).with_name("spindown")), "iam", "boundary"]
    done = subprocess.run(
        [*command, "--config", str(config), "--account", ACCOUNT],
        check=True,
        stdout=subprocess.PIPE,
    )
    statements: Statements = json.loads(done.stdout)["Statement"]
    return statements


def a_policy(system: LocalSystem, name: str, statements: Statements) -> str:
    """Make a managed policy; return its ARN."""
    document = json.dumps({"Version": "2012-10-17", "Statement": statements})
    made = system.client("iam").create_policy(PolicyName=name, PolicyDocument=document)
    return str(made["Policy"]["Arn"])


def without_sqs(statements: Statements) -> Statements:
    kept = [[action for action in one["Action"] if action[:4] != "sqs:"] for one in statements]
    pairs = zip(statements, kept, strict=True)
    return [{**one, "Action": actions} for one, actions in pairs if actions]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules")


@pytest.fixture(scope="module")
def world(directory: Path) -> Iterator[World]:
    for world in deployed(directory, rules=RULES):
        limits = printed_boundary(directory / "spindown.toml")
        boundary = a_policy(world.system, "limits", limits)
        a_policy(world.system, "blind", without_sqs(limits))
        for name in world.roles.values():
            # MiniStack's CloudFormation leaves out what a template says of a role's boundary.
            world.client("iam").put_role_permissions_boundary(
                RoleName=name, PermissionsBoundary=boundary
            )
        yield world


def test_work_is_done_and_nothing_is_denied(world: World) -> None:
    world.begin_anew()
    world.send({"job_id": "ruled", "items": ["s3://papers/2026/a.txt"]})

    assert world.tick()["outcome"] == "launched"
    until(lambda: not world.running(), seconds=PATIENCE)

    assert is_done(world, "ruled")
    assert [str(one) for one in world.iam.denied] == []
    (instance,) = world.launched()
    assert instance.tags.items() >= TAGS.items()


def test_every_role_is_deployed_by_the_rules(world: World) -> None:
    iam: Any = world.client("iam")

    for name in world.roles.values():
        role = iam.get_role(RoleName=name)["Role"]
        assert name.startswith("acme-")
        assert role["Path"] == "/team/"
    assert "UseOwnKey" in world.iam.statements(world.roles[WORKER])
    url = world.session.workload("count").queue_url
    found = world.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])
    assert found["Attributes"]["KmsMasterKeyId"] == KEY


def test_what_the_boundary_denies_no_policy_allows(world: World) -> None:
    world.begin_anew()
    iam, role = world.client("iam"), world.roles[SCALER]
    narrow = f"arn:aws:iam::{ACCOUNT}:policy/blind"
    iam.put_role_permissions_boundary(RoleName=role, PermissionsBoundary=narrow)
    try:
        with pytest.raises(FunctionFailed):
            world.tick()
    finally:
        whole = narrow.replace("blind", "limits")
        iam.put_role_permissions_boundary(RoleName=role, PermissionsBoundary=whole)

    assert {one.action for one in world.iam.denied} == {"sqs:GetQueueAttributes"}
    assert world.running() == []

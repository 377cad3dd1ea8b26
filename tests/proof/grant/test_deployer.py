"""Who has what `spindown iam deployer` prints deploys, through the roles of `cdk bootstrap`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spindown.config.deployment import USUAL_QUALIFIER
from spindown.local.deployment import bootstrap
from spindown.local.environment import ACCOUNT
from spindown.local.system import LocalSystem
from tests.infra.assembly import PLAIN, write_project
from tests.local.world import a_system
from tests.proof.grant.enforcement import Enforcement

pytestmark = pytest.mark.proof

REGION = "us-west-2"
#: What `cdk bootstrap` makes (aws-cdk, bootstrap-template.yaml); here each may do everything.
KINDS = ("cfn-exec", "deploy", "file-publishing", "image-publishing", "lookup")


@dataclass(frozen=True)
class Deployer:
    """Somebody with the rights that the command prints, and an account that is bootstrapped."""

    system: LocalSystem
    iam: Enforcement
    project: Path

    def run(self, *arguments: str, role: str = "deployer") -> "subprocess.CompletedProcess[str]":
        """Run a command in a role, and nothing denied before counts."""
        self.iam.denied.clear()
        keys = self.iam.keys_of(role)
        aws = {
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "AWS_SESSION_TOKEN": keys.token,
            "AWS_ENDPOINT_URL": self.system.endpoint,
            "AWS_REGION": REGION,
            "CDK_HOME": str(self.project.parent / "home"),
            "CDK_VALIDATION": "false",
        }
        return subprocess.run(
            [sys.executable, "-m", "spindown", *arguments],
            check=False,
            cwd=self.project.parent,
            env={**os.environ, **aws},
            capture_output=True,
            text=True,
        )

    def deploy(self, role: str) -> "subprocess.CompletedProcess[str]":
        """Deploy what the emulator can make."""
        how = ("--require-approval", "never", "--method", "direct", "--no-notices")
        return self.run(
            "cdk", "deploy", "lab-core", "--exclusively", *how, "-c", "bundle=host", role=role
        )


@pytest.fixture(scope="module")
def deployer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployer]:
    project = write_project(
        tmp_path_factory.mktemp("deployer"), PLAIN.format(image="").replace("eu-west-1", REGION)
    )
    iam = Enforcement()
    system = a_system(project, credentials=iam.credentials)
    with system, iam.on(system):
        bootstrap(system.client("s3"), system.client("ssm"), REGION, USUAL_QUALIFIER)
        everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
        for kind in KINDS:
            name = f"cdk-hnb659fds-{kind}-role-{ACCOUNT}-{REGION}"
            make_role(system, name, {"Version": "2012-10-17", "Statement": [everything]})
        person = Deployer(system, iam, project)
        seeing = {"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}
        make_role(system, "visitor", {"Version": "2012-10-17", "Statement": [seeing]})
        printed = person.run("iam", "deployer", "--account", ACCOUNT).stdout
        make_role(system, "deployer", json.loads(printed))
        yield person


def make_role(system: LocalSystem, name: str, policy: Any) -> None:
    """Make a role that anybody of the account may act as who is allowed to."""
    account = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
    trust = {"Effect": "Allow", "Principal": account, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam = system.client("iam")
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=document)
    iam.put_role_policy(RoleName=name, PolicyName="printed", PolicyDocument=json.dumps(policy))


def test_who_may_not_act_as_the_roles_deploys_nothing(deployer: Deployer) -> None:
    done = deployer.deploy("visitor")

    assert done.returncode == 1
    assert "sts:AssumeRole" in {one.action for one in deployer.iam.denied}
    assert {one.role for one in deployer.iam.denied} == {"visitor"}


def test_a_deployer_needs_no_more_than_the_roles(deployer: Deployer) -> None:
    done = deployer.deploy("deployer")

    assert done.returncode == 0, done.stderr
    assert [str(one) for one in deployer.iam.denied if one.role == "deployer"] == []
    found = deployer.system.client("cloudformation").describe_stacks(StackName="lab-core")
    assert found["Stacks"][0]["StackStatus"] == "CREATE_COMPLETE"

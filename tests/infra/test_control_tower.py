"""Control Tower's proactive rules, by CDK's validator: what no setting meets, and why.

Where an organisation has its hooks on, a deploy that breaks a rule is refused.
"""

import json
import os
import re
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import cdklabs.cdk_validator_cfnguard as validator
import pytest
from aws_cdk import IPolicyValidationPlugin
from cdklabs.cdk_validator_cfnguard import CfnGuardValidator

from tests.infra.assembly import ROOT, SPREAD, report_findings, synthesise, words, write_project

pytestmark = pytest.mark.proof

#: The example that has every such setting.
STRICT = (ROOT / "examples" / "strict.toml").read_text(encoding="utf-8")
STRICT = STRICT.replace('"classify:run"', '"job:run"').replace('"classify"', '"code"')

#: The rules that are answered by a setting.
ANSWERED = {
    "CT.ATHENA.PR.2": "kms_key_arn",
    "CT.CLOUDWATCH.PR.2": "log_retention",
    "CT.CLOUDWATCH.PR.3": "kms_key_arn",
    "CT.EC2.PR.10": "detailed_monitoring",
    "CT.EC2.PR.11": "public_addresses",
    "CT.LAMBDA.PR.3": "function_subnets",
    "CT.S3.PR.10": "kms_key_arn",
    "CT.S3.PR.2": "access_log_bucket",
    "CT.S3.PR.4": "bucket_events",
    "CT.S3.PR.9": "object_lock",
}
#: The rules that a setting breaks.
BROKEN = {"CT.EC2.PR.2": "metadata_access"}
#: What the validator finds broken where a hook does not: it reads no reference to the account.
UNREAD = "CT.LAMBDA.PR.2"
#: A network of one's own, in which functions are too; the example makes one.
NETWORK = """
[deployment.network]
vpc_id = "vpc-0123abcd"
subnets = { eu-west-1a = "subnet-0123abcd", eu-west-1b = "subnet-0123abce" }
function_subnets = ["subnet-0123abcf"]
"""
ALL = STRICT + NETWORK


def broken(project: Path, directory: Path) -> set[str]:
    """Return the rules of Control Tower that a deployment breaks."""
    # It is written against the first form of the interface, which CDK still takes.
    plugin = cast("IPolicyValidationPlugin", CfnGuardValidator())
    found = report_findings(project, directory, plugin=plugin)
    return {rule for rule, _ in found if rule.startswith("CT.")}


def test_no_rule_is_broken_that_is_not_known(tmp_path: Path) -> None:
    assert broken(write_project(tmp_path, SPREAD), tmp_path / "out") == {*ANSWERED, UNREAD}


def test_the_settings_answer_all_rules(tmp_path: Path) -> None:
    assert broken(write_project(tmp_path, ALL), tmp_path / "out") == {UNREAD}


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the validator's own package is unpacked."""
    (archive,) = Path(validator.__file__).parent.rglob("*.tgz")
    directory = tmp_path_factory.mktemp("guard")
    with tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
    return directory / "package"


def is_met_at_a_hook(guard: Path, permission: Mapping[str, Any], asked: Path) -> bool:
    """Tell whether the rule of public functions lets a permission pass, as a hook is given it."""
    (program,) = guard.glob(f"bin/ubuntu/{os.uname().machine}/cfn-guard")
    (rule,) = guard.rglob(f"{UNREAD.lower().replace('.', '-')}.guard")
    given = {name: words(value) for name, value in permission.items()}
    asked.write_text(json.dumps({"AWS::Lambda::Permission": {"resourceProperties": given}}))
    run = subprocess.run([program, "validate", "--rules", rule, "--data", asked], check=False)
    return run.returncode == 0


def test_a_hook_finds_no_function_public(tmp_path: Path, guard: Path) -> None:
    made = synthesise(write_project(tmp_path, ALL), tmp_path / "out")
    permissions = made.all_of("AWS::Lambda::Permission")
    assert len(permissions) > 1

    for one in permissions:
        anybody = {name: one[name] for name in one if not name.startswith("Source")}
        assert is_met_at_a_hook(guard, one, tmp_path / "asked.json")
        assert not is_met_at_a_hook(guard, anybody, tmp_path / "asked.json")


def test_a_setting_breaks_its_rule(tmp_path: Path) -> None:
    container = """
[workload.boxed.run]
image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/box:1"
command = ["work"]
metadata_access = true

[workload.boxed.image]
mode = "ami"
parameters = { x86_64 = "/my/image" }
"""

    project = write_project(tmp_path, ALL + container)
    assert broken(project, tmp_path / "out") == {UNREAD, *BROKEN}


def test_the_guide_names_each_rule_with_its_setting() -> None:
    page = (ROOT / "docs" / "account.md").read_text(encoding="utf-8")

    assert set(re.findall(r"CT\.[A-Z0-9]+\.PR\.\d+", page)) == {*ANSWERED, *BROKEN, UNREAD}

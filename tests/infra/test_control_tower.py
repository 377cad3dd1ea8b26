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
from cdk_nag import HIPAASecurityChecks, NagPack, NIST80053R5Checks, PCIDSS321Checks
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
#: The rules that `cdk bootstrap` breaks by what it makes itself.
BOOTSTRAP = {"CT.ECR.PR.2", "CT.S3.PR.2", "CT.S3.PR.4", "CT.S3.PR.5", "CT.S3.PR.9"}
#: With the network of one's own, in which functions are too.
ALL = re.sub(r"^# (?=\[deployment\.network\]|\w+ = )", "", STRICT, flags=re.MULTILINE)
#: What other packs find beside, whatever is set.
PACKS = (NIST80053R5Checks, HIPAASecurityChecks, PCIDSS321Checks)
UNMET = {"IAMNoInlinePolicy", "LambdaConcurrency", "LambdaDLQ", "S3BucketReplicationEnabled"}


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
    given = {name: words(value) for name, value in permission.items()}
    asked.write_text(json.dumps({"AWS::Lambda::Permission": {"resourceProperties": given}}))
    return is_met(guard, UNREAD, asked)


def is_met(guard: Path, rule: str, asked: Path) -> bool:
    (program,) = guard.glob(f"bin/ubuntu/{os.uname().machine}/cfn-guard")
    (written,) = guard.rglob(f"{rule.lower().replace('.', '-')}.guard")
    run = subprocess.run([program, "validate", "--rules", written, "--data", asked], check=False)
    return run.returncode == 0


@pytest.mark.parametrize("rule", sorted(BOOTSTRAP))
def test_a_bootstrap_breaks_the_rules_that_are_said(guard: Path, rule: str) -> None:
    (template,) = (ROOT / "node_modules" / "aws-cdk").rglob("bootstrap-template.yaml")

    assert not is_met(guard, rule, template)


@pytest.mark.parametrize("pack", PACKS)
def test_what_other_packs_find_is_said(tmp_path: Path, pack: type[NagPack]) -> None:
    page = (ROOT / "docs" / "account.md").read_text(encoding="utf-8")
    project = write_project(tmp_path, ALL)

    found = report_findings(project, tmp_path / "out", plugin=pack())

    rules = {rule.rpartition("-")[2] for rule, _ in found}
    assert rules
    assert rules <= UNMET
    assert all(f"| {rule}:" in page for rule in rules)


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

    assert set(re.findall(r"CT\.[A-Z0-9]+\.PR\.\d+", page)) == {
        *ANSWERED,
        *BROKEN,
        *BOOTSTRAP,
        UNREAD,
    }

"""Control Tower's proactive rules, by CDK's validator: what no setting meets, and why.

Where an organisation has its hooks on, a deploy that breaks a rule is refused.
"""

import re
from pathlib import Path
from typing import cast

import pytest
from aws_cdk import IPolicyValidationPlugin
from cdklabs.cdk_validator_cfnguard import CfnGuardValidator

from tests.infra.assembly import ROOT, SPREAD, report_findings, write_project

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
    "CT.S3.PR.10": "kms_key_arn",
    "CT.S3.PR.2": "access_log_bucket",
    "CT.S3.PR.4": "bucket_events",
}
#: The rules that a setting breaks.
BROKEN = {"CT.EC2.PR.2": "metadata_access"}
#: The others that are broken, and why.
KEPT = {
    "CT.LAMBDA.PR.2": "both sources are there; the rule reads no reference to the account",
    "CT.LAMBDA.PR.3": "in a network the functions would need NAT, billed by the hour",
    "CT.S3.PR.9": "locked objects could not expire",
    "CT.SQS.PR.1": "queues of dead letters, and of events that failed, are where messages end",
}


def broken(project: Path, directory: Path) -> set[str]:
    """Return the rules of Control Tower that a deployment breaks."""
    # It is written against the first form of the interface, which CDK still takes.
    plugin = cast("IPolicyValidationPlugin", CfnGuardValidator())
    found = report_findings(project, directory, plugin=plugin)
    return {rule for rule, _ in found if rule.startswith("CT.")}


def test_no_rule_is_broken_that_is_not_known(tmp_path: Path) -> None:
    assert broken(write_project(tmp_path, SPREAD), tmp_path / "out") == {*ANSWERED, *KEPT}


def test_the_settings_answer_all_rules_but_those(tmp_path: Path) -> None:
    assert broken(write_project(tmp_path, STRICT), tmp_path / "out") == set(KEPT)


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

    project = write_project(tmp_path, STRICT + container)
    assert broken(project, tmp_path / "out") == {*KEPT, *BROKEN}


def test_the_guide_names_each_rule_with_its_setting() -> None:
    page = (ROOT / "docs" / "account.md").read_text(encoding="utf-8")

    assert set(re.findall(r"CT\.[A-Z0-9]+\.PR\.\d+", page)) == {*ANSWERED, *BROKEN, *KEPT}

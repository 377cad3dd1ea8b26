"""Rules that others wrote: CDK's own validator, cdk-nag's AwsSolutions, cfn-lint."""

import json
import re
import tarfile
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from cfnlint.api import lint_file
from cfnlint.config import ManualArgs

from tests.infra.assembly import Assembly, recommended_flags, report_findings

_LAUNCHED = "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>:"
_OBJECTS = "objects below one fixed prefix of the deployment's own bucket"
_MADE_BY_THE_LAUNCH = "it does not exist before the launch; a condition asks for our tag on it"

#: What the rules find and we keep, with the reason. Logical ids without their digests.
KEPT = {
    "AwsSolutions-IAM5[Resource::*]": "EC2's reading, Pricing and Service Quotas know no resources",
    "AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/decisions/*]": _OBJECTS,
    "AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/workloads/*/jobs/*/items.jsonl]": _OBJECTS,
    **{
        f"AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/workloads/{workload}/{kind}/*]": _OBJECTS
        for workload in ("plain", "rich")
        for kind in ("inputs", "jobs", "state")
    },
    "AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/offers/*]": _OBJECTS,
    "AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/usage/workload=plain/*]": _OBJECTS,
    "AwsSolutions-IAM5[Resource::<StoreBucket.Arn>/usage/workload=rich/*]": _OBJECTS,
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>::image/*]": (
        "the image is what the parameter holds at the launch; the template names the parameter"
    ),
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>::snapshot/*]": (
        "the snapshots are those of the image"
    ),
    **{
        f"{_LAUNCHED}{one}/*]": _MADE_BY_THE_LAUNCH
        for one in ("fleet", "instance", "network-interface", "spot-instances-request", "volume")
    },
    **{
        f"AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::{one}*]": (
            "the prefix that spindown.toml declares as an input"
        )
        for one in ("models/ocr/", "papers/2025/", "papers/2026/")
    },
    "AwsSolutions-S1": "access logs would cost more than the bucket; CloudTrail can record access",
    "AwsSolutions-SQS3": "it is itself where events go that could not be handled",
    "AwsSolutions-VPC7": "flow logs are billed by volume; workers accept no connection",
}


def test_cdk_and_cdk_nag_find_nothing_that_is_not_justified(
    assembly: Assembly, tmp_path: Path
) -> None:
    found = {
        re.sub(r"<(\w+)[0-9A-F]{8}\.", r"<\1.", rule)
        for rule, _ in report_findings(assembly.project, tmp_path)
    }

    assert found == set(KEPT)


def test_cfn_lint_finds_no_error(assembly: Assembly) -> None:
    assert lint(assembly) == []


def test_cfn_lint_finds_what_is_wrong(assembly: Assembly, tmp_path: Path) -> None:
    broken = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue", "Properties": {"Lifo": True}}}}
    (tmp_path / f"{assembly.stack_name}.template.json").write_text(json.dumps(broken))

    (found,) = lint(replace(assembly, directory=tmp_path))

    assert "Lifo" in found


def lint(assembly: Assembly, region: str = "eu-west-1") -> list[str]:
    """Return what cfn-lint finds in a stack's template, warnings left out.

    It runs in this process, since most of its time goes into reading its rules.
    """
    template = assembly.directory / f"{assembly.stack_name}.template.json"
    rules = ManualArgs(regions=[region], ignore_checks=["W"])
    return [str(match) for match in lint_file(template, config=rules)]


def test_cdk_json_turns_on_every_flag_that_this_cdk_recommends() -> None:
    recommended = json.loads(_read_from_library("recommended-feature-flags.json"))

    assert recommended_flags() == recommended


def _read_from_library(name: str) -> bytes:
    (library,) = Path(str(files("aws_cdk") / "_jsii")).glob("aws-cdk-lib@*.jsii.tgz")
    with tarfile.open(library) as archive:
        member = archive.extractfile(f"package/{name}")
        assert member is not None
        return member.read()

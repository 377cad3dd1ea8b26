"""Experiments of `spindown verify`: only where asked for, only of its own machines."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spindown import config
from spindown.builtin import verification
from spindown.config.archive import find_code, run_spec
from spindown.contract import tag
from spindown.infra.fault import workloads_to_verify
from tests.infra.assembly import Assembly, synthesise, words, write_project

CONFIG = """
[deployment]
name = "lab"
region = "eu-west-1"
zones = ["eu-west-1a"]
fault_injection = true

[workload.ocr.run]
entrypoint = "job:run"
code = "code"

[workload.verify.run]
verify = true
"""


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    directory = tmp_path_factory.mktemp("fault")
    path = write_project(directory, CONFIG)
    return replace(synthesise(path, directory / "out"), stack_name="lab-fault")


def of_type(assembly: Assembly, kind: str) -> list[Any]:
    resources = assembly.template["Resources"].values()
    return [one["Properties"] for one in resources if one["Type"] == kind]


def test_one_experiment_takes_one_tagged_spot_instance(fault: Assembly) -> None:
    (template,) = of_type(fault, "AWS::FIS::ExperimentTemplate")
    ours = {tag.DEPLOYMENT: "lab", tag.WORKLOAD: "verify", tag.REGION: "eu-west-1"}

    (target,) = template["Targets"].values()
    (action,) = template["Actions"].values()
    assert target["ResourceType"] == "aws:ec2:spot-instance"
    assert (target["SelectionMode"], target["ResourceTags"]) == ("COUNT(1)", ours)
    assert action["ActionId"] == "aws:ec2:send-spot-instance-interruptions"
    assert action["Parameters"] == {"durationBeforeInterruption": "PT2M"}
    assert template["Tags"].items() >= ours.items()


def test_its_role_announces_the_end_of_nothing_else(fault: Assembly) -> None:
    (policy,) = of_type(fault, "AWS::IAM::Policy")
    statements = {one["Sid"]: one for one in policy["PolicyDocument"]["Statement"]}

    interrupt = statements.pop("InterruptSpot")
    assert interrupt["Action"] == "ec2:SendSpotInstanceInterruptions"
    assert interrupt["Condition"]["StringEquals"] == {
        f"aws:ResourceTag/{tag.DEPLOYMENT}": "lab",
        f"aws:ResourceTag/{tag.WORKLOAD}": "verify",
        f"aws:ResourceTag/{tag.REGION}": "eu-west-1",
    }
    assert [one["Action"] for one in statements.values()] == ["ec2:DescribeInstances"]


def test_only_fis_for_this_account_has_the_role(fault: Assembly) -> None:
    (role,) = of_type(fault, "AWS::IAM::Role")
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]

    assert trust["Principal"] == {"Service": "fis.amazonaws.com"}
    assert words(trust["Condition"]["StringEquals"]["aws:SourceAccount"]) == "<AWS::AccountId>"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, ["verify"]),
        ({"fault_injection = true": ""}, []),
        ({"verify = true": 'entrypoint = "job:run"\ncode = "code"'}, []),
    ],
    ids=["asked for", "no fault injection", "no workload to verify"],
)
def test_experiments_are_asked_for(
    tmp_path: Path, change: dict[str, str], names: list[str]
) -> None:
    text = CONFIG
    for old, new in change.items():
        text = text.replace(old, new)

    assert workloads_to_verify(config.load(write_project(tmp_path, text))) == names


def test_the_built_in_code_is_packed_and_called_like_any(tmp_path: Path) -> None:
    loaded = config.load(write_project(tmp_path, CONFIG)).workloads["verify"]

    found = find_code(tmp_path, "verify", loaded)

    assert found is not None
    assert (found / "verification.py").samefile(verification.__file__)
    assert run_spec(loaded).entrypoint == "verification:run"

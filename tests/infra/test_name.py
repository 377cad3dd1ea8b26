"""Two deployments of one account whose names and workloads read alike: nothing of them is one."""

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from spindown.contract import name as names
from spindown.contract.settings import (
    deployment_parameter,
    live_parameter,
    outpost_parameter,
    workload_parameter,
)
from tests.infra.assembly import listed, synthesise, words, write_project

CONFIG = """
[deployment]
name = "{deployment}"
region = "eu-west-1"
zones = ["eu-west-1a"]
budget_per_month = 75.0
outpost.us-west-2.zones = ["us-west-2b"]

[workload.{workload}.run]
entrypoint = "job:run"
code = "code"

[workload.{workload}.image]
mode = "bake"
"""
#: One inside the other, from both ends; names of regions and of our own parts among them.
PAIRS = [
    (("gpu", "a-b"), ("gpu-a", "b")),
    (("gpu", "eu-west-1-b"), ("gpu-eu-west-1", "b")),
    (("gpu", "a-dlq"), ("gpu-a", "dlq")),
    (("gpu", "b"), ("gpu-b", "b")),
]
_NAMED = ("Name", "Names")


class Deployment:
    """What the templates of one deployment call their resources, and what their grants match."""

    def __init__(self, deployment: str, workload: str, directory: Path) -> None:
        directory.mkdir(parents=True)
        text = CONFIG.format(deployment=deployment, workload=workload)
        synthesise(write_project(directory, text), directory / "out")
        self._resources: list[Mapping[str, Any]] = [
            one
            for path in sorted((directory / "out").glob(f"{deployment}-*.template.json"))
            for one in json.loads(path.read_text())["Resources"].values()
        ]
        self.stacks = {path.name for path in (directory / "out").glob("*.template.json")}

    @property
    def names(self) -> set[tuple[str, str]]:
        """Return kind and name of each resource that has a name of ours."""
        return {
            (one["Type"], words(value).strip("/"))
            for one in self._resources
            for key, value in one.get("Properties", {}).items()
            if key.endswith(_NAMED) and isinstance(value, str | dict) and "<" not in words(value)
        }

    @property
    def patterns(self) -> set[str]:
        """Return what grants and permissions match, without what AWS names."""
        found = {words(one).rpartition(">:")[2] for one in self._granted()}
        parts = {min(one.split(":", 1)[-1], one.split("/", 1)[-1], key=len) for one in found}
        return {part.strip("/") for part in parts if "<" not in part and "gpu" in part}

    def _granted(self) -> Iterator[Any]:
        for one in self._resources:
            properties = one.get("Properties", {})
            yield from listed(properties.get("SourceArn", []))
            for statement in properties.get("PolicyDocument", {}).get("Statement", []):
                yield from listed(statement.get("Resource", []))
                for keys in statement.get("Condition", {}).values():
                    for values in keys.values():
                        yield from listed(values)


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_two_deployments_share_no_name_and_no_grant(
    pair: tuple[tuple[str, str], tuple[str, str]], tmp_path: Path
) -> None:
    first, second = (Deployment(*one, tmp_path.joinpath(*one)) for one in pair)

    kinds = {kind for kind, _ in first.names}
    assert {
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::Dashboard",
        "AWS::DynamoDB::GlobalTable",
        "AWS::EC2::LaunchTemplate",
        "AWS::IAM::InstanceProfile",
        "AWS::IAM::Role",
        "AWS::ImageBuilder::Component",
        "AWS::Lambda::Function",
        "AWS::Logs::LogGroup",
        "AWS::SNS::Topic",
        "AWS::SQS::Queue",
        "AWS::SSM::Parameter",
        "AWS::Scheduler::Schedule",
    } <= kinds
    shared = {name for name in first.names & second.names if "gpu" in name[1]}
    assert (shared, first.stacks & second.stacks) == (set(), set())
    assert first.patterns & second.patterns == set()
    for ours, theirs in ((first, second), (second, first)):
        assert any("*" in one for one in ours.patterns)
        foreign = {name for _, name in theirs.names} | theirs.patterns
        taken = {(p, n) for p in ours.patterns for n in foreign if fnmatchcase(n, p)}
        assert taken == set()


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_what_is_named_while_it_runs_is_told_apart(
    pair: tuple[tuple[str, str], tuple[str, str]],
) -> None:
    makers = (
        names.queue_name,
        names.resource_name,
        workload_parameter,
        live_parameter,
        outpost_parameter,
    )

    first, second = (
        {deployment_parameter(one[0]), *(make(*one) for make in makers)} for one in pair
    )

    assert not first & second

"""cfn-lint finds no error in any stack.

It runs in this process, and for all stacks in one test, which reads its rules once.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cfnlint.api import lint
from cfnlint.config import ConfigMixIn, ManualArgs
from cfnlint.rules import RulesCollection
from cfnlint.runner import Runner

from tests.infra.assembly import AWAY, SPREAD, Assembly, synthesise_once, write_project
from tests.infra.image.conftest import write_baking_project


def test_templates_pass_the_linter_which_finds_what_is_wrong(
    assembly: Assembly, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    baking = synthesise_once(tmp_path_factory, "baking", write_baking_project)
    spread = synthesise_once(
        tmp_path_factory, "spread", lambda directory: write_project(directory, SPREAD)
    )
    broken = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue", "Properties": {"Lifo": True}}}}
    (tmp_path / "broken.template.json").write_text(json.dumps(broken))

    rules = Runner(ConfigMixIn([])).rules
    assert complaints(assembly, rules) == []
    assert complaints(replace(assembly, stack_name="lab-insight"), rules) == []
    assert complaints(replace(baking, stack_name="lab-image"), rules) == []
    assert complaints(replace(spread, stack_name=f"lab-outpost-{AWAY}"), rules, AWAY) == []
    (found,) = complaints(replace(assembly, directory=tmp_path, stack_name="broken"), rules)
    assert "Lifo" in found


def complaints(assembly: Assembly, rules: RulesCollection, region: str = "eu-west-1") -> list[str]:
    """Return what cfn-lint finds in a stack's template, warnings left out."""
    template = assembly.directory / f"{assembly.stack_name}.template.json"
    config = ManualArgs(regions=[region], ignore_checks=["W"])
    found = lint(template.read_text(), rules=rules, regions=[region], config=config)
    return [str(match) for match in found]

"""cfn-lint finds no error in any stack.

It runs in this process, and for all stacks in one test, since most of its time goes into reading
its rules.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cfnlint.api import lint_file
from cfnlint.config import ManualArgs

from tests.infra.assembly import AWAY, SPREAD, Assembly, synthesise_once, write_project
from tests.infra.image.conftest import write_baking_project


def test_nothing_is_wrong_with_a_template_and_what_is_wrong_is_found(
    assembly: Assembly, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    baking = synthesise_once(tmp_path_factory, "baking", write_baking_project)
    spread = synthesise_once(
        tmp_path_factory, "spread", lambda directory: write_project(directory, SPREAD)
    )
    broken = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue", "Properties": {"Lifo": True}}}}
    (tmp_path / "broken.template.json").write_text(json.dumps(broken))

    assert lint(assembly) == []
    assert lint(replace(assembly, stack_name="lab-insight")) == []
    assert lint(replace(baking, stack_name="lab-image")) == []
    assert lint(replace(spread, stack_name=f"lab-outpost-{AWAY}"), AWAY) == []
    (found,) = lint(replace(assembly, directory=tmp_path, stack_name="broken"))
    assert "Lifo" in found


def lint(assembly: Assembly, region: str = "eu-west-1") -> list[str]:
    """Return what cfn-lint finds in a stack's template, warnings left out."""
    template = assembly.directory / f"{assembly.stack_name}.template.json"
    rules = ManualArgs(regions=[region], ignore_checks=["W"])
    return [str(match) for match in lint_file(template, config=rules)]

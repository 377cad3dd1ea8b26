"""Folders that are run: workers of the workload read them, and no role of ours writes one."""

from pathlib import Path
from typing import Any

import pytest

from spindown import config
from spindown.config.archive import pack, read_version, run_spec
from spindown.contract.folder import digest_of, folder_key
from spindown.domain.lease import VISIBILITY_CAP
from tests.infra.assembly import CONFIG, Assembly, listed, synthesise, words, write_project
from tests.infra.policy import matches

_LAB = """
[workload.lab.run]
folders = true
"""
_KEY = folder_key("lab", "0" * 64)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    directory = tmp_path_factory.mktemp("lab")
    return synthesise(write_project(directory, CONFIG + _LAB), directory / "out")


def _statements(lab: Assembly) -> list[tuple[str, dict[str, Any]]]:
    """Return all statements of policies of roles, each with the name of what holds it."""
    found = []
    for name, resource in lab.template["Resources"].items():
        properties = resource.get("Properties", {})
        if not resource["Type"].startswith("AWS::IAM::"):
            continue
        documents = [one["PolicyDocument"] for one in properties.get("Policies", [])]
        documents += [properties["PolicyDocument"]] if "PolicyDocument" in properties else []
        found += [(name, one) for document in documents for one in document["Statement"]]
    return found


def _may(action: str, statement: dict[str, Any]) -> bool:
    """Tell whether a statement allows an action on a folder of the workload."""
    if action not in listed(statement["Action"]):
        return False
    allowed = map(words, listed(statement["Resource"]))
    return any(matches(one.partition("/")[2] or one, _KEY) for one in allowed)


def test_only_its_workers_read_a_folder_and_none_writes_one(lab: Assembly) -> None:
    assert digest_of(f"s3://bucket/{_KEY}")
    statements = _statements(lab)
    assert any("s3:PutObject" in listed(one["Action"]) for _, one in statements)

    readers = {name for name, one in statements if _may("s3:GetObject", one)}

    assert [name for name in readers if not name.startswith("WorkloadlabFleetRole")] == []
    assert readers
    assert [name for name, one in statements if _may("s3:PutObject", one)] == []


def test_a_command_has_all_its_time_unless_it_is_said(tmp_path: Path) -> None:
    for said, length in (("", VISIBILITY_CAP.total_seconds()), ('item_timeout = "1m"', 60.0)):
        path = write_project(tmp_path, CONFIG + _LAB + said)
        spec = run_spec(config.load(path).workload["lab"])
        assert (spec.folders, spec.batch_size) == (True, 1)
        assert spec.item_timeout.total_seconds() == length
        assert read_version(pack(None, spec))

"""An insight stack of two workloads and a budget, synthesised once."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.infra.assembly import once
from tests.infra.observability.assembly import a_config, synthesise


def _write(root: Path) -> None:
    config = a_config("ocr", "embed", budget_per_month=50.0)
    resources = synthesise(config, root / "out")
    (root / "resources.json").write_text(json.dumps(resources))


@pytest.fixture(scope="session")
def resources(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    root = once(tmp_path_factory, "insight", _write)
    found: Mapping[str, Any] = json.loads((root / "resources.json").read_text())
    return found

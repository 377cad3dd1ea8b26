"""The core template as a whole: what changes in it is seen, and meant.

After a change that is meant: ``pytest tests/infra/test_snapshot.py --snapshot-update``.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.json import JSONSnapshotExtension

from tests.infra.assembly import PLAIN, synthesise, write_project


@pytest.fixture
def snapshot(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(JSONSnapshotExtension)


def scrub(template: Any) -> Any:
    """Return the template without the digests of what is uploaded beside it."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", json.dumps(template))
    return json.loads(text)


def test_the_core_template_is_as_it_was(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    made = synthesise(write_project(tmp_path, PLAIN.format(image="")), tmp_path / "out")

    assert scrub(made.template) == snapshot

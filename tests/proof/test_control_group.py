"""Jobs that share a machine are kept apart by a real kernel's control groups."""

import sys
from pathlib import Path

import pytest

from tests.proof.guest.linux import run_in_guest

pytestmark = pytest.mark.proof


def test_jobs_on_one_machine_are_kept_apart(tmp_path: Path) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--color=no"]
    inside = "tests/proof/guest/control_group.py"
    said = run_in_guest([sys.executable, "-m", "pytest", *options, inside], tmp_path)
    assert "3 passed" in said

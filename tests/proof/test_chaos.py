"""The local system under attack loses nothing, does nothing twice and leaves nothing running."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]


@pytest.mark.proof
def test_an_attack_loses_doubles_and_leaves_running_nothing() -> None:
    # In a process of its own, as `make chaos` runs it: killed functions leave pipes behind.
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.chaos", "--seed", "11"],
        cwd=_ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )

    assert done.returncode == 0, done.stdout + done.stderr[-2000:]

"""The deployed core on moto."""
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.world import SWIFT, World, deployed
from tests.proof.moto_state import MotoState

pytestmark = pytest.mark.proof

CONFIG = f"""
[deployment]
name = "e2e"
region = "us-east-1"
zones = ["us-east-1a", "us-east-1b"]

[workload.verify.run]
verify = true

[workload.verify.policy]
{SWIFT.replace("max_workers = 1", "max_workers = 2")}
"""


def test_x(tmp_path):
    path = tmp_path / "spindown.toml"
    path.write_text(CONFIG, encoding="utf-8")
    state = MotoState()
    with deployed(path, emulate=state.load) as world:
        state.move(world.client)
        done = world.spindown("verify", "--yes", "--json", "--items", "40")
        print(done.stdout, done.stderr)
        print(state.answered)
        assert done.returncode == 0

"""A deployment of two regions whose home is dry, and a worker of it at work."""

from pathlib import Path

from spindown.local.market import Scenario
from spindown.local.market.scenario import DryPool
from tests.e2e.world import SWIFT
from tests.local.world import at_once

HOME, AWAY = "us-east-1", "us-west-2"

_CODE = """
import time
from spindown.user import Result

def run(batch, ctx):
    for item in batch:
        time.sleep(0.2)
        yield Result(item, item.value)
"""

_CONFIG = f"""
[deployment]
name = "e2e"
region = "{HOME}"
zones = ["{HOME}a", "{HOME}b"]

[deployment.outpost.{AWAY}]
zones = ["{AWAY}a", "{AWAY}b"]

[workload.slow.run]
entrypoint = "slow:run"
code = "slow"
batch_size = 1

[workload.slow.policy]
{SWIFT}checkpoint_items = 2
commit_margin = "1s"
"""


def write_deployment(directory: Path) -> Path:
    """Write a spindown.toml with an outpost, and its code; return its path."""
    (directory / "slow").mkdir()
    (directory / "slow" / "slow.py").write_text(_CODE, encoding="utf-8")
    path = directory / "spindown.toml"
    path.write_text(_CONFIG, encoding="utf-8")
    return path


def dry_at_home() -> Scenario:
    """Return a market in which home has nothing to give, and nothing is reclaimed by itself."""
    return at_once().model_copy(update={"dry": (DryPool(zone=f"{HOME}*"),), "interruption": ()})

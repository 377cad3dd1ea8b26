"""The spindown.toml that a newcomer copies is right."""

from pathlib import Path

from spindown import config

ROOT = Path(__file__).parents[3]


def test_the_example_at_the_root_is_valid() -> None:
    loaded = config.load(ROOT / "spindown.toml")

    assert loaded.workloads["classify"].to_policy().max_workers == 4

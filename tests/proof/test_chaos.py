"""The local system under attack loses nothing, does nothing twice and leaves nothing running."""

from pathlib import Path
from random import Random

import pytest

from tests.proof.chaos.run import run


@pytest.mark.proof
def test_nothing_is_lost_doubled_or_left_running_after_an_attack(tmp_path: Path) -> None:
    seed = 11
    figures = run(tmp_path, random=Random(seed), seed=seed, seconds=75.0, jobs=30)

    assert figures["faults"] == []
    assert sum(figures["attacks"].values()) > 10

"""How long ``spindown local up`` takes: the first time, and once CDK's output is kept; by step.

Of what ``spindown init`` writes, in a new folder, by the clock: compare on a machine that does
nothing else.
"""

from pathlib import Path
from time import monotonic

import pytest

from spindown.cli.init import init
from spindown.local import daemon
from tests.bench.record import record

pytestmark = pytest.mark.bench

#: Of one that has been up before, seconds.
LIMIT_S = 20.0


def time_up(config: Path) -> tuple[float, dict[str, float]]:
    """Bring the system up and down; return the seconds of ``up``, and of each step of it."""
    begun, steps = monotonic(), list[tuple[str, float]]()
    daemon.start(
        config,
        state=config.parent / ".spindown",
        port=0,
        tell=lambda step: steps.append((step, monotonic())),
    )
    ended = monotonic()
    assert daemon.stop(config.parent / ".spindown")
    ends = [at for _, at in steps[1:]] + [ended]
    names = [step.partition(", ")[0].partition(" of ")[0] for step, _ in steps]
    each = {name: end - at for name, (_, at), end in zip(names, steps, ends, strict=True)}
    return ended - begun, each


def test_up_takes_under_20_s_when_set_up(tmp_path: Path) -> None:
    # What `init` names the deployment after.
    config = tmp_path / "up" / "spindown.toml"
    config.parent.mkdir()
    init(config=config)

    first, _ = time_up(config)
    second, steps = time_up(config)

    record(
        "up",
        {
            "first_s": round(first, 1),
            "second_s": round(second, 1),
            "limit_s": LIMIT_S,
            **{f"second: {name}, s": round(took, 1) for name, took in steps.items()},
        },
    )
    assert second <= LIMIT_S

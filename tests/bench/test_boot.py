"""How long a clean system takes to become a worker, step by step: ``install.sh`` in a clean Debian.

The system has neither nftables nor pip, so this is more than on AWS's images that have them. Python
packages come from the kit, as if downloads took no time: what a network adds follows from the bytes
that are told beside. What comes before (EC2, kernel, cloud-init) and after (fitness, the user's
``setup``) is not here.
"""

import os
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.bench.record import record
from tests.worker_system.clean_root import CleanRoot

pytestmark = pytest.mark.bench

RUNS = 3
REMOVE = "apt-get -qq -y remove nftables python3-pip-whl >/dev/null 2>&1; rm -rf /opt/spindown"
INSTALL = """
sh /kit/system/install.sh --offline 2>&1 | while IFS= read -r line; do
    echo "$(date +%s.%N) $line"
done
date "+%s.%N spindown install: end"
"""


def install(root: CleanRoot) -> tuple[dict[str, float], float]:
    """Return the seconds of each step of one install from nothing, and the CPU seconds of all."""
    assert root.run("sh", "-c", REMOVE).returncode == 0
    before = os.times()
    done = root.run("sh", "-c", INSTALL)
    after = os.times()
    told = [line.partition(" spindown install: ") for line in done.stdout.splitlines()]
    steps = [(name.partition(":")[0], float(at)) for at, _, name in told if name]
    assert steps[-2][0] == "check", done.stdout[-2000:] + done.stderr[-2000:]
    cpu_s = after.children_user + after.children_system
    cpu_s -= before.children_user + before.children_system
    return {name: until - at for (name, at), (_, until) in pairwise(steps)}, cpu_s


def test_an_install_is_timed_step_by_step(tmp_path: Path) -> None:
    begun = time.monotonic()
    root = CleanRoot(tmp_path)
    made_s = time.monotonic() - begun
    runs = [install(root) for _ in range(RUNS)]

    # The order of the first run is that of the script.
    seconds = {name: median(steps[name] for steps, _ in runs) for name in runs[0][0]}
    wheels = list((root.directory / "kit" / "wheels").glob("*.whl"))
    record(
        "boot",
        {
            **{f"{name.replace(' ', '_')}_s": round(value, 2) for name, value in seconds.items()},
            "install_s": round(sum(seconds.values()), 2),
            "install_cpu_s": round(median(cpu_s for _, cpu_s in runs), 2),
            "wheels_mb": round(sum(one.stat().st_size for one in wheels) / 1e6, 1),
            "making_the_system_s": round(made_s, 1),
        },
    )
    assert {"uv", "the worker", "check"} <= seconds.keys()

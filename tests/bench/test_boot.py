"""How long a clean system takes to become a worker, step by step: ``install.sh`` in a clean Debian.

The system has no nftables, so this is more than on AWS's images that have them. Python packages
come from the kit, as if downloads took no time: what a network adds follows from the bytes that are
told beside. What comes before (EC2, kernel, cloud-init) and after (fitness, the user's ``setup``)
is not here.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from uv import find_uv_bin

from spindown.infra.shared.pinned_uv import fetch_uv
from tests.bench.record import record
from tests.worker_system.clean_root import PYTHON, CleanRoot
from tests.worker_system.kit import zip_code

pytestmark = pytest.mark.bench

RUNS = 3
#: What many requirements begin with.
REQUIREMENTS = "numpy==2.3.4\n"
REMOVE = "apt-get -qq -y remove nftables python3-pip-whl >/dev/null 2>&1; rm -rf /opt/spindown"
#: Before each line that the script says: seconds, and CPU ticks of all processes so far. Those of
#: a process that has ended are its parent's. Fields of stat(5) after the name: 14 to 17.
INSTALL = """
tell() {
    ticks=$(cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' |
        awk '{n += $12 + $13 + $14 + $15} END {print n}')
    echo "$(date +%s.%N) $ticks $*"
}
sh /kit/system/install.sh --offline "$@" 2>&1 | while IFS= read -r line; do tell "$line"; done
tell "spindown install: end"
getconf CLK_TCK
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """What one step of the script has taken."""

    wall_s: float
    cpu_s: float


def install(root: CleanRoot, *options: str) -> dict[str, Phase]:
    """Return what each step of one install from nothing has taken, in the order of the script."""
    assert root.run("sh", "-c", REMOVE).returncode == 0
    done = root.run("sh", "-c", INSTALL, "sh", *options)
    *lines, ticks_a_second = done.stdout.splitlines()
    steps: list[tuple[str, float, float]] = []
    for line in lines:
        at, _, text = line.partition(" spindown install: ")
        if text:
            seconds, ticks = at.split()
            steps.append((text.partition(":")[0], float(seconds), float(ticks)))
    assert steps[-2][0] == "check", done.stdout[-2000:] + done.stderr[-2000:]
    return {
        name: Phase(ended - begun, (spent_then - spent) / float(ticks_a_second))
        for (name, begun, spent), (_, ended, spent_then) in pairwise(steps)
    }


def usual(root: CleanRoot, *options: str) -> dict[str, Phase]:
    """Return the medians of some installs."""
    runs = [install(root, *options) for _ in range(RUNS)]
    return {
        name: Phase(
            median(run[name].wall_s for run in runs), median(run[name].cpu_s for run in runs)
        )
        for name in runs[0]
    }


def figures(phases: Mapping[str, Phase], *, of: str = "") -> dict[str, float]:
    """Return them by name, and their sums."""
    sums = Phase(
        sum(one.wall_s for one in phases.values()), sum(one.cpu_s for one in phases.values())
    )
    named = {of + name.replace(" ", "_"): phase for name, phase in phases.items()}
    return {
        f"{name}_{kind}": round(value, 2)
        for name, phase in {**named, f"{of}install": sums}.items()
        for kind, value in (("s", phase.wall_s), ("cpu_s", phase.cpu_s))
    }


def download(target: Path, *requirements: str) -> None:
    """Fetch wheels for the clean system's Python."""
    platform = ["--only-binary=:all:", f"--python-version={PYTHON}", f"--dest={target}"]
    command = [sys.executable, "-m", "pip", "download", "-q", *platform, *requirements]
    subprocess.run(command, check=True, capture_output=True)


def test_an_install_is_timed_step_by_step(tmp_path: Path) -> None:
    begun = time.monotonic()
    root = CleanRoot(tmp_path)
    made_s = time.monotonic() - begun
    wheels = list((root.directory / "kit" / "wheels").glob("*.whl"))
    uv = root.directory / "uv"
    data = fetch_uv("x86_64" if os.uname().machine == "x86_64" else "arm64")
    assert data is not None
    uv.write_bytes(data)
    uv.chmod(0o755)
    code = {"needs.txt": REQUIREMENTS}
    zip_code(root.directory / "code.zip", code, requirements="needs.txt")
    download(root.directory / "kit" / "wheels", REQUIREMENTS.strip())

    by_pip = usual(root)
    given = usual(root, "--uv", "/uv")
    with_code = usual(root, "--uv", "/uv", "--code", "/code.zip")

    record(
        "boot",
        {
            **figures(given),
            **figures(by_pip, of="without_uv_"),
            **figures(with_code, of="with_numpy_"),
            "wheels_mb": round(sum(one.stat().st_size for one in wheels) / 1e6, 1),
            "uv_mb": round(len(data) / 1e6, 1),
            "making_the_system_s": round(made_s, 1),
        },
    )
    assert {"the worker", "check"} <= given.keys()
    assert given.keys() == by_pip.keys() - {"uv"}


#: 180 MB of wheels, 610 MB in their place.
MANY = ("numpy", "scipy", "pandas", "pyarrow", "scikit-learn", "transformers", "onnxruntime")


def written_mb(directory: Path, wheels: Path, mode: str) -> tuple[float, float]:
    """Return the MB that uv hands to the disk to install these wheels, and its CPU seconds."""
    place = directory / mode
    uv = [find_uv_bin(), "--quiet", "--cache-dir", str(place / "cache")]
    subprocess.run([*uv, "venv", "--python", sys.executable, place / "venv"], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    source = ["--no-index", f"--find-links={wheels}", f"--link-mode={mode}"]
    python = f"--python={place / 'venv' / 'bin' / 'python'}"
    subprocess.run([*uv, "pip", "install", python, *source, *MANY], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Blocks of 512 bytes (getrusage(2)).
    return (after.ru_oublock - before.ru_oublock) * 512 / 1e6, cpu_s


def test_links_write_half_of_what_copies_do(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    download(wheels, *MANY)

    copied, copied_cpu_s = written_mb(tmp_path, wheels, "copy")
    linked, linked_cpu_s = written_mb(tmp_path, wheels, "hardlink")

    record(
        "boot_disk",
        {
            "wheels_mb": round(sum(one.stat().st_size for one in wheels.iterdir()) / 1e6),
            "copied_mb": round(copied),
            "copied_cpu_s": round(copied_cpu_s, 1),
            "linked_mb": round(linked),
            "linked_cpu_s": round(linked_cpu_s, 1),
        },
    )
    assert linked < 0.6 * copied

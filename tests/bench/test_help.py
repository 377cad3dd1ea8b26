"""What a person waits for before the first line of a command, and before its whole help.

Help is CPU time of a whole process, its Python included. A first line is what a terminal shows
first, be it a note that goes away again; it is measured by the clock.
"""

import os
import pty
import resource
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

from spindown.cli.app import COMMANDS
from tests.bench.record import record

pytestmark = pytest.mark.bench

ROUNDS = 3
#: ms.
LIMIT = 200.0
FIRST_LINE_LIMIT = 500.0
#: Commands that ask AWS before they know anything: here they find no credentials.
ASKING = (("status",), ("plan", "main"), ("submit", "main", "spindown.toml"), ("doctor",))


def cpu_ms(*arguments: str) -> float:
    """Return the least that a run takes: what others do on this machine only adds to it."""
    return min(_run(*arguments) for _ in range(ROUNDS))


def _run(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "spindown", *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000.0


def first_line_ms(directory: Path, *arguments: str) -> float:
    """Return the least time until a terminal shows anything."""
    return min(_show(directory, *arguments) for _ in range(ROUNDS))


def _show(directory: Path, *arguments: str) -> float:
    screen, terminal = pty.openpty()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    nobody = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(directory)}
    begun = perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "spindown", *arguments],
        cwd=directory,
        env=kept | nobody,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        os.read(screen, 1)
        took = perf_counter() - begun
        process.kill()
    os.close(screen)
    return took * 1000.0


def test_help_is_there_at_once() -> None:
    overview = cpu_ms("--help")
    each = {name: round(cpu_ms(name, "--help"), 1) for name in COMMANDS}

    slowest = max(each, key=lambda name: each[name])
    record(
        "help",
        {
            "overview_cpu_ms": round(overview, 1),
            "limit": LIMIT,
            "slowest_command": slowest,
            "slowest_command_cpu_ms": each[slowest],
            "runs_each": ROUNDS,
        },
    )
    assert overview <= LIMIT


def test_the_first_line_of_each_command_is_there_soon(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "spindown", "init"], cwd=tmp_path, check=True)
    asked = [*((name, "--help") for name in COMMANDS), *ASKING]
    each = {" ".join(one): round(first_line_ms(tmp_path, *one), 1) for one in asked}

    slowest = max(each, key=lambda name: each[name])
    record(
        "first_line",
        {
            "slowest_command": slowest,
            "slowest_ms": each[slowest],
            "limit": FIRST_LINE_LIMIT,
            "commands": len(each),
            "runs_each": ROUNDS,
        },
    )
    assert each[slowest] <= FIRST_LINE_LIMIT

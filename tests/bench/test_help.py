"""What a person waits for before the first line of a command that asks nothing of AWS.

CPU time of a whole process, its Python included.
"""

import resource
import subprocess
import sys

import pytest

from spindown.cli.app import COMMANDS
from tests.bench.record import record

pytestmark = pytest.mark.bench

ROUNDS = 3
#: ms.
LIMIT = 200.0


def cpu_ms(*arguments: str) -> float:
    """Return the least that a run takes: what others do on this machine only adds to it."""
    return min(_run(*arguments) for _ in range(ROUNDS))


def _run(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "spindown", *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000.0


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

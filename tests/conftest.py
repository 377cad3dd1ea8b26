"""What every test shares: Hypothesis profiles, order, Ctrl-C, and the node that CDK runs on."""

import os
import signal
import sys
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from hypothesis import HealthCheck, settings

from spindown.cli.render import line

# Examples may be slow on a busy machine, which says nothing about the code: no deadline, no
# health check on time. A failure prints the blob that reproduces it. The proof looks for new
# examples; the fast tests try the same ones each time, so that they fail for what was changed.
settings.register_profile(
    "proof",
    deadline=None,
    print_blob=True,
    max_examples=5000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fast", parent=settings.get_profile("proof"), derandomize=True, max_examples=100
)
settings.load_profile("fast")

# `make` exports this; a bare `pytest` gets the same node.
os.environ.setdefault("JSII_NODE", str(Path(sys.executable).parent / "node"))

# Each session of boto3 would read the models of its services anew, which takes longer than most
# tests; here they share what one has read.
botocore.session.create_loader = cache(botocore.session.create_loader)

# What a test reads of stderr must not depend on how long a command was silent.
line._FILE_SECONDS = 3600.0

# A shell starts what runs in its background with Ctrl-C ignored. The processes under test would
# inherit that, and the tests that interrupt one would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the suites of the adapters run on another emulator, or on an account (`make aws`)."""
    parser.addoption("--world", choices=("moto", "ministack", "account"), default="moto")
    parser.addoption("--agree", action="store_true", help="to what `--world account` makes")


# Without xdist, as the mutants are tested, there is no such hook.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one process more than there are cores: who waits for a local system leaves one."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the longest modules begin first: a process runs a module whole, and one would be last."""
    # What pytest-randomly has shuffled stays so within.
    items.sort(key=_minutes, reverse=True)


def _minutes(item: pytest.Item) -> float:
    """Return about how long the module of a test takes, 0 if not long."""
    long = item.get_closest_marker("long")
    return long.kwargs.get("minutes", 1.0) if long else 0.0

"""What a function loads before its first event, since each cold start waits for it."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Prints what is loaded after the start of a function whose name is the argument, and how often
#: the garbage collector ran until a live edit was read.
START = """
import gc, importlib, sys
import spindown.functions
gc.collect()
collected = sum(generation["collections"] for generation in gc.get_stats())
importlib.import_module(f"spindown.functions.{sys.argv[1]}")
from spindown.functions.port import connect
aws = connect()
aws.table("ledger"), aws.queue("https://queue"), aws.object_store("bucket"), aws.settings("demo")
print(*sys.modules)
from spindown.config import merge_policy
from spindown.domain.policy import Policy
merge_policy(Policy(), {"max_workers": 3})
print(sum(generation["collections"] for generation in gc.get_stats()) - collected)
"""
#: What they need is in botocore, or is for an edited policy alone.
HEAVY = {"boto3", "s3transfer", "pydantic", "spindown.config"}


@dataclass(frozen=True, slots=True)
class Started:
    """What a start has loaded and done."""

    modules: frozenset[str]
    collections: int


@pytest.fixture(scope="module", params=["scaler", "interruption", "offers"])
def started(request: pytest.FixtureRequest) -> Started:
    environment = {"AWS_DEFAULT_REGION": "us-east-1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", START, request.param]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    loaded, collections = done.stdout.splitlines()
    assert f"spindown.functions.{request.param}" in loaded.split()
    return Started(frozenset(loaded.split()), int(collections))


def test_a_function_starts_without_what_it_may_never_need(started: Started) -> None:
    assert "botocore.session" in started.modules
    assert not HEAVY & started.modules


def test_no_garbage_is_looked_for_while_a_function_starts(started: Started) -> None:
    assert started.collections == 0

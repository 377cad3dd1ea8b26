"""What a function loads before its first event, since each cold start waits for it."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Prints what is loaded after the start of a function whose name is the argument.
START = """
import importlib, sys
importlib.import_module(f"functions.{sys.argv[1]}")
from functions.port import connect
aws = connect()
aws.table("ledger"), aws.queue("https://queue"), aws.object_store("bucket"), aws.settings("demo")
print(*sys.modules)
"""
#: What they need is in botocore, or is for an edited policy alone.
HEAVY = {"boto3", "s3transfer", "pydantic", "spindown.config"}


@pytest.mark.parametrize("function", ["scaler", "interruption", "offers"])
def test_a_function_starts_without_what_it_may_never_need(function: str) -> None:
    environment = {"AWS_DEFAULT_REGION": "us-east-1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", START, function]

    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)

    loaded = set(done.stdout.split())
    assert {f"functions.{function}", "botocore.session"} <= loaded
    assert not HEAVY & loaded

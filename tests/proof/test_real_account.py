"""The contract suites take the way of `make aws`, where moto behind one endpoint plays AWS.

The run is a process of its own that knows an endpoint and keys, as on an account. What this cannot
show is what AWS itself would answer.
"""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import boto3
import pytest

from spindown.local import emulator
from spindown.local.environment import aws_environment, environment_of_process
from spindown.local.gateway import Gateway, bind
from tests.e2e.world import ROOT
from tests.local.waiting import until
from tests.proof.moto_state import SERVICES, MotoState
from tests.proof.record import record_part

pytestmark = pytest.mark.proof

REGION = "eu-west-1"
ASKED = SERVICES | {"logs", "sns"}
MINUTES = 15


class Account:
    """An account that moto plays."""

    def __init__(self, state: MotoState) -> None:
        self.state = state

    def run(self, *options: str) -> "subprocess.Popen[str]":
        """Begin to run the contract suites on it, as `make aws` does."""
        command = [sys.executable, "-m", "pytest", "-m", "aws", "--world", "account"]
        alike = ["--force-enable-socket", "-q", "-n", "0", "-p", "no:randomly", "tests/ports"]
        return subprocess.Popen(
            [*command, *alike, *options],
            cwd=ROOT,
            env=os.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def whole(self, *options: str) -> tuple[int, str]:
        """Run them to the end; return the exit status and what was printed."""
        with self.run(*options) as process:
            said, _ = process.communicate(timeout=60 * MINUTES)
            return process.returncode, said

    def left(self) -> Sequence[str]:
        """Return the names of all that is there."""
        queues = boto3.client("sqs").list_queues().get("QueueUrls", [])
        buckets = boto3.client("s3").list_buckets()["Buckets"]
        parameters = boto3.client("ssm").describe_parameters()["Parameters"]
        groups = boto3.client("logs").describe_log_groups()["logGroups"]
        topics = boto3.client("sns").list_topics()["Topics"]
        return [
            *queues,
            *boto3.client("dynamodb").list_tables()["TableNames"],
            *(one["Name"] for one in [*buckets, *parameters]),
            *(one["logGroupName"] for one in groups),
            *(one["TopicArn"] for one in topics),
        ]


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    gateway, state = Gateway(bind(0)), MotoState(ASKED)
    environment = aws_environment(gateway.endpoint, REGION) | emulator.settings(gateway.port)
    with environment_of_process(environment):
        try:
            gateway.start(state.load(gateway.port), every={})
            # boto3's stubs have an overload for each service.
            client: Any = boto3.client
            state.move(client)
            yield Account(state)
        finally:
            gateway.stop()


def test_the_suites_run_on_an_account_and_leave_nothing(account: Account) -> None:
    before = Counter(account.state.answered)

    status, said = account.whole("--agree")

    assert status == 0, said
    answered = Counter(account.state.answered) - before
    assert {service for service, _ in answered} == ASKED
    assert answered["sqs", "CreateQueue"] > 40
    assert account.left() == []
    assert "spindown-contract-" in said
    requests = Counter[str]()
    for (service, _), count in answered.items():
        requests[service] += count
    makes = {name: count for (_, name), count in answered.items() if name.startswith("Create")}
    record_part("world", "account", {"requests": dict(sorted(requests.items())), "makes": makes})


def test_what_is_interrupted_leaves_nothing(account: Account) -> None:
    with account.run("--agree", "tests/ports/test_queue.py") as process:
        until(lambda: len(account.left()) > 5, seconds=60 * MINUTES)
        process.send_signal(signal.SIGINT)
        assert process.wait(60 * MINUTES) != 0

    assert account.left() == []


def test_without_a_word_of_agreement_nothing_is_asked(account: Account) -> None:
    before = Counter(account.state.answered)

    status, said = account.whole()

    assert status != 0
    assert "make aws AGREE=yes" in said
    assert account.state.answered == before

"""A simulated AWS account in this process, one for each module of tests.

moto is the usual one. With `--world ministack` it is MiniStack, which another author has written.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import boto3
import pytest
from moto import mock_aws

from spindown.aws.wiring import Aws
from spindown.local import emulator
from spindown.local.environment import aws_environment, environment_of_process
from spindown.local.gateway import Gateway, bind
from spindown.memory import MemoryClock
from tests.ports.market import REGION, Answers


@contextmanager
def _ministack() -> Iterator[None]:
    """Serve MiniStack on loopback, and point every client of this process at it."""
    gateway = Gateway(bind(0))
    environment = aws_environment(gateway.endpoint, REGION) | emulator.settings(gateway.port)
    # moto's.
    account = {"MINISTACK_ACCOUNT_ID": "123456789012"}
    with environment_of_process(environment | account):
        try:
            gateway.start(emulator.load(gateway.port), every={})
            yield
        finally:
            gateway.stop()


_WORLDS: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    "moto": mock_aws,
    "ministack": _ministack,
}


#: Services that the present test has asked.
_ASKED: set[str] = set()


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[boto3.Session]:
    with _WORLDS[request.config.getoption("--world")]():
        made = boto3.Session(
            aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION
        )
        made.events.register("request-created", _note)
        yield made


def _note(event_name: str, **_: object) -> None:
    _ASKED.add(event_name.split(".")[1])


@pytest.fixture(autouse=True)
def _tell_who_was_asked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Name in the report of a run the services whose emulator a test has asked."""
    _ASKED.clear()
    yield
    if _ASKED:
        request.node.user_properties.append(("asked", " ".join(sorted(_ASKED))))


@pytest.fixture(scope="module")
def aws(session: boto3.Session) -> Aws:
    return Aws(session)


@pytest.fixture
def clock() -> MemoryClock:
    return MemoryClock()


@pytest.fixture
def answers(session: boto3.Session, clock: MemoryClock) -> Iterator[Answers]:
    """A market on EC2 that must have been asked all that it has an answer for."""
    answers = Answers(session, clock)
    with answers.ec2, answers.pricing, answers.quotas:
        yield answers
        answers.ec2.assert_no_pending_responses()
        answers.pricing.assert_no_pending_responses()
        answers.quotas.assert_no_pending_responses()

"""A simulated AWS account in this process, one for each module of tests.

moto is the usual one. With `--world ministack` it is MiniStack, which another author has written,
and with `--world account` a real account (`make aws`).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol, TypeVar

import boto3
import pytest
from moto import mock_aws

from spindown.aws.wiring import Aws
from spindown.local import emulator
from spindown.local.environment import aws_environment, environment_of_process
from spindown.local.gateway import Gateway, bind
from spindown.memory import MemoryClock
from tests.local.waiting import until
from tests.ports.market import REGION, Answers
from tests.ports.real_account import AGREEMENT, LATE, can_run, real_account

T = TypeVar("T")


def _made_up() -> boto3.Session:
    return boto3.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION)


@contextmanager
def _moto() -> Iterator[boto3.Session]:
    with mock_aws():
        yield _made_up()


@contextmanager
def _ministack() -> Iterator[boto3.Session]:
    """Serve MiniStack on loopback, and point every client of this process at it."""
    gateway = Gateway(bind(0))
    environment = aws_environment(gateway.endpoint, REGION) | emulator.settings(gateway.port)
    # moto's.
    account = {"MINISTACK_ACCOUNT_ID": "123456789012"}
    with environment_of_process(environment | account):
        try:
            gateway.start(emulator.load(gateway.port), every={})
            yield _made_up()
        finally:
            gateway.stop()


_WORLDS: Mapping[str, Callable[[], AbstractContextManager[boto3.Session]]] = {
    "moto": _moto,
    "ministack": _ministack,
    "account": real_account,
}


# Before what reads `-m`.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a real account run what can run there, once somebody has agreed to what it makes."""
    if config.getoption("--world") != "account":
        return
    if not config.getoption("--agree"):
        raise pytest.UsageError(
            f"{AGREEMENT}\nTo agree: make aws AGREE=yes CONFIG=FILE (option --agree)"
        )
    if terminal := config.pluginmanager.get_plugin("terminalreporter"):
        terminal.write_line(f"\n{AGREEMENT}")
    for item in items:
        if "ports" in item.path.parts and can_run(item):
            item.add_marker(pytest.mark.aws)


#: Services that the present test has asked.
_ASKED: set[str] = set()


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[boto3.Session]:
    with _WORLDS[request.config.getoption("--world")]() as made:
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


class ComesTo(Protocol):
    """Asserts what a look sees: on a real account soon, since some of AWS's answers come late."""

    def __call__(self, look: Callable[[], T], expected: T) -> None: ...


@pytest.fixture(scope="session")
def comes_to(request: pytest.FixtureRequest) -> ComesTo:
    seconds = LATE if request.config.getoption("--world") == "account" else 0.0

    def assert_soon(look: Callable[[], T], expected: T) -> None:
        seen = look()

        def is_expected() -> bool:
            nonlocal seen
            seen = look()
            return seen == expected

        if seen != expected and seconds:
            with suppress(AssertionError):
                until(is_expected, seconds=seconds, every=1.0)
        assert seen == expected

    return assert_soon


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

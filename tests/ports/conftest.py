"""A simulated AWS account in this process, one for each module of tests."""

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from spindown.aws.wiring import Aws
from spindown.memory import MemoryClock
from tests.ports.market import REGION, Answers


@pytest.fixture(scope="module")
def session() -> Iterator[boto3.Session]:
    with mock_aws():
        yield boto3.Session(
            aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION
        )


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

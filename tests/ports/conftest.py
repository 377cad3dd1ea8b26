"""A simulated AWS account in this process, one for each module of tests."""

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from spindown.aws.wiring import Aws
from spindown.memory import MemoryClock

REGION = "us-east-1"


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

"""Secrets by name, from the service that keeps them."""

import boto3
import pytest

from spindown.aws.secret import SecretSource
from spindown.aws.wiring import Aws
from spindown.error import ContractError, NotFound


@pytest.fixture(scope="module")
def source(session: boto3.Session, aws: Aws) -> SecretSource:
    session.client("ssm").put_parameter(Name="/rich/password", Value="p", Type="SecureString")
    secrets = session.client("secretsmanager")
    secrets.create_secret(Name="hub/token", SecretString="t")
    secrets.create_secret(Name="hub/bytes", SecretBinary=b"b")
    return aws.secrets()


def test_a_parameter_is_read_decrypted(source: SecretSource) -> None:
    assert source.read("/rich/password") == "p"


def test_a_secret_is_read_by_name_and_by_arn(source: SecretSource, session: boto3.Session) -> None:
    arn = session.client("secretsmanager").describe_secret(SecretId="hub/token")["ARN"]

    assert (source.read("hub/token"), source.read(arn)) == ("t", "t")


@pytest.mark.parametrize("name", ["/absent", "absent"])
def test_what_is_not_there_is_not_found(source: SecretSource, name: str) -> None:
    with pytest.raises(NotFound):
        source.read(name)


def test_bytes_are_refused(source: SecretSource) -> None:
    with pytest.raises(ContractError) as caught:
        source.read("hub/bytes")
    assert (caught.value.field, caught.value.value) == ("run.secrets", "hub/bytes")

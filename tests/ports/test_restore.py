"""The ledger comes back as the runbook says: its own lines are run on the simulated account."""

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import xform_name
from botocore.exceptions import ClientError

from spindown.aws.dynamodb import DynamoTable
from spindown.contract.name import resource_name
from spindown.port import Key, Write

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
TABLE = resource_name("lab", "ledger")


@pytest.fixture
def client(session: boto3.Session) -> Iterator[Any]:
    found = session.client("dynamodb")
    found.create_table(
        TableName=TABLE,
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    found.update_continuous_backups(
        TableName=TABLE, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
    )
    yield found
    found.delete_table(TableName=TABLE)


def lines() -> Iterator[list[str]]:
    """Yield the words of each line of the runbook that changes a table."""
    _, _, after = RUNBOOK.read_text().partition("\n## The ledger is damaged or gone\n")
    part, _, _ = after.partition("\n## ")
    for block in re.findall(r"^```sh\n(.*?)^```", part, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            aws, service, *words = shlex.split(line.replace("NAME", "lab"))
            assert (aws, service) == ("aws", "dynamodb")
            yield words


def run(client: Any, words: list[str], **named: Any) -> Any:
    operation, *options = words
    shape = client.meta.service_model.operation_model(
        client.meta.method_to_api_mapping[operation.replace("-", "_")]
    ).input_shape
    members = {f"--{xform_name(name, '-')}": name for name in shape.members}
    given = {
        members[option]: named.get(value, value)
        for option, value in zip(options[::2], options[1::2], strict=True)
        if option != "--query"
    }
    for name, value in given.items():
        if shape.members[name].type_name == "structure":
            pairs = dict(one.split("=") for one in value.split(","))
            given[name] = {key: True if text == "true" else text for key, text in pairs.items()}
    return getattr(client, operation.replace("-", "_"))(**given)


def test_the_steps_of_the_runbook_bring_the_ledger_back(client: Any) -> None:
    table = DynamoTable(client, TABLE)
    key = Key("h#main", "dollars")
    table.write(Write(key=key, set={"dollars": 3}))
    arn = ""

    done = []
    for words in lines():
        done.append(words[0])
        answer = run(client, words, T=datetime(2026, 6, 1, tzinfo=UTC), BACKUP_ARN=arn)
        arn = answer.get("BackupDetails", {}).get("BackupArn", arn)
        if words == ["delete-table", "--table-name", TABLE]:
            with pytest.raises(ClientError):
                client.describe_table(TableName=TABLE)

    assert done.count("delete-table") == 2
    row = table.get(key)
    assert row is not None
    assert row["dollars"] == 3
    described = client.describe_table(TableName=TABLE)["Table"]
    assert [one["AttributeName"] for one in described["KeySchema"]] == ["pk", "sk"]
    backups = client.describe_continuous_backups(TableName=TABLE)["ContinuousBackupsDescription"]
    recovery = backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]
    expiry = client.describe_time_to_live(TableName=TABLE)["TimeToLiveDescription"]
    assert (recovery, expiry["AttributeName"]) == ("ENABLED", "expires")
    assert client.list_tables()["TableNames"] == [TABLE]

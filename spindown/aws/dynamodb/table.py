"""The ledger's table on DynamoDB: keys ``pk`` and ``sk``, index ``instance``, TTL ``expires``."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError

from spindown.app.port import Key, Write
from spindown.aws.dynamodb.expression import PARTITION, SORT, Expression, from_item
from spindown.aws.error import code_of, message_of, translate, translated
from spindown.contract.codec import Row
from spindown.contract.row import WORKER
from spindown.error import (
    ContractError,
    PreconditionFailed,
    SpindownError,
    Throttled,
    WriteConflict,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef, TransactWriteItemTypeDef

T = TypeVar("T")

#: Keys only, by the attribute ``instance_id``.
INSTANCE_INDEX = "instance"
INSTANCE = "instance_id"

#: A transaction under way on the same row takes milliseconds; the round trip is wait enough.
_CONFLICT_ATTEMPTS = 5

#: CancellationReasons codes, the most telling first: what else failed matters less.
_CANCELLED: Sequence[tuple[str, type[SpindownError]]] = (
    ("ConditionalCheckFailed", PreconditionFailed),
    ("ValidationError", ContractError),
    ("TransactionConflict", WriteConflict),
    ("ThrottlingError", Throttled),
    ("ProvisionedThroughputExceeded", Throttled),
)


class DynamoTable:
    """Table on DynamoDB."""

    def __init__(self, client: "DynamoDBClient", name: str) -> None:
        self._client = client
        self._name = name

    def get(self, key: Key) -> Row | None:
        """Read one row, consistently."""
        with translated():
            answer = self._client.get_item(TableName=self._name, Key=_key(key), ConsistentRead=True)
        item = answer.get("Item")
        return None if item is None else from_item(item)

    def query(self, partition: str, prefix: str = "") -> Mapping[str, Row]:
        """Read the rows of a partition whose sort key begins with ``prefix``, consistently."""
        condition = "#pk = :partition"
        names, values = {"#pk": PARTITION}, {":partition": {"S": partition}}
        if prefix:
            condition += " AND begins_with(#sk, :prefix)"
            names["#sk"] = SORT
            values[":prefix"] = {"S": prefix}
        pages = self._client.get_paginator("query").paginate(
            TableName=self._name,
            ConsistentRead=True,
            KeyConditionExpression=condition,
            ExpressionAttributeNames=names,
            ExpressionAttributeValues=values,
        )
        with translated():
            return {item[SORT]["S"]: from_item(item) for page in pages for item in page["Items"]}

    def write(self, write: Write) -> Row | None:
        """Change one row if its condition holds; return it as it is now."""
        if write.is_check:
            self.transact([write])
            return self.get(write.key)
        expression = Expression()
        request: dict[str, Any] = {"TableName": self._name, "Key": _key(write.key)}
        if condition := expression.condition(write.when):
            request["ConditionExpression"] = condition
        if write.delete:
            request |= expression.arguments()
            self._repeat(lambda: self._client.delete_item(**request))
            return None
        request["UpdateExpression"] = expression.update(write)
        request |= expression.arguments()
        answer = self._repeat(lambda: self._client.update_item(ReturnValues="ALL_NEW", **request))
        return from_item(answer["Attributes"])

    def transact(self, writes: Sequence[Write]) -> None:
        """Change up to 100 rows, all or none."""
        items = [self._transact_item(write) for write in writes]
        self._repeat(lambda: self._client.transact_write_items(TransactItems=items))

    def find_instance(self, instance_id: str) -> Key | None:
        """Return the key of the worker row of an instance, from the index."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._name,
            IndexName=INSTANCE_INDEX,
            KeyConditionExpression="#instance = :instance",
            ExpressionAttributeNames={"#instance": INSTANCE},
            ExpressionAttributeValues={":instance": {"S": instance_id}},
        )
        with translated():
            for page in pages:
                for item in page["Items"]:
                    # Leases are indexed too, by the same attribute.
                    if item[SORT]["S"].startswith(WORKER):
                        return Key(partition=item[PARTITION]["S"], sort=item[SORT]["S"])
        return None

    def _transact_item(self, write: Write) -> "TransactWriteItemTypeDef":
        expression = Expression()
        request: dict[str, Any] = {"TableName": self._name, "Key": _key(write.key)}
        condition = expression.condition(write.when, is_required=write.is_check)
        if condition:
            request["ConditionExpression"] = condition
        kind = "ConditionCheck" if write.is_check else "Delete" if write.delete else "Update"
        if kind == "Update":
            request["UpdateExpression"] = expression.update(write)
        return cast("TransactWriteItemTypeDef", {kind: request | expression.arguments()})

    def _repeat(self, call: Callable[[], T]) -> T:
        """Make a call, again while another transaction holds one of its rows."""
        for _ in range(_CONFLICT_ATTEMPTS - 1):
            try:
                return _make(call)
            except WriteConflict:
                continue
        return _make(call)


def _make(call: Callable[[], T]) -> T:
    try:
        return call()
    except ClientError as error:
        if code_of(error) == "TransactionCanceledException":
            raise _cancellation(error) from error
        raise translate(error) from error
    except BotoCoreError as error:
        raise translate(error) from error


def _cancellation(error: ClientError) -> SpindownError:
    """Return why a transaction was cancelled, from the reasons that come one a write."""
    reasons: Sequence[Mapping[str, Any]] = error.response.get("CancellationReasons", [])
    codes = {reason.get("Code") for reason in reasons}
    kind = next((kind for code, kind in _CANCELLED if code in codes), None)
    said = "; ".join(reason["Message"] for reason in reasons if reason.get("Message"))
    if kind is None:
        return translate(error)
    if kind is ContractError:
        return ContractError("transaction", said, "fix the rows")
    return kind(f"transaction cancelled: {said or message_of(error)}")


def _key(key: Key) -> "dict[str, AttributeValueTypeDef]":
    return {PARTITION: {"S": key.partition}, SORT: {"S": key.sort}}

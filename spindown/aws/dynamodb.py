"""Table on DynamoDB: conditional writes, queries and transactions."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError

from spindown.aws.error import code_of, message_of, translate, translated
from spindown.contract.codec import Row
from spindown.contract.location import is_whole
from spindown.contract.row import machine_sort_key
from spindown.error import (
    ContractError,
    LedgerMissing,
    PreconditionFailed,
    SpindownError,
    Throttled,
    WriteConflict,
)
from spindown.port import (
    CHARACTERS_OF_EACH,
    CHARACTERS_OF_FEW,
    PAGES_AT_MOST,
    PAGES_OF_FEW,
    Key,
    When,
    Write,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef, TransactWriteItemTypeDef


PARTITION = "pk"
SORT = "sk"

#: Decimals of what is added to a number. DynamoDB refuses a sum that its 38 digits cannot hold
#: exactly (scylladb/scylladb, test/alternator/test_number.py, whose tests are run on DynamoDB), and
#: a float brings up to 17 digits wherever they begin: what rounding leaves of a difference, 8.7e-19
#: say, would give a row 34 decimals for good, and a sum in the thousands no more room.
ADDED_DECIMALS = 12


def to_attribute(name: str, value: Any) -> "AttributeValueTypeDef":
    """Return a JSON-like value as DynamoDB stores it, floats by their shortest exact text.

    Raises:
        ContractError: it is of another kind.
    """
    if isinstance(value, str) and is_whole(value):
        return {"S": str(value)}
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return {"N": repr(value)}
    if isinstance(value, list | tuple):
        return {"L": [to_attribute(name, inner) for inner in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) and is_whole(key) for key in value):
        return {"M": {str(key): to_attribute(name, inner) for key, inner in value.items()}}
    raise ContractError(name, value, "store whole text, a number, true, false, null, list or map")


def _addend(number: float) -> float:
    """Return a number as it is added; nothing is not taken away from."""
    return round(number, ADDED_DECIMALS) + 0.0 if isinstance(number, float) else number


def from_attribute(attribute: "Mapping[str, Any]") -> Any:
    """Return what ``to_attribute`` was given; a whole number comes back as int."""
    ((kind, value),) = attribute.items()
    if kind == "NULL":
        return None
    if kind == "N":
        return int(value) if value.lstrip("-").isdigit() else float(value)
    if kind == "L":
        return [from_attribute(inner) for inner in value]
    if kind == "M":
        return {name: from_attribute(inner) for name, inner in value.items()}
    return value


def from_item(item: "Mapping[str, Any]") -> Row:
    """Return a stored item as a row, without its key."""
    return {name: from_attribute(a) for name, a in item.items() if name not in {PARTITION, SORT}}


class Expression:
    """One request's expressions, with the names and values that they refer to."""

    def __init__(self) -> None:
        #: Name -> placeholder.
        self._names: dict[str, str] = {}
        self._values: dict[str, AttributeValueTypeDef] = {}

    def condition(self, when: When, *, is_required: bool = False) -> str:
        """Return a condition expression; "" if it always holds and none is required."""
        parts = []
        if when.exists is not None:
            verb = "attribute_exists" if when.exists else "attribute_not_exists"
            parts.append(f"{verb}({self._name(PARTITION)})")
        parts += [self._is(name, value) for name, value in when.equals.items()]
        parts += [f"NOT {self._is(name, value)}" for name, value in when.differs.items()]
        parts += [
            f"({self._is_null(name)} OR {self._name(name)} <= {self._value(name, value)})"
            for name, value in when.at_most.items()
        ]
        parts += [self._is_null(name) for name in sorted(when.absent)]
        if not parts and is_required:
            key = self._name(PARTITION)
            parts.append(f"(attribute_exists({key}) OR attribute_not_exists({key}))")
        return " AND ".join(parts)

    def update(self, write: Write) -> str:
        """Return the update expression of a write."""
        sets = [f"{self._name(n)} = {self._value(n, v)}" for n, v in write.set.items()]
        adds = [f"{self._name(n)} {self._value(n, _addend(v))}" for n, v in write.add.items()]
        clauses = (("SET", sets), ("ADD", adds))
        return " ".join(f"{verb} {', '.join(parts)}" for verb, parts in clauses if parts)

    def arguments(self) -> dict[str, Any]:
        """Return the names and values as request arguments; an empty one must not be sent."""
        found: dict[str, Any] = {}
        if self._names:
            found["ExpressionAttributeNames"] = {p: name for name, p in self._names.items()}
        if self._values:
            found["ExpressionAttributeValues"] = self._values
        return found

    def _is(self, name: str, value: Any) -> str:
        if value is None:
            return self._is_null(name)
        # A comparison with a missing attribute is left undefined, so existence is asked first.
        placeholder = self._name(name)
        return f"(attribute_exists({placeholder}) AND {placeholder} = {self._value(name, value)})"

    def _is_null(self, name: str) -> str:
        placeholder = self._name(name)
        self._values[":null"] = {"S": "NULL"}
        return f"(attribute_not_exists({placeholder}) OR attribute_type({placeholder}, :null))"

    def _name(self, name: str) -> str:
        return self._names.setdefault(name, f"#n{len(self._names)}")

    def _value(self, name: str, value: Any) -> str:
        placeholder = f":v{len(self._values)}"
        self._values[placeholder] = to_attribute(name, value)
        return placeholder


T = TypeVar("T")

#: Keys only, by the attribute ``instance_id``.
INSTANCE_INDEX = "instance"
INSTANCE = "instance_id"

_KEYS_AT_ONCE = 100

#: A transaction under way on the same row takes milliseconds; the round trip is wait enough.
_CONFLICT_ATTEMPTS = 5

#: Of every call on a table that does not exist, or is being made or deleted.
_NO_TABLE = "ResourceNotFoundException"

#: CancellationReasons codes, the most telling first: what else failed matters less.
_CONDITION = "ConditionalCheckFailed"
_CANCELLED: Sequence[tuple[str, type[SpindownError]]] = (
    (_CONDITION, PreconditionFailed),
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
        with translated(), self._noticed():
            answer = self._client.get_item(TableName=self._name, Key=_key(key), ConsistentRead=True)
        item = answer.get("Item")
        return None if item is None else from_item(item)

    def get_each(self, keys: Sequence[Key]) -> Mapping[Key, Row]:
        """Read rows by their keys, consistently.

        BatchGetItem takes 100 keys, and leaves out what 16 MiB do not hold or a throttle keeps back
        (Amazon DynamoDB API Reference, "BatchGetItem").
        """
        found: dict[Key, Row] = {}
        room = CHARACTERS_OF_FEW + CHARACTERS_OF_EACH * len(keys)
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            left = [_key(key) for key in keys[start : start + _KEYS_AT_ONCE]]
            while left and room > 0:
                asked: Any = {self._name: {"Keys": left, "ConsistentRead": True}}
                with translated(), self._noticed():
                    answer = self._client.batch_get_item(RequestItems=asked)
                items = answer["Responses"].get(self._name, [])
                for item in items:
                    room -= len(repr(item))
                    found[Key(item[PARTITION]["S"], item[SORT]["S"])] = from_item(item)
                kept_back: Any = answer["UnprocessedKeys"]
                left = kept_back.get(self._name, {}).get("Keys", [])
                if left and not items:
                    raise Throttled(f"{self._name}: {len(left)} rows were kept back")
        return found

    def query(
        self, partition: str, prefix: str = "", *, at_most: int | None = None
    ) -> Mapping[str, Row]:
        """Read the first rows whose sort key begins with ``prefix``, consistently."""
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
            PaginationConfig={} if at_most is None else {"MaxItems": at_most},
        )
        few = None if at_most is None else PAGES_OF_FEW
        with translated(), self._noticed():
            return {
                item[SORT]["S"]: from_item(item)
                for page in islice(pages, few)
                for item in page["Items"]
            }

    def query_each(
        self, partitions: Sequence[str], *, at_most: int
    ) -> Sequence[Mapping[str, Row]] | None:
        """Read all rows of some partitions, consistently; None: they are too many or too large.

        Query takes one partition. PartiQL takes up to 50 in a list, and scans nothing else (Amazon
        DynamoDB Developer Guide, "PartiQL select statements for DynamoDB").
        """
        listed = ", ".join("?" for _ in partitions)
        request: dict[str, Any] = {
            # A table's name is its template's, and holds no quotation mark.
            "Statement": f'SELECT * FROM "{self._name}" WHERE "{PARTITION}" IN [{listed}]',  # noqa: S608
            "Parameters": [{"S": partition} for partition in partitions],
            "ConsistentRead": True,
        }
        found: dict[str, dict[str, Row]] = {partition: {} for partition in partitions}
        rows = 0
        with translated(), self._noticed():
            for _ in range(PAGES_AT_MOST):
                answer = self._client.execute_statement(**request)
                rows += len(answer["Items"])
                if rows > at_most:
                    return None
                for item in answer["Items"]:
                    found[item[PARTITION]["S"]][item[SORT]["S"]] = from_item(item)
                if "NextToken" not in answer:
                    return [dict(sorted(found[partition].items())) for partition in partitions]
                request["NextToken"] = answer["NextToken"]
        return None

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
            self._repeat(lambda: self._client.delete_item(**request), [write.key])
            return None
        request["UpdateExpression"] = expression.update(write)
        request |= expression.arguments()
        answer = self._repeat(
            lambda: self._client.update_item(ReturnValues="ALL_NEW", **request), [write.key]
        )
        return from_item(answer["Attributes"])

    def transact(self, writes: Sequence[Write]) -> None:
        """Change up to 100 rows, all or none."""
        items = [self._transact_item(write) for write in writes]
        keys = [write.key for write in writes]
        self._repeat(lambda: self._client.transact_write_items(TransactItems=items), keys)

    def find_machine(self, instance_id: str) -> Sequence[Key]:
        """Return the keys of the machine rows of an instance, from the index."""
        pages = self._client.get_paginator("query").paginate(
            TableName=self._name,
            IndexName=INSTANCE_INDEX,
            KeyConditionExpression="#instance = :instance AND #sk = :sort",
            ExpressionAttributeNames={"#instance": INSTANCE, "#sk": SORT},
            ExpressionAttributeValues={
                ":instance": {"S": instance_id},
                ":sort": {"S": machine_sort_key(instance_id)},
            },
        )
        with translated(), self._noticed():
            return [
                Key(partition=item[PARTITION]["S"], sort=item[SORT]["S"])
                for page in pages
                for item in page["Items"]
            ]

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

    def _repeat(self, call: Callable[[], T], keys: Sequence[Key]) -> T:
        """Make a call on rows, again while another transaction holds one of them."""
        for _ in range(_CONFLICT_ATTEMPTS - 1):
            try:
                return self._make(call, keys)
            except WriteConflict:
                continue
        return self._make(call, keys)

    @contextmanager
    def _noticed(self) -> Iterator[None]:
        """Tell a table that is gone, or not there yet, from a row that is not there."""
        try:
            yield
        except ClientError as error:
            if code_of(error) != _NO_TABLE:
                raise
            raise LedgerMissing(f"there is no table {self._name}") from error

    def _make(self, call: Callable[[], T], keys: Sequence[Key]) -> T:
        try:
            with self._noticed():
                return call()
        except ClientError as error:
            if code_of(error) == "TransactionCanceledException":
                raise _cancellation(error, keys) from error
            translation = translate(error)
            if isinstance(translation, PreconditionFailed):
                translation = PreconditionFailed(*translation.args, keys=keys)
            raise translation from error
        except BotoCoreError as error:
            raise translate(error) from error


def _cancellation(error: ClientError, keys: Sequence[Key]) -> SpindownError:
    """Return why a transaction on rows was cancelled, from the reasons that come one a row."""
    reasons: Sequence[Mapping[str, Any]] = error.response.get("CancellationReasons", [])
    codes = {reason.get("Code") for reason in reasons}
    kind = next((kind for code, kind in _CANCELLED if code in codes), None)
    said = "; ".join(reason["Message"] for reason in reasons if reason.get("Message"))
    if kind is None:
        return translate(error)
    if kind is ContractError:
        return ContractError("transaction", said, "fix the rows")
    if kind is PreconditionFailed:
        failed = [
            key
            for key, reason in zip(keys, reasons, strict=False)
            if reason.get("Code") == _CONDITION
        ]
        return PreconditionFailed(f"transaction cancelled: {said}", keys=failed)
    return kind(f"transaction cancelled: {said or message_of(error)}")


def _key(key: Key) -> "dict[str, AttributeValueTypeDef]":
    return {PARTITION: {"S": key.partition}, SORT: {"S": key.sort}}

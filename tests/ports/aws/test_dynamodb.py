"""How DynamoDB refuses, and what is tried again."""

from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from hypothesis import given
from hypothesis import strategies as st

from spindown.aws.dynamodb import DynamoTable, Expression
from spindown.error import (
    ContractError,
    LedgerMissing,
    PreconditionFailed,
    SpindownError,
    Throttled,
    Unreachable,
    WriteConflict,
)
from spindown.port import PAGES_OF_FEW, Key, When, Write

KEY = Key(partition="w#a", sort="lock")
WRITE = Write(key=KEY, when=When(equals={"fence": 1}), set={"fence": 2})


@pytest.fixture
def both(session: boto3.Session) -> Iterator[tuple[DynamoTable, Stubber]]:
    client = session.client("dynamodb")
    with Stubber(client) as stub:
        yield DynamoTable(client, "ledger"), stub
        stub.assert_no_pending_responses()


def _cancel(stub: Stubber, *codes: str) -> None:
    stub.add_client_error(
        "transact_write_items",
        "TransactionCanceledException",
        modeled_fields={"CancellationReasons": [{"Code": c, "Message": c} for c in codes]},
    )


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        (("None", "ConditionalCheckFailed"), PreconditionFailed),
        (("TransactionConflict", "ConditionalCheckFailed"), PreconditionFailed),
        (("ThrottlingError", "None"), Throttled),
        (("ProvisionedThroughputExceeded",), Throttled),
        (("ValidationError",), ContractError),
    ],
)
def test_a_cancelled_transaction_says_why(
    both: tuple[DynamoTable, Stubber], codes: tuple[str, ...], expected: type[SpindownError]
) -> None:
    table, stub = both
    _cancel(stub, *codes)
    with pytest.raises(expected):
        table.transact([WRITE])


@pytest.mark.parametrize(
    ("call", "ask"),
    [
        ("get_item", lambda table: table.get(KEY)),
        ("batch_get_item", lambda table: table.get_each([KEY])),
        ("query", lambda table: table.query("w#a")),
        ("execute_statement", lambda table: table.query_each(["w#a"], at_most=9)),
        ("update_item", lambda table: table.write(WRITE)),
        ("transact_write_items", lambda table: table.transact([WRITE])),
        ("query", lambda table: table.find_machine("i-1")),
    ],
    ids=["get", "get each", "query", "query each", "write", "transact", "find machine"],
)
def test_a_table_that_is_gone_is_no_row_that_is_not_there(
    both: tuple[DynamoTable, Stubber], call: str, ask: Callable[[DynamoTable], object]
) -> None:
    table, stub = both
    stub.add_client_error(call, "ResourceNotFoundException")
    with pytest.raises(LedgerMissing):
        ask(table)


def test_tries_again_while_another_transaction_holds_the_row(
    both: tuple[DynamoTable, Stubber],
) -> None:
    table, stub = both
    _cancel(stub, "TransactionConflict")
    stub.add_response("transact_write_items", {})
    table.transact([WRITE])

    stub.add_client_error("update_item", "TransactionConflictException")
    stub.add_response("update_item", {"Attributes": {"fence": {"N": "2"}}})
    assert table.write(WRITE) == {"fence": 2}


def test_gives_up_on_a_row_that_stays_held(both: tuple[DynamoTable, Stubber]) -> None:
    table, stub = both
    for _ in range(5):
        _cancel(stub, "TransactionConflict")
    with pytest.raises(WriteConflict):
        table.transact([WRITE])


def test_repeats_no_transaction_that_may_still_go_through(
    both: tuple[DynamoTable, Stubber],
) -> None:
    table, stub = both
    # Under a token of its own the same additions would be made twice.
    stub.add_client_error("transact_write_items", "TransactionInProgressException")
    with pytest.raises(Unreachable, match="TransactionInProgress"):
        table.transact([WRITE])


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        ("ConditionalCheckFailedException", 400, PreconditionFailed),
        ("ThrottlingException", 400, Throttled),
        ("InternalServerError", 500, Unreachable),
    ],
)
def test_errors_of_a_write(
    both: tuple[DynamoTable, Stubber], code: str, status: int, expected: type[SpindownError]
) -> None:
    table, stub = both
    stub.add_client_error("update_item", code, http_status_code=status)
    with pytest.raises(expected):
        table.write(WRITE)


def test_reads_consistently(both: tuple[DynamoTable, Stubber]) -> None:
    table, stub = both
    key = {"pk": {"S": "w#a"}, "sk": {"S": "lock"}}
    stub.add_response(
        "get_item", {"Item": key}, {"TableName": "ledger", "Key": key, "ConsistentRead": True}
    )
    stub.add_response(
        "query",
        {"Items": [key | {"n": {"N": "1"}}]},
        {
            "TableName": "ledger",
            "ConsistentRead": True,
            "KeyConditionExpression": "#pk = :partition AND begins_with(#sk, :prefix)",
            "ExpressionAttributeNames": {"#pk": "pk", "#sk": "sk"},
            "ExpressionAttributeValues": {":partition": {"S": "w#a"}, ":prefix": {"S": "lo"}},
        },
    )

    assert table.get(KEY) == {}
    assert table.query("w#a", "lo") == {"lock": {"n": 1}}


@given(st.lists(st.floats(min_value=-1e6, max_value=1e6), max_size=50))
def test_sums_stay_within_the_digits_that_dynamodb_has(numbers: list[float]) -> None:
    """DynamoDB refuses a sum that it cannot hold exactly, and a row's sums only grow."""
    total = Decimal(0)
    with localcontext(prec=1000):
        for number in numbers:
            total += added(number)

        assert total == Decimal(0) or len(total.normalize().as_tuple().digits) <= 38
        assert abs(total - sum(map(Decimal, map(repr, numbers)))) <= Decimal(len(numbers)) / 10**12


@pytest.mark.parametrize("number", [8.673617379884035e-19, -5e-324, 1e-13])
def test_what_rounding_has_left_adds_nothing(number: float) -> None:
    assert added(number) == 0


def added(number: float) -> Decimal:
    """Return what a write is sent to DynamoDB to add."""
    expression = Expression()
    expression.update(Write(key=KEY, add={"dollars": number}))
    (value,) = expression.arguments()["ExpressionAttributeValues"].values()
    return Decimal(value["N"])


def test_the_first_rows_are_few_pages_however_large(both: tuple[DynamoTable, Stubber]) -> None:
    table, stub = both
    for page in range(PAGES_OF_FEW):
        row = {"pk": {"S": "w#a"}, "sk": {"S": f"row-{page}"}}
        stub.add_response("query", {"Items": [row], "LastEvaluatedKey": row})

    assert len(table.query("w#a", at_most=1_000)) == PAGES_OF_FEW


def test_rows_by_key_are_few_if_they_are_large(both: tuple[DynamoTable, Stubber]) -> None:
    table, stub = both
    keys = [Key("w#a", f"lease#i-{number}#0") for number in range(30)]
    large = [
        {"pk": {"S": key.partition}, "sk": {"S": key.sort}, "junk": {"S": "x" * 400_000}}
        for key in keys
    ]
    left: Any = [{"pk": row["pk"], "sk": row["sk"]} for row in large[12:]]
    answer: dict[str, Any] = {"Responses": {"ledger": large[:12]}}
    stub.add_response("batch_get_item", answer | {"UnprocessedKeys": {"ledger": {"Keys": left}}})

    assert len(table.get_each(keys)) == 12

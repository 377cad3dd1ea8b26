"""What every Table promises, on DynamoDB as in memory."""

import itertools
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spindown.aws.wiring import Aws
from spindown.contract.row import lease_sort_key, machine_sort_key
from spindown.error import ContractError, PreconditionFailed
from spindown.memory import MemoryTable
from spindown.port import Key, Table, When, Write
from tests.ports.conftest import ComesTo
from tests.ports.real_account import PREFIX, TAG_LIST

_partitions = (f"w#{number}" for number in itertools.count())


WORKER = "i-0123456789abcdef0"


@pytest.fixture(scope="module")
def dynamo(request: pytest.FixtureRequest, session: boto3.Session, aws: Aws) -> Table:
    client = session.client("dynamodb")
    client.create_table(
        TableName=PREFIX,
        KeySchema=[
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk", "instance_id")
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "instance",
                "KeySchema": [
                    {"AttributeName": "instance_id", "KeyType": "HASH"},
                    {"AttributeName": "sk", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
        Tags=TAG_LIST,
    )
    client.get_waiter("table_exists").wait(TableName=PREFIX)
    if request.config.getoption("--world") == "moto":
        select: Any = partial(_select, session)
        session.events.register("before-call.dynamodb.ExecuteStatement", select)
    return aws.table(PREFIX)


#: Rows of one answer to a statement, of which DynamoDB gives 1 MB.
_PAGE = 3


def _select(session: boto3.Session, params: Mapping[str, Any], **_: object) -> tuple[Any, Any]:
    """Answer the ledger's only statement, which moto cannot read, from moto's rows, page by page.

    The statement itself is read by MiniStack, in the second world and in the local system.
    """
    asked = json.loads(params["body"])
    marks = ", ".join("?" for _ in asked["Parameters"])
    assert asked["Statement"].endswith(f' FROM "{PREFIX}" WHERE "pk" IN [{marks}]')
    assert asked["ConsistentRead"]
    client = session.client("dynamodb")
    rows = [
        item
        for value in asked["Parameters"]
        for item in client.query(
            TableName=PREFIX,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": value},
        )["Items"]
    ]
    start = int(asked.get("NextToken", 0))
    rest = {"NextToken": str(start + _PAGE)} if start + _PAGE < len(rows) else {}
    answer = {"Items": rows[start : start + _PAGE], **rest, "ResponseMetadata": {}}
    return SimpleNamespace(status_code=200), answer


@pytest.fixture(params=["memory", "dynamodb"])
def table(request: pytest.FixtureRequest) -> Table:
    make: dict[str, Callable[[], Table]] = {
        "memory": lambda: MemoryTable(request.getfixturevalue("clock")),
        "dynamodb": lambda: request.getfixturevalue("dynamo"),
    }
    return make[str(request.param)]()


@pytest.fixture
def key() -> Key:
    return Key(partition=next(_partitions), sort="row")


def test_finds_no_row_that_was_never_written(table: Table, key: Key) -> None:
    assert table.get(key) is None
    assert table.query(key.partition) == {}


def test_gives_back_a_row_without_its_key(table: Table, key: Key) -> None:
    row = {
        "state": "idle",
        "version": 3,
        "price": 0.1,
        "live": True,
        "ended_at": None,
        "samples": [1, 2.5, "three", None, {"deep": [False]}],
        "counts": {"a": 1, "b": {}},
        "empty": "",
    }

    assert table.write(Write(key=key, set=row)) == row
    assert table.get(key) == row
    assert table.query(key.partition) == {"row": row}


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    value=st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(10**30), 10**30)
        | st.floats(-1e15, 1e15, allow_subnormal=False).filter(
            lambda number: number == 0 or abs(number) > 1e-100
        )
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text("abc", min_size=1), inner),
        max_leaves=8,
    )
)
def test_gives_back_every_value_exactly(table: Table, value: Any) -> None:
    key = Key(partition="values", sort="row")
    table.write(Write(key=key, set={"value": value}))

    assert table.get(key) == {"value": value}


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(float("nan"), id="not a number"),
        pytest.param(float("inf"), id="infinity"),
        pytest.param({1: "a"}, id="a map by number"),
        pytest.param("half a \ud800", id="half a character"),
        pytest.param({"a": ["\udfff"]}, id="half a character inside"),
        pytest.param(timedelta(1), id="a duration"),
        pytest.param([{"a": object()}], id="deep inside"),
    ],
)
def test_stores_only_json_like_values(table: Table, key: Key, value: Any) -> None:
    with pytest.raises(ContractError):
        table.write(Write(key=key, set={"value": value}))
    assert table.get(key) is None


def test_changes_only_what_a_write_names(table: Table, key: Key) -> None:
    table.write(Write(key=key, set={"a": 1, "b": 2, "c": 3}))
    now = table.write(Write(key=key, set={"a": 9}, add={"b": 0.5, "new": 2}))

    assert now == {"a": 9, "b": 2.5, "c": 3, "new": 2}
    assert table.get(key) == now


def test_uses_any_name_for_an_attribute(table: Table, key: Key) -> None:
    names = ["state", "size", "a-b", "spindown:tag", "with space", "count", "ttl"]
    table.write(Write(key=key, set=dict.fromkeys(names, 1)))
    table.write(
        Write(
            key=key,
            when=When(equals=dict.fromkeys(names[:3], 1), at_most={"count": 1}),
            add={"ttl": 1},
        )
    )

    assert table.get(key) == dict.fromkeys(names, 1) | {"ttl": 2}


def test_adds_only_to_a_number(table: Table, key: Key) -> None:
    table.write(Write(key=key, set={"text": "a", "none": None}))
    for name in ("text", "none"):
        with pytest.raises(ContractError):
            table.write(Write(key=key, add={name: 1}))


def test_deletes_a_row(table: Table, key: Key) -> None:
    table.write(Write(key=key, set={"a": 1}))

    assert table.write(Write(key=key, delete=True)) is None
    assert table.get(key) is None
    table.write(Write(key=key, delete=True))


def test_a_row_once_read_is_no_part_of_the_table(table: Table, key: Key) -> None:
    given_row: dict[str, Any] = {"list": [1], "map": {"a": [1]}}
    table.write(Write(key=key, set=given_row))
    given_row["list"].append(2)
    read = table.get(key)
    assert read is not None
    read["map"]["a"].append(2)

    assert table.get(key) == {"list": [1], "map": {"a": [1]}}


ROW = {"n": 5, "text": "b", "null": None, "true": True, "list": [1]}


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        pytest.param(When(), True, id="no condition"),
        pytest.param(When(exists=True), True, id="exists"),
        pytest.param(When(exists=False), False, id="does not exist"),
        pytest.param(When(equals={"n": 5}), True, id="equal number"),
        pytest.param(When(equals={"n": 5.0}), True, id="equal as a float"),
        pytest.param(When(equals={"n": 6}), False, id="another number"),
        pytest.param(When(equals={"n": "5"}), False, id="text is no number"),
        pytest.param(When(equals={"list": [1]}), True, id="equal list"),
        pytest.param(When(equals={"missing": 5}), False, id="missing equals nothing"),
        pytest.param(When(equals={"null": 5}), False, id="null equals nothing"),
        pytest.param(When(equals={"null": None}), True, id="null equals null"),
        pytest.param(When(equals={"missing": None}), True, id="missing equals null"),
        pytest.param(When(equals={"n": None}), False, id="a value is not null"),
        pytest.param(When(differs={"n": 6}), True, id="differs"),
        pytest.param(When(differs={"n": 5}), False, id="does not differ"),
        pytest.param(When(differs={"missing": 5}), True, id="missing differs from a value"),
        pytest.param(When(differs={"null": 5}), True, id="null differs from a value"),
        pytest.param(When(differs={"missing": None}), False, id="missing is no value"),
        pytest.param(When(differs={"n": None}), True, id="a value differs from null"),
        pytest.param(When(at_most={"n": 5}), True, id="equal is at most"),
        pytest.param(When(at_most={"n": 4.9}), False, id="more than at most"),
        pytest.param(When(at_most={"missing": 1}), True, id="missing is at most anything"),
        pytest.param(When(at_most={"null": 1}), True, id="null is at most anything"),
        pytest.param(When(at_most={"text": "b"}), True, id="text at most"),
        pytest.param(When(at_most={"text": "a"}), False, id="text above"),
        pytest.param(When(absent=frozenset({"missing", "null"})), True, id="absent"),
        pytest.param(When(absent=frozenset({"n"})), False, id="present"),
        pytest.param(
            When(exists=True, equals={"n": 5}, at_most={"n": 4}), False, id="one part fails"
        ),
        pytest.param(
            When(equals={"n": 5, "text": "b"}, differs={"n": 6}, at_most={"n": 5}),
            True,
            id="all parts hold",
        ),
    ],
)
def test_a_condition_on_a_row(table: Table, key: Key, when: When, *, holds: bool) -> None:
    table.write(Write(key=key, set=ROW))
    for write in (
        Write(key=key, when=when),
        Write(key=key, when=when, set={"written": True}),
        Write(key=key, when=when, delete=True),
    ):
        if holds:
            table.transact([write])
            table.write(Write(key=key, set=ROW))
            table.write(write)
            table.write(Write(key=key, set=ROW))
        else:
            with pytest.raises(PreconditionFailed):
                table.write(write)
            with pytest.raises(PreconditionFailed):
                table.transact([write])
            assert table.get(key) == ROW


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        pytest.param(When(), True, id="no condition"),
        pytest.param(When(exists=True), False, id="exists"),
        pytest.param(When(exists=False), True, id="does not exist"),
        pytest.param(When(equals={"n": 5}), False, id="equals"),
        pytest.param(When(equals={"n": None}), True, id="equals null"),
        pytest.param(When(differs={"n": 5}), True, id="differs"),
        pytest.param(When(at_most={"n": 5}), True, id="at most"),
        pytest.param(When(absent=frozenset({"n"})), True, id="absent"),
    ],
)
def test_a_condition_where_there_is_no_row(
    table: Table, key: Key, when: When, *, holds: bool
) -> None:
    write = Write(key=key, when=when, set={"a": 1})
    if holds:
        assert table.write(write) == {"a": 1}
    else:
        with pytest.raises(PreconditionFailed):
            table.write(write)
        assert table.get(key) is None


def test_a_mere_check_creates_no_row(table: Table, key: Key) -> None:
    assert table.write(Write(key=key)) is None
    table.transact([Write(key=key)])
    assert table.get(key) is None


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"delete": True, "set": {"a": 1}}, id="deletes and sets"),
        pytest.param({"set": {"a": 1}, "add": {"a": 1}}, id="sets and adds"),
    ],
)
def test_no_write_contradicts_itself(key: Key, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a write"):
        Write(key=key, **change)


def test_a_transaction_changes_all_rows_or_none(table: Table, key: Key) -> None:
    other = Key(partition=key.partition, sort="other")
    table.write(Write(key=key, set={"fence": 7}))
    writes = [Write(key=other, set={"a": 1}), Write(key=key, add={"fence": 1})]

    with pytest.raises(PreconditionFailed):
        table.transact([writes[0], Write(key=key, when=When(equals={"fence": 6}))])
    assert table.get(other) is None
    table.transact(writes)
    assert table.query(key.partition) == {"other": {"a": 1}, "row": {"fence": 8}}


def test_a_failed_condition_names_its_row(table: Table, key: Key) -> None:
    others = [Key(partition=key.partition, sort=f"row-{number}") for number in range(4)]
    writes = [
        Write(key=other, when=When(exists=number % 2 == 1), set={"n": number})
        for number, other in enumerate(others)
    ]

    with pytest.raises(PreconditionFailed) as of_many:
        table.transact(writes)
    with pytest.raises(PreconditionFailed) as of_one:
        table.write(writes[1])

    assert of_many.value.keys == {others[1], others[3]}
    assert of_one.value.keys == {others[1]}


def test_a_transaction_holds_a_hundred_rows(table: Table, key: Key) -> None:
    keys = [Key(partition=key.partition, sort=f"{number:03}") for number in range(101)]
    table.transact([Write(key=k, set={"a": 1}) for k in keys[:100]])

    assert list(table.query(key.partition)) == [k.sort for k in keys[:100]]
    with pytest.raises(ContractError):
        table.transact([Write(key=k, set={"a": 2}) for k in keys])
    assert table.get(keys[0]) == {"a": 1}


def test_a_transaction_writes_a_row_once(table: Table, key: Key) -> None:
    with pytest.raises(ContractError):
        table.transact([Write(key=key, set={"a": 1}), Write(key=key, set={"b": 1})])
    assert table.get(key) is None


def test_reads_a_prefix_of_a_partition_in_order(table: Table, key: Key) -> None:
    for sort in ("worker#b", "worker#a", "work", "worker$", "lease#a"):
        table.write(Write(key=Key(partition=key.partition, sort=sort), set={"sort": sort}))

    assert list(table.query(key.partition, "worker#")) == ["worker#a", "worker#b"]
    assert list(table.query(key.partition)) == [
        "lease#a",
        "work",
        "worker#a",
        "worker#b",
        "worker$",
    ]


def test_reads_a_partition_larger_than_one_page(table: Table, key: Key) -> None:
    for number in range(12):
        sort = f"row#{number:02}"
        table.write(Write(key=Key(partition=key.partition, sort=sort), set={"text": "x" * 200_000}))

    assert list(table.query(key.partition)) == [f"row#{number:02}" for number in range(12)]


def test_finds_the_machine_row_of_an_instance(table: Table, key: Key, comes_to: ComesTo) -> None:
    instance_id = f"{WORKER}-{key.partition}"
    worker = Key(partition=key.partition, sort=machine_sort_key(instance_id))
    lease = Key(partition=key.partition, sort=lease_sort_key(instance_id, 0))
    table.write(Write(key=lease, set={"instance_id": instance_id}))
    assert table.find_machine(instance_id) == []

    table.write(Write(key=worker, set={"instance_id": instance_id}))
    comes_to(lambda: list(table.find_machine(instance_id)), [worker])
    table.write(Write(key=worker, delete=True))
    comes_to(lambda: len(table.find_machine(instance_id)), 0)


def test_rows_under_other_keys_are_not_of_the_instance(
    table: Table, key: Key, comes_to: ComesTo
) -> None:
    instance_id = f"{WORKER}-{key.partition}"
    own = [Key(partition=p, sort=machine_sort_key(instance_id)) for p in (key.partition, "w#other")]
    forged = [Key(partition=key.partition, sort=machine_sort_key(f"forged-{n}")) for n in range(20)]
    for each in (*forged, *own):
        table.write(Write(key=each, set={"instance_id": instance_id}))

    comes_to(lambda: sorted(table.find_machine(instance_id)), sorted(own))


def test_partitions_are_read_together_each_by_sort_key(table: Table, key: Key) -> None:
    other, empty = next(_partitions), next(_partitions)
    for partition, sorts in ((key.partition, "dbca"), (other, "yxzw"), (next(_partitions), "e")):
        for number, sort in enumerate(sorts):
            values = {"n": number, "share": 0.5, "none": None, "map": {"a": [1]}}
            table.write(Write(key=Key(partition=partition, sort=sort), set=values))

    found = table.query_each([other, empty, key.partition], at_most=8)

    assert found is not None
    assert [list(rows) for rows in found] == [list("wxyz"), [], list("abcd")]
    assert found[2] == table.query(key.partition)


def test_reads_no_more_rows_than_it_may(table: Table, key: Key) -> None:
    for number in range(9):
        row = Key(partition=key.partition, sort=f"row#{number}")
        table.write(Write(key=row, set={"n": number}))

    assert table.query_each([key.partition, f"{key.partition}-empty"], at_most=8) is None
    first = table.query(key.partition, "row#", at_most=3)
    assert first == {f"row#{n}": {"n": n} for n in range(3)}
    assert len(table.query(key.partition, at_most=9)) == len(table.query(key.partition))


def test_reads_rows_by_their_keys(table: Table, key: Key) -> None:
    keys = [Key(partition=key.partition, sort=f"row#{number}") for number in range(60)]
    for number, each in enumerate(keys[::2]):
        table.write(Write(key=each, set={"n": number, "map": {"a": [1, None]}}))

    found = table.get_each(keys)

    assert found == {each: {"n": n, "map": {"a": [1, None]}} for n, each in enumerate(keys[::2])}
    assert table.get_each([]) == {}

"""In what the table in memory is as late and as strict as DynamoDB."""

from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.row import machine_sort_key
from spindown.error import ContractError, PreconditionFailed
from spindown.memory import MemoryClock, MemoryTable
from spindown.port import Key, When, Write

WORKER = "i-0123456789abcdef0"


def test_memory_finds_an_instance_as_late_as_its_index_lags(clock: MemoryClock) -> None:
    table = MemoryTable(clock, index_lag=timedelta(seconds=2))
    key = Key(partition="w#a", sort=machine_sort_key(WORKER))
    table.write(Write(key=key, set={"instance_id": WORKER}))

    assert table.find_machine(WORKER) == []
    clock.advance(timedelta(seconds=2))
    assert table.find_machine(WORKER) == [key]
    table.write(Write(key=key, delete=True))
    assert table.find_machine(WORKER) == [key]
    clock.advance(timedelta(seconds=2))
    assert table.find_machine(WORKER) == []


@pytest.mark.parametrize(
    "when",
    [
        pytest.param(When(equals={"true": 1}), id="truth is no number"),
        pytest.param(When(at_most={"text": 9}), id="text against a number"),
        pytest.param(When(at_most={"true": 9}), id="truth against a number"),
    ],
)
def test_memory_compares_only_like_with_like(clock: MemoryClock, when: When) -> None:
    table, key = MemoryTable(clock), Key(partition="w#a", sort="row")
    table.write(Write(key=key, set={"text": "b", "true": True}))

    with pytest.raises(PreconditionFailed):
        table.write(Write(key=key, when=when))


@pytest.mark.parametrize("value", [None, "", 7])
def test_memory_indexes_only_an_instance_id(clock: MemoryClock, value: Any) -> None:
    key = Key(partition="w#a", sort=machine_sort_key(WORKER))
    with pytest.raises(ContractError) as caught:
        MemoryTable(clock).write(Write(key=key, set={"instance_id": value}))
    assert (caught.value.field, caught.value.value) == ("instance_id", value)

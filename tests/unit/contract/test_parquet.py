"""Tables come back as written, and others read the same files."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.parquet import Column, Value, read_parquet, write_parquet
from spindown.error import ContractError

COLUMNS = {
    "text": Column.STRING,
    "count": Column.BIGINT,
    "amount": Column.DOUBLE,
    "at": Column.TIMESTAMP,
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VALUES: dict[str, st.SearchStrategy[Value]] = {
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    "count": st.integers(-(2**63), 2**63 - 1),
    "amount": st.floats(allow_nan=False),
    "at": st.integers(0, 10**16).map(lambda us: EPOCH + timedelta(microseconds=us)),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}),
    max_size=40,
)
SOME: list[dict[str, Value]] = [
    {"text": "a", "count": -7, "amount": 0.5, "at": EPOCH},
    {"text": None, "count": None, "amount": None, "at": None},
    {"text": "", "count": 2**62, "amount": 1e-300, "at": datetime(2026, 2, 3, 4, 5, 6, 7, UTC)},
]


@given(ROWS)
def test_rows_come_back_as_written(rows: list[dict[str, Value]]) -> None:
    assert read_parquet(write_parquet(COLUMNS, rows), COLUMNS) == rows


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_duckdb_reads_the_same(count: int, tmp_path: Path) -> None:
    rows = [SOME[number % 3] for number in range(count)]
    file = tmp_path / "a.parquet"
    file.write_bytes(write_parquet(COLUMNS, rows))

    with duckdb.connect(":memory:") as connection:
        found: list[Any] = connection.from_parquet(str(file)).fetchall()

    def told(value: Value) -> Value:
        return value.replace(tzinfo=None) if isinstance(value, datetime) else value

    assert found == [tuple(told(row[name]) for name in COLUMNS) for row in rows]


def test_columns_that_a_file_lacks_are_null() -> None:
    data = write_parquet({"text": Column.STRING, "old": Column.BIGINT}, [{"text": "a", "old": 1}])

    found = read_parquet(data, COLUMNS, wanted=["text", "count"])

    assert found == [{"text": "a", "count": None}]


def test_what_is_no_text_is_written_all_the_same() -> None:
    (row,) = read_parquet(write_parquet(COLUMNS, [{"text": "a\ud800"}]), COLUMNS)

    assert row["text"] == "a?"


@pytest.mark.parametrize("cut", [0, 3, 8, 40, 150])
def test_what_is_torn_is_refused(cut: int) -> None:
    data = write_parquet(COLUMNS, SOME)

    with pytest.raises(ContractError):
        read_parquet(data[:cut] + data[cut + 9 :], COLUMNS)


def test_a_column_of_another_type_is_refused() -> None:
    data = write_parquet({"count": Column.STRING}, [{"count": "1"}])

    with pytest.raises(ContractError):
        read_parquet(data, COLUMNS)

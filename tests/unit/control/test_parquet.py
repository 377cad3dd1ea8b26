"""Tables of usage come back as written, and others read the same files."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindown.contract.usage import DeviceUse, UsageRecord, UsageSeries
from spindown.contract.usage_table import COLUMNS, to_row
from spindown.control.parquet import decode_table, encode_table
from spindown.error import ContractError
from tests.builders import a_usage_record

RECORD = a_usage_record(
    started_at=datetime(2026, 3, 9, 23, 50, 1, 234567, tzinfo=UTC), type="scan", gpu_mean=None
)
RICH = replace(
    RECORD,
    series=UsageSeries(at=(1.0, 2.0), cpu=(0.5, None)),
    cores=(1.0, 99.5),
    devices=(DeviceUse(index=1),),
)
AMOUNTS = st.floats(0, 1e6)
RECORDS = st.builds(
    replace,
    st.just(RECORD),
    job_id=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40),
    seconds=AMOUNTS,
    items=st.integers(0, 10**9),
    memory_max=st.none() | AMOUNTS,
    net_in=st.none() | st.integers(0, 10**15),
    started_at=st.datetimes(datetime(2000, 1, 1), datetime(2099, 1, 1)).map(  # noqa: DTZ001
        lambda at: at.replace(tzinfo=UTC)
    ),
)


def encode(*records: UsageRecord) -> bytes:
    return encode_table([to_row(record) for record in records])


# Each opens two databases.
@settings(max_examples=10)
@given(st.lists(RECORDS, max_size=20))
def test_records_come_back_as_written(records: list[UsageRecord]) -> None:
    assert decode_table(encode(*records), workload=RECORD.workload) == tuple(records)


def test_a_table_holds_its_dollars_and_what_is_nested_as_json(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(encode(replace(RECORD, type=""), RICH))

    with duckdb.connect(":memory:") as connection:
        found = connection.from_parquet(str(file))
        names, rows = found.columns, found.fetchall()

    first, second = (dict(zip(names, row, strict=True)) for row in rows)
    assert names == list(COLUMNS)
    assert not {"workload", "day"} & set(names)
    assert (first["type"], second["type"]) == (RECORD.workload, "scan")
    assert first["dollars"] == pytest.approx(RECORD.dollars)
    assert first["started_at"] == RECORD.started_at.replace(tzinfo=None)
    assert json.loads(second["series"])["cpu"] == [0.5, None]
    assert decode_table(file.read_bytes(), workload=RECORD.workload)[1] == RECORD


def test_a_column_that_a_file_lacks_is_not_known() -> None:
    old = {name: value for name, value in to_row(RECORD).items() if name != "memory_peak"}

    (found,) = decode_table(encode_table([old]), workload=RECORD.workload)

    assert found.memory_peak is None


def test_what_is_no_text_is_written_all_the_same() -> None:
    (found,) = decode_table(encode(replace(RECORD, job_id="a\ud800")), workload=RECORD.workload)

    assert found.job_id == "a?"


@pytest.mark.parametrize("cut", [0, 3, 8, 40, 150])
def test_what_is_torn_is_refused(cut: int) -> None:
    data = encode(RECORD, RICH)

    with pytest.raises(ContractError):
        decode_table(data[:cut] + data[-cut:-9], workload=RECORD.workload)


def test_another_table_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.parquet"
    with duckdb.connect(":memory:") as connection:
        connection.sql("SELECT 1 AS started_at, 'x' AS seconds").write_parquet(str(file))

    with pytest.raises(ContractError):
        decode_table(file.read_bytes(), workload=RECORD.workload)


def test_what_duckdb_cannot_take_is_refused() -> None:
    # Four times DuckDB's ``maximum_object_size``.
    huge = to_row(replace(RECORD, batch_id="x" * 2**26))

    with pytest.raises(ContractError):
        encode_table([huge])

"""Usage records lie where the table looks for them, and come back as written."""

import json
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from spindown.contract.usage import (
    DeviceUse,
    UsageEnd,
    UsageSeries,
    decode_usage,
    done_key,
    encode_usage,
    measured_key,
    measured_prefix,
    table_key,
    table_prefix,
    type_of_key,
)
from spindown.error import ContractError
from spindown.worker.usage.tally import SeriesMaker
from tests.builders import a_usage_record

RECORD = a_usage_record(
    instance_type="g5.12xlarge",
    slots=4,
    price_per_hour=2.0,
    started_at=datetime(2026, 3, 9, 23, 50, tzinfo=UTC),
    end=UsageEnd.INTERRUPTED,
    seconds=900.0,
    items=120,
    items_redone=8,
    cpu_mean=40.0,
    cpu_max=97.5,
    memory_max=31.0,
    gpu_mean=71.0,
    gpu_max=100.0,
    vram_max=64.0,
)


SERIES = UsageSeries(at=(0.0, 5.0), cpu=(0.5, None))
DAY = date(2026, 3, 10)


def test_measured_and_tables_lie_apart_by_workload_and_day() -> None:
    assert measured_key(RECORD, DAY) == "measured/ocr/2026-03-10/scan-7-00000003.jsonl"
    assert measured_key(RECORD, DAY).startswith(measured_prefix("ocr", DAY))
    assert measured_prefix("ocr", DAY).startswith(measured_prefix("ocr"))
    key = table_key("ocr", DAY, "big.scan")
    assert key == "usage/workload=ocr/day=2026-03-10/type=big.scan/usage.parquet"
    assert key.startswith(table_prefix("ocr", DAY))
    assert done_key("ocr", DAY).startswith(table_prefix("ocr", DAY))


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        ("type=big.scan/usage.parquet", "big.scan"),
        ("type=big.scan/usage-12.parquet", "big.scan"),
        ("type=big.scan/usage-0.parquet", None),
        ("_SUCCESS", None),
        ("usage.parquet", None),
        ("type=/usage.parquet", None),
        ("type=../usage.parquet", None),
        ("type=a b/usage.parquet", None),
        ("type=a/other.parquet", None),
    ],
)
def test_only_a_table_s_key_names_a_type(tail: str, found: str | None) -> None:
    assert type_of_key(f"usage/workload=ocr/day=2026-03-10/{tail}") == found


def test_a_slot_pays_its_share_of_the_instance() -> None:
    assert RECORD.dollars == pytest.approx(2.0 / 4 * 0.25)


def test_records_come_back_as_written() -> None:
    bare = replace(RECORD, epoch=4, gpu="", gpu_mean=None, gpu_max=None, vram_max=None)
    rich = replace(RECORD, series=SERIES, cores=(1.0, 99.5), devices=(DeviceUse(index=1),))

    data = encode_usage([RECORD, bare, rich])

    assert list(decode_usage(data, workload="ocr")) == [RECORD, bare, rich]


def test_an_object_holds_no_more_than_a_worker_writes() -> None:
    assert len(list(decode_usage(encode_usage([RECORD] * 400), workload="ocr"))) == 400
    with pytest.raises(ContractError):
        list(decode_usage(encode_usage([RECORD] * 1001), workload="ocr"))


def test_the_fullest_that_a_worker_writes_is_read() -> None:
    points = (9999.1234,) * SeriesMaker.POINTS
    series = UsageSeries(**{one.name: points for one in fields(UsageSeries)})
    devices = tuple(
        DeviceUse(index=index, gpu_mean=99.9, gpu_max=99.9, vram_max=79.9, power_mean=700.1)
        for index in range(16)
    )
    full = replace(RECORD, series=series, cores=(99.9,) * 896, devices=devices)

    assert sum(1 for _ in decode_usage(encode_usage([full] * 400), workload="ocr")) == 400


def test_what_is_ignored_and_fills_a_memory_is_refused_unread() -> None:
    row = encode_usage([RECORD]).removesuffix(b"}\n")
    line = row + b',"x":[' + b"{}," * 20_000 + b"{}]}\n"

    assert list(decode_usage(line * 20, workload="ocr")) == [RECORD] * 20
    with pytest.raises(ContractError, match="at most 1000000 values"):
        next(decode_usage(line * 26, workload="ocr"))


def test_records_are_read_a_line_at_a_time() -> None:
    records = decode_usage(encode_usage([RECORD]) + b"{broken\n", workload="ocr")

    assert next(records) == RECORD
    with pytest.raises(ContractError):
        next(records)


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "../../etc"},
        {"type": "a/b"},
        {"type": "a'; DROP TABLE usage; --"},
        {"slots": 0},
        {"seconds": 1e300},
        # Longer than any attempt; sums of these would pass what a span of time holds.
        {"seconds": 32 * 86400.0},
        {"price_per_hour": -1.0},
        {"cpu_mean": float("inf")},
        {"memory_max": "much"},
        {"net_in": 10**30},
        {"started_at": "0001-01-01T00:00:00Z"},
        {"series": {"at": [1.0], "cpu": ["x"]}},
        {"job_id": "x" * 70_000},
        {"devices": [{"index": 1}] * 33},
    ],
)
def test_what_no_worker_of_ours_writes_is_refused(changes: dict[str, Any]) -> None:
    row = {**json.loads(encode_usage([RECORD])), **changes}

    with pytest.raises(ContractError):
        list(decode_usage(json.dumps(row).encode(), workload="ocr"))


@pytest.mark.parametrize(
    ("data", "words"), [(b"{", "not JSON lines"), (b"[1]\n", "one object a line")]
)
def test_what_is_no_record_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        list(decode_usage(data, workload="ocr"))

"""Usage records lie where the table looks for them, and come back as written."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from spindown.contract.usage import (
    UsageEnd,
    decode_usage,
    encode_usage,
    usage_key,
    usage_prefix,
)
from spindown.error import ContractError
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


def test_a_record_lies_in_its_workload_s_first_day_s_partition() -> None:
    assert usage_key(RECORD) == "usage/workload=ocr/day=2026-03-09/scan-7-00000003.jsonl"
    assert usage_key(RECORD).startswith(usage_prefix("ocr"))


def test_a_slot_pays_its_share_of_the_instance() -> None:
    assert RECORD.dollars == pytest.approx(2.0 / 4 * 0.25)


def test_records_come_back_as_written() -> None:
    bare = replace(RECORD, epoch=4, gpu="", gpu_mean=None, gpu_max=None, vram_max=None)

    data = encode_usage([RECORD, bare])

    assert decode_usage(data, workload="ocr") == (RECORD, bare)


def test_a_row_holds_dollars_and_no_partition_column() -> None:
    row = json.loads(encode_usage([RECORD]))

    assert row["dollars"] == pytest.approx(0.125)
    assert "workload" not in row


@pytest.mark.parametrize(
    ("data", "words"), [(b"{", "not JSON lines"), (b"[1]\n", "one object a line")]
)
def test_what_is_no_record_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        decode_usage(data, workload="ocr")

"""Manifests, parts and run specs: what is written is read back, and nothing else is believed."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.job.manifest import decode_manifest, encode_manifest
from spindown.contract.job.result import ItemStatus, OutputFile, Record, encode_part
from spindown.contract.run_spec import RunSpec, decode_run_spec, encode_run_spec
from spindown.error import ContractError, NewerSchema
from tests.part import decode_part
from tests.unit.contract.manifest import WHOLE


def test_a_manifest_comes_back_with_what_later_versions_wrote() -> None:
    data = encode_manifest(WHOLE)
    assert decode_manifest(data) == WHOLE
    assert json.loads(data)["later"] == {"a": 1}
    assert "extra" not in json.loads(data)


def test_a_manifest_cut_at_any_byte_is_never_believed() -> None:
    data = encode_manifest(WHOLE)
    for cut in range(len(data)):
        with pytest.raises(ContractError):
            decode_manifest(data[:cut])


@given(
    st.binary() | st.recursive(st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_any_bytes_are_a_manifest_or_an_error(data: bytes) -> None:
    with pytest.raises(ContractError):
        decode_manifest(data)


def test_a_manifest_of_a_newer_schema_is_not_read() -> None:
    with pytest.raises(NewerSchema):
        decode_manifest(encode_manifest(replace(WHOLE, schema=3)))


@pytest.mark.parametrize("changes", [{"next_item": 3}, {"check": None}], ids=["field", "check"])
def test_a_manifest_that_its_check_does_not_fit_is_damaged(changes: dict[str, object]) -> None:
    row = json.loads(encode_manifest(WHOLE))
    with pytest.raises(ContractError, match=r"manifest\.check"):
        decode_manifest(json.dumps(row | changes).encode())


def test_a_number_that_is_none_is_no_manifest() -> None:
    with pytest.raises(ContractError):
        decode_manifest(b'{"job_id": "j", "later": NaN, "check": "0"}')


def test_records_come_back_from_a_part() -> None:
    records = (
        Record(
            job_id="j",
            index=0,
            item={"a": 1},
            status=ItemStatus.OK,
            result=[1, None],
            outputs=(OutputFile(path="a/b", key="k", bytes=1, sha256="s"),),
            seconds=0.5,
        ),
        Record(job_id="j", index=1, item="x", status=ItemStatus.FAILED, error="no"),
    )
    assert decode_part(encode_part(records)) == records


def test_a_run_spec_comes_back_and_equal_ones_have_equal_bytes() -> None:
    spec = RunSpec(
        entrypoint="a.b:run",
        item_timeout=timedelta(seconds=90),
        env={"B": "1", "A": "2"},
        inputs=("s3://bucket/x/",),
    )
    assert decode_run_spec(encode_run_spec(spec)) == spec
    other = RunSpec(
        entrypoint="a.b:run",
        item_timeout=timedelta(seconds=90),
        env={"A": "2", "B": "1"},
        inputs=("s3://bucket/x/",),
    )
    assert encode_run_spec(spec) == encode_run_spec(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"items": -5},
        {"items": 10**12},
        {"items": 1},
        {"next_item": -1},
        {"epoch": -1},
        {"epoch_first": 3},
        {"losses": -1},
        {"busy_seconds": -1.0},
        {"busy_seconds": 1e300},
        # More than a timedelta holds.
        {"busy_seconds": 1e15},
        {"begun_seconds": {"T4#1": 1e15}},
        {"cost_usd": -1e12},
        {"begun_seconds": {"T4#1": -1.0}},
        {"parts": (replace(WHOLE.parts[0], first=2),)},
        {"parts": (replace(WHOLE.parts[0], last=10**12),)},
        {"parts": (replace(WHOLE.parts[0], failed=2),)},
        {"parts": (replace(WHOLE.parts[0], bytes=-1),)},
    ],
    ids=str,
)
def test_numbers_that_no_job_has_are_not_believed(changes: dict[str, Any]) -> None:
    with pytest.raises(ContractError):
        decode_manifest(encode_manifest(replace(WHOLE, **changes)))

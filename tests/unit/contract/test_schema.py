"""The published JSON Schemas hold for what is really sent and written."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from spindown.contract.job.event import job_event
from spindown.contract.job.manifest import encode_manifest
from spindown.contract.job.message import parse_job
from spindown.contract.job.result import ItemStatus, OutputFile, Record, encode_part
from spindown.error import ContractError
from tests.unit.contract.manifest import WHOLE
from tools.schema import FOLDER, schemas, text_of

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ITEMS: dict[str, Any] = {"items": ["a.png", {"text": "b"}]}


def fits(name: str, value: object) -> bool:
    validator: Any = Draft202012Validator(schemas()[name])
    return bool(validator.is_valid(value))


@pytest.mark.parametrize("name", schemas())
def test_the_files_are_those_of_this_version(name: str) -> None:
    kept = (FOLDER / f"{name}.json").read_text(encoding="utf-8")

    assert kept == text_of(name), "run python -m tools.schema"
    Draft202012Validator.check_schema(json.loads(kept))
    assert f"schema/{name}.json" in (Path(FOLDER).parent / "workload.md").read_text("utf-8")


@pytest.mark.parametrize(
    "message",
    [
        ITEMS,
        {"items_uri": "s3://bucket/items.jsonl", "job_id": "a.b_c-1", "schema": 1},
        {"prefix_uri": "s3://bucket/", "params": {"size": 3}, "tenant": "lab!"},
        {**ITEMS, "type": "scan", "requirements": {"vcpus": 4, "memory_gib": 1.5}},
        {**ITEMS, "requirements": {"architectures": ["arm64"], "gpus": 1}},
        {},
        {"items": ["a"], "items_uri": "s3://bucket/items.jsonl"},
        {"items": "a.png"},
        {"items_uri": "https://example.com/a"},
        {**ITEMS, "job_id": "a b"},
        {**ITEMS, "job_id": ".."},
        {**ITEMS, "params": []},
        {**ITEMS, "code": "print(1)"},
        {**ITEMS, "schema": 2},
        {**ITEMS, "type": "Scan"},
        {**ITEMS, "requirements": {"vcpus": 1.5}},
        {**ITEMS, "requirements": {"cpus": 1}},
        {**ITEMS, "requirements": {"memory_gib": -1}},
        {**ITEMS, "requirements": {"architectures": ["sparc"]}},
    ],
    ids=json.dumps,
)
def test_parser_and_schema_take_the_same_messages(message: dict[str, Any]) -> None:
    try:
        parse_job(json.dumps(message))
        is_taken = True
    except ContractError:
        is_taken = False

    assert fits("message", message) is is_taken


def test_a_manifest_as_it_is_written_fits() -> None:
    assert fits("manifest", json.loads(encode_manifest(WHOLE)))
    assert not fits("manifest", {"job_id": "j"})


def test_a_line_of_a_part_fits() -> None:
    output = OutputFile(path="a/b", key="k", bytes=3, sha256="s")
    done = Record(job_id="j", index=0, item="x", status=ItemStatus.OK, outputs=(output,))
    failed = Record(job_id="j", index=1, item={"a": 1}, status=ItemStatus.FAILED, error="e")

    lines = encode_part([done, failed]).splitlines()

    assert [fits("record", json.loads(line)) for line in lines] == [True, True]
    assert not fits("record", {"index": 0})


def test_the_event_of_a_job_that_is_over_fits() -> None:
    event = job_event(WHOLE, deployment="lab", workload="ocr", now=NOW)

    assert fits("event", json.loads(event.detail))
    assert not fits("event", {"deployment": "lab"})

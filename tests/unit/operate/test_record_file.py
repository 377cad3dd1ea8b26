"""The same records come back from every kind of file."""

import csv
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from spindown.error import BadInput
from spindown.operate.record_file import RecordFormat, write_records

GOOD = {
    "job_id": "j",
    "index": 0,
    "item": "s3://b/a.png",
    "status": "ok",
    "result": {"label": 'a, "b"\n'},
    "error": None,
    "outputs": [],
    "seconds": 0.5,
}
#: What a worker may write in place of it.
HOSTILE = {"job_id": "j", "index": "x", "item": {"t": "\ud800"}, "seconds": [], "error": 5, "z": 1}


def write(folder: Path, record_format: RecordFormat, *records: dict[str, Any]) -> Path:
    path = folder / "results"
    assert write_records(iter(records), path, record_format) == len(records)
    assert list(folder.iterdir()) == [path]
    return path


def test_lines_are_the_records(tmp_path: Path) -> None:
    path = write(tmp_path, RecordFormat.JSONL, GOOD, HOSTILE)

    assert [json.loads(line) for line in path.read_text().splitlines()] == [GOOD, HOSTILE]


def test_csv_has_a_column_a_key(tmp_path: Path) -> None:
    with write(tmp_path, RecordFormat.CSV, GOOD, HOSTILE).open(newline="") as file:
        good, hostile = csv.DictReader(file)

    assert (good["item"], json.loads(good["result"])) == (GOOD["item"], GOOD["result"])
    assert (hostile["index"], hostile["error"], json.loads(hostile["item"])["t"]) == (
        "",
        "5",
        "\ud800",
    )


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1"])
def test_a_spreadsheet_computes_no_text(tmp_path: Path, text: str) -> None:
    row = {**GOOD, "item": text, "error": text, "result": text}
    with write(tmp_path, RecordFormat.CSV, row).open(newline="") as file:
        (read,) = csv.DictReader(file)

    for name in ("item", "error", "result"):
        assert json.loads(read[name]) == text
        assert read[name].startswith('"')


@pytest.mark.parametrize("count", [0, 2])
def test_parquet_has_columns_of_fixed_types(tmp_path: Path, count: int) -> None:
    path = write(tmp_path, RecordFormat.PARQUET, *[GOOD, HOSTILE][:count])

    found = duckdb.from_parquet(str(path))

    names = ("job_id", "index", "item", "status", "result", "error", "outputs", "seconds")
    assert tuple(found.columns) == names
    rows = found.fetchall()
    assert len(rows) == count
    if count:
        assert rows[0][:4] == ("j", 0, "s3://b/a.png", "ok")
        assert json.loads(rows[0][4]) == GOOD["result"]
        assert (rows[1][1], rows[1][5], rows[1][7]) == (None, "5", None)


def test_what_fails_half_way_leaves_no_file(tmp_path: Path) -> None:
    def records() -> Any:
        yield GOOD
        raise BadInput("store", None, "try again")

    with pytest.raises(BadInput):
        write_records(records(), tmp_path / "results", RecordFormat.CSV)

    assert list(tmp_path.iterdir()) == []

"""Write result records to a file: JSON lines, CSV or Parquet.

CSV and Parquet have one column a key of ``contract.job.result.Record``. A value of no fixed type
(``item``, ``result``, ``outputs``) is JSON text there; an item that is a text itself stays as it
is. In CSV a text that a spreadsheet would take for a formula is JSON text too, in quotes. Records
come one at a time and are never all in memory.
"""

import csv
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from spindown.control.parquet import open_fenced
from spindown.error import BadInput

#: Column -> its type in Parquet.
_COLUMNS = {
    "job_id": "VARCHAR",
    "index": "BIGINT",
    "item": "VARCHAR",
    "status": "VARCHAR",
    "result": "VARCHAR",
    "error": "VARCHAR",
    "outputs": "VARCHAR",
    "seconds": "DOUBLE",
}
#: What a cell begins with that a spreadsheet computes
#: (https://owasp.org/www-community/attacks/CSV_Injection).
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
#: A value has 16 MiB at most; as JSON text inside JSON some of its characters are escaped again.
_LINE_BYTES = 128 * 1024**2
_MEMORY = "1GiB"
#: A job has a million items (``contract.job.message``); an index names a folder too.
_INDEX_MAX = 10**9


class Sink(Protocol):
    """Takes text."""

    def write(self, text: str, /) -> object:
        """Write a text."""


class RecordFormat(StrEnum):
    """What a file of records is."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


def write_records(
    records: Iterable[Mapping[str, Any]], path: Path, record_format: RecordFormat
) -> int:
    """Write a file of records, which appears once it is whole; return how many there are.

    Raises:
        BadInput: DuckDB cannot make a Parquet file of them.
    """
    with TemporaryDirectory(prefix=".spindown-", dir=path.parent) as made:
        folder = Path(made)
        text = folder / "text"
        with text.open("w", encoding="utf-8", newline="") as file:
            if record_format is RecordFormat.JSONL:
                count = _write_lines(records, file)
            elif record_format is RecordFormat.CSV:
                count = write_csv(records, file)
            else:
                count = _write_lines(map(_row, records), file)
        if record_format is RecordFormat.PARQUET:
            text = _to_parquet(text, folder)
        text.replace(path)
    return count


def _write_lines(records: Iterable[Mapping[str, Any]], file: Sink) -> int:
    count = 0
    for record in records:
        # Escaped: half of a surrogate pair has no UTF-8.
        file.write(json.dumps(record) + "\n")
        count += 1
    return count


def write_csv(records: Iterable[Mapping[str, Any]], file: Sink) -> int:
    """Write records as CSV (RFC 4180) with a line of names first; return how many there are."""
    writer = csv.DictWriter(file, _COLUMNS)
    writer.writeheader()
    count = 0
    for record in records:
        row = _row(record)
        writer.writerow({name: _quoted(value) for name, value in row.items()})
        count += 1
    return count


def _quoted(value: object) -> object:
    """Return a value of a cell; workers and senders wrote it, and a spreadsheet computes some."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return json.dumps(value) if is_formula else value


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with values of fixed types; a worker may have written any."""
    seconds = record.get("seconds")
    return {
        "job_id": _text(record.get("job_id")),
        "index": index_of(record),
        "item": _text(record.get("item")),
        "status": _text(record.get("status")),
        "result": _json(record.get("result")),
        "error": _text(record.get("error")),
        "outputs": _json(record.get("outputs")),
        "seconds": seconds if isinstance(seconds, float) else None,
    }


def index_of(record: Mapping[str, Any]) -> int | None:
    """Return the index of a record's item; None: what the worker wrote is no index."""
    index = record.get("index")
    if isinstance(index, bool) or not isinstance(index, int):
        return None
    return index if 0 <= index <= _INDEX_MAX else None


def _json(value: object) -> str | None:
    return None if value is None else json.dumps(value)


def _text(value: object) -> str | None:
    """Return a text as it is and all else as JSON; what has no UTF-8 is replaced."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode(errors="replace").decode()


def _to_parquet(lines: Path, folder: Path) -> Path:
    from duckdb import Error  # noqa: PLC0415 - heavy, and of an extra

    table = folder / "table"
    with open_fenced([folder], threads=1, memory_limit=_MEMORY) as database:
        try:
            database.read_json(
                str(lines),
                columns=dict(_COLUMNS),
                format="newline_delimited",
                maximum_object_size=_LINE_BYTES,
            ).write_parquet(str(table), compression="zstd")
        except Error as exc:
            remedy = f"write jsonl instead; DuckDB says: {str(exc)[:200]}"
            raise BadInput("--output", RecordFormat.PARQUET.value, remedy) from exc
    return table

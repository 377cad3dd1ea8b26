"""Rows of a file that a person made: CSV with a header, or JSON Lines; each mistake has a line."""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from spindown.error import BadInput

#: More rows than any month of one queue or market has.
ROWS_AT_MOST = 2_000_000
#: From here on a number of seconds since 1970 is one of milliseconds: in seconds, year 5138.
_MILLISECONDS_FROM = 1e11
_JSON_SUFFIXES = {".jsonl", ".ndjson"}


@dataclass(frozen=True, slots=True)
class Row:
    """One row, and where it stands."""

    place: str
    cells: Mapping[str, Any]

    def instant(self, column: str) -> datetime:
        """Return a point in time: ISO 8601, of UTC without an offset, or seconds since 1970."""
        value = self._need(column)
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            return self._parse_iso(column, value)
        seconds /= 1000.0 if abs(seconds) >= _MILLISECONDS_FROM else 1.0
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (OverflowError, ValueError, OSError) as exc:
            raise self._no_time(column, value) from exc

    def count(self, column: str) -> int | None:
        """Return a whole number from 1; None: the cell is empty or not there."""
        if self._is_empty(column):
            return None
        amount = self.amount(column)
        if amount < 1.0 or amount != int(amount):
            raise self.bad(column, "write a whole number from 1")
        return int(amount)

    def amount(self, column: str) -> float:
        """Return a number above 0."""
        value = self._need(column)
        try:
            amount = float(value)
        except (TypeError, ValueError):
            amount = math.nan
        if not math.isfinite(amount) or amount <= 0.0:
            raise self.bad(column, "write a number above 0")
        return amount

    def optional_amount(self, column: str) -> float | None:
        """Return a number above 0; None: the cell is empty or not there."""
        return None if self._is_empty(column) else self.amount(column)

    def text(self, column: str) -> str:
        """Return a word."""
        return str(self._need(column)).strip()

    def bad(self, column: str, mend: str) -> BadInput:
        """Return the complaint about a cell."""
        return BadInput(f"{self.place}, {column}", self.cells.get(column), mend)

    def _need(self, column: str) -> Any:
        if self._is_empty(column):
            raise self.bad(column, "give every row a value")
        return self.cells[column]

    def _is_empty(self, column: str) -> bool:
        value = self.cells.get(column)
        return value is None or (isinstance(value, str) and not value.strip())

    def _parse_iso(self, column: str, value: Any) -> datetime:
        try:
            at = datetime.fromisoformat(str(value).strip())
        except ValueError as exc:
            raise self._no_time(column, value) from exc
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)

    def _no_time(self, column: str, value: Any) -> BadInput:
        mend = "write it as 2026-01-31T09:30:00Z, or as seconds since 1970"
        return BadInput(f"{self.place}, {column}", value, mend)


def read_rows(path: Path, *, option: str, columns: Sequence[str]) -> list[Row]:
    """Return every row of a file, at least one.

    Args:
        path: ``.jsonl`` or ``.ndjson`` is JSON Lines, all else is CSV with a header.
        option: what the file was given to, for the complaint.
        columns: what every file must have.

    Raises:
        BadInput: it cannot be read, has no rows, too many, or not these columns.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            is_json = path.suffix in _JSON_SUFFIXES
            found = _json_rows(path, lines) if is_json else _csv_rows(path, lines, columns)
            rows = []
            for row in found:
                rows.append(row)
                if len(rows) > ROWS_AT_MOST:
                    raise BadInput(option, str(path), f"give at most {ROWS_AT_MOST:,} rows")
    except OSError as exc:
        reason = exc.strerror or "unreadable"
        raise BadInput(option, str(path), f"give a readable file ({reason})") from exc
    except UnicodeDecodeError as exc:
        raise BadInput(option, str(path), "save it as UTF-8 text") from exc
    if not rows:
        raise BadInput(option, str(path), "give it at least one row")
    return rows


def _csv_rows(path: Path, lines: Iterator[str], columns: Sequence[str]) -> Iterator[Row]:
    reader = csv.reader(lines, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in columns if name not in header]
        if header and missing:
            mend = f"name the column {missing[0]} in its first line"
            raise BadInput(f"{path.name} header", ",".join(header), mend)
        for cells in reader:
            place = f"{path.name} line {reader.line_num}"
            if len(cells) > len(header):
                raise BadInput(place, ",".join(cells), f"give it {len(header)} cells as the header")
            if any(cell.strip() for cell in cells):
                yield Row(place, dict(zip(header, cells, strict=False)))
    except csv.Error as exc:
        raise BadInput(f"{path.name} line {reader.line_num}", str(exc), "mend its CSV") from exc


def _json_rows(path: Path, lines: Iterator[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{path.name} line {number}"
        try:
            cells = json.loads(line)
        except ValueError:
            cells = None
        if not isinstance(cells, dict):
            raise BadInput(place, line.strip(), "write one JSON object a line")
        yield Row(place, cells)

"""Rows of a file: CSV with a header, JSON Lines or a list in JSON; errors name the place."""

import csv
import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

from spindown.error import BadInput
from spindown.reason_text import say_count

#: More rows than any month of one queue or market has.
ROWS_AT_MOST = 2_000_000
#: From here on a number means milliseconds since 1970; as seconds it would be the year 5138.
_MILLISECONDS_FROM = 1e11
#: Dates outside are errors: 20260131093000 is not milliseconds, 9999-12-31 is a placeholder.
_YEARS = range(1900, 2200)
#: Digits of an ISO 8601 date without hyphens; as seconds it would be in 1970.
_DATE_DIGITS = 8
#: Characters of a line in a complaint.
_SHOWN = 60
_LINES_SUFFIXES = {".jsonl", ".ndjson"}
_LIST_SUFFIX = ".json"
_PACKED_SUFFIX = ".gz"


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """One row, and where it stands."""

    place: str
    cells: Mapping[str, Any]

    def instant(self, column: str) -> datetime:
        """Return a point in time: ISO 8601, of UTC without an offset, or seconds since 1970."""
        value = self._need(column)
        if isinstance(value, bool):
            raise self._no_time(column, value)
        try:
            at = _to_instant(value)
        except (OverflowError, ValueError, OSError) as exc:
            raise self._no_time(column, value) from exc
        if at.year not in _YEARS:
            raise self._no_time(column, value)
        return at

    def count(self, column: str) -> int | None:
        """Return a whole number from 1; None: the cell is empty or not there."""
        if self.is_empty(column):
            return None
        amount = self.amount(column)
        if amount < 1.0 or amount != int(amount):
            raise self.bad(column, "write a whole number from 1")
        return int(amount)

    def amount(self, column: str) -> float:
        """Return a number above 0."""
        value = self._need(column)
        try:
            # In Python true is 1, but the writer meant no number.
            amount = math.nan if isinstance(value, bool) else float(value)
        except (OverflowError, TypeError, ValueError):
            amount = math.nan
        if not math.isfinite(amount) or amount <= 0.0:
            raise self.bad(column, "write a number above 0")
        return amount

    def optional_amount(self, column: str) -> float | None:
        """Return a number above 0; None: the cell is empty or not there."""
        return None if self.is_empty(column) else self.amount(column)

    def is_empty(self, column: str) -> bool:
        """Tell whether a cell is empty or not there."""
        value = self.cells.get(column)
        return value is None or (isinstance(value, str) and not value.strip())

    def text(self, column: str) -> str:
        """Return a word."""
        return str(self._need(column)).strip()

    def bad(self, column: str, remedy: str) -> BadInput:
        """Return the complaint about a cell."""
        return BadInput(f"{self.place}, {column}", self.cells.get(column), remedy)

    def _need(self, column: str) -> Any:
        if self.is_empty(column):
            raise self.bad(column, "give every row a value")
        return self.cells[column]

    def _no_time(self, column: str, value: Any) -> BadInput:
        remedy = "write it as 2026-01-31T09:30:00Z, or as seconds since 1970"
        return BadInput(f"{self.place}, {column}", value, remedy)


def _to_instant(value: Any) -> datetime:
    """Return a point in time; raises OverflowError, ValueError or OSError if it is none."""
    text = str(value).strip()
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return _parse_iso(text)
    if isinstance(value, str) and text.isdigit() and len(text) == _DATE_DIGITS:
        with suppress(ValueError):
            return _parse_iso(text)
    return datetime.fromtimestamp(
        seconds / (1000.0 if abs(seconds) >= _MILLISECONDS_FROM else 1.0), UTC
    )


def _parse_iso(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def read_rows(
    path: Path,
    *,
    option: str,
    columns: Sequence[str],
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> list[HistoryRow]:
    """Return every row of a file, at least one.

    Args:
        path: ``.jsonl`` or ``.ndjson`` is JSON Lines, ``.json`` one list of objects, bare or under
            the only key that has one; all else is CSV with a header. Each may be packed by gzip,
            with ``.gz`` after its name.
        option: what the file was given to, for the complaint.
        columns: what every file must have.
        aliases: other name of a column -> ours.

    Raises:
        BadInput: it cannot be read, has no rows, too many, or not these columns.
    """
    try:
        with _open(path) as lines:
            rows = []
            for row in _read(path, lines, columns, aliases):
                rows.append(row)
                if len(rows) > ROWS_AT_MOST:
                    raise BadInput(option, str(path), f"give at most {ROWS_AT_MOST:,} rows")
    except (EOFError, gzip.BadGzipFile, zlib.error) as exc:
        raise BadInput(option, str(path), "give a complete gzip file, or an unpacked one") from exc
    except OSError as exc:
        reason = exc.strerror or "unreadable"
        raise BadInput(option, str(path), f"give a readable file ({reason})") from exc
    except UnicodeDecodeError as exc:
        raise BadInput(option, str(path), "save it as UTF-8 text") from exc
    if not rows:
        raise BadInput(option, str(path), "give it at least one row")
    return rows


def _open(path: Path) -> TextIO:
    if path.suffix == _PACKED_SUFFIX:
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _read(
    path: Path, lines: TextIO, columns: Sequence[str], aliases: Mapping[str, str]
) -> Iterator[HistoryRow]:
    suffix = Path(path.stem).suffix if path.suffix == _PACKED_SUFFIX else path.suffix
    if suffix in _LINES_SUFFIXES:
        found = _json_rows(path, lines)
    elif suffix == _LIST_SUFFIX:
        found = _listed_rows(path, lines.read())
    else:
        return _csv_rows(path, lines, columns, aliases)
    return (HistoryRow(row.place, _rename(row.cells, aliases)) for row in found)


def _rename(cells: Mapping[str, Any], aliases: Mapping[str, str]) -> Mapping[str, Any]:
    return {aliases.get(name, name): value for name, value in cells.items()}


def _csv_rows(
    path: Path, lines: Iterable[str], columns: Sequence[str], aliases: Mapping[str, str]
) -> Iterator[HistoryRow]:
    reader = csv.reader(lines, strict=True)
    try:
        header = [aliases.get(name.strip(), name.strip()) for name in _first(reader)]
        missing = [name for name in columns if name not in header]
        if header and missing:
            remedy = f"name the column {missing[0]} in its first line"
            raise BadInput(f"{path.name} header", _cut(",".join(header)), remedy)
        twice = [name for number, name in enumerate(header) if name and name in header[:number]]
        if twice:
            remedy = f"name the column {twice[0]} once"
            raise BadInput(f"{path.name} header", _cut(",".join(header)), remedy)
        for cells in reader:
            place = f"{path.name} line {reader.line_num}"
            if len(cells) > len(header):
                remedy = f"give it {say_count(len(header), 'cell')} as the header"
                raise BadInput(place, _cut(",".join(cells)), remedy)
            if any(cell.strip() for cell in cells):
                yield HistoryRow(place, dict(zip(header, cells, strict=False)))
    except csv.Error as exc:
        raise BadInput(f"{path.name} line {reader.line_num}", str(exc), "fix its CSV") from exc


def _first(lines: Iterable[list[str]]) -> list[str]:
    """Return the first line in which something stands; nothing if there is none."""
    return next((cells for cells in lines if any(cell.strip() for cell in cells)), [])


def _json_rows(path: Path, lines: Iterable[str]) -> Iterator[HistoryRow]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{path.name} line {number}"
        try:
            cells = json.loads(line)
        except (RecursionError, ValueError):
            cells = None
        if not isinstance(cells, dict):
            raise BadInput(place, _cut(line.strip()), "write one JSON object a line")
        yield HistoryRow(place, cells)


def _listed_rows(path: Path, text: str) -> Iterator[HistoryRow]:
    remedy = "make it a list of JSON objects; one object a line goes into a file NAME.jsonl"
    try:
        listed = json.loads(text) if text.strip() else []
    except (RecursionError, ValueError) as exc:
        raise BadInput(path.name, str(exc), remedy) from exc
    if isinstance(listed, dict):
        lists = [value for value in listed.values() if isinstance(value, list)]
        listed = lists[0] if len(lists) == 1 else None
    if not isinstance(listed, list):
        raise BadInput(path.name, _cut(text.strip()), remedy)
    for number, cells in enumerate(listed, start=1):
        if not isinstance(cells, dict):
            raise BadInput(f"{path.name} entry {number}", _cut(json.dumps(cells)), remedy)
        yield HistoryRow(f"{path.name} entry {number}", cells)


def _cut(text: str) -> str:
    """Return the begin of a text, enough to find it by."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."

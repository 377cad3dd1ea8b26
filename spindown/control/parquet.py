"""The table of usage records as Parquet files, made and read by DuckDB."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from spindown.contract.codec import decode, encode_instant
from spindown.contract.usage import TYPE, WORKLOAD, UsageRecord
from spindown.contract.usage_table import COLUMNS, NESTED, TableRow, Value, type_of_row
from spindown.error import ContractError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Memory of DuckDB, which uses a file beyond it: the hourly function has 512 MiB, and other duties.
_MEMORY = "256MiB"
#: Rows that are held at once while a file is written.
_ROW_GROUP = 2_048


def open_fenced(folders: Iterable[Path], **settings: str | int) -> "DuckDBPyConnection":
    """Open a database in memory that reaches these folders and nothing else.

    No query can change its settings, nor read another file, nor load an extension (DuckDB,
    "Securing DuckDB"). Its clock is in UTC, as instants are stored; by itself DuckDB takes the
    time zone of the machine, and compares a stored instant with one of there.
    """
    # Heavy, and only one function of the control plane has it.
    from duckdb import connect  # noqa: PLC0415

    offline = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    allowed = sorted({str(folder) for folder in folders})
    # Queries reach that as well; without one it would be a folder of where the command was typed.
    spilled = {"temp_directory": allowed[0] if allowed else ""}
    database = connect(":memory:", config={**offline, **spilled, **settings})
    database.execute(f"SET allowed_directories = {quote_texts(allowed)}")
    database.execute("SET TimeZone = 'UTC'")
    # Once access is closed no folder can be allowed.
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return database


def quote_texts(texts: Iterable[str]) -> str:
    """Return texts as a list in SQL."""
    quoted = ("'" + text.replace("'", "''") + "'" for text in texts)
    return f"[{', '.join(quoted)}]"


def encode_table(rows: Sequence[TableRow]) -> bytes:
    """Return rows as a Parquet file; what a row does not name is null (raises ContractError)."""
    from duckdb import Error  # noqa: PLC0415 - as below

    with _open_database() as (database, folder):
        lines, table = folder / "rows.json", folder / "table.parquet"
        # One by one, since a day's text may be 64 MiB. A lone surrogate has no UTF-8.
        with lines.open("w", encoding="utf-8", errors="replace") as file:
            for row in rows:
                file.write(json.dumps(row, default=_to_text, ensure_ascii=False) + "\n")
        try:
            database.read_json(
                str(lines),
                columns={name: column.name for name, column in COLUMNS.items()},
                format="newline_delimited",
            ).write_parquet(str(table), compression="gzip", row_group_size=_ROW_GROUP)
        except Error as exc:
            # Rows too large for its memory: no other table is lost with this one.
            raise ContractError("usage", str(exc)[:100], "write less a record") from exc
        return table.read_bytes()


def decode_table(data: bytes, *, workload: str) -> tuple[UsageRecord, ...]:
    """Return the records of a file of the table, without what is nested (raises ContractError)."""
    return tuple(
        decode(
            UsageRecord,
            {
                **row,
                **_to_instants(row),
                WORKLOAD: workload,
                TYPE: type_of_row(str(row.get(TYPE) or ""), workload),
            },
        )
        for row in _read_rows(data)
    )


def _read_rows(data: bytes) -> Iterator[Mapping[str, Any]]:
    from duckdb import Error  # noqa: PLC0415 - as below

    with _open_database() as (database, folder):
        table = folder / "table.parquet"
        table.write_bytes(data)
        try:
            found = database.from_parquet(str(table))
            kept = [name for name in found.columns if name in COLUMNS.keys() - {*NESTED, "dollars"}]
            rows = found.select(*kept).fetchall()
        except Error as exc:
            raise ContractError("usage", data[:8], "write it by Spindown itself") from exc
    return (dict(zip(kept, row, strict=True)) for row in rows)


@contextmanager
def _open_database() -> "Iterator[tuple[DuckDBPyConnection, Path]]":
    """Give a database in memory, and a folder for the files that it reads and writes."""
    with TemporaryDirectory(prefix="spindown-usage-") as name:
        folder = Path(name)
        with open_fenced([folder], threads=1, memory_limit=_MEMORY) as made:
            yield made, folder


def _to_text(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat()


def _to_instants(row: Mapping[str, Value]) -> Mapping[str, str | None]:
    """Return a row's instants as the codec reads them."""
    found = {}
    for name in ("started_at", "routed_at"):
        at = row.get(name)
        found[name] = encode_instant(at.replace(tzinfo=UTC)) if isinstance(at, datetime) else None
    return found

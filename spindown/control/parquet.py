"""The table of usage records as Parquet files, made and read by DuckDB."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from spindown.contract.codec import decode, encode_instant
from spindown.contract.usage import WORKLOAD, UsageRecord
from spindown.contract.usage_table import COLUMNS, NESTED, TableRow, Value
from spindown.error import ContractError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: What a query asks for is in the package: nothing is loaded from elsewhere.
OFFLINE: Mapping[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


def encode_table(rows: Sequence[TableRow]) -> bytes:
    """Return rows as a Parquet file; what a row does not name is null."""
    with _open_database() as (database, folder):
        lines, table = folder / "rows.json", folder / "table.parquet"
        text = "\n".join(json.dumps(row, default=_to_text, ensure_ascii=False) for row in rows)
        # A lone surrogate has no UTF-8.
        lines.write_bytes(text.encode("utf-8", "replace"))
        database.read_json(
            str(lines),
            columns={name: column.name for name, column in COLUMNS.items()},
            format="newline_delimited",
        ).write_parquet(str(table), compression="gzip")
        return table.read_bytes()


def decode_table(data: bytes, *, workload: str) -> tuple[UsageRecord, ...]:
    """Return the records of a file of the table, without what is nested (raises ContractError)."""
    return tuple(
        decode(UsageRecord, {**row, **_to_instants(row), WORKLOAD: workload})
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
    # Heavy, and only one function of the control plane has it.
    from duckdb import connect  # noqa: PLC0415

    with (
        TemporaryDirectory(prefix="spindown-usage-") as folder,
        connect(":memory:", config=dict(OFFLINE)) as database,
    ):
        yield database, Path(folder)


def _to_text(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat()


def _to_instants(row: Mapping[str, Value]) -> Mapping[str, str | None]:
    """Return a row's instants as the codec reads them."""
    found = {}
    for name in ("started_at", "routed_at"):
        at = row.get(name)
        found[name] = encode_instant(at.replace(tzinfo=UTC)) if isinstance(at, datetime) else None
    return found

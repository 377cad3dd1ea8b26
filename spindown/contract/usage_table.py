"""The table of usage records: its columns, and a record as a row of it."""

import typing
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from types import UnionType
from typing import Union

from spindown.contract.codec import encode, to_json
from spindown.contract.usage import TYPE, WORKLOAD, UsageRecord


class Column(Enum):
    """What a column holds, as Athena, Hive and DuckDB call it."""

    STRING = str
    BIGINT = int
    DOUBLE = float
    #: In UTC, to the microsecond.
    TIMESTAMP = datetime


Value = str | int | float | datetime | None


def _column_of(hint: object) -> Column:
    if typing.get_origin(hint) in {Union, UnionType}:
        (hint,) = (kind for kind in typing.get_args(hint) if kind is not type(None))
    # What is not flat is kept as JSON.
    return next((column for column in Column if column.value is hint), Column.STRING)


#: The columns of the table, without the partitions that are in no file.
COLUMNS: Mapping[str, Column] = {
    **{
        name: _column_of(hint)
        for name, hint in typing.get_type_hints(UsageRecord).items()
        if name != WORKLOAD
    },
    "dollars": Column.DOUBLE,
}
#: A row: values by column.
TableRow = Mapping[str, Value]
#: Columns that are JSON.
NESTED = ("cores", "devices", "series")


def type_of_row(type_: str, workload: str) -> str:
    """Return the type of a job of which a row of the table says so; "": it has none."""
    return "" if type_ == workload else type_


def to_row(record: UsageRecord) -> TableRow:
    """Return a row of the table; a job without a type has that of its workload."""
    row: dict[str, Value] = {
        **encode(record),
        TYPE: record.type or record.workload,
        "started_at": record.started_at,
        "routed_at": record.routed_at,
        "dollars": record.dollars,
    }
    return {**row, **{name: to_json(row[name]) for name in NESTED}}

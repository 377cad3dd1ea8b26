"""A day of a workload, as the ledger keeps it: what workers did apart from what it cost."""

from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from spindown.contract.codec import encode
from spindown.contract.row import DoneRow, SpendRow, done_sort_key, spend_sort_key

_DONE = {each.name for each in fields(DoneRow)}


def day_rows(at: datetime, day: SpendRow | Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return sort key -> fields of the rows of a day."""
    values = encode(day) if isinstance(day, SpendRow) else dict(day)
    done = {name: value for name, value in values.items() if name in _DONE}
    spent = {name: value for name, value in values.items() if name not in _DONE}
    rows = {done_sort_key(at): done, spend_sort_key(at): spent}
    return {sort: row for sort, row in rows.items() if row}

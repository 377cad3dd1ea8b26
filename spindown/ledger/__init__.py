"""The ledger of one workload: read whole by one request, written row by row under conditions."""

from spindown.ledger.ledger import (
    FencingToken,
    Ledger,
    RowWrites,
    account_key,
    is_lock_damaged,
    month_key,
    read_worker,
)
from spindown.ledger.partition import decode_at
from spindown.ledger.view import AccountView, LedgerView

__all__ = [
    "AccountView",
    "FencingToken",
    "Ledger",
    "LedgerView",
    "RowWrites",
    "account_key",
    "decode_at",
    "is_lock_damaged",
    "month_key",
    "read_worker",
]

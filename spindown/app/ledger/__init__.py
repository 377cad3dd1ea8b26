"""The ledger of one workload: read whole in one query, written row by row under conditions."""

from spindown.app.ledger.ledger import FencingToken, Ledger, account_key, read_worker
from spindown.app.ledger.view import AccountView, LedgerView, as_charged

__all__ = [
    "AccountView",
    "FencingToken",
    "Ledger",
    "LedgerView",
    "account_key",
    "as_charged",
    "read_worker",
]

"""Whose state of MiniStack is meant: the local account's, in one region."""

from collections.abc import Iterator
from contextlib import contextmanager

from spindown.local.environment import ACCOUNT


@contextmanager
def in_region(region: str) -> Iterator[None]:
    """Let what is called within work on that region's state."""
    from ministack.core.responses import request_scope  # noqa: PLC0415 - after `load`

    with request_scope(ACCOUNT, region):
        yield

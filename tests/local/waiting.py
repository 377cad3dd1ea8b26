"""Waiting for what another thread or process is about to do, with a limit instead of a sleep."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from spindown.operate.status import Status

_Found = TypeVar("_Found")


def until(look: Callable[[], _Found], *, seconds: float = 20.0, every: float = 0.05) -> _Found:
    """Look again and again until something true is found; fail when it never comes."""
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds} s in vain"
        pause.wait(every)


def is_quiet(status: Status) -> bool:
    """Tell whether nothing waits, nothing runs and nothing bills."""
    has_workers = any(entry.is_present for entry in status.workers)
    return status.backlog.is_empty and not has_workers and not status.launching

"""The clock of the machine, and waiting by it."""

import time
from datetime import UTC, datetime, timedelta
from threading import Event


class SystemClock:
    """Clock that tells the real time."""

    def now(self) -> datetime:
        """Return the present instant."""
        return datetime.now(UTC)

    def elapsed(self) -> timedelta:
        """Return the time since the machine has started."""
        return timedelta(seconds=time.monotonic())


def pause(length: timedelta) -> None:
    """Wait for so long."""
    Event().wait(length.total_seconds())

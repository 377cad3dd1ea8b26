"""The clock of the machine."""

import time
from datetime import UTC, datetime, timedelta


class SystemClock:
    """Clock that tells the real time."""

    def now(self) -> datetime:
        """Return the present instant."""
        return datetime.now(UTC)

    def elapsed(self) -> timedelta:
        """Return the time since the machine has started."""
        return timedelta(seconds=time.monotonic())

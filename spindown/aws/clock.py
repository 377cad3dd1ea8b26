"""The clock of the machine."""

from datetime import UTC, datetime


class SystemClock:
    """Clock that tells the real time."""

    def now(self) -> datetime:
        """Return the present instant."""
        return datetime.now(UTC)

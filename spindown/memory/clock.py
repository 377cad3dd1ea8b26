"""A clock that stands still until it is moved by hand."""

from datetime import UTC, datetime, timedelta


class MemoryClock:
    """Tells the instant that it was last moved to; never goes back."""

    def __init__(self, at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = at

    def now(self) -> datetime:
        """Return the present instant."""
        return self._now

    def advance(self, by: timedelta) -> datetime:
        """Move on by a stretch of time and return the new instant."""
        return self.advance_to(self._now + by)

    def advance_to(self, at: datetime) -> datetime:
        """Move on to an instant and return it.

        Raises:
            ValueError: it lies in the past.
        """
        if at < self._now:
            raise ValueError(f"a clock does not go back from {self._now} to {at}")
        self._now = at
        return at

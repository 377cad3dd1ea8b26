"""How fast a guest may compute: a share of one core, measured in CPU time.

An instance type's speed is played by letting the guest's processes run until their share is used
up and stopping them until it has grown again.
"""


class Allowance:
    """The CPU time that a guest may still use, growing at its speed; never much is saved up.

    The guest's first CPU seconds are free: they start its programs, and the time of a boot was
    already spent by the market.
    """

    def __init__(self, speed: float, *, free_seconds: float, saved_seconds: float) -> None:
        """Grow by `speed` CPU seconds a second, save at most `saved_seconds`."""
        self._speed = speed
        self._free = free_seconds
        self._saved = saved_seconds
        self._balance = saved_seconds
        self._used = 0.0
        self._at: float | None = None

    def lets_run(self, used: float, now: float) -> bool:
        """Tell whether the guest may run, having used so much CPU time by now (both in seconds)."""
        spent = max(used - max(self._used, self._free), 0.0)
        elapsed = 0.0 if self._at is None else now - self._at
        self._balance = min(self._balance + elapsed * self._speed - spent, self._saved)
        self._used, self._at = max(used, self._used), now
        return self._balance > 0

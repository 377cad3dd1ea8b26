"""How long a worker that is to end takes for it, at the most."""

from datetime import timedelta

#: Beyond the time to leave, for slots whose last requests hang.
HANG_GRACE = timedelta(seconds=30)
#: The longest ``run.stop_grace``: a reclaim's notice of two minutes has no time for more.
STOP_GRACE_AT_MOST = timedelta(seconds=90)
#: To commit and give back what a program has left.
_PUT_BACK = timedelta(seconds=20)
#: From the last word of a worker to the end of its billing: it powers off, EC2 stops it. Also
#: EC2's minimum of a minute (EC2 pricing, per-second billing).
POWER_OFF = timedelta(minutes=1)


def hang_grace(stop_grace: timedelta) -> timedelta:
    """Return how long slots may take that must end at once: a program has its ``stop_grace``."""
    return max(HANG_GRACE, stop_grace + _PUT_BACK)

"""Jobs that are not done, and what a change of machines takes from them."""

from datetime import timedelta

from spindown.domain.schedule import TimeReserve, Unfinished
from tests.builders import NOW, minutes

HOUR = timedelta(hours=1)
#: A change takes 10 minutes; a loss every 10 hours.
RESERVE = TimeReserve(change=minutes(10), rate=0.1)


def a_job(slack: float, *, work: float = 10.0, **changes: object) -> Unfinished:
    """Return a job with so many minutes of slack, and hours of work."""
    took = timedelta(hours=work)
    base = {"job_id": "job-1", "due": NOW + took + minutes(slack), "work": took}
    return Unfinished(**{**base, **changes})  # type: ignore[arg-type]

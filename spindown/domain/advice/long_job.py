"""Jobs so long that waiting for spot may be worth it: what a deadline for them could save.

No history says by when a job must be done, nor when spot was not to be had, so that nothing here
is advised: the figures are, for a person who knows the first and fears the second.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

_HOUR = timedelta(hours=1)
#: A job is long from here on: shorter ones are done before a wait for spot is worth a word.
LONG = _HOUR
#: The deadline that is shown leaves a job its own time once more for waiting and for losses.
_ROOM = 2
#: The longest that `finish_within` may be.
_MOST = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongJobs:
    """The long jobs of a history."""

    #: A month.
    jobs: float
    #: Of work, a month.
    hours: float
    longest: timedelta
    #: A value of ``finish_within`` that leaves all of them time to wait.
    within: timedelta
    #: USD that an hour of them costs more on demand.
    more_an_hour: float

    @property
    def more_a_month(self) -> float:
        """Return USD a month that they would cost more, all of them on demand."""
        return self.more_an_hour * self.hours


def find_long_jobs(
    seconds: Sequence[float], *, months: float, spot: float, on_demand: float
) -> LongJobs | None:
    """Return the jobs of an hour and more; None: none, or none that a deadline could make cheaper.

    Worked: two jobs of 2 h and 5 h in half a month, at 0.20 and 0.50 USD an hour: 4 jobs and 14
    hours a month, 4.20 USD more on demand; a deadline of 10 h leaves the longer one 5 h to wait.

    Args:
        seconds: of each job, on the machine that does most of the work.
        months: length of the history.
        spot: USD an hour of that machine.
        on_demand: likewise.
    """
    long = [one for one in seconds if one >= LONG.total_seconds()]
    if not long or on_demand <= spot:
        return None
    longest = timedelta(seconds=max(long))
    within = math.ceil(_ROOM * longest / _HOUR) * _HOUR
    if within > _MOST:
        return None
    return LongJobs(
        jobs=len(long) / months,
        hours=math.fsum(long) / LONG.total_seconds() / months,
        longest=longest,
        within=within,
        more_an_hour=on_demand - spot,
    )

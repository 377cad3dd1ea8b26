"""What a schedule is made for: jobs, what machines cost, and by when each job must start."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from research.compare.integral.bill import Bill
from spindown.simulator import Arrival


@dataclass(slots=True)
class Problem:
    """A trace, or a part of one."""

    #: In order of arrival.
    jobs: Sequence[Arrival]
    #: Of each speed on sale.
    bills: Mapping[float, Bill]
    #: Seconds from a job's arrival to its start, at most.
    within: float
    commit: float
    boot: float
    random: Random

    def takes(self, job: int, speed: float) -> float:
        """Return the seconds that a job occupies a machine, its last commit and all."""
        return self.jobs[job].work_seconds / speed + self.commit

"""How many machines a fleet that never changes its size must have: known beforehand, kindly."""

import heapq
import math

from spindown.simulator.scenario import SimScenario

#: Of the jobs, so many must start in time, as in what is compared.
_SHARE = 0.95


def fewest_machines(
    scenario: SimScenario, *, throughput: float, start_within: float, most: int
) -> int:
    """Return the least number that starts 95 % of all jobs in time, were none ever taken away.

    Jobs are handed out oldest first, one to a machine. One machine more makes no job wait longer,
    so the number is found by halving.

    Args:
        scenario: the work.
        throughput: of a machine, the reference GPU's being 1.
        start_within: seconds from a job's arrival.
        most: returned if even that many are too few; at least 1.
    """
    low, high = 1, max(most, 1)
    while low < high:
        middle = (low + high) // 2
        if _wait(scenario, throughput, middle) <= start_within:
            high = middle
        else:
            low = middle + 1
    return low


def _wait(scenario: SimScenario, throughput: float, machines: int) -> float:
    """Return the 95th percentile of the waits for so many machines that are always up."""
    free = [0.0] * machines
    waits = []
    for job in sorted(scenario.arrivals, key=lambda each: each.at):
        begins = max(job.at, free[0])
        heapq.heapreplace(free, begins + job.work_seconds / throughput)
        waits.append(begins - job.at)
    waits.sort()
    return waits[math.ceil(_SHARE * len(waits)) - 1] if waits else 0.0

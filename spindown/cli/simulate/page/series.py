"""The queue and the fleet over time, summed up to as many points as a plot can show."""

from collections.abc import Sequence
from dataclasses import dataclass

from spindown.simulator import Arrival, Sample
from spindown.simulator.scenario import DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Bins:
    """Equal bins of a span; all tuples are one value a bin."""

    #: Begin of each bin, seconds since the start of the scenario, and the end of the last.
    edges: tuple[float, ...]
    #: Most jobs that waited.
    backlog: tuple[float, ...]
    #: Mean number of instances.
    busy: tuple[float, ...]
    idle: tuple[float, ...]
    booting: tuple[float, ...]


def bin_samples(
    samples: Sequence[Sample], *, begin: float, end: float, bins: int, over: float
) -> Bins:
    """Return samples in bins; what was seen holds until it was looked at again.

    Args:
        samples: in order of time.
        begin: seconds since the start.
        end: likewise, after ``begin``.
        bins: how many.
        over: when the simulation was, seconds since the start; from then on there is nothing.
    """
    width = (end - begin) / bins
    backlog = [0.0] * bins
    sums: dict[str, list[float]] = {name: [0.0] * bins for name in ("busy", "idle", "booting")}
    for number, sample in enumerate(samples):
        until = samples[number + 1].seconds if number + 1 < len(samples) else over
        since, until = max(sample.seconds, begin), min(until, end)
        if until <= since:
            continue
        first = int((since - begin) / width)
        last = min(int((until - begin) / width), bins - 1)
        for index in range(min(first, bins - 1), last + 1):
            left = begin + index * width
            share = (min(until, left + width) - max(since, left)) / width
            if share <= 0.0:
                continue
            backlog[index] = max(backlog[index], float(sample.visible))
            sums["busy"][index] += sample.busy * share
            sums["idle"][index] += sample.idle * share
            sums["booting"][index] += sample.booting * share
    return Bins(
        edges=tuple(begin + index * width for index in range(bins + 1)),
        backlog=tuple(backlog),
        busy=tuple(sums["busy"]),
        idle=tuple(sums["idle"]),
        booting=tuple(sums["booting"]),
    )


def busiest_day(arrivals: Sequence[Arrival], length: float) -> tuple[float, float]:
    """Return (begin, end) of the day, counted from the start, that brings most work."""
    if length <= DAY:
        return 0.0, length
    work: dict[int, float] = {}
    for arrival in arrivals:
        day = int(arrival.at // DAY)
        work[day] = work.get(day, 0.0) + arrival.work_seconds
    best = max(sorted(work), key=work.__getitem__, default=0)
    return best * DAY, (best + 1) * DAY

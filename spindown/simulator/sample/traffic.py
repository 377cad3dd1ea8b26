"""Traffic of our own making: office batches, and a stream that follows the hours of the day."""

import math
from random import Random

from spindown.simulator.scenario import DAY, Arrival

_HOUR = 3600.0
#: Of an office batch: jobs that come at once, and items of each.
_JOBS_A_BATCH = 4
_ITEMS_A_JOB = 25
#: Of the daily stream, 0: the same at all hours; 1: none at 2 o'clock, twice the mean at 14.
_SWING = 0.8
#: Of its jobs, minutes on the reference GPU; all lengths between are log-uniform.
_SHORTEST_MINUTES = 0.5
_LONGEST_MINUTES = 30.0
#: About the work of an item; a short job is one item.
_ITEM_SECONDS = 60.0
#: Of the bursts: mean number of jobs that come within minutes, and mean hours between two of an
#: active spell; share of gaps that are silences, and their mean hours; most hours of a job.
_JOBS_A_BURST = 5.0
_HOURS_BETWEEN = 1.4
_SILENCES = 0.004
_SILENT_HOURS = 300.0
_LONGEST_HOURS = 2.0


def office_batches(
    *,
    seed: int,
    days: int = 30,
    work_hours: float = 200.0,
    gap_minutes: float = 3.5,
) -> tuple[Arrival, ...]:
    """Return batches on workdays, about six busy hours a day, nothing in the night.

    A day has a morning of 9 to 12 and an afternoon of 13 to 16 o'clock, each a quarter of an hour
    early or late. Batches come ``gap_minutes`` apart in the median; their sizes differ by a
    lognormal factor, and are scaled so that the whole is ``work_hours`` on the reference GPU.
    The first day is a Monday.

    Args:
        seed: of all that is random.
        days: length.
        work_hours: all work, hours on one reference GPU.
        gap_minutes: median time between two batches.
    """
    random = Random(f"{seed}/office")
    times: list[float] = []
    for day in range(days):
        if day % 7 >= 5:  # noqa: PLR2004 - Saturday and Sunday
            continue
        for opens, closes in ((9, 12), (13, 16)):
            at = day * DAY + (opens + random.uniform(-0.25, 0.25)) * _HOUR
            end = day * DAY + (closes + random.uniform(-0.25, 0.25)) * _HOUR
            while at < end:
                times.append(at)
                at += gap_minutes * 60.0 * random.lognormvariate(0.0, 0.5)
    weights = [random.lognormvariate(0.0, 0.8) for _ in times]
    whole = math.fsum(weights)
    each = work_hours * _HOUR / (_JOBS_A_BATCH * _ITEMS_A_JOB)
    return tuple(
        Arrival(at=at, items=_ITEMS_A_JOB, item_seconds=each * weight / whole)
        for at, weight in zip(times, weights, strict=True)
        for _ in range(_JOBS_A_BATCH)
    )


def daily_stream(*, seed: int, days: float = 30, jobs_a_day: float = 4000.0) -> tuple[Arrival, ...]:
    """Return Poisson arrivals whose rate swings over the day, most at 14 o'clock.

    Args:
        seed: of all that is random.
        days: length.
        jobs_a_day: mean number of jobs.
    """
    random = Random(f"{seed}/daily")
    found: list[Arrival] = []
    most = jobs_a_day / DAY * (1.0 + _SWING)
    low, high = math.log(_SHORTEST_MINUTES * 60.0), math.log(_LONGEST_MINUTES * 60.0)
    at = 0.0
    while True:
        at += random.expovariate(most)
        if at >= days * DAY:
            return tuple(found)
        level = 1.0 + _SWING * math.cos((at / DAY - 14 / 24) * 2.0 * math.pi)
        if random.random() * (1.0 + _SWING) >= level:
            continue
        work = math.exp(random.uniform(low, high))
        items = max(1, round(work / _ITEM_SECONDS))
        found.append(Arrival(at=at, items=items, item_seconds=work / items))


def rare_bursts(*, seed: int, days: float = 14) -> tuple[Arrival, ...]:
    """Return bursts far apart, as single-GPU tasks of a large shared cluster come.

    Fitted to what is published of Alibaba's GPU cluster trace of 2023, tasks of one GPU and at
    most two hours: 77 % of all hours without an arrival, an index of dispersion of counts an
    hour of about 11, and a coefficient of variation of the times between arrivals of 18.9 (at
    random: 1). So large a variation comes of silences of days: of every 250 gaps between
    bursts one is such a silence, exponential; the others are lognormal, sizes geometric, work
    lognormal. Over 120 days, in the mean of many seeds: 75 %, 11 and 19.

    Args:
        seed: of all that is random.
        days: length.
    """
    random = Random(f"{seed}/bursts")
    found: list[Arrival] = []
    spread = 1.2
    middle = math.log(_HOURS_BETWEEN * _HOUR) - spread**2 / 2.0

    def gap() -> float:
        is_silence = random.random() < _SILENCES
        return (
            random.expovariate(1.0 / (_SILENT_HOURS * _HOUR))
            if is_silence
            else random.lognormvariate(middle, spread)
        )

    at = gap()
    while at < days * DAY:
        within = at
        while True:
            work = random.lognormvariate(math.log(600.0), 1.3)
            if work <= _LONGEST_HOURS * _HOUR and within < days * DAY:
                items = max(1, round(work / _ITEM_SECONDS))
                found.append(Arrival(at=within, items=items, item_seconds=work / items))
            if random.random() < 1.0 / _JOBS_A_BURST:
                break
            within += random.expovariate(1.0 / 20.0)
        at = within + gap()
    return tuple(sorted(found, key=lambda each: each.at))

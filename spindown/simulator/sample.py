"""Traffic and a market of our own making, so that a simulation needs no data of anybody's.

The market sells five GPU types, or six types without a GPU, at prices that wander. The names are
EC2's, so that hardware facts and quotas hold; prices, speeds of GPUs, capacities and reclaim rates
are invented, of the order that a user meets. Traffic is office batches, a stream that follows the
hours of the day, or rare bursts.
"""

import math
from dataclasses import dataclass
from random import Random

from spindown.domain.relative_throughput import relative_throughput
from spindown.simulator.hardware import find_type
from spindown.simulator.scenario import DAY, Arrival, Listing, Steps, Zone

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sold:
    #: USD per hour.
    on_demand: float
    #: Spot over on-demand, in the middle.
    ratio: float
    #: How often EC2 takes one away, per hour, in a calm zone.
    reclaims: float
    #: The T4 is 1; None: as the ranking takes it before anything is measured.
    speed: float | None = None


_GPU_TYPES = {
    "g4dn.xlarge": _Sold(on_demand=0.55, ratio=0.40, reclaims=0.02, speed=1.0),
    "g6.xlarge": _Sold(on_demand=0.80, ratio=0.50, reclaims=0.03, speed=1.5),
    "g5.xlarge": _Sold(on_demand=1.00, ratio=0.55, reclaims=0.05, speed=2.4),
    "g6e.xlarge": _Sold(on_demand=1.85, ratio=0.60, reclaims=0.08, speed=4.5),
    "p3.2xlarge": _Sold(on_demand=3.05, ratio=0.35, reclaims=0.15, speed=3.0),
}
#: Sold where work needs no GPU.
_CPU_TYPES = {
    "c7i.large": _Sold(on_demand=0.09, ratio=0.45, reclaims=0.05),
    "c7g.xlarge": _Sold(on_demand=0.145, ratio=0.45, reclaims=0.03),
    "c7a.2xlarge": _Sold(on_demand=0.41, ratio=0.40, reclaims=0.05),
    "m7i.2xlarge": _Sold(on_demand=0.40, ratio=0.42, reclaims=0.04),
    "m6a.4xlarge": _Sold(on_demand=0.69, ratio=0.38, reclaims=0.03),
    "r7i.4xlarge": _Sold(on_demand=1.06, ratio=0.35, reclaims=0.08),
}
_SOLD = {**_GPU_TYPES, **_CPU_TYPES}
_TYPES = {name: kind for name in _SOLD if (kind := find_type(name)) is not None}
#: Names of what is sold where work needs no GPU.
CPU_TYPES = tuple(_CPU_TYPES)
#: Prices beside those of ``_SOLD``, where a region has its own.
_LEVELS = {"us-west-2": 1.0, "us-east-1": 1.12}
_USUAL_LEVEL = 1.06
_ZONES = "abc"
#: A price moves this often, by a lognormal factor with this deviation, pulled to its middle.
_EVERY = DAY / 4
_WANDER = 0.06
_PULL = 0.1


def sample_market(
    *,
    seed: int,
    days: float = 30,
    reclaims: float = 1.0,
    regions: tuple[str, ...] = ("us-west-2",),
    instance_types: tuple[str, ...] = tuple(_GPU_TYPES),
) -> tuple[Listing, ...]:
    """Return the market over a number of days.

    Args:
        seed: of the prices' wandering.
        days: how long prices move.
        reclaims: factor of all reclaim rates; 0: none.
        regions: any; the first is home.
        instance_types: those that are sold.
    """
    random = Random(f"{seed}/prices")
    return tuple(
        _listing(name, region, random, days, reclaims)
        for region in regions
        for name in instance_types
    )


def _listing(name: str, region: str, random: Random, days: float, reclaims: float) -> Listing:
    sold, instance_type = _SOLD[name], _TYPES[name]
    on_demand = round(sold.on_demand * _LEVELS.get(region, _USUAL_LEVEL), 4)
    return Listing(
        instance_type=instance_type,
        region=region,
        on_demand=on_demand,
        speed=sold.speed or relative_throughput(*instance_type.processor),
        zones={
            f"{region}{letter}": Zone(
                spot=_wander(on_demand, sold.ratio, random, days),
                reclaims_per_hour=sold.reclaims * reclaims * random.choice((1.0, 1.0, 3.0)),
            )
            for letter in _ZONES
        },
    )


def _wander(on_demand: float, ratio: float, random: Random, days: float) -> Steps:
    """Return a price that walks about its middle, never above on demand."""
    middle = math.log(ratio * random.uniform(0.9, 1.1))
    level, steps = middle, []
    for number in range(max(1, math.ceil(days * DAY / _EVERY))):
        steps.append((number * _EVERY, round(on_demand * min(math.exp(level), 1.0), 4)))
        level += random.gauss(0.0, _WANDER) + _PULL * (middle - level)
    return tuple(steps)


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
    """Return Poisson arrivals whose rate swings over the day, most at 14 o'clock."""
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

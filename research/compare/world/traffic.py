"""The scenarios S1 to S5 and S9: work that arrives on a market where nothing goes wrong."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from research.compare import source
from research.compare.source import Part
from spindown.simulator import Arrival, SimScenario
from spindown.simulator.sample import daily_stream, office_batches, rare_bursts, sample_market
from spindown.simulator.scenario import DAY

_REGIONS = ("us-west-2", "us-east-1")


def sold(
    name: str, arrivals: tuple[Arrival, ...], seed: int, *, days: float = 0.0, **changes: object
) -> SimScenario:
    days = days or math.ceil((arrivals[-1].at + 1.0) / DAY)
    plain = SimScenario(
        name=name,
        arrivals=arrivals,
        listings=sample_market(seed=seed, days=days + 4, regions=_REGIONS),
        length=days * DAY,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def office(seed: int, _data: Path, _part: Part) -> SimScenario:
    return sold("S1", office_batches(seed=seed, days=30, work_hours=200), seed, days=30)


def images(load: float, days: float) -> Callable[[int, Path, Part], SimScenario]:
    def build(seed: int, data: Path, part: Part) -> SimScenario:
        whole = source.cut(source.image_requests(data), part)
        arrivals = source.loaded(whole, load, seed=seed)
        return sold("S2", tuple(x for x in arrivals if x.at < days * DAY), seed)

    return build


def training(cluster: str, days: float) -> Callable[[int, Path, Part], SimScenario]:
    def build(seed: int, data: Path, part: Part) -> SimScenario:
        arrivals = source.cut(source.training_jobs(data, cluster), part)
        return sold("S3", tuple(x for x in arrivals if x.at < days * DAY), seed)

    return build


def bursts(seed: int, _data: Path, _part: Part) -> SimScenario:
    return sold("S4", rare_bursts(seed=seed, days=30), seed, days=30)


def stream(seed: int, _data: Path, _part: Part) -> SimScenario:
    return sold("S5", daily_stream(seed=seed, days=2), seed, days=2)


#: A price of a day holds for this share of one, so that four months pass in three days.
_SHRUNK = 1.0 / 40.0


def shock(seed: int, data: Path, _part: Part) -> SimScenario:
    first = source.last_price_day(data) - 119
    market = source.spot_market(data, first_day=first, days=120)
    listings = tuple(
        replace(
            listing,
            zones={
                name: replace(zone, spot=tuple((at * _SHRUNK, p) for at, p in zone.spot))
                for name, zone in listing.zones.items()
            },
        )
        for listing in market
    )
    arrivals = daily_stream(seed=seed, days=3, jobs_a_day=600)
    return sold("S9", arrivals, seed, listings=listings)

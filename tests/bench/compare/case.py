"""The scenarios S1 to S11: what arrives, what is sold, and what goes wrong."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from spindown.domain.policy import Policy
from spindown.simulator import Arrival, Listing, SimScenario, Zone
from spindown.simulator.sample import daily_stream, office_batches, rare_bursts, sample_market
from spindown.simulator.scenario import DAY
from tests.bench.compare import source
from tests.bench.compare.source import Part

_HOUR = 3600.0
_REGIONS = ("us-west-2", "us-east-1")
#: Nothing is launched before it must be: no number of messages makes a launch due at once.
_NEVER_AT_ONCE = 1_000_000
#: Of every fleet: more than any of the scenarios needs at once.
MAX_WORKERS = 200


def patient_policy(minutes: float) -> Policy:
    """Return the one policy that all scenarios are run with: the promise, and room to keep it."""
    return Policy(
        start_within=timedelta(minutes=minutes),
        scale_up_threshold=_NEVER_AT_ONCE,
        max_workers=MAX_WORKERS,
        max_price_per_hour=5.0,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table."""

    name: str
    title: str
    #: From a seed, the data's directory and a part of it.
    build: Callable[[int, Path, Part], SimScenario]
    #: Whether it is among S1 to S5, over which the mean ratio is taken.
    is_main: bool = False
    needs_data: bool = True


def _sold(
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


def _office(seed: int, _data: Path, _part: Part) -> SimScenario:
    return _sold("S1", office_batches(seed=seed, days=7, work_hours=200 * 7 / 30), seed, days=7)


def _images(load: float, days: float) -> Callable[[int, Path, Part], SimScenario]:
    def build(seed: int, data: Path, part: Part) -> SimScenario:
        whole = source.cut(source.image_requests(data), part)
        arrivals = source.loaded(whole, load, seed=seed)
        return _sold("S2", tuple(x for x in arrivals if x.at < days * DAY), seed)

    return build


def _training(cluster: str, days: float) -> Callable[[int, Path, Part], SimScenario]:
    def build(seed: int, data: Path, part: Part) -> SimScenario:
        arrivals = source.cut(source.training_jobs(data, cluster), part)
        return _sold("S3", tuple(x for x in arrivals if x.at < days * DAY), seed)

    return build


def _bursts(seed: int, _data: Path, _part: Part) -> SimScenario:
    return _sold("S4", rare_bursts(seed=seed, days=10), seed, days=10)


def _stream(seed: int, _data: Path, _part: Part) -> SimScenario:
    return _sold("S5", daily_stream(seed=seed, days=1), seed, days=1)


def _v100(zones: Mapping[str, Zone]) -> Listing:
    (known,) = sample_market(seed=1, days=1, regions=("us-east-1",), instance_types=("p3.2xlarge",))
    return replace(known, zones=zones)


def _crowd(seed: int, data: Path, _part: Part) -> SimScenario:
    capacity = source.spot_capacity(data, kind="availability", zone="us-west-2a", most=16)
    zone = Zone(spot=((0.0, 0.95),), capacity=capacity)
    arrivals = tuple(Arrival(at=0.0, items=10, item_seconds=30.0) for _ in range(1000))
    listings = (replace(_v100({"us-west-2a": zone}), region="us-west-2"),)
    return _sold("S6", arrivals, seed, listings=listings)


def _starved(seed: int, data: Path, part: Part) -> SimScenario:
    plain = _images(1.0, 2.0)(seed, data, part)
    zones = {
        zone: Zone(
            spot=((0.0, 0.95),), capacity=source.spot_capacity(data, kind="availability", zone=zone)
        )
        for zone in ("us-east-1a", "us-east-1c", "us-east-1d", "us-east-1f")
    }
    return replace(plain, name="S7", listings=(_v100(zones),))


def _hot(seed: int, data: Path, part: Part) -> SimScenario:
    plain = _training("6c71a0", 1.5)(seed, data, part)
    listings = tuple(
        replace(
            listing,
            zones={
                name: replace(zone, reclaims_per_hour=1.0 / 1.5)
                for name, zone in listing.zones.items()
            },
        )
        for listing in plain.listings
    )
    return replace(plain, name="S8", listings=listings, notice_missing=0.2)


#: A price of a day holds for this share of one, so that four months pass in three days.
_SHRUNK = 1.0 / 40.0


def _shock(seed: int, data: Path, _part: Part) -> SimScenario:
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
    return _sold("S9", arrivals, seed, listings=listings)


def _faults(seed: int, data: Path, part: Part) -> SimScenario:
    plain = _images(1.0, 2.0)(seed, data, part)
    arrivals = tuple(sorted((*plain.arrivals, *plain.arrivals[::20]), key=lambda x: x.at))
    down = ((12 * _HOUR, 18 * _HOUR),)
    return replace(plain, name="S11", arrivals=arrivals, control_down=down, notice_missing=1.0)


CASES: Mapping[str, Case] = {
    case.name: case
    for case in (
        Case(
            name="S1",
            title="office batches, 200 GPU-hours a month, a week of it",
            build=_office,
            is_main=True,
            needs_data=False,
        ),
        Case(
            name="S2 x0.6",
            title="image requests (GenTD26), thinned to 0.6",
            build=_images(0.6, 2.0),
            is_main=True,
        ),
        Case(
            name="S2",
            title="image requests (GenTD26) as they came",
            build=_images(1.0, 2.0),
            is_main=True,
        ),
        Case(
            name="S2 x10",
            title="image requests (GenTD26), ten layers",
            build=_images(10.0, 0.4),
            is_main=True,
        ),
        Case(
            name="S3 103959",
            title="training jobs (Philly), a thin queue",
            build=_training("103959", 10.5),
            is_main=True,
        ),
        Case(
            name="S3 6c71a0",
            title="training jobs (Philly), a busy queue",
            build=_training("6c71a0", 1.0),
            is_main=True,
        ),
        Case(
            name="S4",
            title="rare bursts, fitted to Alibaba 2023",
            build=_bursts,
            is_main=True,
            needs_data=False,
        ),
        Case(
            name="S5",
            title="4,000 jobs a day",
            build=_stream,
            is_main=True,
            needs_data=False,
        ),
        Case(name="S6", title="1,000 jobs at once, 0 to 16 machines", build=_crowd),
        Case(name="S7", title="image requests, V100 as scarce as seen", build=_starved),
        Case(name="S8", title="busy queue, reclaimed every 1.5 h", build=_hot),
        Case(name="S9", title="600 jobs a day, real prices of 4 months", build=_shock),
        Case(
            name="S11",
            title="image requests, control plane dead for 6 h, no notices",
            build=_faults,
        ),
    )
}

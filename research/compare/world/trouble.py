"""The scenarios S6 to S8, S10 and S11: a market that runs dry, takes away, or fails to tell."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from research.compare import source
from research.compare.source import Part
from research.compare.world.traffic import images, sold, training
from spindown.simulator import Alarm, Arrival, Faults, Listing, SimDelays, SimScenario, Zone
from spindown.simulator.sample import sample_market
from spindown.simulator.scenario import DAY

_HOUR = 3600.0


def _v100(zones: Mapping[str, Zone]) -> Listing:
    (known,) = sample_market(seed=1, days=1, regions=("us-east-1",), instance_types=("p3.2xlarge",))
    return replace(known, zones=zones)


#: What a V100 costs as spot where only its availability is known: about 0.31 of on demand.
_V100_SPOT = 0.95


def crowd(seed: int, data: Path, part: Part) -> SimScenario:
    probe = {"zone": "us-west-2a", "most": 16}
    first = source.first_second(data, part, seed, length=DAY, **probe)  # type: ignore[arg-type]
    capacity = source.spot_capacity(data, kind="availability", first=first, **probe)  # type: ignore[arg-type]
    zone = Zone(spot=((0.0, _V100_SPOT),), capacity=capacity)
    arrivals = tuple(Arrival(at=_HOUR, items=10, item_seconds=30.0) for _ in range(1000))
    listings = (replace(_v100({"us-west-2a": zone}), region="us-west-2"),)
    return sold("S6", arrivals, seed, listings=listings)


_STARVED_ZONES = ("us-east-1a", "us-east-1c", "us-east-1d", "us-east-1f")


def _scarce(data: Path, zones: Sequence[str], first: float) -> dict[str, Zone]:
    return {
        zone: Zone(
            spot=((0.0, _V100_SPOT),),
            capacity=source.spot_capacity(data, kind="availability", zone=zone, first=first),
        )
        for zone in zones
    }


def starved(seed: int, data: Path, part: Part) -> SimScenario:
    plain = images(1.0, 4.0)(seed, data, part)
    first = source.first_second(data, part, seed, zone=_STARVED_ZONES[0], length=plain.length)
    zones = _scarce(data, _STARVED_ZONES, first)
    return replace(plain, name="S7", listings=(_v100(zones),))


#: The zones whose availability was watched at the same time, by region.
NINE_ZONES = {
    "us-east-1": _STARVED_ZONES,
    "us-east-2": ("us-east-2a", "us-east-2b"),
    "us-west-2": ("us-west-2a", "us-west-2b", "us-west-2c"),
}
#: Work of the job with the deadline, in hours of a V100, and how many items it is.
LONG_JOB_HOURS = 48.0
_LONG_JOB_ITEMS = 960


def long_job(hours: float, regions: Iterable[str]) -> Callable[[int, Path, Part], SimScenario]:
    """Return what builds one job of 48 h with a deadline, at each region's own prices."""

    def build(seed: int, data: Path, part: Part) -> SimScenario:
        first = source.first_second(data, part, seed, zone="us-east-1a", length=hours * _HOUR)
        listings = []
        for region in regions:
            on_demand, spot = source.v100_price(data, region)
            zones = {
                name: replace(zone, spot=((0.0, spot),))
                for name, zone in _scarce(data, NINE_ZONES[region], first).items()
            }
            listings.append(replace(_v100(zones), region=region, on_demand=on_demand))
        seconds = LONG_JOB_HOURS * _HOUR * listings[0].speed
        job = Arrival(at=30.0, items=_LONG_JOB_ITEMS, item_seconds=seconds / _LONG_JOB_ITEMS)
        changes = {"listings": tuple(listings), "days": hours / 24.0}
        return sold(f"S10 {hours:.0f} h", (job,), seed, **changes)  # type: ignore[arg-type]

    return build


#: Hours that an instance lives in the mean, by zone at random, and the share that ends unsaid.
_LIVES = (0.7, 2.3)
_UNSAID = 0.2


def hot(seed: int, data: Path, part: Part) -> SimScenario:
    plain = training("6c71a0", 1.5)(seed, data, part)
    random = Random(f"{seed}/lives")
    hot_market = _reclaimed(plain, lambda: 1.0 / random.uniform(*_LIVES))
    return replace(hot_market, name="S8", notice_missing=_UNSAID)


def noticed(plain: SimScenario) -> SimScenario:
    """Return it with instances that live as long as the longest of S8, and every end announced."""
    return replace(_reclaimed(plain, lambda: 1.0 / _LIVES[1]), notice_missing=0.0)


def _reclaimed(plain: SimScenario, per_hour: Callable[[], float]) -> SimScenario:
    """Return it with a rate of reclaims of each zone's own."""
    listings = tuple(
        replace(
            listing,
            zones={
                name: replace(zone, reclaims_per_hour=per_hour())
                for name, zone in listing.zones.items()
            },
        )
        for listing in plain.listings
    )
    return replace(plain, listings=listings)


#: While the functions are dead, or the schedule is: a fifth of all jobs arrive in these hours.
_BUSY = (24 * _HOUR, 30 * _HOUR)
#: Of every zone, an hour: enough that lost events and notices matter.
_S11_RECLAIMS = 0.5
#: EC2 describes an instance, and tells of its end, so late; a reclaim half the time unsaid.
_SLOW = SimDelays(described=60.0, ending=120.0, event=30.0)


def faults(seed: int, data: Path, part: Part) -> SimScenario:
    """Build image requests while everything fails at once but the data."""
    plain = _reclaimed(images(1.0, 4.0)(seed, data, part), lambda: _S11_RECLAIMS)
    return replace(
        plain,
        name="S11",
        control_down=(_BUSY,),
        notice_missing=0.5,
        delays=_SLOW,
        faults=Faults(
            alarm=Alarm(is_stuck=True), events_lost=0.5, doubled=0.05, doubled_within=900.0
        ),
    )


def no_ticks(seed: int, data: Path, part: Part) -> SimScenario:
    """Build image requests whose schedule dies: the late alarm and spare ticks are left."""
    plain = images(1.0, 4.0)(seed, data, part)
    return replace(plain, name="S11 alarm", faults=Faults(alarm=Alarm(), ticks_lost=(_BUSY,)))

"""Scenarios small enough to work out by hand."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from spindown.domain.policy import Policy
from spindown.simulator import Arrival, Boot, Listing, SimDelays, SimScenario, Zone
from tests.builders import AT_ONCE, a_type

REGION = "us-west-2"
HOUR = 3600.0
DAY = 24 * HOUR

#: A boot is always 90 s.
STEADY_BOOT = Boot(at_least=30.0, median=60.0, sigma=0.0)


def a_listing(name: str = "g4dn.xlarge", **changes: Any) -> Listing:
    """Return a type in one zone at 0.20 USD/h as spot, 0.50 on demand, never reclaimed."""
    base = Listing(
        instance_type=a_type(name),
        region=REGION,
        on_demand=0.50,
        speed=1.0,
        zones={f"{REGION}a": a_zone()},
    )
    return replace(base, **changes)


def a_zone(**changes: Any) -> Zone:
    return replace(Zone(spot=((0.0, 0.20),)), **changes)


def a_scenario(*arrivals: Arrival, **changes: Any) -> SimScenario:
    base = SimScenario(
        name="small",
        arrivals=arrivals or (an_arrival(),),
        listings=(a_listing(),),
        length=DAY,
        boot=STEADY_BOOT,
        delays=SimDelays(),
    )
    return replace(base, **changes)


def an_arrival(at: float = 30.0, *, items: int = 60, item_seconds: float = 10.0) -> Arrival:
    return Arrival(at=at, items=items, item_seconds=item_seconds)


def a_policy(**changes: Any) -> Policy:
    """Return a policy that launches at once and ends a worker after two idle minutes."""
    return replace(AT_ONCE, **{"idle_timeout": timedelta(minutes=2), "ladder": (), **changes})

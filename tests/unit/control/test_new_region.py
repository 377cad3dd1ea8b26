"""Outposts that are newer than the catalogue: read beside it, as many at once as time allows."""

from datetime import timedelta
from typing import Any

import pytest

from spindown.control.market import current_catalogue, load_catalogue, refresh
from spindown.error import AccessDenied, Unreachable
from spindown.memory import PortCall
from tests.builders import a_type
from tests.control import REGION, ControlWorld

#: What reading the types, zones and prices of one region takes a function.
READING = timedelta(seconds=40)
NEW = ("eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3")


@pytest.fixture
def world() -> ControlWorld:
    """Return a world whose catalogue knows the home region alone."""
    world = ControlWorld()
    refresh(world.ports)
    for region in NEW:
        world.market.offer(
            a_type("g6e.xlarge"), region=region, zones=[f"{region}a"], on_demand=1.8, spot=0.9
        )
    return world


def known_regions(world: ControlWorld) -> list[str]:
    catalogue = current_catalogue(world.ports, world.now, regions=[REGION, *NEW])
    assert REGION in catalogue.offerings
    assert "g5.xlarge" in catalogue.instance_types
    return [region for region in NEW if region in catalogue.offerings]


def test_home_is_not_read_again_for_them(world: ControlWorld) -> None:
    before = world.calls["market.instance_types"]

    catalogue = current_catalogue(world.ports, world.now, regions=[REGION, *NEW])

    assert world.calls["market.instance_types"] - before == len(NEW)
    assert catalogue.offerings["eu-west-2"] == {"eu-west-2a": frozenset({"g6e.xlarge"})}
    assert catalogue.on_demand["eu-west-2"] == {"g6e.xlarge": 1.8}
    assert catalogue.transfer_price.keys() >= {REGION, "eu-west-2"}
    # The hourly refresh writes them down.
    assert load_catalogue(world.objects) != catalogue


def test_what_takes_too_long_for_one_tick_goes_to_the_next(world: ControlWorld) -> None:
    def be_slow(call: PortCall, proceed: Any) -> Any:
        if call.method == "instance_types":
            world.clock.advance(READING)
        return proceed()

    world.interfere = be_slow
    seen = []
    for _ in NEW:
        begun = world.now
        seen.append(known_regions(world))
        assert world.now - begun <= READING
        world.clock.advance(timedelta(seconds=20))

    assert seen == [list(NEW[: number + 1]) for number in range(len(NEW))]


@pytest.mark.parametrize("error", [AccessDenied("opt in first"), Unreachable("no answer")])
def test_an_unreadable_region_sells_nothing_and_blocks_nobody(
    world: ControlWorld, error: Exception
) -> None:
    def refuse(call: PortCall, proceed: Any) -> Any:
        if call.port == "market" and call.kwargs.get("region") == NEW[0]:
            raise error
        return proceed()

    world.interfere = refuse
    assert known_regions(world) == list(NEW)
    before = world.calls.total()

    catalogue = current_catalogue(world.ports, world.now, regions=[REGION, *NEW])

    # Nor is it asked for again at once.
    assert world.calls.total() == before
    assert catalogue.offerings[NEW[0]] == {}
    assert catalogue.offerings[NEW[1]]

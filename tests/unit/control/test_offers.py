"""The catalogue: read whole, kept part by part, remembered for a while."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.decision import Outcome
from spindown.control.market import (
    CATALOGUE_KEY,
    PricedOffers,
    current_catalogue,
    load_catalogue,
    price_offers,
    read_prices,
    refresh,
)
from spindown.control.tick import observe
from spindown.domain.offer import CapacityType, InstanceRequirements
from spindown.error import AccessDenied, NotFound, Throttled, Unreachable
from spindown.memory import MemoryAdvisor, PortCall, intercept
from spindown.port import DEPLOYMENT
from tests.builders import a_cpu_type, a_type, minutes
from tests.control import AWAY, PRICES, REGION, WORKLOAD, ZONES, ControlWorld, every_spot_pool
from tests.failure import failing
from tests.reading import only_reading

NO_ANSWER = Unreachable("no answer")


def test_a_refresh_writes_types_zones_and_prices() -> None:
    world = ControlWorld()

    refreshed = refresh(world.ports)

    stored = load_catalogue(world.objects)
    assert stored == refreshed.catalogue
    assert set(stored.instance_types) == {"g4dn.xlarge", "g5.xlarge", "g6.xlarge"}
    assert stored.offerings[REGION][ZONES[0]] == frozenset(stored.instance_types)
    assert stored.on_demand[REGION]["g5.xlarge"] == 1.006
    assert refreshed.failures == {}


def test_the_catalogue_is_compact() -> None:
    world = _advised()
    plain = a_type("m7i.large", gpu_name="", gpu_manufacturer="", gpu_count=0.0)
    for n in range(50):
        kind = replace(plain, name=f"m{n}.large")
        world.market.offer(kind, region=REGION, zones=ZONES, on_demand=0.1, spot=0.05)

    catalogue = refresh(world.ports).catalogue

    assert set(catalogue.on_demand[REGION]) == set(PRICES)
    assert catalogue.offerings[REGION][ZONES[0]] == frozenset(PRICES)
    # Three types in two zones with prices and all else that is known of them.
    assert len(world.objects.get(CATALOGUE_KEY).data) < 2_000


def test_types_without_gpus_are_read_once_they_are_wanted() -> None:
    world = ControlWorld()
    world.market.offer(a_cpu_type(), region=REGION, zones=ZONES, on_demand=0.36, spot=0.14)
    now = world.clock.now()
    refresh(world.ports)
    gpus = read_prices(world.workload_settings(), world.ports, now, spot_in=[REGION])
    assert set(gpus.catalogue.instance_types) == set(PRICES)

    world.requirements = InstanceRequirements(gpu_count_min=0.0, gpu_count_max=0.0)
    settings = world.workload_settings()
    world.settings.deploy(settings)
    prices = read_prices(settings, world.ports, now, spot_in=[REGION])
    again = read_prices(settings, world.ports, now, spot_in=[REGION])

    assert set(prices.catalogue.instance_types) == {"c7i.2xlarge"}
    assert {seen.instance_type for seen in prices.spot} == {"c7i.2xlarge"}
    # What the workload needs of it is kept with the catalogue.
    assert again.catalogue is prices.catalogue
    whole = current_catalogue(world.ports, now)
    assert set(whole.instance_types) == {"c7i.2xlarge"}


def test_a_region_without_cpu_types_is_not_read_at_each_tick() -> None:
    world = ControlWorld(requirements=InstanceRequirements(gpu_count_min=0.0, gpu_count_max=0.0))
    settings, now = world.workload_settings(), world.clock.now()

    found = [
        read_prices(settings, world.ports, now + n * minutes(1), spot_in=[REGION]) for n in range(4)
    ]

    assert [dict(each.catalogue.instance_types) for each in found] == [{}] * 4
    assert world.calls["market.instance_types"] <= 2


@pytest.mark.parametrize("source", ["instance_types", "offerings", "on_demand_prices"])
def test_a_failing_source_keeps_its_last_good_part_and_its_age(source: str) -> None:
    world = ControlWorld()
    first = refresh(world.ports).catalogue
    taken_at = first.taken_at
    world.market.offer(a_type("g6e.xlarge"), region=REGION, zones=ZONES, on_demand=1.861, spot=0.9)

    world.interfere = failing(NO_ANSWER, source)
    for _ in range(2):
        world.clock.advance(minutes(60))
        refreshed = refresh(world.ports)

    name = f"{REGION}/{source.removesuffix('_prices')}"
    catalogue = refreshed.catalogue
    assert list(refreshed.failures) == [name]
    assert catalogue.stale_since == {name: taken_at}
    is_known = {
        "instance_types": "g6e.xlarge" in catalogue.instance_types,
        "offerings": "g6e.xlarge" in catalogue.offerings[REGION][ZONES[0]],
        "on_demand_prices": "g6e.xlarge" in catalogue.on_demand[REGION],
    }
    assert [part for part, known in is_known.items() if not known] == [source]
    assert _source_ages(world)[name] == timedelta(hours=2).total_seconds()


@pytest.mark.parametrize("source", ["offerings", "on_demand_prices"])
def test_a_part_never_read_is_read_before_the_next_refresh(source: str) -> None:
    world = ControlWorld()
    world.interfere = failing(NO_ANSWER, source)
    refresh(world.ports)
    world.interfere = None
    world.send()

    world.tick(minutes(10))

    assert len(world.workers()) == 1


def test_a_source_that_recovers_is_fresh_again() -> None:
    world = ControlWorld()
    refresh(world.ports)
    world.interfere = failing(NO_ANSWER, "offerings")
    refresh(world.ports)
    world.interfere = None

    assert refresh(world.ports).catalogue.stale_since == {}


def test_an_empty_answer_does_not_empty_the_catalogue() -> None:
    world = ControlWorld()
    refresh(world.ports)

    def empty(call: PortCall, proceed: Callable[[], Any]) -> Any:
        return [] if call.method == "instance_types" else proceed()

    world.interfere = empty
    refreshed = refresh(world.ports)

    assert len(refreshed.catalogue.instance_types) == 3
    assert list(refreshed.failures) == [f"{REGION}/instance_types"]


def test_a_first_refresh_without_data_is_an_error() -> None:
    world = ControlWorld()
    world.interfere = failing(NO_ANSWER, "instance_types", "offerings", "on_demand_prices")

    with pytest.raises(Unreachable):
        refresh(world.ports)

    assert list(world.objects.list("offers/")) == []


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"schema": 2}', b'{"schema": 1}', b"\xff"], ids=repr
)
def test_a_catalogue_of_another_version_or_none_is_read_anew(data: bytes) -> None:
    world = ControlWorld()
    world.objects.put(CATALOGUE_KEY, data)
    world.send()

    world.tick()

    stored = load_catalogue(world.objects)
    assert stored is not None
    assert len(stored.instance_types) == 3


def test_only_the_executor_stores_the_first_catalogue() -> None:
    world = ControlWorld()
    world.send()

    seen, _ = observe(WORKLOAD, only_reading(world.ports), now=world.now, source="test")
    assert load_catalogue(world.objects) is None

    decisions = [world.tick(), world.tick()]

    assert seen.prices is not None
    assert load_catalogue(world.objects) == seen.prices.catalogue
    assert [each.outcome for each in decisions] == [Outcome.LAUNCHED, Outcome.ENOUGH]
    assert len(world.metrics.values("CatalogueTypes")) == 1


def test_a_launch_needs_no_stored_catalogue() -> None:
    world = ControlWorld()
    world.send()
    world.interfere = failing(Unreachable("no answer"), "put", times=1)

    assert world.tick().outcome is Outcome.LAUNCHED
    assert load_catalogue(world.objects) is None


def test_catalogue_and_spot_prices_are_cached_for_minutes() -> None:
    world = ControlWorld()
    world.send(1)
    for pool in every_spot_pool():
        world.dry(pool, replace(pool, capacity_type=CapacityType.ON_DEMAND))
    for _ in range(10):
        world.tick(minutes(1))

    assert 2 <= world.calls["market.spot_prices"] <= 3
    assert world.calls["market.instance_types"] == 1
    assert world.calls["objects.get"] <= 2


def test_asks_for_spot_prices_of_fitting_types_alone() -> None:
    world = ControlWorld()
    world.market.offer(
        a_type("p3.2xlarge", gpu_manufacturer="AMD"),
        region=REGION,
        zones=ZONES,
        on_demand=3.0,
        spot=1.0,
    )
    asked: list[Any] = []

    def record(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "spot_prices":
            asked.append(call.kwargs["instance_types"])
        return proceed()

    world.interfere = record
    world.send()
    world.tick()

    assert asked == [["g4dn.xlarge", "g5.xlarge", "g6.xlarge"]]


def test_a_refresh_keeps_reclaims_volumes_quotas_and_prices() -> None:
    world = _advised()

    catalogue = refresh(world.ports).catalogue

    assert catalogue.reclaim_share == {REGION: {"g5.xlarge": 0.33}}
    assert catalogue.volume_price == {REGION: 0.096}
    assert catalogue.quotas == {f"{REGION}/G/Spot": 64.0}
    assert load_catalogue(world.objects) == catalogue


@pytest.mark.parametrize(
    ("method", "part"),
    [
        ("reclaim_shares", "reclaim_share"),
        ("volume_price", "volume_price"),
        ("quotas", "quotas"),
    ],
)
def test_optional_parts_keep_their_last_good_value_too(method: str, part: str) -> None:
    world = _advised()
    first = refresh(world.ports).catalogue
    world.interfere = failing(NO_ANSWER, method)
    world.clock.advance(minutes(60))

    refreshed = refresh(world.ports)

    assert list(refreshed.failures) == [f"{REGION}/{part}"]
    assert getattr(refreshed.catalogue, part) == getattr(first, part)
    assert refreshed.catalogue.age(f"{REGION}/{part}", world.now) == minutes(60)
    assert _source_ages(world)[f"{REGION}/{part}"] == 3600


def test_without_an_advisor_the_prior_of_each_pool_stands() -> None:
    world = ControlWorld()

    refreshed = refresh(world.ports)

    assert refreshed.failures == {}
    assert refreshed.catalogue.reclaim_share == {REGION: {}}


def test_a_pool_often_reclaimed_by_all_accounts_costs_more() -> None:
    known, unknown = _advised(), ControlWorld()
    known.send()
    unknown.send()

    costs = [
        {c.offer: c.cost_per_item for c in world.tick().candidates} for world in (known, unknown)
    ]

    name = "g5.xlarge/us-west-2a/spot"
    assert costs[0][name] > costs[1][name]


def _advised() -> ControlWorld:
    """Return a world with a spot advisor, a dearer volume and a quota."""
    world = ControlWorld()
    advisor = MemoryAdvisor()
    advisor.publish(REGION, {"g5.xlarge": 0.33})
    world.ports = replace(world.ports, advisor=intercept(advisor, "advisor", world._call))
    world.market.move_volume_price(REGION, 0.096)
    world.market.limit("L-3819A6DF", 64, region=REGION)
    return world


def _source_ages(world: ControlWorld) -> dict[str, float]:
    return {
        datum.dimensions["Source"]: datum.value
        for datum in world.metrics.data
        if datum.name == "CatalogueSourceAge"
    }


def test_a_throttled_source_is_a_failed_source() -> None:
    world = ControlWorld()
    refresh(world.ports)

    world.interfere = failing(Throttled("slow down"), "on_demand_prices")

    assert refresh(world.ports).failures == {f"{REGION}/on_demand": "slow down"}


def test_a_region_that_hangs_keeps_a_refresh_waiting_once() -> None:
    world = ControlWorld(away=(("g4dn.xlarge", 0.1),))
    refresh(world.ports)
    begun = world.now

    def hang(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.port != "market" or call.kwargs["region"] != AWAY:
            return proceed()
        world.clock.advance(timedelta(seconds=62))
        raise NO_ANSWER

    world.interfere = hang
    refreshed = refresh(world.ports)

    assert world.now - begun == timedelta(seconds=62)
    assert f"{AWAY}/on_demand" in refreshed.failures
    assert refreshed.catalogue.on_demand[AWAY]
    assert refreshed.catalogue.on_demand.keys() == {AWAY, REGION}


@pytest.mark.parametrize("error", [NotFound("no parameter"), AccessDenied("no grant")])
def test_one_workload_s_bad_settings_leave_others_their_prices(
    error: Exception,
) -> None:
    world = ControlWorld(away=(("g4dn.xlarge", 0.10),))
    refresh(world.ports)
    both = replace(world.settings.deployment(), workloads=("broken", WORKLOAD))
    world.settings._deployment = both
    world.ports.cache.forget(DEPLOYMENT, "")

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "workload" and "broken" in call.args:
            raise error
        return proceed()

    world.interfere = fail
    world.clock.advance(timedelta(hours=1))

    found = refresh(world.ports).catalogue

    assert found.taken_at == world.now
    assert found.offerings.keys() == {REGION, AWAY}


def test_all_shapes_choose_from_offers_that_are_built_once() -> None:
    world = ControlWorld()
    refresh(world.ports)
    settings = world.workload_settings()
    prices = read_prices(settings, world.ports, world.now, spot_in=[REGION])

    def priced(vcpus_min: int) -> PricedOffers:
        wanted = replace(settings.requirements, vcpus_min=vcpus_min)
        needing = replace(settings, requirements=wanted)
        return price_offers(prices, needing, world.policy, home_region=REGION)

    small, large = priced(1), priced(8)
    assert small.offers
    assert all(one is other for one, other in zip(small.offers, large.offers, strict=True))

    on_disks = replace(settings, run=replace(settings.run, root_volume_gib=500))
    dearer = price_offers(prices, on_disks, world.policy, home_region=REGION)
    assert all(
        one.price < other.price for one, other in zip(small.offers, dearer.offers, strict=True)
    )

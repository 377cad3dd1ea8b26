"""Everything that can be bought, each at its whole price, as far as its prices can be believed."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.domain.offer import (
    CapacityType,
    Offer,
    build_offers,
    extra_price_per_hour,
    quota_class,
    slot_count,
    trusted,
)
from spindown.domain.reason import ReasonCode
from tests.builders import (
    NOW,
    ON_DEMAND,
    SPOT,
    a_catalogue,
    a_ranking,
    a_spot_price,
    a_type,
    an_offer,
    minutes,
)

ZONES = {"us-west-2": ["us-west-2a", "us-west-2b"]}


def built(catalogue: Any = None, prices: Any = (), **changes: Any) -> tuple[Offer, ...]:
    arguments: dict[str, Any] = {
        "zones": ZONES,
        "spot_price_ratio_estimate": 0.5,
        "volume_gib": 100,
    }
    return build_offers(catalogue or a_catalogue(), prices, **(arguments | changes))


def found(offers: tuple[Offer, ...]) -> Mapping[str, float]:
    return {str(offer): offer.instance_price for offer in offers}


def test_prices_every_zone_with_a_subnet_as_spot_and_on_demand() -> None:
    offers = built(prices=[a_spot_price(0.3), a_spot_price(0.4, zone="us-west-2b")])

    assert found(offers) == {
        "g4dn.xlarge/us-west-2a/on-demand": 1.0,
        "g4dn.xlarge/us-west-2a/spot": 0.3,
        "g4dn.xlarge/us-west-2b/on-demand": 1.0,
        "g4dn.xlarge/us-west-2b/spot": 0.4,
    }


def test_an_offer_says_where_it_is_and_how_sure_its_price_is() -> None:
    offers = built(prices=[a_spot_price(0.3)])

    assert {(o.region, o.on_demand_price) for o in offers} == {("us-west-2", 1.0)}
    assert [str(o) for o in offers if o.estimated] == ["g4dn.xlarge/us-west-2b/spot"]


def test_omits_zones_without_subnet_and_regions_without_offers() -> None:
    assert built(zones={"us-west-2": [], "eu-west-1": ["eu-west-1a"]}) == ()


def test_a_whole_price_adds_root_volume_and_public_address() -> None:
    (offer, *_) = built(volume_gib=100)

    assert offer.extra_price == pytest.approx(100 * 0.08 / 730 + 0.005)
    assert offer.price == offer.instance_price + offer.extra_price
    assert extra_price_per_hour(100) == pytest.approx(0.01596, abs=1e-5)


@pytest.mark.parametrize(
    ("gib_month", "expected"), [(0.096, 0.096), (0.0, 0.08), (float("nan"), 0.08), (None, 0.08)]
)
def test_the_root_volume_costs_what_it_costs_in_its_region(
    gib_month: float | None, expected: float
) -> None:
    known = {} if gib_month is None else {"us-west-2": gib_month}

    offer = built(a_catalogue(volume_price=known), volume_gib=100)[0]

    assert offer.volume_price == pytest.approx(100 * expected / 730)
    assert offer.address_price == pytest.approx(0.005)
    parts = (offer.instance_price, offer.volume_price, offer.address_price)
    assert offer.price == pytest.approx(sum(parts))


@pytest.mark.parametrize("price", [0.0, -1.0, 0.009, float("nan"), float("inf")])
def test_estimates_a_spot_price_that_is_missing_or_absurd(price: float) -> None:
    offers = built(prices=[a_spot_price(price)])

    spot = {offer for offer in offers if offer.capacity_type is SPOT}
    assert {offer.instance_price for offer in spot} == {0.5}
    assert all(offer.estimated for offer in spot)


def test_believes_a_spot_price_from_a_hundredth_on() -> None:
    assert found(built(prices=[a_spot_price(0.01)]))["g4dn.xlarge/us-west-2a/spot"] == 0.01


@pytest.mark.parametrize("price", [None, 0.0, -2.0, float("nan")])
def test_an_unknown_on_demand_price_leaves_only_spot_priced(price: float | None) -> None:
    listed = {} if price is None else {"g4dn.xlarge": price}
    catalogue = a_catalogue(on_demand={"us-west-2": listed})

    offers = built(catalogue, [a_spot_price(0.3)])

    assert {name: price for name, price in found(offers).items() if price} == {
        "g4dn.xlarge/us-west-2a/spot": 0.3
    }
    assert {offer.on_demand_price for offer in offers} == {None}
    ranking = a_ranking(list(offers))
    assert [str(c.offer) for c in ranking.candidates] == ["g4dn.xlarge/us-west-2a/spot"]
    assert {r.code for r in ranking.rejected} == {ReasonCode.PRICE_UNKNOWN}
    assert ranking.nearest is None


@pytest.mark.parametrize(
    ("age", "kept"), [(timedelta(days=7), True), (timedelta(days=7, seconds=1), False)]
)
@pytest.mark.parametrize("by", ["part", "whole"])
def test_list_prices_that_are_too_old_are_not_trusted(age: timedelta, kept: bool, by: str) -> None:
    at = NOW - age
    catalogue = (
        a_catalogue(stale_since={"us-west-2/on_demand": at})
        if by == "part"
        else a_catalogue(taken_at=at)
    )

    offers = built(trusted(catalogue, NOW), [a_spot_price(0.3)])

    assert (found(offers)["g4dn.xlarge/us-west-2a/on-demand"] > 0.0) is kept
    # A live price needs no list to be believed.
    assert found(offers)["g4dn.xlarge/us-west-2a/spot"] == 0.3


@pytest.mark.parametrize(("hours", "binding"), [(24, True), (25, False)])
def test_an_old_quota_binds_nobody(hours: int, binding: bool) -> None:
    at = NOW - timedelta(hours=hours)
    catalogue = a_catalogue(quotas={"us-west-2/G/Spot": 4.0}, stale_since={"us-west-2/quotas": at})

    assert trusted(catalogue, NOW).quotas == ({"us-west-2/G/Spot": 4.0} if binding else {})


def test_a_part_that_a_wrong_clock_put_ahead_has_no_age() -> None:
    ahead = a_catalogue(taken_at=NOW + minutes(90))

    assert ahead.age("us-west-2/on_demand", NOW) == timedelta(0)
    assert trusted(ahead, NOW) is ahead


def test_the_newest_of_several_spot_prices_counts() -> None:
    newest = a_spot_price(0.3)
    older = replace(newest, price=0.1, seen_at=newest.seen_at - minutes(5))

    for prices in ([newest, older], [older, newest]):
        assert found(built(prices=prices))["g4dn.xlarge/us-west-2a/spot"] == 0.3


def test_a_type_without_spot_has_no_spot_offer() -> None:
    kind = a_type(capacity_types=frozenset({ON_DEMAND}))

    assert {o.capacity_type for o in built(a_catalogue(kind))} == {ON_DEMAND}


def test_an_offered_type_without_a_description_is_left_out() -> None:
    assert built(a_catalogue(instance_types={})) == ()


def test_the_published_share_goes_to_spot_offers_only() -> None:
    catalogue = a_catalogue(reclaim_share={"us-west-2": {"g4dn.xlarge": 0.15}})

    shares = {o.capacity_type: o.reclaim_share for o in built(catalogue)}

    assert shares == {SPOT: 0.15, ON_DEMAND: None}


@pytest.mark.parametrize(
    ("home", "known", "prices"),
    [
        pytest.param(None, {}, (0.0, 0.0), id="one region is everywhere at home"),
        pytest.param("us-west-2", {}, (0.0, 0.0), id="at home"),
        pytest.param("eu-west-1", {}, (0.02, 0.02), id="away, at the usual rate"),
        pytest.param(
            "sa-east-1",
            {"sa-east-1": {"us-west-2": 0.138}, "us-west-2": {"sa-east-1": 0.02}},
            (0.138, 0.02),
            id="away, by the region that is left",
        ),
        pytest.param(
            "eu-west-1",
            {"eu-west-1": {"us-west-2": math.nan}, "us-west-2": {"eu-west-1": -1.0}},
            (0.02, 0.02),
            id="away, at rates that cannot be right",
        ),
        pytest.param("eu-west-1", {"eu-west-1": {"us-west-2": 0.0}}, (0.0, 0.02), id="for free"),
    ],
)
def test_transfer_is_paid_away_from_home(
    home: str | None, known: Mapping[str, Mapping[str, float]], prices: tuple[float, float]
) -> None:
    offers = built(a_catalogue(transfer_price=known), home_region=home)

    assert {(o.inbound_price_per_gib, o.outbound_price_per_gib) for o in offers} == {prices}


def test_the_order_of_offers_depends_on_the_input_alone() -> None:
    prices = [a_spot_price(0.3), a_spot_price(0.4, zone="us-west-2b")]
    flipped = {"us-west-2": ["us-west-2b", "us-west-2a"]}

    assert built(prices=prices) == built(prices=prices[::-1], zones=flipped)


@pytest.mark.parametrize(
    ("name", "capacity_type", "expected"),
    [
        ("g5.xlarge", SPOT, "r/G/Spot"),
        ("gr6.4xlarge", ON_DEMAND, "r/G/OnDemand"),
        ("vt1.3xlarge", SPOT, "r/G/Spot"),
        ("p2.xlarge", SPOT, "r/P/Spot"),
        ("p3.2xlarge", SPOT, "r/P/Spot"),
        ("p4d.24xlarge", SPOT, "r/P/Spot"),
        ("p5.4xlarge", SPOT, "r/P5/Spot"),
        ("p6-b200.48xlarge", SPOT, "r/P6/Spot"),
        ("p5.4xlarge", ON_DEMAND, "r/P/OnDemand"),
        ("c7i.large", SPOT, "r/Standard/Spot"),
        ("im4gn.large", ON_DEMAND, "r/Standard/OnDemand"),
        ("i7ie.large", SPOT, "r/Standard/Spot"),
        ("x8g.large", SPOT, "r/X/Spot"),
        ("inf2.xlarge", SPOT, "r/Inf/Spot"),
        ("trn1.2xlarge", ON_DEMAND, "r/Trn/OnDemand"),
        ("dl1.24xlarge", SPOT, "r/DL/Spot"),
        ("f2.6xlarge", ON_DEMAND, "r/F/OnDemand"),
        ("hpc7a.12xlarge", ON_DEMAND, "r/HPC/OnDemand"),
    ],
)
def test_quota_classes(name: str, capacity_type: CapacityType, expected: str) -> None:
    assert quota_class(name, "r", capacity_type) == expected
    offer = an_offer(a_type(name), region="r", capacity_type=capacity_type)
    assert offer.quota_class == expected


@pytest.mark.parametrize(
    ("gpus", "slots", "expected"),
    [
        (4.0, "per-gpu", 4),
        (4.0, "per-instance", 1),
        (4.0, "6", 6),
        (0.125, "per-gpu", 1),
        (0.0, "per-gpu", 1),
        (1.0, "0", 1),
    ],
)
def test_an_instance_has_at_least_one_slot(gpus: float, slots: str, expected: int) -> None:
    assert slot_count(gpus, slots) == expected


def test_a_type_is_priced_only_in_the_zones_that_offer_it() -> None:
    offered = {"us-west-2a": frozenset({"g4dn.xlarge"}), "us-west-2b": frozenset[str]()}
    unknown = {"us-west-2a": frozenset({"g4dn.xlarge"})}

    for zones in (offered, unknown):
        offers = built(a_catalogue(offerings={"us-west-2": zones}))
        assert {offer.zone for offer in offers} == {"us-west-2a"}

"""Bands: neighbours in the list that are left to EC2's choice."""

from typing import Any

import pytest

from spindown.domain.offer import InstanceRequirements, Offer
from spindown.domain.policy import RankBy
from spindown.domain.ranking import bands
from tests.builders import ON_DEMAND, a_policy, a_ranking, a_type, an_offer
from tests.unit.domain.ranking.reading import names


def grouped(candidates: Any, band: float = 0.05) -> list[list[str]]:
    found = bands(candidates, band, RankBy.COST_PER_ITEM)
    return [[str(candidate.offer) for candidate in each] for each in found]


def priced(price: float, zone: str = "a", **changes: Any) -> Offer:
    return an_offer(instance_price=price, extra_price=0.0, zone=zone, **changes)


def test_a_band_holds_what_costs_nearly_the_same() -> None:
    found = a_ranking([priced(0.200, "a"), priced(0.209, "b"), priced(0.220, "c")])

    assert grouped(found) == [
        ["g4dn.xlarge/a/spot", "g4dn.xlarge/b/spot"],
        ["g4dn.xlarge/c/spot"],
    ]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"capacity_type": ON_DEMAND}, id="capacity type"),
        pytest.param({"region": "eu-west-1"}, id="region"),
    ],
)
def test_a_band_has_one_capacity_type_and_one_region(other: dict[str, Any]) -> None:
    found = a_ranking([priced(0.200, "a"), priced(0.201, "b", **other), priced(0.202, "c")])

    assert [len(each) for each in grouped(found)] == [2, 1]


def test_a_band_has_one_architecture() -> None:
    arm = an_offer(
        a_type("g5g.xlarge", architecture="arm64"), instance_price=0.201, extra_price=0.0
    )
    both = InstanceRequirements(architectures=frozenset({"x86_64", "arm64"}))

    found = a_ranking([priced(0.200), arm], requirements=both)

    assert [len(each) for each in grouped(found)] == [1, 1]


def test_without_a_band_each_candidate_is_tried_alone_in_order() -> None:
    found = a_ranking([priced(0.2, "b"), priced(0.2, "a"), priced(0.19, "c")])

    assert [z for (z,) in grouped(found, band=0.0)] == [
        "g4dn.xlarge/c/spot",
        "g4dn.xlarge/b/spot",
        "g4dn.xlarge/a/spot",
    ]


def test_what_costs_just_a_band_more_is_in_it() -> None:
    found = a_ranking([priced(1.0, "a"), priced(1.5, "b")], policy=a_policy(rank_by=RankBy.PRICE))

    assert [len(each) for each in bands(found, 0.5, RankBy.PRICE)] == [2]


def test_bands_by_price_measure_prices() -> None:
    offers = [
        an_offer("g4dn.xlarge", instance_price=0.200),
        an_offer("g6e.xlarge", instance_price=0.205),
    ]
    found = a_ranking(offers, policy=a_policy(rank_by=RankBy.PRICE))

    (band,) = bands(found, 0.05, RankBy.PRICE)

    assert names(band) == ["g4dn.xlarge", "g6e.xlarge"]

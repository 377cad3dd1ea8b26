"""Machines with different numbers of GPUs compare by what a GPU costs, not by the hour."""

import pytest

from spindown.domain.policy import RankBy
from tests.builders import a_demand, a_policy, a_ranking, an_offer

#: So much work that boots and idle tails weigh nothing, and both machines are busy to the end.
MUCH = a_demand(need_items_per_hour=400_000.0, backlog_items=400_000.0, jobs=4000)


@pytest.mark.parametrize(
    ("price_of_four", "first"),
    [
        pytest.param(0.70, "g4dn.12xlarge", id="four at less than four times the price"),
        pytest.param(0.90, "g4dn.xlarge", id="four at more"),
    ],
)
def test_four_gpus_are_worth_four_times_one(price_of_four: float, first: str) -> None:
    offers = [
        an_offer("g4dn.xlarge", instance_price=0.20, extra_price=0.0),
        an_offer("g4dn.12xlarge", instance_price=price_of_four, extra_price=0.0),
    ]

    found = a_ranking(offers, demand=MUCH)

    assert found.best is not None
    assert found.best.offer.instance_type.name == first


def test_by_price_an_hour_of_the_whole_instance_counts() -> None:
    offers = [
        an_offer("g4dn.xlarge", instance_price=0.20, extra_price=0.0),
        an_offer("g4dn.12xlarge", instance_price=0.30, extra_price=0.0),
    ]

    found = a_ranking(offers, demand=MUCH, policy=a_policy(rank_by=RankBy.PRICE))

    assert found.best is not None
    assert found.best.offer.instance_type.name == "g4dn.xlarge"

"""What every Market promises, on EC2 as in memory."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from spindown.memory import MemoryClock, MemoryMarket
from spindown.port import Market, PriceHistory
from tests.ports.market import G6, M7, REGION, Answers, a_spot_entry


@pytest.fixture(params=["memory", "ec2"])
def market(request: pytest.FixtureRequest) -> Market:
    if request.param == "ec2":
        found: Market = request.getfixturevalue("aws").market()
        return found
    market = MemoryMarket(request.getfixturevalue("clock"))
    zones = [f"us-east-1{letter}" for letter in "abc"]
    market.offer(G6, region=REGION, zones=zones, on_demand=0.8048, spot=0.4)
    market.offer(M7, region=REGION, zones=zones, on_demand=0.1, spot=0.05)
    burstable = replace(M7, name="t3.large")
    market.offer(burstable, region=REGION, zones=zones, on_demand=0.08, spot=0.03)
    return market


def test_knows_the_types_that_workers_may_be_bought_of(market: Market) -> None:
    types = {found.name: found for found in market.instance_types(region=REGION)}

    assert types["g6.xlarge"] == G6
    assert types["m7i.large"] == M7
    assert "t3.large" not in types
    assert list(types) == sorted(types)


def test_knows_where_a_type_is_offered(market: Market) -> None:
    offerings = market.offerings(region=REGION)

    assert {"g6.xlarge", "m7i.large"} <= offerings["us-east-1a"]
    assert all(zone.startswith(REGION) for zone in offerings)


def test_knows_the_spot_price_of_each_zone(market: Market) -> None:
    prices = market.spot_prices(region=REGION, instance_types=["g6.xlarge"])

    assert {"us-east-1a", "us-east-1b"} <= {seen.zone for seen in prices}
    assert len({seen.zone for seen in prices}) == len(prices)
    assert {seen.instance_type for seen in prices} == {"g6.xlarge"}
    assert all(seen.price > 0 for seen in prices)


def test_asked_for_no_type_it_knows_no_price(market: Market) -> None:
    assert list(market.spot_prices(region=REGION, instance_types=[])) == []


HISTORY = [("us-east-1a", "0.41", 5), ("us-east-1b", "0.30", 20), ("us-east-1a", "0.39", 40)]


BEGIN = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


@pytest.fixture(params=["memory", "ec2"])
def history(request: pytest.FixtureRequest, clock: MemoryClock) -> PriceHistory:
    """A pool that was priced before the begin and moved after it, and one that came later."""
    if request.param == "memory":
        clock.advance_to(BEGIN - timedelta(minutes=10))
        market = MemoryMarket(clock)
        market.offer(G6, region=REGION, zones=["us-east-1a", "us-east-1b"])
        for zone, price, minute in HISTORY:
            clock.advance_to(BEGIN.replace(minute=minute))
            market.move_spot_price("g6.xlarge", zone, float(price))
        return market
    clock.advance_to(BEGIN.replace(minute=50))
    answers: Answers = request.getfixturevalue("answers")
    rows = [a_spot_entry(zone, price, minute) for zone, price, minute in reversed(HISTORY)]
    for token, page in (("more", rows[:1]), ("still more", []), ("", rows[1:])):
        answers.ec2.add_response(
            "describe_spot_price_history", {"SpotPriceHistory": page, "NextToken": token}
        )
    return answers.market


def test_knows_what_spot_capacity_cost_from_a_day_on(history: PriceHistory) -> None:
    seen = history.spot_history(region=REGION, instance_types=["g6.xlarge"], since=BEGIN)

    assert [(one.zone, one.price, one.seen_at.minute) for one in seen] == [
        ("us-east-1a", 0.41, 5),
        ("us-east-1b", 0.30, 20),
        ("us-east-1a", 0.39, 40),
    ]


def test_a_history_of_no_type_is_empty(market: Market) -> None:
    history = cast("PriceHistory", market)
    assert list(history.spot_history(region=REGION, instance_types=[], since=BEGIN)) == []

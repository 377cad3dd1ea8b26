"""Prices: how old they may be to be bought by, and what is written down of them."""

from datetime import timedelta

import pytest

from spindown.contract.decision import Outcome
from spindown.contract.row import launch_sort_key
from spindown.control.market import refresh
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import Unreachable
from tests.builders import minutes
from tests.control import (
    STRICT,
    ZONES,
    ControlWorld,
    a_pool_of,
    codes,
    every_spot_pool,
    pools,
    with_policy,
)
from tests.failure import failing


def test_estimates_the_spot_price_when_none_is_known() -> None:
    world = ControlWorld()
    for zone in ZONES:
        world.market.move_spot_price("g4dn.xlarge", zone, None)
    world.send()

    decision = world.tick()

    listed = {c.offer: c.price_per_hour for c in decision.candidates}
    assert listed["g4dn.xlarge/us-west-2a/spot"] == pytest.approx(0.263 + 0.016, abs=1e-3)


def test_goes_on_without_a_launch_when_prices_cannot_be_read() -> None:
    world = ControlWorld()
    world.interfere = failing(Unreachable("no answer"), "spot_prices", times=1)
    world.send()

    decision, next_one = world.tick(), world.tick(minutes(1))

    assert decision.outcome is Outcome.BLOCKED
    assert decision.summary.why.code is ReasonCode.PRICES_UNREAD
    assert next_one.outcome is Outcome.LAUNCHED


def test_recent_spot_prices_replace_unreadable_ones() -> None:
    world = with_policy(**STRICT)
    world.dry(*every_spot_pool())
    world.send()
    world.tick()
    read_at = world.now
    world.interfere = failing(Unreachable("no answer"), "spot_prices")

    world.compute.set_capacity(a_pool_of("g4dn.xlarge"), None)
    decision = world.tick(minutes(6))

    assert pools(decision)[0] == "g4dn.xlarge/us-west-2a/spot"
    (old,) = [note for note in decision.notes if note.code is ReasonCode.SPOT_PRICES_OLD]
    assert old.about["read_at"] == read_at.isoformat()


def test_without_spot_prices_work_that_can_wait_buys_nothing() -> None:
    world = with_policy(**STRICT, start_within=minutes(60))
    world.interfere = failing(Unreachable("no answer"), "spot_prices")
    world.send()
    world.tick()

    waiting, late = world.tick(minutes(59)), world.tick(minutes(1))

    assert waiting.outcome is Outcome.BLOCKED
    assert waiting.summary.why == Reason(ReasonCode.PRICES_UNREAD, {"said": "no answer"})
    # Half of 0.526 on demand, as the policy estimates.
    assert late.outcome is Outcome.LAUNCHED
    assert world.workers()[0].price_per_hour == pytest.approx(0.263 + 0.01596, abs=1e-5)
    assert ReasonCode.SPOT_PRICES_ESTIMATED in codes(late)


def test_list_prices_unread_for_a_week_buy_nothing_on_demand() -> None:
    world = with_policy(**STRICT, ladder=())
    refresh(world.ports)
    read_at = world.now
    world.dry(*every_spot_pool())
    world.clock.advance(timedelta(days=7, minutes=1))
    world.send()

    decision = world.tick()

    assert {a.outcome for a in decision.requests} == {"capacity"}
    assert not any("on-demand" in pool for a in decision.requests for pool in a.pools)
    assert codes(decision) == [ReasonCode.CATALOGUE_OLD, ReasonCode.ON_DEMAND_PRICES_OLD]
    assert decision.notes[0].about["read_at"] == read_at.isoformat()
    assert world.metric("CatalogueAge") == timedelta(days=7, minutes=1).total_seconds()


def test_a_price_that_moves_is_charged_as_it_moves() -> None:
    world = ControlWorld()
    worker = world.launched(max_workers=1)
    world.claim(worker.instance_id)
    extra = 100 * 0.08 / 730 + 0.005

    world.run(30, beats=True)
    world.market.move_spot_price("g4dn.xlarge", ZONES[0], 1.0)
    asked = world.calls["market.spot_prices"]
    world.run(30, beats=True)

    (worker,) = world.workers()
    assert worker.price_per_hour == pytest.approx(1.0 + extra)
    # At most ten minutes late: prices are five minutes old, and charges too.
    assert 0.5 * 0.2 + 0.33 * 1.0 < worker.charged_usd < 0.5 * (0.2 + 1.0) + extra
    assert world.calls["market.spot_prices"] - asked <= 30 / 5


def test_an_unreadable_price_delays_no_charge() -> None:
    world = ControlWorld()
    worker = world.launched(max_workers=1)
    world.claim(worker.instance_id)
    world.market.move_spot_price("g4dn.xlarge", ZONES[0], 1.0)
    world.interfere = failing(Unreachable("no answer"), "spot_prices")

    world.run(30, beats=True)

    (still,) = world.workers()
    assert still.price_per_hour == worker.price_per_hour
    assert still.charged_usd == pytest.approx(worker.price_per_hour * 0.5, rel=0.2)


def test_a_price_above_the_ceiling_is_charged_as_it_is() -> None:
    world = ControlWorld()
    worker = world.launched(max_workers=1)
    world.claim(worker.instance_id)
    world.remove(launch_sort_key(worker.launch_id))
    world.market.move_spot_price("g4dn.xlarge", ZONES[0], 3.0)

    world.run(30, beats=True)

    (still,) = world.workers()
    assert still.charged_usd > 3.0 * 0.3

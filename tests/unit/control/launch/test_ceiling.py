"""What ceilings in dollars leave is launched, to the last worker, and not a cent more."""

from dataclasses import replace

import pytest

from spindown.contract.decision import Outcome
from spindown.control.policy_edit import edit_policy
from spindown.domain.policy import Policy, RankBy
from spindown.domain.reason import ReasonCode
from spindown.ledger import Ledger
from tests.builders import minutes
from tests.control import (
    STRICT,
    WORKLOAD,
    ZONES,
    ControlWorld,
    a_pool_of,
    pools,
    with_policy,
)

#: Eight workers of a band in which the dearest is expected to cost twice what the best is.
WIDE = Policy(max_workers=8, band=0.6)


def _committed(world: ControlWorld) -> float:
    return Ledger(world.table, WORKLOAD).read_account().budget_at(world.now).committed


def _reserved_by_eight() -> float:
    world = ControlWorld(policy=WIDE, budget=1000.0)
    world.send(8)
    (request,) = world.tick().requests
    return request.reserved_usd


@pytest.mark.parametrize(
    ("share", "workers"), [(1.0, 8), (0.9, 7), (0.8, 6), (0.5, 4), (0.3, 2), (0.13, 1)]
)
def test_a_small_budget_buys_as_many_as_it_has_room_for(share: float, workers: int) -> None:
    budget = _reserved_by_eight() * share
    world = ControlWorld(policy=WIDE, budget=budget)
    world.send(8)

    decision = world.tick()

    assert len(pools(decision)) == workers
    assert _committed(world) <= budget


def test_asks_for_the_cheaper_part_of_a_band_beyond_the_budget() -> None:
    dear = _reserved_by_eight() / 8
    world = ControlWorld(policy=WIDE, budget=0.9 * dear)
    world.send(8)

    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    (request,) = decision.requests
    assert request.pools == tuple(str(a_pool_of("g4dn.xlarge", zone)) for zone in ZONES)


def test_says_that_the_budget_ended_the_walk() -> None:
    each = _reserved_by_eight() / 8
    world = ControlWorld(policy=Policy(band=0.0, rank_by=RankBy.PRICE), budget=1.01 * each)
    for zone in ZONES:
        world.dry(a_pool_of("g4dn.xlarge", zone), a_pool_of("g6.xlarge", zone))
    world.market.move_spot_price("g5.xlarge", ZONES[0], 0.9)
    world.market.move_spot_price("g5.xlarge", ZONES[1], 0.9)
    world.send(8)

    decision = world.tick()

    assert decision.outcome is Outcome.REFUSED
    assert decision.summary.ended_early.code is ReasonCode.BUDGET_BELOW_LAUNCH
    assert world.metric("BudgetStopped") == 1


def test_the_last_worker_below_the_hourly_ceiling_is_launched() -> None:
    each, workers = 0.21595890410958907, 22
    # What 21 of them leave of it is less than one by the last binary digit.
    most = workers * each
    assert most - sum([each] * (workers - 1)) < each
    world = with_policy(**STRICT, warm_workers=21, max_workers=30, max_dollars_per_hour=most)
    world.tick()
    edit_policy(WORKLOAD, {"warm_workers": 22}, settings=world.settings, table=world.table)

    world.tick(minutes(1))

    assert {w.price_per_hour for w in world.workers()} == {each}
    assert len(world.workers()) == workers


def test_a_fleet_at_its_ceiling_is_stopped_not_short_of_offers() -> None:
    world = with_policy(max_dollars_per_hour=0.5, max_workers=10, drain_within=minutes(10))
    world.send(100)
    world.tick()
    for worker in world.workers():
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-of-{worker.instance_id}")

    decisions = world.run(30, beats=True)

    assert {d.outcome for d in decisions} == {Outcome.BLOCKED}
    assert decisions[-1].summary.why.code is ReasonCode.FLEET_AT_CEILING
    assert world.metric("NothingFits") == 0
    assert not any("no-offer" in subject for subject, _ in world.topic.said)


def test_offers_above_the_ceiling_alone_are_nothing_to_buy() -> None:
    world = with_policy(max_dollars_per_hour=0.1)
    world.send()

    assert world.tick().outcome is Outcome.NOTHING_FITS


def test_money_reserved_before_the_month_is_not_spent_twice() -> None:
    budget = 1.2 * _reserved_by_eight()
    world = ControlWorld(policy=replace(WIDE, max_workers=30), budget=budget)
    world.clock.advance_to(world.now.replace(day=30, hour=23, minute=58))
    world.send(8)
    world.tick()
    before = len(world.workers())
    world.send(100)

    decision = world.tick(minutes(3))

    assert f"{world.now:%Y-%m}" == "2026-12"
    set_aside = sum(launch.reserved_usd for launch in world.view().launches.values())
    spent = sum(day.dollars for day in world.view().spend.values())
    assert before == 8
    assert len(pools(decision)) == 1
    assert spent + set_aside <= budget

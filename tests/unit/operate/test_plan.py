"""A plan says what a tick would do, and does nothing."""

from typing import Any

import pytest

from spindown.contract.decision import Outcome
from spindown.contract.row import (
    CALLS_PER_MINUTE,
    DEPLOYMENT_PARTITION,
    budget_sort_key,
    calls_sort_key,
    minute_of,
)
from spindown.domain.reason import ReasonCode
from spindown.operate.plan import plan_next_tick
from spindown.port import Key, Write
from spindown.reason_text import say, say_way_back
from tests.builders import NOW
from tests.control import REGION, WORKLOAD, ControlWorld, with_policy
from tests.reading import only_reading


def test_writes_nothing_anywhere() -> None:
    world = ControlWorld()
    world.send(3)

    made = plan_next_tick(WORKLOAD, only_reading(world.ports))

    assert made.plan.choice.sizing.allowed > 0
    assert world.view().workers == {}


@pytest.mark.parametrize("jobs", [1, 5, 40])
def test_plans_what_the_next_tick_launches(jobs: int) -> None:
    world = ControlWorld()
    world.send(jobs)

    made = plan_next_tick(WORKLOAD, world.ports)
    decision = world.tick()

    assert made.plan.choice.sizing.allowed == sum(len(a.instances) for a in decision.requests)
    assert made.candidates.best is not None
    assert str(made.candidates.best.offer) == decision.candidates[0].offer


def test_ranks_offers_even_when_nothing_waits() -> None:
    made = plan_next_tick(WORKLOAD, ControlWorld().ports)

    assert made.plan.choice.sizing.allowed == 0
    assert made.candidates.best is not None


def test_plans_for_a_backlog_that_was_asked_for() -> None:
    world = ControlWorld()

    assert plan_next_tick(WORKLOAD, world.ports, jobs=50).queue.visible == 50
    assert world.queue.backlog().visible == 0


@pytest.mark.parametrize(
    ("sort", "row", "code"),
    [
        pytest.param(
            calls_sort_key(REGION),
            {"minute": minute_of(NOW), "count": CALLS_PER_MINUTE},
            ReasonCode.CALLS_USED_UP,
            id="the calls of the minute are used up",
        ),
        pytest.param(
            budget_sort_key(NOW),
            {"committed": "much"},
            ReasonCode.MONTH_UNREADABLE,
            id="the month cannot be read",
        ),
    ],
)
def test_plans_no_launch_that_the_tick_may_not_ask_for(
    sort: str, row: dict[str, Any], code: ReasonCode
) -> None:
    world = with_policy()
    world.send(3)
    key = Key(partition=DEPLOYMENT_PARTITION, sort=sort)
    world.table.write(Write(key=key, set=row))

    made = plan_next_tick(WORKLOAD, world.ports)
    decision = world.tick()

    assert made.plan.choice.blocked_by.code is code
    assert decision.requests == ()
    assert decision.outcome is Outcome.BLOCKED


def test_says_what_stops_a_launch_and_ranks_all_the_same() -> None:
    world = with_policy(max_workers=0)
    world.send(3)

    made = plan_next_tick(WORKLOAD, world.ports)

    stopped = made.plan.choice.blocked_by
    assert stopped.code is ReasonCode.MAX_WORKERS
    # A drain is taken back; where 0 is deployed, nothing is.
    assert say_way_back(WORKLOAD, world.workload_settings().policy.max_workers) in say(stopped)
    assert made.candidates.best is not None


@pytest.mark.parametrize("jobs", [0, 3])
def test_shows_what_is_reserved_and_left(jobs: int) -> None:
    world = ControlWorld(budget=10.0)
    key = Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort_key(NOW))
    world.table.write(Write(key=key, set={"dollars": 4.0, "committed": 5.0}))
    world.send(jobs)

    made = plan_next_tick(WORKLOAD, world.ports)

    assert made.month is not None
    assert (made.month.whole, made.month.spent, made.month.reserved) == (10.0, 4.0, 1.0)
    assert made.month.left == pytest.approx(5.0)
    reserved = sum(each.reserved_usd for launch in made.launches for each in launch.requests)
    decision = world.tick()
    assert reserved == sum(request.reserved_usd for request in decision.requests)
    assert bool(reserved) is bool(jobs)


@pytest.mark.parametrize("jobs", [0, 3])
def test_says_that_a_budget_is_below_any_launch(jobs: int) -> None:
    world = ControlWorld(budget=0.001)
    world.send(jobs)

    made = plan_next_tick(WORKLOAD, world.ports)

    found = [made.plan.choice.blocked_by, *made.notes]
    assert [r.code for r in found].count(ReasonCode.BUDGET_BELOW_LAUNCH) == 1


def test_without_a_budget_there_is_no_month_to_show() -> None:
    assert plan_next_tick(WORKLOAD, ControlWorld().ports).month is None

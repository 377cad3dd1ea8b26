"""The cost of an item is shown by days and weeks, and a person may accept a new one."""

from datetime import timedelta

import pytest
from rich.console import Console

from spindown.cli.explain.cost import render_cost, say_accepted
from spindown.contract.codec import decode, encode
from spindown.contract.row import SpendRow, history_partition, spend_sort_key
from spindown.domain.policy import Policy
from spindown.error import BadInput
from spindown.ledger import Ledger
from spindown.operate.cost import CostTrend, accept_cost, read_cost
from spindown.port import Key, Write
from tests.control import WORKLOAD, ControlWorld

DAY = timedelta(days=1)


def a_world(*costs: float) -> ControlWorld:
    """Return a workload whose days cost so many times the usual, the last one today's."""
    world = ControlWorld()
    for ago, cost in enumerate(reversed(costs)):
        row = SpendRow(
            dollars=2 * cost, items=1000, busy_seconds=5400.0, idle_seconds=1800.0, launches=1
        )
        world.put_day(world.now - ago * DAY, row)
    return world


def trend_of(world: ControlWorld, days: int = 14) -> CostTrend:
    ledger = Ledger(world.table, WORKLOAD)
    return read_cost(WORKLOAD, ledger=ledger, policy=Policy(), now=world.now, days=days)


def screen_of(trend: CostTrend) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        for part in render_cost(trend):
            console.print(part, soft_wrap=True)
    return captured.get()


def test_shows_days_and_whole_weeks() -> None:
    world = a_world(*[1.0] * 15, 3.0)
    past = Key(partition=history_partition(WORKLOAD), sort=spend_sort_key(world.now - 80 * DAY))
    world.table.write(Write(key=past, set=encode(SpendRow(dollars=9.0, items=1))))

    trend = trend_of(world, days=5)

    def day(ago: int) -> str:
        return f"{world.now - ago * DAY:%Y-%m-%d}"

    assert [span.first for span in trend.days] == [day(ago) for ago in (4, 3, 2, 1, 0)]
    assert [span.window.cost_per_item for span in trend.days][-2:] == pytest.approx([0.002, 0.006])
    assert [(s.first, s.last, s.window.items) for s in trend.weeks] == [
        (day(20), day(14), 2000),
        (day(13), day(7), 7000),
        (day(6), day(0), 7000),
    ]
    assert next(span.first for span in trend_of(world, days=90).days) == day(80)


def test_boot_and_idle_are_told_each_as_a_share() -> None:
    world = ControlWorld()
    row = SpendRow(
        dollars=1.0, items=5, boot_seconds=160.0, busy_seconds=190.0, idle_seconds=650.0, launches=1
    )
    world.put_day(world.now, row)

    shown = screen_of(trend_of(world)).splitlines()

    assert shown[0].split()[-2:] == ["boot", "idle"]
    assert shown[1].split()[-2:] == ["16%", "65%"]


def test_says_that_a_rise_stands_and_what_ends_it() -> None:
    world = a_world(*[1.0] * 9, 3.0)

    trend = trend_of(world)

    assert trend.rise is not None
    shown = screen_of(trend)
    assert all(number in shown for number in ("$2.57 for", "$2 for", "1.29"))
    assert f"spindown policy accept-cost {WORKLOAD}" in shown
    assert "25%" in shown


def test_says_that_a_workload_has_spent_nothing_yet() -> None:
    trend = trend_of(ControlWorld())

    assert decode(CostTrend, encode(trend)) == trend
    assert (trend.days, trend.weeks, trend.rise) == ((), (), None)
    assert screen_of(trend).startswith("classify: ")


def test_what_is_accepted_ends_the_rise_and_is_told() -> None:
    world = a_world(*[1.0] * 9, 3.0)
    ledger = Ledger(world.table, WORKLOAD)

    accepted = accept_cost(WORKLOAD, ledger=ledger, policy=Policy(), by="arn:ann", now=world.now)

    assert accepted.dollars == pytest.approx((6 * 0.002 + 0.006) / 7)
    trend = trend_of(world)
    assert trend.rise is None
    assert trend.accepted == (accepted,)
    assert "arn:ann" in say_accepted(accepted)
    assert say_accepted(accepted) in screen_of(trend)
    # Nothing stands any more that could be accepted.
    with pytest.raises(BadInput):
        accept_cost(WORKLOAD, ledger=ledger, policy=Policy(), by="ann", now=world.now)


def test_a_cost_may_be_accepted_beforehand() -> None:
    world = a_world(*[1.0] * 5)
    ledger = Ledger(world.table, WORKLOAD)
    accept_cost(WORKLOAD, ledger=ledger, policy=Policy(), by="ann", now=world.now, dollars=0.006)
    world.clock.advance(DAY)
    row = SpendRow(dollars=6.0, items=1000, busy_seconds=5400.0, launches=1)
    world.put_day(world.now, row)

    assert trend_of(world).rise is None

"""The bill by AWS's rules."""

from datetime import timedelta

import pytest

from spindown.ec2sim import Ec2Bill
from tests.local.market.world import World, a_world, an_override


def _line(world: World) -> Ec2Bill:
    (line,) = world.market.bill()
    return line


def test_bills_each_second_from_running_to_shutting_down() -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(1 + 1800)
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    world.wait(100)
    assert _line(world).paid_seconds == 1800
    assert _line(world).dollars == pytest.approx(0.32 / 2)


def test_bills_a_minute_at_least() -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(11)
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    assert _line(world).paid_seconds == 60
    assert _line(world).dollars == pytest.approx(0.32 / 60)


def test_an_instance_that_never_ran_costs_nothing() -> None:
    world = a_world()
    world.ec2.terminate_instances(InstanceIds=[world.launch()])
    world.wait(10)
    assert (_line(world).paid_seconds, _line(world).dollars) == (0, 0)


@pytest.mark.parametrize(
    ("ran_seconds", "dollars"),
    [pytest.param(3599, 0.0, id="free"), pytest.param(3600, 0.32, id="charged")],
)
def test_a_reclaim_is_free_within_the_first_hour_only(ran_seconds: int, dollars: float) -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(1 + ran_seconds)
    world.market.interrupt(instance_id, notice=timedelta(0))
    assert _line(world).is_free is (dollars == 0)
    assert _line(world).dollars == pytest.approx(dollars)


def test_a_poweroff_after_the_notice_gives_the_free_hour_away() -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(1 + 600)
    world.market.interrupt(instance_id, notice=timedelta(seconds=120))
    world.wait(60)
    world.market.guest_powered_off(instance_id)
    assert _line(world).dollars == pytest.approx(0.32 * 660 / 3600)


def test_a_moving_price_is_paid_as_it_moves() -> None:
    world = a_world('\n[[price]]\nat = "1801s"\ntype = "g6.xlarge"\nspot = 0.64\n')
    world.launch()
    world.wait(3601)
    assert _line(world).dollars == pytest.approx(0.32 / 2 + 0.64 / 2)


def test_on_demand_pays_the_list_price() -> None:
    world = a_world()
    world.launch(an_override("g5.xlarge"), capacity_type="on-demand")
    world.wait(3601)
    assert _line(world).dollars == pytest.approx(1.006)

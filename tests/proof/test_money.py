"""The comparison of ledger and bill under attack finds each kind of leak."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.offer import extra_price_per_hour
from spindown.domain.past_cost import LEAST_BILLED
from spindown.ec2sim import Ec2Bill
from tests.builders import a_worker
from tests.local.market.world import START, World, a_world
from tests.proof.chaos.money import Comparison, compare


def ran(seconds: float, *, reclaimed: bool = False) -> tuple[World, Ec2Bill]:
    """Return a market in which one instance ran for so long."""
    world = a_world()
    instance_id = world.launch()
    world.wait(1 + seconds)
    if reclaimed:
        world.market.interrupt(instance_id, notice=timedelta(0))
    else:
        world.ec2.terminate_instances(InstanceIds=[instance_id])
    (line,) = world.market.bill()
    return world, line


def charged_for(line: Ec2Bill, seconds: float) -> Worker:
    launched_at = START
    return a_worker(
        instance_id=line.instance_id,
        state=WorkerState.ENDED,
        price_per_hour=0.32 + extra_price_per_hour(100),
        launched_at=launched_at,
        accrued_until=launched_at + timedelta(seconds=seconds),
    )


def judge(world: World, rows: Mapping[str, Worker], dollars: float) -> Comparison:
    return compare(world.market, rows, dollars)


def test_seconds_at_the_ends_and_volumes_explain_the_excess() -> None:
    world, line = ran(600)
    worker = charged_for(line, 610)

    found = judge(world, {worker.instance_id: worker}, worker.price_per_hour * 610 / 3600)

    assert found.faults == ()
    assert found.seconds_around_the_ends == pytest.approx(-0.32 * 10 / 3600, abs=1e-6)
    assert found.volumes_and_addresses == pytest.approx(-0.01596 * 610 / 3600, abs=1e-6)
    assert found.moved_prices == pytest.approx(0.0, abs=1e-6)


def test_a_reclaim_within_the_hour_costs_its_volume_alone() -> None:
    world, line = ran(600, reclaimed=True)
    worker = replace(charged_for(line, 610), interruption_counted=True)
    extras = extra_price_per_hour(100) * 610 / 3600

    found = judge(world, {worker.instance_id: worker}, extras)

    assert found.faults == ()
    assert found.volumes_and_addresses == pytest.approx(-extras, abs=1e-6)


@pytest.mark.parametrize("leak", ["no row", "less time", "more time", "refund", "price", "sum"])
def test_a_leak_of_any_kind_is_a_fault(leak: str) -> None:
    world, line = ran(600)
    seconds = {"less time": 590.0, "more time": 900.0}.get(leak, 600.0)
    worker = charged_for(line, seconds)
    if leak == "price":
        worker = replace(worker, price_per_hour=0.5)
    dollars = worker.price_per_hour * seconds / 3600
    dollars = {"no row": 0.0, "refund": 0.0, "sum": dollars * 1.01}.get(leak, dollars)
    rows = {} if leak == "no row" else {worker.instance_id: worker}

    assert len(judge(world, rows, dollars).faults) >= 1


def test_a_reclaim_that_the_ledger_does_not_know_is_a_fault() -> None:
    world, line = ran(0, reclaimed=True)
    worker = charged_for(line, LEAST_BILLED.total_seconds())
    dollars = worker.price_per_hour * LEAST_BILLED.total_seconds() / 3600

    assert judge(world, {worker.instance_id: worker}, dollars).faults

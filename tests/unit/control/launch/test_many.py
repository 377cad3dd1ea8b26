"""A launch of more workers than one transaction has room for is written down whole or adopted."""

from collections.abc import Callable
from typing import Any

import pytest

from spindown.contract.row import DEPLOYMENT_PARTITION, LOCK_LEASE, budget_sort_key
from spindown.domain.fleet import LaunchState, WorkerState
from spindown.error import WriteConflict
from spindown.memory import PortCall
from spindown.port import Key
from tests.builders import minutes
from tests.control import ControlWorld, with_policy

#: More than DynamoDB's hundred writes of one transaction.
MANY = 130


class Crashed(BaseException):
    """The process is gone."""


def a_world(many: int = MANY) -> ControlWorld:
    world = with_policy(max_workers=many, warm_workers=many, band=0.0)
    world.send()
    return world


def fails_between(error: BaseException) -> Callable[[PortCall, Callable[[], Any]], Any]:
    """Let the second transaction after the launch fail."""
    launched, transactions = [False], [0]

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch":
            launched[0] = True
        elif call.method == "transact" and launched[0]:
            transactions[0] += 1
            if transactions[0] == 2:
                raise error
        return proceed()

    return interfere


def committed(world: ControlWorld) -> float:
    row = world.table.get(Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort_key(world.now)))
    return float((row or {}).get("committed", 0.0))


def check(world: ControlWorld, many: int = MANY) -> None:
    """See that each instance has its row, and that the launch is written down once."""
    (launch,) = world.view().launches.values()
    days = world.view().spend.values()
    assert launch.state is LaunchState.LAUNCHED
    assert len(launch.instance_ids) == many
    assert {w.instance_id for w in world.workers()} == set(launch.instance_ids)
    assert sum(day.instances for day in days) == many
    assert sum(day.launches for day in days) == 1
    assert committed(world) == pytest.approx(launch.reserved_usd + sum(day.dollars for day in days))


def test_it_has_a_row_for_each_worker() -> None:
    world = a_world()
    world.tick()

    check(world)


def test_a_crash_between_transactions_leaves_every_row_made() -> None:
    world = a_world()
    world.interfere = fails_between(Crashed())
    with pytest.raises(Crashed):
        world.tick()
    world.interfere = None
    known = world.workers()
    for worker in known[:3]:
        world.check_in(worker.instance_id)

    world.tick(LOCK_LEASE)

    assert 0 < len(known) < MANY
    assert len(world.workers(WorkerState.IDLE)) == 3
    check(world)


def test_a_conflict_between_transactions_is_repaired_next_tick() -> None:
    world = a_world()
    world.interfere = fails_between(WriteConflict("another transaction is under way"))
    world.tick()
    world.interfere = None

    world.tick(minutes(1))

    check(world)


@pytest.mark.parametrize("many", [96, 97, 98, 99, 100])
def test_a_launch_too_large_for_one_transaction_takes_two(
    many: int,
) -> None:
    world = a_world(many)
    world.interfere = fails_between(WriteConflict("another transaction is under way"))
    world.tick()
    world.interfere = None

    world.tick(minutes(1))

    check(world, many)

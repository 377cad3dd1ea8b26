"""What a world of the control plane has spent: read off its rows."""

from datetime import timedelta
from typing import Any

from spindown.contract.row import DEPLOYMENT_PARTITION, budget_sort_key
from spindown.control.plan.charge import CHARGED_EVERY
from spindown.domain.fleet import Worker, WorkerState
from spindown.port import Key
from tests.builders import minutes
from tests.control import ControlWorld

PRICE = 0.20 + 100 * 0.08 / 730 + 0.005


def two_at_work(world: ControlWorld) -> tuple[Worker, Worker]:
    """Let two workers come up, each with a job, in a world of two at the most."""
    world.send(1000)
    world.tick()
    world.clock.advance(minutes(2))
    started = world.workers(WorkerState.BOOTING)
    for worker in started:
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-{worker.instance_id}")
    first, second = started
    return first, second


def charged_for(world: ControlWorld) -> timedelta:
    """Return how much of their lives all workers have been charged for; nobody lags behind."""
    spans = []
    for worker in world.view().workers.values():
        until = worker.accrued_until or worker.launched_at
        lag = (worker.ended_at or world.now) - until
        assert lag <= (CHARGED_EVERY if worker.ended_at is None else timedelta(0)), worker
        spans.append(until - worker.launched_at)
    return sum(spans, timedelta(0))


def dollars(world: ControlWorld) -> float:
    """Return what all days that are in sight have cost."""
    return sum(day.dollars for day in world.view().spend.values())


def budget_row(world: ControlWorld) -> dict[str, Any]:
    """Return the deployment's month."""
    key = Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort_key(world.now))
    return world.table.get(key) or {}

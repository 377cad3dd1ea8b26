"""A plan says what a reconcile would do, and does nothing."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from spindown.app.control import ControlPorts
from spindown.app.explain.plan import plan
from spindown.memory import PortCall, intercept
from tests.control import WORKLOAD, ControlWorld, with_policy

_READS = {
    "get",
    "query",
    "find_instance",
    "list",
    "versions",
    "now",
    "deployment",
    "workload",
    "history",
    "instances",
    "instance",
    "reclaimed",
    "spot_prices",
    "instance_types",
    "offerings",
    "on_demand_prices",
    "quotas",
    "backlog",
}


def only_reading(ports: ControlPorts) -> ControlPorts:
    """Return ports on which every call that could change something fails the test."""

    def watch(call: PortCall, proceed: Callable[[], Any]) -> Any:
        assert call.method in _READS, f"a plan called {call.port}.{call.method}"
        return proceed()

    watched = {
        f.name: intercept(getattr(ports, f.name), f.name, watch)
        for f in fields(ports)
        if f.name in {"table", "objects", "settings", "compute", "market", "metrics"}
    }
    return replace(ports, **watched)


def test_writes_nothing_anywhere() -> None:
    world = ControlWorld()
    world.send(3)

    made = plan(WORKLOAD, only_reading(world.ports))

    assert made.sizing.wanted > 0
    assert world.view().workers == {}


@pytest.mark.parametrize("jobs", [1, 5, 40])
def test_plans_what_the_next_tick_launches(jobs: int) -> None:
    world = ControlWorld()
    world.send(jobs)

    made = plan(WORKLOAD, world.ports)
    decision = world.tick()

    assert made.sizing.wanted == sum(len(a.instances) for a in decision.attempts)
    assert made.candidates.best is not None
    assert str(made.candidates.best.offer) == decision.candidates[0].offer


def test_ranks_offers_even_when_nothing_waits() -> None:
    made = plan(WORKLOAD, ControlWorld().ports)

    assert made.sizing.wanted == 0
    assert made.candidates.best is not None


def test_plans_for_a_backlog_that_was_asked_for() -> None:
    world = ControlWorld()

    assert plan(WORKLOAD, world.ports, jobs=50).backlog.visible == 50
    assert world.queue.backlog().visible == 0


def test_says_what_stops_a_launch_and_ranks_all_the_same() -> None:
    world = with_policy(max_workers=0)
    world.send(3)

    made = plan(WORKLOAD, world.ports)

    assert "max_workers" in made.stopped
    assert made.candidates.best is not None

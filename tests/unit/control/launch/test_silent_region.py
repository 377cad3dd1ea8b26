"""A region that answers no launch is in the way of no other."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.control.plan.launch_request import LaunchWorkers
from spindown.domain.offer import CapacityType
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import Unreachable
from spindown.memory import PortCall
from spindown.operate.plan import plan_next_tick
from spindown.port import LaunchRequest
from tests.builders import AT_ONCE
from tests.control import AWAY, AWAY_ZONE, WORKLOAD, ZONES, ControlWorld, every_spot_pool, pools
from tests.failure import only_in, refuse

MINUTE = timedelta(minutes=1)


def a_world(**policy: Any) -> ControlWorld:
    """Return a world in which an item is cheapest abroad."""
    changes = {"mib_per_item_estimate": 0.01, **policy}
    return ControlWorld(policy=replace(AT_ONCE, **changes), away=(("g4dn.xlarge", 0.10),))


@pytest.mark.parametrize("silent", [{"launch"}, {"launch", "instances"}], ids=len)
def test_a_silent_region_keeps_no_work_from_starting_at_home(
    silent: set[str],
) -> None:
    world = a_world(max_workers=2)
    hushed = only_in(AWAY, refuse(Unreachable("no answer")))
    world.interfere = lambda call, proceed: (
        hushed(call, proceed) if call.method in silent else proceed()
    )
    world.send()

    decisions = [world.tick(), *world.run(12)]

    launched = [pool for decision in decisions for pool in pools(decision)]
    assert launched == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    # A job that comes within the hour does not wait for that region again.
    (worker,) = world.workers()
    world.check_in(worker.instance_id)
    world.tick()
    world.compute.power_off(worker.instance_id)
    world.empty_the_queue()
    world.run(20)
    world.send()
    (planned,) = [
        action
        for action in plan_next_tick(WORKLOAD, world.ports).plan.actions
        if isinstance(action, LaunchWorkers)
    ]
    assert pools(world.tick()) == launched
    assert planned.first is not None
    assert [str(planned.first.offer)] == launched


def hang(world: ControlWorld, *names: str) -> list[str]:
    """Leave calls of a port or method in the outpost without an answer for a minute.

    Return the calls that were made.
    """
    made: list[str] = []
    asked = set(names)

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        requests = (one.region for one in call.args if isinstance(one, LaunchRequest))
        region = call.kwargs.get("region") or next(requests, None)
        if region != AWAY or asked.isdisjoint({call.port, call.method}):
            return proceed()
        made.append(call.method)
        world.clock.advance(timedelta(seconds=62))
        raise Unreachable("timed out")

    world.interfere = interfere
    return made


@pytest.mark.parametrize("ports", [("market",), ("compute", "market")], ids=len)
def test_an_outpost_that_hangs_stops_no_launch_at_home(ports: tuple[str, ...]) -> None:
    world = ControlWorld(policy=replace(AT_ONCE, max_workers=40), away=(("g4dn.xlarge", 0.9),))
    world.send()
    world.tick()
    made = hang(world, *ports)
    world.clock.advance(timedelta(minutes=20))

    world.send(8)
    first = world.tick()
    world.run(20)

    assert f"g4dn.xlarge/{ZONES[0]}/spot" in pools(first)
    # It keeps few of these ticks waiting.
    assert 1 <= len(made) <= 6


def test_a_lost_launch_in_a_hung_region_stops_no_other() -> None:
    world = a_world(max_workers=40)
    world.compute.lose_next_answer(is_carried_out=False)
    world.send()
    world.tick()
    hang(world, "compute", "market")

    world.send(8)
    decisions = world.run(12)

    assert f"g4dn.xlarge/{ZONES[0]}/spot" in [pool for each in decisions for pool in pools(each)]


def test_a_hung_end_leaves_time_for_launches_at_home() -> None:
    world = ControlWorld(policy=AT_ONCE, away=(("g4dn.xlarge", 0.01),))
    world.send()
    world.tick()
    assert [worker.region for worker in world.workers()] == [AWAY]

    # It never checks in, and is to be ended and replaced.
    world.run(10)
    made = hang(world, "terminate")
    world.run(4)

    assert "terminate" in made
    assert any(worker.region != AWAY for worker in world.workers())


def test_an_outpost_without_settings_keeps_few_ticks_waiting() -> None:
    world = a_world()
    asked = 0
    whole = world.settings.workload(WORKLOAD)[0]
    home = {name: place for name, place in whole.regions.items() if name != AWAY}

    def slow(call: PortCall, proceed: Callable[[], Any]) -> Any:
        nonlocal asked
        found = proceed()
        if (call.port, call.method) != ("settings", "workload"):
            return found
        asked += 1
        world.clock.advance(timedelta(seconds=30))
        return replace(found[0], regions=home, unread={AWAY: "timed out"}), found[1]

    world.interfere = slow
    world.run(10)

    assert asked <= 3


def test_a_silent_region_is_asked_once_no_other_gives_anything() -> None:
    world = a_world(max_workers=1)
    world.compute.lose_next_answer(is_carried_out=False)
    world.send()
    world.tick()
    world.clock.advance(11 * MINUTE)
    on_demand = [replace(p, capacity_type=CapacityType.ON_DEMAND) for p in every_spot_pool()]
    world.dry(*every_spot_pool(), *on_demand)

    decision = world.tick()

    assert pools(decision) == [f"g4dn.xlarge/{AWAY_ZONE}/spot"]
    assert decision.requests[-1].pools[0].startswith(f"g4dn.xlarge/{AWAY_ZONE}")
    assert Reason(ReasonCode.REGIONS_SILENT, {"regions": AWAY}) in decision.notes

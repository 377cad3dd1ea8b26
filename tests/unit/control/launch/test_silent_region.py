"""A region that answers no launch is in the way of no other."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.control.plan.action import LaunchWorkers
from spindown.domain.offer import CapacityType
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import Unreachable
from spindown.operate.plan import preview
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
        for action in preview(WORKLOAD, world.ports).plan.actions
        if isinstance(action, LaunchWorkers)
    ]
    assert pools(world.tick()) == launched
    assert planned.first is not None
    assert [str(planned.first.offer)] == launched


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

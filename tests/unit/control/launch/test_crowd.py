"""What the ceilings have no room for later is launched now; the ladder opens for the promise."""

from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.decision import Decision, Outcome
from spindown.contract.row import spend_sort_key
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Rung
from spindown.domain.reason import ReasonCode
from spindown.operate.plan import plan_next_tick
from tests.builders import NOW, minutes
from tests.control import STRICT, WORKLOAD, ControlWorld, codes, every_spot_pool, pools, with_policy

#: Held for as long as the promise allows, jobs of 6 min, a boot of 3.
PATIENT = {"scale_up_threshold": 1000, "start_within": minutes(36)}


def _spot_first(wait: timedelta) -> tuple[Rung, ...]:
    """Return a ladder with spot alone until something has waited for so long."""
    spot = Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT}))
    return spot, Rung(after=wait, capacity_types=frozenset(CapacityType))


def _launched_at(world: ControlWorld, ticks: int) -> tuple[timedelta | None, Decision]:
    """Return when, of so many ticks, the first launch was, and the last decision."""
    decision = world.tick()
    while decision.outcome is not Outcome.LAUNCHED and ticks:
        decision, ticks = world.tick(minutes(1)), ticks - 1
    is_launched = decision.outcome is Outcome.LAUNCHED
    return (world.now - NOW if is_launched else None), decision


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        pytest.param({"max_workers": 20}, 4, id="room for all that may still be wanted"),
        pytest.param({"max_workers": 3}, 4, id="room for just enough"),
        pytest.param({"max_workers": 2}, 0, id="room for too few"),
        pytest.param({"max_dollars_per_hour": 6.1}, 4, id="room for three at 2 USD"),
        pytest.param({"max_dollars_per_hour": 5.9}, 0, id="room for two"),
    ],
)
def test_a_launch_is_held_only_while_it_will_have_room(
    changes: dict[str, Any], after: float
) -> None:
    # 36 min less a margin of 9, a boot of 3 and a tick: with 23 min left a worker starts four jobs,
    # from minute 5 on three: three workers, then four.
    world = with_policy(**{**PATIENT, **changes})
    world.send(10)

    at, _ = _launched_at(world, 30)

    assert at == minutes(after)


def test_recent_worker_costs_say_how_many_a_ceiling_leaves() -> None:
    world = with_policy(**PATIENT, max_dollars_per_hour=1.0)
    # Two hours at 0.3 USD each: room for three.
    paid = {"dollars": 0.6, "boot_seconds": 600.0, "busy_seconds": 6000.0, "idle_seconds": 600.0}
    world.put(spend_sort_key(NOW - timedelta(days=3)), **paid)
    # Of a day without any worker nothing is known.
    world.put_day(NOW, items=0)
    world.send(10)

    assert world.tick().outcome is Outcome.HELD


def test_a_day_of_refunds_says_nothing_of_what_a_worker_costs() -> None:
    world = with_policy(**PATIENT, max_dollars_per_hour=1.0)
    paid = {"dollars": 0.6, "boot_seconds": 600.0, "busy_seconds": 6000.0, "idle_seconds": 600.0}
    world.put(spend_sort_key(NOW - timedelta(days=1)), **paid)
    # Reclaimed ten minutes past midnight: the half an hour of yesterday is given back today.
    world.put(spend_sort_key(NOW), dollars=-0.1, busy_seconds=600.0)
    world.send(10)

    assert world.tick().outcome is Outcome.HELD


def test_where_nothing_can_wait_the_whole_ladder_is_open() -> None:
    world = with_policy(**PATIENT, **STRICT, max_workers=3)
    world.dry(*every_spot_pool())
    world.send(40)

    decision = world.tick()

    assert pools(decision) == ["g4dn.xlarge/us-west-2a/on-demand"] * 3
    assert decision.summary.sizing.about["why"] == ReasonCode.OVER_CAPACITY
    assert (decision.summary.sizing.about["jobs"], decision.summary.sizing.about["slots"]) == (
        40,
        10,
    )
    assert ReasonCode.LADDER_OPENED_EARLY in codes(decision)


@pytest.mark.parametrize(
    ("rung", "after", "is_early"),
    [
        # 12 min less a boot of 3 and a tick, whatever the margin.
        pytest.param(20, 8, True, id="where there is room, too, as late as the promise allows"),
        pytest.param(3, 3, False, id="by its own clock, if that is sooner"),
    ],
)
def test_the_ladder_opens_in_time_for_a_job_that_has_just_come(
    rung: float, after: float, is_early: bool
) -> None:
    world = with_policy(**STRICT, start_within=minutes(12), ladder=_spot_first(minutes(rung)))
    world.dry(*every_spot_pool())
    world.send()

    at, due = _launched_at(world, 30)

    assert at == minutes(after)
    assert pools(due) == ["g4dn.xlarge/us-west-2a/on-demand"]
    assert (ReasonCode.LADDER_OPENED_EARLY in codes(due)) is is_early


def test_a_plan_says_that_the_ladder_is_open_early() -> None:
    world = with_policy(**PATIENT, **STRICT, max_workers=3)
    world.dry(*every_spot_pool())
    world.send(40)
    world.tick()

    assert ReasonCode.LADDER_OPENED_EARLY in [
        note.code for note in plan_next_tick(WORKLOAD, world.ports).notes
    ]

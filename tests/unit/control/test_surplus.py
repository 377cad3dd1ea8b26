"""A limit that is lowered ends what it has no room for, and nothing comes in its place."""

from dataclasses import replace
from datetime import datetime

import pytest

from spindown.contract.codec import replace_fields
from spindown.control.plan.action import ActionKind
from spindown.control.plan.charge import CHARGED_EVERY
from spindown.control.plan.wind_down import end_surplus
from spindown.control.policy_edit import edit_policy
from spindown.control.tick import observe
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.past_cost import dollars_per_hour
from spindown.domain.policy import Policy
from spindown.domain.reason import ReasonCode
from spindown.domain.termination import GONE
from spindown.operate.plan import plan_next_tick
from tests.builders import minutes
from tests.control import REGION, WORKLOAD, ControlWorld
from tests.spending import two_at_work


def running(world: ControlWorld) -> int:
    """Return how many instances EC2 bills."""
    found = world.compute.instances(region=REGION, tags={})
    return sum(instance.state not in GONE for instance in found)


def two_of_two(**policy: float) -> tuple[ControlWorld, Worker, Worker]:
    """Return a world in which two workers are at work and many jobs wait; all limits hold."""
    world = ControlWorld(policy=Policy(max_workers=2))
    first, second = two_at_work(world)
    edit_policy(WORKLOAD, policy, settings=world.settings, table=world.table)
    return world, first, second


@pytest.mark.parametrize(
    ("limit", "lowered", "count", "code"),
    [
        ("max_workers", 1, 1, ReasonCode.SURPLUS_WORKER),
        ("max_workers", 0, 2, ReasonCode.SURPLUS_WORKER),
        ("max_dollars_per_hour", 0.3, 1, ReasonCode.SURPLUS_DOLLARS),
        ("max_price_per_hour", 0.1, 2, ReasonCode.TOO_DEAR_BY_NOW),
    ],
)
def test_a_lowered_limit_is_told_once(
    limit: str, lowered: float, count: int, code: ReasonCode
) -> None:
    world, *_ = two_of_two(**{limit: lowered})

    decisions = [world.tick(minutes(1)) for _ in range(3)]

    told = [
        [(a.subject, a.reason.code) for a in x.actions if a.kind == ActionKind.WIND_DOWN]
        for x in decisions
    ]
    assert [len(each) for each in told] == [count, 0, 0]
    assert {said for _, said in told[0]} == {code}
    rows = world.view().workers
    assert all(rows[name].surplus_at and not rows[name].takes_jobs for name, _ in told[0])
    assert all(row.state is WorkerState.BUSY for row in rows.values())
    assert not any(decision.requests for decision in decisions)


def test_what_the_plan_prints_is_what_the_tick_does() -> None:
    world, *_ = two_of_two(max_workers=1)
    world.clock.advance(minutes(1))

    planned = plan_next_tick(WORKLOAD, world.ports).plan.actions
    done = world.tick().actions

    subjects = {a.subject for a in planned if a.kind is ActionKind.WIND_DOWN}
    assert subjects == {a.subject for a in done if a.kind == ActionKind.WIND_DOWN}
    assert len(subjects) == 1


def test_a_surplus_machine_that_boots_is_ended_at_once() -> None:
    world = ControlWorld(policy=Policy(max_workers=2))
    world.send(1000)
    world.tick()
    edit_policy(WORKLOAD, {"max_workers": 1}, settings=world.settings, table=world.table)

    decision = world.tick(minutes(1))

    (ending,) = decision.condemned
    assert ending.reason.code is ReasonCode.SURPLUS_WORKER
    assert running(world) == 1


def test_nobody_comes_in_place_of_the_surplus() -> None:
    world, first, second = two_of_two(max_workers=1)
    world.tick(minutes(1))
    (gone,) = [x for x in world.view().workers.values() if x.surplus_at]
    world.compute.power_off(gone.instance_id)

    decisions = world.run(10, beats=True)

    assert gone.instance_id in {first.instance_id, second.instance_id}
    assert not any(decision.requests for decision in decisions)
    assert running(world) == 1


def test_a_launch_goes_by_the_price_of_its_own_tick() -> None:
    world = ControlWorld(policy=Policy(max_workers=2, max_dollars_per_hour=1.2))
    world.send(40)
    world.tick()
    (pool,) = {worker.pool for worker in world.view().workers.values()}
    world.market.move_spot_price(pool.instance_type, pool.zone, 0.5)
    edit_policy(WORKLOAD, {"max_workers": 6}, settings=world.settings, table=world.table)

    # The tick that charges the workers first sees the price that it launches beside.
    world.tick(CHARGED_EVERY)

    assert dollars_per_hour(list(world.view().workers.values())) <= 1.2


def test_who_comes_to_take_a_job_over_is_no_surplus() -> None:
    world, first, second = two_of_two(max_workers=1)
    _, early = observe(WORKLOAD, world.ports, now=world.now, source="")
    fleet = early.draft.fleet
    (launch,) = fleet.launches.values()
    takeover = replace_fields(launch, {"launch_id": "takeover", "is_for_particular_jobs": True})

    def told(claimed_at: datetime | None) -> list[str]:
        changes = {"launch_id": "takeover", "claimed_at": claimed_at}
        workers = {
            first.instance_id: fleet.workers[first.instance_id],
            second.instance_id: replace_fields(fleet.workers[second.instance_id], changes),
        }
        launches = {**fleet.launches, "takeover": takeover}
        draft = replace(early.draft, fleet=replace(fleet, workers=workers, launches=launches))
        return [w.instance_id for w in end_surplus(draft).fleet.workers.values() if w.surplus_at]

    assert told(claimed_at=None) == []
    assert len(told(claimed_at=world.now)) == 1

"""A workload with types: a queue, a fleet and a tag for each shape, under common ceilings."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from spindown.contract import tag
from spindown.contract.row import (
    BREAKER,
    DEPLOYMENT_PARTITION,
    lease_sort_key,
    shape_sort_key,
    throughput_sort_key,
)
from spindown.control.plan.action import ActionKind
from spindown.domain.account_pricing import PaidMachines, Pricing
from spindown.domain.fleet import Lease, Worker, WorkerState
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.policy import JobNeeds, JobType, Rung
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.useless_instance import PACE, STRIKES
from spindown.job.shape_queue import backlogs, queues_of
from spindown.operate.plan import plan_next_tick
from spindown.reason_text import say_outcome
from tests.builders import AT_ONCE, a_type, minutes
from tests.control import (
    LAUNCH_VERSION,
    PRICES,
    REGION,
    STRICT,
    WORKLOAD,
    ZONES,
    ControlWorld,
    a_pool_of,
)

SMALL, LARGE = "c0m8", "c0m48"
TYPES = (
    JobType(name="small", needs=JobNeeds(memory_gib=5)),
    JobType(name="large", needs=JobNeeds(memory_gib=48)),
)
#: The only type that has the memory of LARGE.
BIG = "g4dn.2xlarge"
ONLY_SPOT = Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT}))


def a_typed_world(**policy: Any) -> ControlWorld:
    world = ControlWorld(policy=replace(AT_ONCE, types=TYPES, **policy))
    kind = a_type(BIG, memory_mib=64 * 1024)
    world.market.offer(kind, region=REGION, zones=ZONES, on_demand=0.9, spot=0.4)
    return world


def every_pool() -> list[Pool]:
    return [
        a_pool_of(name, zone, kind)
        for name in (*PRICES, BIG)
        for zone in ZONES
        for kind in CapacityType
    ]


def launched_of(world: ControlWorld, shape: str) -> list[Worker]:
    return [worker for worker in world.workers() if worker.shape == shape]


def test_a_tick_has_messages_routed_and_the_next_one_buys() -> None:
    world = a_typed_world()
    world.ask("s", type="small")
    world.ask("l", type="large")

    first = world.tick()
    second = world.tick()

    assert [action.kind for action in first.actions] == [ActionKind.ROUTE.value]
    assert first.summary.sizing.code is ReasonCode.TO_BE_ROUTED
    assert world.queue.bodies() == []
    assert {shape.shape for shape in second.shapes} >= {SMALL, LARGE}
    (small,) = launched_of(world, SMALL)
    (large,) = launched_of(world, LARGE)
    assert small.instance_type == "g4dn.xlarge"
    assert large.instance_type == BIG
    tags = {i.instance_id: i.tags for i in world.compute.ec2.instances.values()}
    assert tags[small.instance_id][tag.SHAPE] == SMALL
    assert tags[large.instance_id][tag.SHAPE] == LARGE


def test_what_waits_for_one_shape_buys_nothing_of_another() -> None:
    world = a_typed_world()
    for number in range(3):
        world.ask(f"l{number}", type="large")
    world.run(3)

    assert launched_of(world, LARGE)
    assert len(launched_of(world, LARGE)) == len(world.workers())


def test_all_shapes_share_the_most_workers() -> None:
    world = a_typed_world(max_workers=3, drain_within=minutes(2))
    for number in range(60):
        world.ask(f"s{number}", type="small")
        world.ask(f"l{number}", type="large")
    world.run(5)

    assert len(world.workers()) == 3


def test_all_shapes_share_the_dollars_of_an_hour() -> None:
    world = a_typed_world(max_workers=20, max_dollars_per_hour=1.0, drain_within=minutes(2))
    for number in range(60):
        world.ask(f"s{number}", type="small")
        world.ask(f"l{number}", type="large")
    world.run(5)

    assert 0.5 < sum(worker.price_per_hour for worker in world.workers()) <= 1.0 + 1e-9


def test_what_one_shape_uses_is_paid_for_no_other() -> None:
    world = a_typed_world(ladder=(ONLY_SPOT,))
    paid = PaidMachines(instance_type=BIG, count=1, region=REGION)
    world.settings.deploy(replace(world.workload_settings(), pricing=Pricing(paid=(paid,))))
    world.ask("l", type="large")
    world.run(2)
    world.ask("s", type="small")
    world.run(3)

    kinds = [(worker.shape, worker.capacity_type) for worker in world.workers()]
    assert sorted(kinds) == [(LARGE, CapacityType.ON_DEMAND), (SMALL, CapacityType.SPOT)]


def test_what_one_shape_takes_of_a_quota_is_left_to_no_other() -> None:
    world = a_typed_world(ladder=(ONLY_SPOT,))
    world.market.limit("L-3819A6DF", 7, region=REGION)
    world.ask("s", type="small")
    world.run(2)
    world.ask("l", type="large")
    decisions = world.run(3)

    assert [worker.shape for worker in world.workers()] == [SMALL]
    assert not any(decision.requests for decision in decisions)
    assert world.table.query(DEPLOYMENT_PARTITION, "quota#") == {}


def test_shapes_share_the_launch_requests_of_a_tick() -> None:
    world = a_typed_world(**STRICT, max_requests_per_tick=4)
    world.ask("s", type="small")
    world.ask("l", type="large")
    world.dry(*every_pool())

    decision = world.run(2)[-1]

    asked = [request.shape for request in decision.requests]
    assert sorted(asked) == sorted([SMALL, LARGE] * 2)
    assert decision.summary.ended_early.code is ReasonCode.TRIES_USED_UP


def put_on_test(world: ControlWorld) -> None:
    """Let three machines in a row have been of no use, so that one launch tests the next."""
    why = Reason(ReasonCode.STRIKES_FAILED, {"instance_id": "i-0", "count": STRIKES})
    about = {"failed": STRIKES, "launch_version": LAUNCH_VERSION, "reason": why}
    world.put(BREAKER, **about, open_until=world.now)


def test_one_machine_of_all_shapes_tests_a_region_at_a_time() -> None:
    world = a_typed_world()
    put_on_test(world)
    world.ask("s", type="small")
    world.ask("l", type="large")
    world.run(5)
    (tester,) = world.workers()
    world.check_in(tester.instance_id)
    world.run(3)

    (first, second) = sorted(world.workers(), key=lambda each: each.launched_at)
    assert {first.shape, second.shape} == {SMALL, LARGE}
    assert second.launched_at - first.launched_at >= PACE


def test_a_warm_machine_of_one_shape_tests_nothing_for_others() -> None:
    world = a_typed_world(warm_workers=1)
    put_on_test(world)
    world.run(2)
    (warm,) = world.workers()
    world.check_in(warm.instance_id)
    world.ask("l", type="large")
    world.run(7, beats=True)

    assert len(launched_of(world, LARGE)) == 1


def test_each_shape_gets_a_place_before_one_gets_all() -> None:
    world = a_typed_world(max_workers=4, drain_within=minutes(2))
    for number in range(60):
        world.ask(f"l{number}", type="large")
    world.ask("s", type="small")
    world.run(2)

    assert len(launched_of(world, LARGE)) == 3
    assert len(launched_of(world, SMALL)) == 1


def test_the_shape_that_waits_longest_is_bought_for_first() -> None:
    world = a_typed_world(max_workers=1)
    world.ask("s", type="small")
    world.dry(*every_pool())
    world.run(2)
    world.ask("l", type="large")
    world.run(2)
    for pool in every_pool():
        world.compute.set_capacity(pool, None)
    world.run(30)

    assert {worker.shape for worker in world.workers()} == {SMALL}


def test_made_up_shapes_and_those_of_types_get_places_by_turns() -> None:
    world = a_typed_world(max_workers=1, requirements_at_most=JobNeeds(memory_gib=48))
    world.dry(*every_pool())
    for memory_gib in (2, 10, 20):
        world.ask(f"made-up-{memory_gib}", requirements={"memory_gib": memory_gib})
    world.run(3)
    world.ask("s", type="small")
    world.ask("l", type="large")
    world.run(2)
    for pool in every_pool():
        world.compute.set_capacity(pool, None)

    for _ in range(9):
        world.run(1)
        for worker in (each for each in world.workers() if each.is_live):
            queue = world.queue_of(worker.shape)
            while message := queue.receive(wait=timedelta(0), visibility=minutes(1)):
                queue.delete(message.receipt_handle)
            world.compute.terminate(region=REGION, instance_ids=[worker.instance_id])

    found = sorted(world.workers(), key=lambda each: each.launched_at)
    assert [each.shape for each in found] == [LARGE, "c0m16", SMALL, "c0m2", "c0m32"]


def test_a_worker_of_one_shape_is_no_slot_for_another() -> None:
    world = a_typed_world()
    world.ask("s", type="small")
    world.run(2)
    (small,) = launched_of(world, SMALL)
    world.clock.advance(minutes(2))
    world.check_in(small.instance_id)
    world.ask("l", type="large")
    world.run(2)

    assert len(launched_of(world, LARGE)) == 1


def test_an_idle_worker_of_another_shape_leaves_no_work() -> None:
    world = a_typed_world()
    world.ask("s", type="small")
    world.run(2)
    (small,) = launched_of(world, SMALL)
    world.dry(*[worker.pool for worker in launched_of(world, LARGE)])
    world.check_in(small.instance_id)
    queue = world.queue_of(SMALL)
    message = queue.receive(wait=timedelta(0), visibility=minutes(5))
    assert message is not None
    queue.delete(message.receipt_handle)
    world.ask("l", type="large")
    world.run(2)
    world.compute.power_off(small.instance_id)
    world.end(small.instance_id)
    world.run(1)

    assert world.view().breaker.unclaimed == 0


def test_the_job_of_a_lost_worker_returns_to_its_own_queue() -> None:
    world = a_typed_world()
    world.ask("l", type="large")
    world.run(2)
    (worker,) = launched_of(world, LARGE)
    world.check_in(worker.instance_id)
    queue = world.queue_of(LARGE)
    message = queue.receive(wait=timedelta(0), visibility=minutes(30))
    assert message is not None
    lease = Lease(
        instance_id=worker.instance_id,
        slot=0,
        job_id="l",
        epoch=1,
        receipt_handle=message.receipt_handle,
        deadline=world.now + minutes(30),
        not_after=world.now + timedelta(hours=11),
        claimed_at=world.now,
        sent_at=message.sent_at,
        shape=LARGE,
    )
    world.put(lease_sort_key(worker.instance_id, 0), **vars(lease))
    world.change(worker.instance_id, state=WorkerState.BUSY, busy_slots=1, idle_since=None)
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    decision = world.tick(minutes(11))

    assert world.view().leases == ()
    assert queue.backlog().visible == 1
    assert world.view().requeued_jobs["l"].shape == LARGE
    shapes = {shape.shape: shape for shape in decision.shapes}
    assert shapes[LARGE].visible == 1


def test_warm_workers_are_for_jobs_that_state_no_needs() -> None:
    world = a_typed_world(warm_workers=1)
    world.ask("l", type="large")
    world.run(3)

    assert len(launched_of(world, "c0m0")) == 1
    assert len(launched_of(world, LARGE)) == 1
    assert all(w.warm_until is None for w in launched_of(world, LARGE))


def test_machines_of_other_shapes_are_none_that_is_kept_warm() -> None:
    world = a_typed_world()
    world.ask("l", type="large")
    world.run(2)
    world.change_policy(warm_workers=1)
    world.run(2)

    assert sorted(worker.shape for worker in world.workers()) == ["c0m0", LARGE]


def test_plan_shows_each_shape_and_asks_for_a_job_without_needs() -> None:
    world = a_typed_world()
    world.ask("l", type="large")
    world.tick()

    made = plan_next_tick(WORKLOAD, world.ports)
    asked = plan_next_tick(WORKLOAD, world.ports, jobs=5)

    assert {each.shape: each.wanted for each in made.shapes}[LARGE] == 1
    assert [launch.choice.need.shape for launch in made.launches if launch.requests] == [LARGE]
    assert "c0m0" in {launch.choice.need.shape for launch in asked.launches}


def test_a_shape_that_nothing_meets_says_so_and_stops_no_other() -> None:
    world = a_typed_world(requirements_at_most=JobNeeds(memory_gib=1000))
    world.ask("h", requirements={"memory_gib": 900})
    world.ask("s", type="small")
    decision = world.run(2)[-1]

    shapes = {shape.shape: shape for shape in decision.shapes}
    assert shapes["c0m1024"].blocked_by.code is ReasonCode.LAST_RULED_OUT
    assert launched_of(world, SMALL)


def test_a_decision_says_of_which_shape_it_tells() -> None:
    world = a_typed_world(requirements_at_most=JobNeeds(memory_gib=1000))
    world.ask("h", requirements={"memory_gib": 900})
    stuck = world.run(2)[-1]
    world.ask("l", type="large")
    requests = [request for made in world.run(3) for request in made.requests]

    assert stuck.summary.shape == "c0m1024"
    assert say_outcome(stuck.outcome, stuck.summary).startswith("c0m1024 (")
    assert {request.shape for request in requests} == {LARGE}


def test_for_a_shape_of_no_job_any_more_nothing_is_bought() -> None:
    world = a_typed_world(max_workers=20, drain_within=minutes(2))
    for number in range(100):
        world.ask(f"l{number}", type="large")
    world.tick()
    assert world.queue_of(LARGE).backlog().visible == 100

    world.change_policy(types=TYPES[:1])
    world.run(3)

    assert world.workers() == []
    assert world.queue_of(LARGE).bodies() == []
    assert world.dead_letters.backlog().visible == 100
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=minutes(1))
    assert letter is not None
    assert letter.attributes["code"] == ReasonCode.TYPE_UNKNOWN.value


def test_jobs_of_a_type_that_needs_less_now_get_what_it_needs() -> None:
    world = a_typed_world()
    for number in range(3):
        world.ask(f"l{number}", type="large")
    world.tick()
    world.change_policy(types=(TYPES[0], JobType(name="large", needs=JobNeeds(memory_gib=8))))
    world.run(3)

    assert world.queue_of(LARGE).bodies() == []
    assert len(world.queue_of(SMALL).bodies()) == 3
    assert {worker.shape for worker in world.workers()} == {SMALL}


def test_without_any_type_what_a_shape_holds_is_no_work_yet() -> None:
    world = a_typed_world()
    world.ask("l", type="large")
    world.tick()
    world.change_policy(types=())
    decision = world.tick()

    assert decision.shapes == ()
    assert world.workers() == []
    # It is whoever counts messages who sees it.
    queues = queues_of(world.ports, world.workload_settings())
    assert sum(found.visible for found in backlogs(queues)) == 1


def test_a_queue_that_is_not_made_yet_is_empty() -> None:
    world = a_typed_world()
    world.put(shape_sort_key(LARGE), shape=LARGE, url="u", used_at=world.now)

    decision = world.tick()

    assert {shape.shape: shape.visible for shape in decision.shapes} == {"c0m0": 0}


def test_without_types_no_queue_is_looked_at_nobody_is_woken() -> None:
    world = ControlWorld()
    world.put(shape_sort_key(LARGE), shape=LARGE, url="u", used_at=world.now)
    world.send(3)
    decision = world.run(2)[-1]

    assert decision.shapes == ()
    assert world.calls["router.wake"] == 0
    assert world.calls["queue.backlog"] == 2
    assert not world.shape_queues


def test_machines_are_chosen_by_the_speed_of_the_types_at_hand() -> None:
    world = a_typed_world()
    measured = {"hours": 20.0, "reports": 20, "lives": 20}
    # Small jobs run ten times as fast on an A10G, large ones do not.
    speeds = {"T4": {"small": 100.0, "large": 100.0}, "A10G": {"small": 1000.0, "large": 100.0}}
    for gpu, rates in speeds.items():
        for name, rate in rates.items():
            world.put(throughput_sort_key(gpu, 1.0, name), count=20 * rate, **measured)
    a10g = a_type("g5.4xlarge", gpu_name="A10G", memory_mib=64 * 1024)
    world.market.offer(a10g, region=REGION, zones=ZONES, on_demand=1.6, spot=0.6)
    world.ask("s", type="small")
    world.ask("l", type="large")
    world.run(2)

    assert world.view().shapes[SMALL].types == ("small",)
    (small,), (large,) = launched_of(world, SMALL), launched_of(world, LARGE)
    assert small.gpu_name == "A10G"
    assert large.gpu_name == "T4"

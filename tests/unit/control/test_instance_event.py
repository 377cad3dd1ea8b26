"""Events about instances: acted on once, by whoever comes first, and never for a stranger."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract import row as rows
from spindown.contract.decision import Outcome
from spindown.contract.event import (
    InstanceEvent,
    InterruptionWarning,
    RebalanceRecommendation,
    StateChange,
)
from spindown.control.instance_event import Reaction, react
from spindown.domain.fleet import Worker, WorkerState
from spindown.error import NotFound, Unreachable
from spindown.memory import PortCall
from spindown.port import Key, Write
from tests.builders import minutes
from tests.control import REGION, ControlWorld, with_policy


def a_warning(world: ControlWorld, worker: Worker) -> InterruptionWarning:
    return InterruptionWarning(instance_id=worker.instance_id, region=REGION, at=world.now)


def a_state(world: ControlWorld, worker: Worker, state: str = "terminated") -> StateChange:
    return StateChange(instance_id=worker.instance_id, region=REGION, at=world.now, state=state)


def act(world: ControlWorld, event: InstanceEvent) -> Reaction:
    return react(event, world.ports, holder="event")


def a_busy_world() -> tuple[ControlWorld, Worker]:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick()
    return world, worker


def test_a_warning_bounds_the_lease_and_launches_a_replacement() -> None:
    world, worker = a_busy_world()
    deadline = world.now + minutes(2)

    reaction = act(world, a_warning(world, worker))

    row = world.view().workers[worker.instance_id]
    (lease,) = world.view().leases
    assert row.interrupted_at == deadline
    assert (lease.not_after, lease.deadline) == (deadline, deadline)
    assert reaction.acted
    assert reaction.decision is not None
    assert reaction.decision.outcome is Outcome.LAUNCHED
    assert len(world.workers(WorkerState.BOOTING)) == 1


def test_a_warning_leaves_the_message_until_the_deadline() -> None:
    world, worker = a_busy_world()

    act(world, a_warning(world, worker))

    assert world.queue.backlog().visible == 0
    assert world.calls["queue.extend"] == 0


@pytest.mark.parametrize("first", ["worker", "event"], ids=lambda who: f"{who}-first")
def test_an_interruption_is_counted_once_whoever_sees_it_first(first: str) -> None:
    world, worker = a_busy_world()
    sort = rows.worker_sort_key(worker.instance_id)
    if first == "worker":
        world.put(sort, interrupted_at=world.now + minutes(2))

    for _ in range(3):
        act(world, a_warning(world, worker))
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    act(world, a_state(world, worker, "shutting-down"))
    act(world, a_state(world, worker, "terminated"))
    world.run(2)

    view = world.view()
    assert view.rates[rows.pool_sort_key(worker.pool)].count == 1
    assert view.spend[f"{world.now:%Y-%m-%d}"].interruptions == 1
    assert view.pool_cooldowns[worker.pool].strikes == 1
    assert sum(world.metrics.values("Interruptions")) == 1


def test_a_warning_keeps_the_deadline_that_metadata_told() -> None:
    world, worker = a_busy_world()
    earlier = world.now + timedelta(seconds=90)
    world.put(rows.worker_sort_key(worker.instance_id), interrupted_at=earlier)

    act(world, a_warning(world, worker))

    assert world.view().workers[worker.instance_id].interrupted_at == earlier


def test_a_heartbeat_between_read_and_write_keeps_the_warning() -> None:
    world, worker = a_busy_world()

    def beat() -> None:
        world.put(rows.worker_sort_key(worker.instance_id), interrupted_at=world.now + minutes(2))

    world.just_before("transact", beat)
    reaction = act(world, a_warning(world, worker))

    assert reaction.acted
    assert world.view().workers[worker.instance_id].interruption_counted


def test_the_end_of_an_instance_requeues_its_job_at_once() -> None:
    world, worker = a_busy_world()
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))

    reaction = act(world, a_state(world, worker))

    row = world.view().workers[worker.instance_id]
    assert row.state is WorkerState.ENDED
    assert row.ended_at == world.now
    assert world.view().leases == ()
    assert world.queue.backlog().visible == 1
    assert reaction.decision is not None
    assert world.metric("LeasesFreed") == 1
    assert reaction.decision.outcome is Outcome.LAUNCHED


def test_a_reclaim_without_notice_is_free_in_its_first_hour() -> None:
    world, worker = a_busy_world()
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))

    act(world, a_state(world, worker))

    view = world.view()
    assert view.workers[worker.instance_id].interrupted_at == world.now
    assert view.spend[f"{world.now:%Y-%m-%d}"].interruptions == 1
    day = view.spend[f"{world.now:%Y-%m-%d}"]
    assert day.dollars == pytest.approx(worker.extra_price * day.refunded_seconds / 3600)
    assert 0.0 < worker.extra_price < 0.1 * worker.price_per_hour


@pytest.mark.parametrize("answer", ["none", "from before", "unknown"])
def test_a_reclaim_that_ec2_cannot_describe_is_left_to_the_tick(answer: str) -> None:
    world, worker = a_busy_world()
    before = world.compute.instance(region=REGION, instance_id=worker.instance_id)
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))

    def lag(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.port == "compute" and answer == "none":
            raise Unreachable("no answer")
        if call.port == "compute" and call.method == "instance":
            if answer == "unknown":
                raise NotFound(worker.instance_id)
            return before
        return proceed()

    world.interfere = lag
    reaction = act(world, a_state(world, worker))
    world.interfere = None
    world.run(2)

    assert reaction.acted
    assert world.view().leases == ()
    day = world.view().spend[f"{world.now:%Y-%m-%d}"]
    assert day.interruptions == 1
    (other,) = (w for w in world.workers() if w.instance_id != worker.instance_id)
    charged = (other.accrued_until or other.launched_at) - other.launched_at
    kept = worker.extra_price * day.refunded_seconds / 3600
    assert day.dollars - kept == pytest.approx(
        other.price_per_hour * (charged / timedelta(hours=1))
    )


def test_an_end_that_ec2_has_forgotten_is_stored_at_once() -> None:
    world, worker = a_busy_world()
    world.beat()
    world.clock.advance(minutes(10))

    del world.compute.ec2.instances[worker.instance_id]

    assert act(world, a_state(world, worker)).acted
    assert [w.instance_id for w in world.workers(WorkerState.ENDED)] == [worker.instance_id]


def test_a_worker_that_powered_off_is_charged_not_interrupted() -> None:
    world, worker = a_busy_world()
    world.compute.power_off(worker.instance_id)

    act(world, a_state(world, worker))

    day = world.view().spend[f"{world.now:%Y-%m-%d}"]
    assert day.interruptions == 0
    assert day.dollars > 0
    assert world.view().pool_cooldowns == {}


def test_a_newer_receipt_of_the_message_is_left_to_its_holder() -> None:
    world, worker = a_busy_world()
    world.clock.advance(minutes(6))
    newer = world.queue.receive(wait=timedelta(0), visibility=minutes(5))
    assert newer is not None
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))

    act(world, a_state(world, worker))

    assert world.queue.backlog().in_flight == 1
    assert world.view().leases == ()


def test_a_rebalance_recommendation_is_stored_and_nothing_else() -> None:
    world, worker = a_busy_world()
    event = RebalanceRecommendation(instance_id=worker.instance_id, region=REGION, at=world.now)

    first, again = act(world, event), act(world, event)

    assert world.view().workers[worker.instance_id].rebalance_at == world.now
    assert (first.acted, again.acted) == (True, False)
    assert len(world.workers()) == 1


@pytest.mark.parametrize("state", ["pending", "running", "stopping"])
def test_other_state_changes_mean_nothing(state: str) -> None:
    world, worker = a_busy_world()

    assert not act(world, a_state(world, worker, state)).acted
    assert world.view().workers[worker.instance_id].state is WorkerState.BUSY


def test_someone_else_s_instance_costs_one_index_read() -> None:
    world = ControlWorld()

    for event in (
        InterruptionWarning(instance_id="i-0fee", region=REGION, at=world.now),
        RebalanceRecommendation(instance_id="i-0fee", region=REGION, at=world.now),
        StateChange(instance_id="i-0fee", region=REGION, at=world.now, state="terminated"),
    ):
        assert act(world, event) == Reaction(instance_id="i-0fee")

    assert world.calls == {"table.find_machine": 3}


def test_forged_rows_cost_an_event_no_reads() -> None:
    world, worker = a_busy_world()
    before = world.calls["table.get"]
    for number in range(1_000):
        forged = Key(partition=rows.worker_partition("other"), sort=f"worker#i-forged{number}")
        world.table.write(Write(key=forged, set={"instance_id": worker.instance_id}))

    event = RebalanceRecommendation(instance_id=worker.instance_id, region=REGION, at=world.now)

    assert act(world, event).acted
    assert world.calls["table.get"] - before == 1


def test_an_instance_with_its_row_in_history_is_ignored() -> None:
    world, worker = a_busy_world()
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.run(25)

    assert not act(world, a_state(world, worker)).acted
    assert not act(world, a_warning(world, worker)).acted


def test_events_in_any_order_and_number_end_in_the_same_account() -> None:
    accounts = []
    for order in (("warning", "end"), ("end", "warning"), ("end",), ("warning", "end", "end")):
        world, worker = a_busy_world()
        world.compute.reclaim(worker.instance_id, notice=timedelta(0))
        for name in order:
            event = a_warning(world, worker) if name == "warning" else a_state(world, worker)
            act(world, event)
        day = world.view().spend[f"{world.now:%Y-%m-%d}"]
        kept = worker.extra_price * day.refunded_seconds / 3600
        left = round(day.dollars - kept, 9)
        accounts.append((day.interruptions, left, len(world.view().leases)))

    assert set(accounts) == {(1, 0.0, 0)}


def test_a_tick_under_way_leaves_a_replacement_to_the_next() -> None:
    world, worker = a_busy_world()
    world.put(rows.LOCK, until=world.now + minutes(1), holder="tick", fence=99)

    reaction = act(world, a_warning(world, worker))

    assert reaction.acted
    assert reaction.decision is not None
    assert reaction.decision.outcome is Outcome.LOCKED


def test_a_warning_in_the_middle_of_an_end_counts_nothing() -> None:
    world, worker = a_busy_world()
    world.compute.terminate(region=REGION, instance_ids=[worker.instance_id])
    ended = a_state(world, worker)
    world.just_before("write", lambda: react(ended, world.ports, holder="end"))

    reaction = act(world, a_warning(world, worker))

    row = world.view().workers[worker.instance_id]
    assert not reaction.acted
    assert row.state is WorkerState.ENDED
    assert (row.interrupted_at, row.interruption_counted) == (None, False)
    assert sum(day.interruptions for day in world.view().spend.values()) == 0


def test_a_notice_that_is_not_written_gives_no_place_away() -> None:
    world = with_policy(max_workers=1)
    worker = world.launched(jobs=50)
    world.claim(worker.instance_id)
    world.compute.reclaim(worker.instance_id, notice=minutes(2))
    seen: list[str] = []
    struck: list[str] = []

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        # Of each tick the first transaction marks what EC2 takes away.
        if call.method == "transact" and "reclaimed" in seen:
            struck.append(call.method)
            seen.clear()
            raise Unreachable("no answer")
        seen.append(call.method)
        return proceed()

    world.interfere = interfere
    while not struck:
        world.tick(timedelta(seconds=20))

    counted = [w for w in world.workers() if w.is_live and not w.is_interrupting]
    assert len(counted) == 1

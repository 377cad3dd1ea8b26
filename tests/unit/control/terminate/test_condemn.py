"""Ending: only what breaks its own contract, in two steps, until EC2 says that it is gone."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.decision import Outcome
from spindown.contract.row import worker_sort_key
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import ReasonCode
from spindown.error import SpindownError, Unreachable
from spindown.memory import PortCall
from tests.builders import minutes
from tests.control import REGION, ControlWorld, a_pool_of, codes, with_policy
from tests.failure import failing


def test_ends_an_instance_without_check_in_and_tries_the_next() -> None:
    world = with_policy(band=0.0, rank_by="price")
    world.send()
    (instance_id,) = [i for a in world.tick().requests for i in a.instances]

    decisions = world.run(11)

    condemned = [e for d in decisions for e in d.condemned]
    assert [(e.instance_id, e.reason.code) for e in condemned] == [
        (instance_id, ReasonCode.NEVER_CHECKED_IN)
    ]
    assert world.compute.instance(region="us-west-2", instance_id=instance_id).state == "terminated"
    assert world.view().pool_cooldowns[a_pool_of("g4dn.xlarge")].strikes == 1
    assert sum(world.metrics.values("CheckInsMissed")) == 1
    (replacement,) = world.workers(WorkerState.BOOTING)
    # It differs in its zone and its family of types.
    assert replacement.pool == a_pool_of("g6.xlarge", "us-west-2b")


def test_terminates_only_condemned_rows_and_until_they_are_gone() -> None:
    world = ControlWorld()
    world.compute.ec2.ending = minutes(30)
    worker = world.launched()
    log: list[str] = []

    def watch(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "terminate":
            log.append((world.row(worker_sort_key(worker.instance_id)) or {})["state"])
            # The first call is lost.
            return {} if len(log) == 1 else proceed()
        return proceed()

    world.interfere = watch
    world.empty_the_queue()
    world.run(12)

    assert log[:2] == ["condemned", "condemned"]
    (row,) = world.workers()
    assert row.state is WorkerState.ENDED


def test_a_worker_that_takes_a_job_just_in_time_is_spared() -> None:
    world = with_policy(max_workers=1)
    worker = world.launched(2)
    world.run(1)
    stale_from = world.now + minutes(20)
    world.clock.advance_to(stale_from)

    # It writes its row after the tick has read it and before the tick condemns it.
    world.just_before("backlog", lambda: world.claim(worker.instance_id))
    decision = world.tick()

    assert decision.condemned == ()
    (row,) = world.workers(WorkerState.BUSY)
    assert row.instance_id == worker.instance_id
    # It was to make room for another, and did not.
    assert decision.requests == ()
    assert decision.actions == ()
    assert world.calls["compute.terminate"] == 0


def test_ends_nothing_when_most_of_the_fleet_looks_stale() -> None:
    world = with_policy(max_workers=4, drain_within=minutes(10))
    world.send(40)
    world.tick()
    for worker in world.workers():
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-{worker.instance_id}")
    assert len(world.workers()) == 4

    decision = world.run(20)[-1]

    assert world.workers(WorkerState.CONDEMNED, WorkerState.ENDED) == []
    assert world.metric("TerminationsHeldBack") == 1
    assert ReasonCode.MOST_ARE_STALE in codes(decision)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("is_dead", [False, True], ids=["alive", "dead"])
def test_a_few_workers_may_report_after_a_ledger_outage(workers: int, is_dead: bool) -> None:
    world = with_policy(max_workers=workers, drain_within=minutes(10))
    world.send(40)
    world.tick()
    for worker in world.workers():
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-{worker.instance_id}")
    assert len(world.workers(WorkerState.BUSY)) == workers
    world.run(1)

    # Neither heartbeats nor ticks reach the ledger.
    def refuse(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.port == "table":
            raise Unreachable("no answer")
        return proceed()

    world.interfere = refuse
    for _ in range(20):
        with pytest.raises(Unreachable):
            world.tick(minutes(1))
    world.interfere = None
    first = world.tick(minutes(1))
    fleet = [worker.instance_id for worker in world.workers(WorkerState.BUSY)]
    later = []
    for _ in range(12):
        for instance_id in fleet if not is_dead else ():
            world.put(worker_sort_key(instance_id), heartbeat_at=world.now)
        later.append(world.tick(minutes(1)))

    assert (first.condemned, world.metric("TerminationsHeldBack")) == ((), 0)
    assert ReasonCode.NOBODY_LISTENED in codes(first)
    ended = [len(decision.condemned) for decision in later]
    assert ended == [0] * 10 + ([workers] if is_dead else [0]) + [0]


def test_ends_one_silent_worker_and_requeues_its_job() -> None:
    world = with_policy(max_workers=4, drain_within=minutes(10))
    world.send(40)
    world.tick()
    first, *rest = world.workers()
    for worker in (first, *rest):
        world.check_in(worker.instance_id)
    world.claim(first.instance_id)
    for _ in range(16):
        world.clock.advance(minutes(1))
        for worker in rest:
            world.put(
                worker_sort_key(worker.instance_id), heartbeat_at=world.now, idle_since=world.now
            )
        world.tick()

    ended = [w for w in world.workers() if w.instance_id == first.instance_id]
    assert [w.state for w in ended] == [WorkerState.ENDED]
    assert ended[0].reason.code is ReasonCode.SILENT
    assert world.view().leases == ()
    assert {w.state for w in world.workers()} == {WorkerState.IDLE, WorkerState.ENDED} | {
        w.state for w in world.workers(WorkerState.BOOTING)
    }


def test_an_unreadable_row_costs_nobody_instance_or_job() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.put(worker_sort_key(worker.instance_id), state="of-a-later-version")

    for _ in range(40):
        world.clock.advance(minutes(1))
        for lease in world.view().leases:
            world.queue.extend(lease.receipt_handle, minutes(5))
        world.tick()

    assert len(world.view().leases) == 1
    state = world.compute.instance(region=REGION, instance_id=worker.instance_id).state
    assert state == "running"
    assert world.metric("BadRows") == 1


def test_an_unreadable_row_saves_no_instance_past_its_lifetime() -> None:
    world = with_policy(max_lifetime=timedelta(hours=1), lifetime_grace=minutes(15))
    worker = world.launched()
    world.put(worker_sort_key(worker.instance_id), state="of-a-later-version")

    world.run(90)

    state = world.compute.instance(region=REGION, instance_id=worker.instance_id).state
    assert state in {"shutting-down", "terminated"}


def test_an_instance_that_will_not_end_stops_no_other_action() -> None:
    protected = SpindownError("TerminateInstances: OperationNotPermitted: it is protected")
    world = with_policy(max_workers=2)
    worker = world.launched()
    world.change(worker.instance_id, state=WorkerState.CONDEMNED, condemned_at=world.now)
    world.interfere = failing(protected, "terminate")
    world.send(300)

    decision = world.tick(minutes(1))

    assert decision.outcome is Outcome.LAUNCHED
    assert ReasonCode.GRANT_MISSING in codes(decision) or ReasonCode.CALL_FAILED in codes(decision)
    assert "terminate" not in {action.kind for action in decision.actions}


def test_a_worker_that_was_just_heard_is_not_condemned() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.clock.advance(minutes(30))

    def wake(call: PortCall, proceed: Callable[[], Any]) -> Any:
        answer = proceed()
        if call.port == "table" and call.method == "query_each":
            world.put(worker_sort_key(worker.instance_id), heartbeat_at=world.now)
        return answer

    world.interfere = wake
    world.tick()

    assert world.view().workers[worker.instance_id].state is WorkerState.IDLE

"""Ending: only what breaks its own contract, in two steps, until EC2 says that it is gone."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.app.reconcile import reconcile
from spindown.contract import row as rows
from spindown.contract.decision import Decision, Outcome
from spindown.contract.row import worker_sort
from spindown.contract.settings import RunSettings
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.error import SpindownError, Throttled, Unreachable
from spindown.memory import PortCall
from tests.builders import minutes
from tests.control import REGION, WORKLOAD, ZONES, ControlWorld, a_pool_of, with_policy


def test_ends_an_instance_that_never_checked_in_and_tries_the_next_offer() -> None:
    world = with_policy(band=0.0, rank_by="price")
    world.send()
    (instance_id,) = [i for a in world.tick().attempts for i in a.instances]

    decisions = world.run(11)

    condemned = [e for d in decisions for e in d.condemned]
    assert [(e.instance_id, e.reason) for e in condemned] == [
        (instance_id, "never checked in within 10 min")
    ]
    assert world.compute.instance(region="us-west-2", instance_id=instance_id).state == "terminated"
    assert world.view().unavailable[a_pool_of("g4dn.xlarge")].strikes == 1
    assert sum(world.metrics.values("CheckInsMissed")) == 1
    (replacement,) = world.workers(WorkerState.BOOTING)
    assert replacement.pool == a_pool_of("g4dn.xlarge", "us-west-2b")


def test_three_missed_check_ins_in_a_row_open_the_breaker_until_the_image_changes() -> None:
    world = with_policy(max_workers=1)
    world.send()

    decisions = [world.tick(), *world.run(45)]
    launched = [i for d in decisions for a in d.attempts for i in a.instances]

    assert len(launched) == 3
    assert decisions[-1].outcome is Outcome.STOPPED
    assert "3 instances in a row never checked in" in decisions[-1].summary
    world.settings.deploy(replace(world.workload_settings(), run=RunSettings(code_digest="mended")))
    assert any(d.outcome is Outcome.LAUNCHED for d in world.run(6))


def test_an_instance_that_had_no_row_for_too_long_is_no_strike_against_its_image() -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()

    adopted, condemned = world.tick(minutes(12)), world.tick(minutes(1))

    assert [a.outcome for a in adopted.attempts] == ["adopted"]
    assert adopted.condemned == ()
    assert len(condemned.condemned) == 1
    assert world.view().breaker.strikes == 0


def test_a_check_in_makes_the_strikes_start_anew() -> None:
    world = ControlWorld()
    world.put(rows.BREAKER, strikes=2, image="lt-1@3 abc", reason="", open_until=None)

    world.launched()
    world.tick(minutes(1))

    assert world.view().breaker.strikes == 0
    assert world.view().rates[rows.BOOT_RATE].samples == (120.0,)


def test_after_an_open_breaker_one_launch_tries_the_image_however_much_waits() -> None:
    world = with_policy(max_workers=20)
    world.put(
        rows.BREAKER, strikes=3, image="lt-1@3 abc", reason="3 in a row", open_until=world.now
    )
    world.send(2000)
    tries = [world.tick(), world.tick(minutes(1))]
    (booting,) = world.workers(WorkerState.BOOTING)
    assert [d.outcome for d in tries] == [Outcome.LAUNCHED, Outcome.STOPPED]

    world.check_in(booting.instance_id)
    world.run(2)
    assert len(world.workers()) == 20


def test_an_open_breaker_lets_one_launch_through_after_an_hour() -> None:
    world = ControlWorld()
    world.put(
        rows.BREAKER,
        strikes=3,
        image="lt-1@3 abc",
        reason="bad image",
        open_until=world.now + minutes(60),
    )
    world.send()

    stopped, tried = world.tick(), world.tick(minutes(61))

    assert stopped.outcome is Outcome.STOPPED
    assert tried.outcome is Outcome.LAUNCHED


def test_terminates_only_after_the_row_says_condemned_and_again_until_it_is_gone() -> None:
    world = ControlWorld()
    world.compute._ending = minutes(30)
    worker = world.launched()
    log: list[str] = []

    def watch(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "terminate":
            log.append((world.row(worker_sort(worker.instance_id)) or {})["state"])
            # The first call is lost.
            return None if len(log) == 1 else proceed()
        return proceed()

    world.interfere = watch
    _empty(world)
    world.run(12)

    assert log[:2] == ["condemned", "condemned"]
    (row,) = world.workers()
    assert row.state is WorkerState.ENDED


def test_a_worker_that_takes_a_job_at_the_last_moment_is_not_condemned() -> None:
    world = ControlWorld()
    worker = world.launched(2)
    world.run(1)
    stale_from = world.now + minutes(20)
    world.clock.advance_to(stale_from)

    def wake(call: PortCall, proceed: Callable[[], Any]) -> Any:
        # It writes its row after the tick has read it and before the tick condemns it.
        if call.method == "backlog" and world.interfere is not None:
            world.interfere = None
            world.claim(worker.instance_id)
        return proceed()

    world.interfere = wake
    decision = world.tick()

    assert decision.condemned == ()
    (row,) = world.workers(WorkerState.BUSY)
    assert row.instance_id == worker.instance_id
    assert world.calls["compute.terminate"] == 0


def test_ends_nothing_when_most_of_the_fleet_looks_stale_at_once() -> None:
    world = with_policy(max_workers=4, drain_within=minutes(10))
    world.send(40)
    world.tick()
    for worker in world.workers():
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-{worker.instance_id}")
    assert len(world.workers()) == 4

    decision = world.run(20)[-1]

    assert world.workers(WorkerState.CONDEMNED, WorkerState.ENDED) == []
    assert world.metric("ReapingHeldBack") == 1
    assert any("stale at once" in note for note in decision.notes)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("is_dead", [False, True], ids=["alive", "dead"])
def test_after_an_outage_of_the_ledger_a_few_workers_have_time_to_report(
    workers: int, is_dead: bool
) -> None:
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
            world.put(worker_sort(instance_id), heartbeat_at=world.now)
        later.append(world.tick(minutes(1)))

    assert (first.condemned, world.metric("ReapingHeldBack")) == ((), 0)
    assert any("ticks reach the ledger since" in note for note in first.notes)
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
            world.put(worker_sort(worker.instance_id), heartbeat_at=world.now, idle_since=world.now)
        world.tick()

    ended = [w for w in world.workers() if w.instance_id == first.instance_id]
    assert [w.state for w in ended] == [WorkerState.ENDED]
    assert "no heartbeat" in ended[0].reason
    assert world.view().leases == ()
    assert {w.state for w in world.workers()} == {WorkerState.IDLE, WorkerState.ENDED} | {
        w.state for w in world.workers(WorkerState.BOOTING)
    }


def test_an_instance_without_a_row_is_terminated_after_a_grace() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.remove(worker_sort(worker.instance_id))
    launch = next(iter(world.view().launches))
    world.remove(f"launch#{launch}")

    decisions = world.run(20)

    ended = [e for d in decisions for e in d.condemned]
    assert (worker.instance_id, "no row knows it") in {(e.instance_id, e.reason) for e in ended}
    assert {b.instance_id for b in world.compute.bills()} >= {worker.instance_id}
    view = world.compute.instance(region="us-west-2", instance_id=worker.instance_id)
    assert view.state == "terminated"


def test_a_row_without_an_instance_is_ended_and_its_job_requeued() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    del world.compute._instances[worker.instance_id]

    decisions = [world.tick(minutes(4)), world.tick(minutes(1)), world.tick(minutes(1))]

    assert [e.reason for d in decisions for e in d.ended] == ["EC2 does not know it any more"]
    assert world.view().leases == ()
    assert sum(world.metrics.values("LeasesFreed")) == 1
    # The freed job is work for a new worker at once.
    assert len(world.workers(WorkerState.BOOTING)) == 1


@pytest.mark.parametrize("told", [True, False], ids=["after-a-notice", "without-a-notice"])
def test_what_ec2_forgot_was_reclaimed_if_it_had_said_so(told: bool) -> None:
    world = ControlWorld()
    worker = world.launched()
    if told:
        world.put(worker_sort(worker.instance_id), interrupted_at=world.now + minutes(2))
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))

    # EC2 describes an instance for an hour after its end.
    world.tick(minutes(70))

    (ended,) = (w for w in world.view().workers.values() if w.ended_at is not None)
    charged = sum(day.dollars for day in world.view().spend.values())
    assert ended.interruption_counted is told
    assert (charged == 0) is told


def test_an_instance_that_is_gone_before_its_deadline_is_charged_until_it_was_found() -> None:
    world = ControlWorld()
    world.send()
    (instance_id,) = [i for a in world.tick().attempts for i in a.instances]
    world.put(worker_sort(instance_id), interrupted_at=world.now + minutes(2))
    world.compute.power_off(instance_id)
    # A tick that launches would not look.
    world.queue.receive(wait=timedelta(0), visibility=minutes(30))

    world.tick(minutes(1))

    ended = world.view().workers[instance_id]
    assert (ended.ended_at, ended.accrued_until) == (world.now, world.now)


def test_notices_an_interruption_by_the_spot_request_when_the_event_was_lost() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick()
    world.compute.reclaim(worker.instance_id)

    decisions = world.run(2)

    row = world.view().workers[worker.instance_id]
    assert row.interruption_counted
    assert world.view().rates[rows.pool_sort(worker.pool)].count == 1
    assert sum(world.metrics.values("Interruptions")) == 1
    assert any("spot request" in note for d in decisions for note in d.notes)
    assert any(d.outcome is Outcome.LAUNCHED for d in decisions)


def test_a_fault_of_ec2_stops_no_other_step() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.port == "compute" and call.method != "launch":
            raise Unreachable("connection reset")
        return proceed()

    world.interfere = fail
    decisions = world.run(2)
    world.send(50)
    decisions += world.run(1)

    assert any(d.outcome is Outcome.LAUNCHED for d in decisions)
    assert any("no answer" in note for d in decisions for note in d.notes)


def test_a_drained_worker_is_left_to_power_off_by_itself() -> None:
    world = ControlWorld()
    worker = world.launched()
    _empty(world)
    world.change(worker.instance_id, state=WorkerState.DRAINED, reason="no work for 3 minutes")
    world.compute.power_off(worker.instance_id)

    decisions = world.run(2)

    assert world.calls["compute.terminate"] == 0
    assert [e.reason for d in decisions for e in d.ended] == ["no work for 3 minutes"]
    assert world.view().rates[rows.pool_sort(worker.pool)].count == 0


@pytest.mark.parametrize("again", [1, 3])
def test_ending_the_same_instance_again_changes_nothing(again: int) -> None:
    world = ControlWorld()
    worker = world.launched()
    _empty(world)
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.run(2)
    before = world.view().spend, world.view().rates

    for _ in range(again):
        reconcile(WORKLOAD, world.ports, holder="again")

    assert (world.view().spend, world.view().rates) == before


def _empty(world: ControlWorld) -> None:
    while message := world.queue.receive(wait=timedelta(0), visibility=minutes(1)):
        world.queue.delete(message.receipt_handle)


def test_instances_that_die_before_they_check_in_open_the_breaker_too() -> None:
    world = with_policy(max_workers=1)
    world.send()
    launched: list[str] = []

    for _ in range(30):
        decision = world.tick(minutes(1))
        found = [i for a in decision.attempts for i in a.instances]
        launched += found
        for instance_id in found:
            world.compute.power_off(instance_id)

    assert len(launched) == 3
    assert decision.outcome is Outcome.STOPPED
    assert sum(world.metrics.values("CheckInsMissed")) == 3


def _comes_up_and_ends(world: ControlWorld, decision: Decision) -> int:
    """Let each instance of a decision check in and power off without a job; return how many."""
    found = [i for a in decision.attempts for i in a.instances]
    for instance_id in found:
        world.check_in(instance_id)
        world.compute.power_off(instance_id)
    return len(found)


def test_instances_that_come_up_and_end_without_a_job_open_the_breaker() -> None:
    world = with_policy(max_workers=1)
    world.send()

    launched = 0
    for _ in range(45):
        decision = world.tick(minutes(1))
        launched += _comes_up_and_ends(world, decision)

    assert launched == 3
    assert decision.outcome is Outcome.STOPPED
    assert "3 instances in a row checked in and ended without a job" in decision.summary
    assert world.metric("BreakerOpen") == 1
    assert sum(world.metrics.values("CheckInsMissed")) == 0
    # After an hour one, and only one, tries again though many could be launched.
    world.settings.deploy(replace(world.workload_settings(), policy=Policy(max_workers=9)))
    world.send(900)
    tried = world.tick(minutes(60))
    assert [len(a.instances) for a in tried.attempts] == [1]
    (trial,) = tried.attempts[0].instances
    world.check_in(trial)
    assert "tries the image anew" in world.tick(minutes(1)).summary
    # It takes a job: all is well with the image.
    world.claim(trial)
    assert world.tick(minutes(1)).outcome is Outcome.LAUNCHED
    assert world.view().breaker.unclaimed == 0


def test_a_worker_that_finds_no_job_left_is_no_strike_against_its_image() -> None:
    world = with_policy(max_workers=1)
    for _ in range(4):
        world.send()
        decision = world.tick(minutes(1))
        message = world.queue.receive(wait=minutes(0), visibility=minutes(5))
        assert message is not None
        world.queue.delete(message.receipt_handle)
        world.tick(minutes(1))
        assert _comes_up_and_ends(world, decision) == 1
        world.run(2)

    assert world.view().breaker.unclaimed == 0


def test_the_price_of_a_pool_is_stamped_at_the_launch_and_at_the_end() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.clock.advance(minutes(30))
    world.market.move_spot_price("g4dn.xlarge", ZONES[0], 0.31)
    world.compute.power_off(worker.instance_id)

    world.run(2)
    asked = world.calls["market.spot_prices"]
    world.run(4)

    (ended,) = world.workers(WorkerState.ENDED)
    extra = 100 * 0.08 / 730 + 0.005
    assert ended.price_per_hour == pytest.approx(0.20 + extra)
    assert ended.end_price_per_hour == pytest.approx(0.31 + extra)
    # Once, and not in every tick.
    assert world.calls["market.spot_prices"] == asked


def test_a_price_that_cannot_be_read_holds_up_no_end_and_is_stamped_later() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.clock.advance(minutes(45))
    world.compute.power_off(worker.instance_id)

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "spot_prices":
            raise Throttled("slow down")
        return proceed()

    world.interfere = fail
    world.run(4)
    (ended,) = world.workers(WorkerState.ENDED)
    world.interfere = None
    world.run(2)

    assert ended.end_price_per_hour is None
    assert world.workers(WorkerState.ENDED)[0].end_price_per_hour is not None


@pytest.mark.parametrize(
    ("reason", "strikes", "dry"),
    [
        pytest.param("Client.InternalError", 1, 1, id="its volume could not be made"),
        pytest.param("Server.InsufficientInstanceCapacity", 0, 1, id="no capacity after all"),
        pytest.param("Client.UserInitiatedShutdown", 0, 0, id="a person ended it"),
    ],
)
def test_what_ended_an_instance_before_its_check_in_says_whose_fault_it_was(
    reason: str, strikes: int, dry: int
) -> None:
    world = with_policy(max_workers=1, band=0.0)
    world.send()
    (instance_id,) = [i for a in world.tick().attempts for i in a.instances]
    worker = world.view().workers[instance_id]
    world.change(instance_id, state=WorkerState.ENDED, ended_at=world.now, reason=reason)

    world.tick(minutes(1))

    assert world.view().breaker.strikes == strikes
    assert (worker.pool in world.view().unavailable) == dry
    # Counted once, though the row stays for a while.
    world.tick(minutes(1))
    assert world.view().breaker.strikes == strikes


def test_a_row_that_cannot_be_read_costs_nobody_the_instance_or_the_job() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.put(worker_sort(worker.instance_id), state="of-a-later-version")

    for _ in range(40):
        world.clock.advance(minutes(1))
        for lease in world.view().leases:
            world.queue.extend(lease.receipt_handle, minutes(5))
        world.tick()

    assert len(world.view().leases) == 1
    state = world.compute.instance(region=REGION, instance_id=worker.instance_id).state
    assert state == "running"
    assert world.metric("BadRows") == 1


def test_a_row_that_cannot_be_read_saves_no_instance_past_its_lifetime() -> None:
    world = with_policy(max_lifetime=timedelta(hours=1), lifetime_grace=minutes(15))
    worker = world.launched()
    world.put(worker_sort(worker.instance_id), state="of-a-later-version")

    world.run(90)

    state = world.compute.instance(region=REGION, instance_id=worker.instance_id).state
    assert state in {"shutting-down", "terminated"}


def test_an_instance_that_cannot_be_ended_stops_neither_launching_nor_requeueing() -> None:
    def protect(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "terminate":
            raise SpindownError("TerminateInstances: OperationNotPermitted: it is protected")
        return proceed()

    world = with_policy(max_workers=2)
    worker = world.launched()
    world.change(worker.instance_id, state=WorkerState.CONDEMNED, condemned_at=world.now)
    world.interfere = protect
    world.send(300)

    decision = world.tick(minutes(1))

    assert decision.outcome is Outcome.LAUNCHED
    assert any("it is protected" in note for note in decision.notes)


def test_a_worker_that_has_just_given_a_sign_of_life_is_not_condemned() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.clock.advance(minutes(30))

    def wake(call: PortCall, proceed: Callable[[], Any]) -> Any:
        answer = proceed()
        if call.port == "table" and call.method == "query" and "w#" in call.args[0]:
            world.put(worker_sort(worker.instance_id), heartbeat_at=world.now)
        return answer

    world.interfere = wake
    world.tick()

    assert world.view().workers[worker.instance_id].state is WorkerState.IDLE

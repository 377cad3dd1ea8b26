"""What EC2 has taken, ended or forgotten: found, charged, requeued, replaced."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract import row as rows
from spindown.contract import tag
from spindown.contract.codec import encode
from spindown.contract.decision import Outcome
from spindown.contract.row import (
    history_partition,
    lease_sort_key,
    machine_sort_key,
    worker_sort_key,
)
from spindown.control.policy_edit import edit_policy
from spindown.control.tick import run_tick
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import Unreachable
from spindown.memory import PortCall
from spindown.operate.plan import plan_next_tick
from tests.builders import NOW, minutes
from tests.control import WORKLOAD, ControlWorld, codes, with_policy
from tests.failure import failing
from tests.spending import PRICE


def test_an_instance_without_a_row_is_terminated_after_a_grace() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    launch = next(iter(world.view().launches))
    for sort in (worker_sort_key, machine_sort_key):
        world.remove(sort(worker.instance_id))
    world.remove(f"launch#{launch}")

    decisions = world.run(20)

    ended = [e for d in decisions for e in d.condemned]
    assert (worker.instance_id, ReasonCode.NO_ROW) in {
        (e.instance_id, e.reason.code) for e in ended
    }
    assert {b.instance_id for b in world.compute.bills()} >= {worker.instance_id}
    view = world.compute.instance(region="us-west-2", instance_id=worker.instance_id)
    assert view.state == "terminated"


def test_a_row_without_an_instance_ends_and_frees_its_job() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    del world.compute.ec2.instances[worker.instance_id]

    decisions = [world.tick(minutes(4)), world.tick(minutes(1)), world.tick(minutes(1))]

    assert [e.reason.code for d in decisions for e in d.ended] == [ReasonCode.UNKNOWN_TO_EC2]
    assert world.view().leases == ()
    assert sum(world.metrics.values("LeasesFreed")) == 1
    # The freed job is work for a new worker at once.
    assert len(world.workers(WorkerState.BOOTING)) == 1


def _six_at_work() -> ControlWorld:
    world = with_policy(max_workers=6, drain_within=minutes(5))
    world.send(100)
    world.tick()
    for worker in world.workers():
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-{worker.instance_id}")
    world.run(6, beats=True)
    assert len(world.workers(WorkerState.BUSY)) == 6
    return world


def _empty_once() -> Callable[[PortCall, Callable[[], Any]], Any]:
    """Let EC2 describe nothing when it is asked next."""
    empty = [()]

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        return empty.pop() if call.method == "instances" and empty else proceed()

    return interfere


def test_an_empty_answer_ends_nobody_who_is_heard() -> None:
    world = _six_at_work()
    world.interfere = _empty_once()

    decisions = world.run(15, beats=True)

    assert [e for d in decisions for e in d.ended] == []
    assert len(world.workers(WorkerState.BUSY)) == len(world.compute.bills()) == 6
    doubts = [n for d in decisions for n in d.notes if n.code is ReasonCode.ANSWER_DOUBTED]
    assert [n.about["workers"] for n in doubts] == [6]


@pytest.mark.parametrize("theirs", [{tag.DEPLOYMENT: "other"}, {tag.REGION: "eu-west-1"}])
def test_a_row_that_names_another_s_instance_is_none(theirs: dict[str, str]) -> None:
    world = _six_at_work()
    foreign = world.launch_astray(**theirs)
    named = replace(world.workers()[0], instance_id=foreign)
    world.put(worker_sort_key(foreign), **encode(named))

    world.run(8, beats=True)

    assert foreign not in world.view().workers
    assert world.row(worker_sort_key(foreign)) is None
    state = world.compute.instance(region="us-west-2", instance_id=foreign).state
    assert state == "running"


def test_without_a_second_answer_nobody_who_is_heard_ends() -> None:
    world = _six_at_work()
    empty = _empty_once()

    def no_second(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "described":
            raise Unreachable("no answer")
        return empty(call, proceed)

    world.interfere = no_second
    world.run(15, beats=True)

    assert len(world.workers(WorkerState.BUSY)) == len(world.compute.bills()) == 6


@pytest.mark.parametrize("beats", [True, False], ids=["heard", "silent"])
def test_two_answers_end_a_row_and_one_that_of_a_silent_worker(beats: bool) -> None:
    world = _six_at_work()
    gone = world.workers()[0].instance_id
    world.run(12, beats=True)
    if not beats:
        world.change(gone, heartbeat_at=world.now - minutes(11), checked_in_at=NOW)
        lease = next(x for x in world.view().leases if x.instance_id == gone)
        world.put(lease_sort_key(gone, lease.slot), deadline=world.now)
    del world.compute.ec2.instances[gone]
    before = world.calls["compute.described"]

    decisions = world.run(3)

    ended = [(e.instance_id, e.reason.code) for d in decisions for e in d.ended]
    assert ended == [(gone, ReasonCode.UNKNOWN_TO_EC2)]
    assert world.calls["compute.described"] - before == beats


def test_a_job_is_freed_though_its_progress_is_unreadable() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(1))
    world.compute.power_off(worker.instance_id)

    def no_history(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "write" and call.args[0].key.partition == history_partition(WORKLOAD):
            raise Unreachable("no answer")
        return proceed()

    world.interfere = no_history
    decisions = world.run(2)

    assert world.queue.backlog().visible == 1
    assert decisions[-1].outcome is Outcome.LAUNCHED


@pytest.mark.parametrize("told", [True, False], ids=["after-a-notice", "without-a-notice"])
def test_what_ec2_forgot_was_reclaimed_if_it_had_said_so(told: bool) -> None:
    world = ControlWorld()
    worker = world.launched()
    # What the worker itself says of it counts for nothing.
    world.put(worker_sort_key(worker.instance_id), interrupted_at=world.now + minutes(2))
    if told:
        world.put(machine_sort_key(worker.instance_id), noticed_at=world.now)
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))

    # EC2 describes an instance for an hour after its end.
    world.tick(minutes(70))

    (ended,) = (w for w in world.view().workers.values() if w.ended_at is not None)
    charged = sum(day.dollars for day in world.view().spend.values())
    assert ended.interruption_counted is told
    assert (ended.refunded_usd > 0.0) is told
    assert (charged < 0.1 * (charged + ended.refunded_usd)) is told


def test_an_instance_gone_early_is_charged_until_it_was_found() -> None:
    world = ControlWorld()
    world.send()
    (instance_id,) = [i for a in world.tick().requests for i in a.instances]
    world.put(worker_sort_key(instance_id), interrupted_at=world.now + minutes(2))
    world.compute.power_off(instance_id)
    # A tick that launches would not look.
    world.queue.receive(wait=timedelta(0), visibility=minutes(30))

    world.tick(minutes(1))

    ended = world.view().workers[instance_id]
    assert (ended.ended_at, ended.accrued_until) == (world.now, world.now)


def test_finds_an_interruption_by_its_request_without_an_event() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick()
    world.compute.reclaim(worker.instance_id)

    decisions = world.run(2)

    row = world.view().workers[worker.instance_id]
    assert row.interruption_counted
    assert world.view().rates[rows.pool_sort_key(worker.pool)].count == 1
    assert sum(world.metrics.values("Interruptions")) == 1
    noted = [each.kind for decision in decisions for each in decision.actions]
    assert "interrupt" in noted
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
    assert any(ReasonCode.NO_ANSWER in codes(decision) for decision in decisions)


def test_a_drained_worker_is_left_to_power_off_by_itself() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.empty_the_queue()
    world.change(worker.instance_id, state=WorkerState.DRAINED, reason=Reason(ReasonCode.IDLE))
    world.compute.power_off(worker.instance_id)

    decisions = world.run(2)

    assert world.calls["compute.terminate"] == 0
    assert [e.reason.code for d in decisions for e in d.ended] == [ReasonCode.IDLE]
    assert world.view().rates[rows.pool_sort_key(worker.pool)].count == 0


@pytest.mark.parametrize("again", [1, 3])
def test_ending_the_same_instance_again_changes_nothing(again: int) -> None:
    world = ControlWorld()
    worker = world.launched()
    world.empty_the_queue()
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.run(2)
    before = world.view().spend, world.view().rates

    for _ in range(again):
        run_tick(WORKLOAD, world.ports, holder="again")

    assert (world.view().spend, world.view().rates) == before


def test_a_reclaimed_worker_is_replaced_before_its_job_shows() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.put(rows.worker_sort_key(worker.instance_id), interrupted_at=world.now + minutes(2))

    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    assert decision.visible == 0
    assert len(world.workers(WorkerState.BOOTING)) == 1


def test_a_ledger_that_lost_everything_finds_its_instances() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    for sort in list(world.partition()):
        world.remove(sort)

    world.run(20)

    # Not adoptable without its launch row: ended, so that nothing bills unseen.
    view = world.compute.instance(region="us-west-2", instance_id=worker.instance_id)
    assert view.state == "terminated"


#: Jobs of an hour: each needs a slot of its own.
_LONG_JOBS = {"throughput_estimate": 10.0, "items_per_job_estimate": 10}


def test_a_job_that_shows_by_itself_is_not_counted_twice() -> None:
    world = with_policy(**_LONG_JOBS)
    silent = world.launched()
    world.claim(silent.instance_id)

    decisions = world.run(14)

    # It shows after five minutes; its worker is given up after ten.
    assert [e.instance_id for d in decisions for e in d.ended] == [silent.instance_id]
    assert world.queue.backlog().visible == 1
    assert len(world.workers(WorkerState.BOOTING)) == 1


def test_a_job_counts_once_while_ec2_is_late_to_take_a_worker() -> None:
    world = with_policy(**_LONG_JOBS)
    worker = world.launched()
    lease = world.claim(worker.instance_id)
    deadline = world.now + minutes(2)
    world.put(worker_sort_key(worker.instance_id), interrupted_at=deadline)
    world.put(lease_sort_key(worker.instance_id, 0), deadline=deadline, not_after=deadline)
    world.queue.extend(lease.receipt_handle, minutes(2))

    world.run(5)

    assert world.workers(WorkerState.BUSY) == [world.view().workers[worker.instance_id]]
    assert world.queue.backlog().visible == 1
    assert len(world.workers(WorkerState.BOOTING)) == 1


def test_a_pool_whose_reclaim_is_found_late_may_be_asked_again() -> None:
    world = with_policy(max_workers=2)
    worker = world.launched()
    world.compute.reclaim(worker.instance_id, notice=timedelta(0))
    world.clock.advance(minutes(20))

    made = plan_next_tick(WORKLOAD, world.ports)
    decision = world.tick()

    # It was to be left alone for three minutes from its end, which are over.
    assert made.plan.fleet.pool_cooldowns[worker.pool].until <= world.now
    given = [pool for a in decision.requests for pool in a.instances.values()]
    assert given == [str(worker.pool)]


def unseen(world: ControlWorld, *methods: str) -> None:
    """Let EC2 describe nothing, nor answer these calls."""
    world.interfere = failing(Unreachable("no answer"), "instances", "described", *methods)


def booked(world: ControlWorld) -> float:
    return sum(day.dollars for day in world.view().spend.values())


@pytest.mark.parametrize("is_known", [True, False])
def test_what_ec2_says_when_it_terminates_ends_the_bill(*, is_known: bool) -> None:
    world = with_policy(max_workers=1)
    world.launched()
    world.empty_the_queue()
    if not is_known:
        world.compute.ec2.instances.clear()
    unseen(world)

    decisions = world.run(60)

    ended = [end for decision in decisions for end in decision.ended]
    assert len(ended) == 1
    assert not world.workers(WorkerState.CONDEMNED)
    # Silent after 2 min, condemned at 13 min at the latest, told a tick later; nothing since.
    assert booked(world) <= PRICE * 14 / 60
    if is_known:
        (bill,) = world.compute.bills()
        assert booked(world) == pytest.approx(bill.dollars, abs=PRICE / 60)


def test_who_ec2_says_nothing_of_is_charged_on() -> None:
    world = with_policy(max_workers=1)
    worker = world.launched()
    world.empty_the_queue()
    unseen(world, "terminate")

    world.run(60)

    (row,) = world.workers()
    assert row.state is WorkerState.CONDEMNED
    assert row.gone_at is None
    assert booked(world) >= PRICE * 55 / 60
    assert worker.instance_id == row.instance_id


def test_who_is_not_known_yet_after_its_launch_is_not_gone() -> None:
    world = with_policy(max_workers=1)
    world.send(1)
    world.tick()
    (worker,) = world.workers()
    world.compute.ec2.instances.clear()
    unseen(world)
    edit_policy(WORKLOAD, {"max_workers": 0}, settings=world.settings, table=world.table)

    world.run(4)
    assert world.view().workers[worker.instance_id].gone_at is None
    world.run(4)
    assert world.view().workers[worker.instance_id].gone_at is not None


def test_an_end_by_an_event_counts_though_nothing_is_described() -> None:
    world = with_policy(max_workers=1)
    worker = world.launched()
    world.empty_the_queue()
    unseen(world)
    world.put(machine_sort_key(worker.instance_id), gone_at=world.now)

    world.run(10)

    assert not world.workers(WorkerState.IDLE, WorkerState.CONDEMNED)
    assert booked(world) == pytest.approx(PRICE * 2 / 60)

"""Instances of no use open the breaker of their image; one at a time tries it anew."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from spindown.contract import row as rows
from spindown.contract.decision import Decision, Outcome
from spindown.contract.settings import RunSettings
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.policy import Policy, Rung
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.useless_instance import STRIKES
from spindown.domain.useless_trait import UselessTrait
from spindown.error import Unreachable
from tests.builders import account_refused, ec2_said, minutes
from tests.control import LAUNCH_VERSION, ZONES, ControlWorld, with_policy
from tests.failure import failing


def test_three_missed_check_ins_open_it_until_a_new_image() -> None:
    world = with_policy(max_workers=1)
    world.send()

    decisions = [world.tick(), *world.run(45)]
    launched = [i for d in decisions for a in d.requests for i in a.instances]

    assert len(launched) == 3
    assert decisions[-1].outcome is Outcome.BLOCKED
    assert decisions[-1].summary.why.about["why"] == ReasonCode.STRIKES_SILENT
    world.settings.deploy(replace(world.workload_settings(), run=RunSettings(code_digest="mended")))
    assert any(d.outcome is Outcome.LAUNCHED for d in world.run(6))


def test_an_instance_long_without_a_row_is_no_strike() -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()

    adopted, condemned = world.tick(minutes(12)), world.tick(minutes(1))

    assert [a.outcome for a in adopted.requests] == ["adopted"]
    assert adopted.condemned == ()
    assert len(condemned.condemned) == 1
    assert world.view().breaker.silent == 0


def test_an_instance_without_a_row_while_ec2_fails_is_no_strike() -> None:
    world = with_policy(max_workers=1)
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()
    world.interfere = failing(Unreachable("no answer"), "instances")
    world.run(12)
    world.interfere = None

    decisions = world.run(2)

    assert sum(len(decision.condemned) for decision in decisions) == 1
    assert world.view().breaker.silent == 0


def test_each_missed_check_in_of_a_tick_is_counted() -> None:
    world = with_policy(max_workers=2, warm_workers=2)
    world.tick()
    pools = {worker.pool for worker in world.workers()}
    world.clock.advance(minutes(1))
    for worker in world.workers():
        world.compute.power_off(worker.instance_id)

    world.tick(minutes(1))

    assert world.metrics.values("CheckInsMissed")[-1] == 2
    assert world.view().breaker.silent == 2
    assert world.view().pool_cooldowns.keys() == pools


def test_a_pool_whose_instance_kept_silent_is_left_alone_for_it() -> None:
    world = with_policy(max_workers=1)
    world.send()
    world.tick()
    (worker,) = world.workers()
    world.run(12)

    memory = world.view().pool_cooldowns[worker.pool]
    assert memory.reason.code is ReasonCode.POOL_NEVER_CHECKED_IN


def test_a_pool_whose_instance_ended_at_once_is_left_that_tick() -> None:
    world = with_policy(max_workers=1)
    world.send()
    (first,) = world.tick().requests
    (worker,) = world.workers()
    world.clock.advance(minutes(1))
    world.compute.power_off(worker.instance_id)

    (second,) = world.tick(minutes(1)).requests

    memory = world.view().pool_cooldowns[worker.pool]
    assert memory.reason.about["ended"] == ReasonCode.EC2_SAID
    assert str(worker.pool) in first.pools
    assert str(worker.pool) not in second.pools


def test_one_launch_tries_the_image_of_an_open_breaker() -> None:
    world = with_policy(max_workers=20)
    world.put(
        rows.BREAKER,
        silent=3,
        launch_version=LAUNCH_VERSION,
        reason=account_refused(),
        open_until=world.now,
    )
    world.send(2000)
    tries = [world.tick(), world.tick(minutes(1))]
    (booting,) = world.workers(WorkerState.BOOTING)
    assert [d.outcome for d in tries] == [Outcome.LAUNCHED, Outcome.BLOCKED]

    world.check_in(booting.instance_id)
    world.run(2)
    assert len(world.workers()) == 20


def test_an_open_breaker_lets_one_launch_through_after_an_hour() -> None:
    world = ControlWorld()
    world.put(
        rows.BREAKER,
        silent=3,
        launch_version=LAUNCH_VERSION,
        reason=account_refused(),
        open_until=world.now + minutes(60),
    )
    world.send()

    stopped, tried = world.tick(), world.tick(minutes(61))

    assert stopped.outcome is Outcome.BLOCKED
    assert tried.outcome is Outcome.LAUNCHED


def test_instances_that_die_before_their_check_in_open_it() -> None:
    world = with_policy(max_workers=1)
    world.send()
    launched: list[str] = []

    for _ in range(30):
        decision = world.tick(minutes(1))
        found = [i for a in decision.requests for i in a.instances]
        launched += found
        for instance_id in found:
            world.compute.power_off(instance_id)

    assert len(launched) == 3
    assert decision.outcome is Outcome.BLOCKED
    assert sum(world.metrics.values("CheckInsMissed")) == 3


def _comes_up_and_ends(world: ControlWorld, decision: Decision) -> int:
    """Let each instance of a decision check in and power off without a job; return how many."""
    found = [i for a in decision.requests for i in a.instances]
    for instance_id in found:
        world.check_in(instance_id)
        world.compute.power_off(instance_id)
    return len(found)


def test_instances_that_end_without_a_job_open_it() -> None:
    world = with_policy(max_workers=1)
    world.send()

    launched = 0
    for _ in range(45):
        decision = world.tick(minutes(1))
        launched += _comes_up_and_ends(world, decision)

    assert launched == 3
    assert decision.outcome is Outcome.BLOCKED
    assert decision.summary.why.about["why"] == ReasonCode.STRIKES_UNCLAIMED
    assert world.metric("BreakerOpen") == 1
    assert sum(world.metrics.values("CheckInsMissed")) == 0
    # After an hour one, and only one, tries again though many could be launched.
    world.settings.deploy(replace(world.workload_settings(), policy=Policy(max_workers=9)))
    world.send(900)
    tried = world.tick(minutes(60))
    assert [len(a.instances) for a in tried.requests] == [1]
    (trial,) = tried.requests[0].instances
    world.check_in(trial)
    assert world.tick(minutes(1)).summary.why.code is ReasonCode.LAUNCH_VERSION_ON_TEST
    # It takes a job: all is well with the image.
    world.claim(trial)
    assert world.tick(minutes(1)).outcome is Outcome.LAUNCHED
    assert world.view().breaker.unclaimed == 0


def _fails_all(world: ControlWorld, decision: Decision) -> int:
    """Let each instance of a decision take a job, find itself no good and power off."""
    found = [i for a in decision.requests for i in a.instances]
    for instance_id in found:
        world.check_in(instance_id)
        lease = world.claim(instance_id)
        world.queue.extend(lease.receipt_handle, minutes(0))
        world.remove(rows.lease_sort_key(instance_id, 0))
        marks = {
            "unfit_at": world.now,
            "draining_at": world.now,
            "reason": Reason(ReasonCode.JOBS_FAILED),
        }
        world.change(instance_id, state=WorkerState.IDLE, busy_slots=0, **marks)
        world.compute.power_off(instance_id)
    return len(found)


def test_workers_whose_jobs_all_fail_open_it_until_one_is_done() -> None:
    world = with_policy(max_workers=1)
    world.send(40)

    _fail_three(world)

    decision = world.tick(minutes(1))
    assert decision.outcome is Outcome.BLOCKED
    assert decision.summary.why.about["why"] == ReasonCode.STRIKES_FAILED
    assert world.metric("BreakerOpen") == 1
    assert sum(world.metrics.values("CheckInsMissed")) == 0
    # Then one tries again, and no other while nobody knows how it fares.
    world.settings.deploy(replace(world.workload_settings(), policy=Policy(max_workers=9)))
    tried = world.tick(minutes(5))
    (trial,) = [i for a in tried.requests for i in a.instances]
    world.check_in(trial)
    world.claim(trial)
    assert world.tick(minutes(1)).summary.why.code is ReasonCode.LAUNCH_VERSION_ON_TEST
    world.do_items(1)
    assert world.tick(minutes(1)).outcome is Outcome.LAUNCHED
    assert world.view().breaker.failed == 0


def test_a_long_running_job_keeps_no_other_from_trying() -> None:
    world = with_policy(max_workers=2, max_lifetime=minutes(600))
    busy = world.launched()
    world.claim(busy.instance_id)
    world.send(40)
    while world.view().breaker.failed < STRIKES:
        _fails_all(world, world.tick(minutes(1)))
        world.change(busy.instance_id, heartbeat_at=world.now)

    world.clock.advance(minutes(4))
    world.change(busy.instance_id, heartbeat_at=world.now)
    assert world.tick(minutes(1)).outcome is Outcome.LAUNCHED


def test_a_slow_job_of_a_test_keeps_others_for_minutes() -> None:
    world = with_policy(max_workers=9)
    world.send(40)
    _fail_three(world)
    tried = world.tick(minutes(5))
    (trial,) = [i for a in tried.requests for i in a.instances]
    world.check_in(trial)
    world.claim(trial)
    assert world.tick(minutes(4)).summary.why.code is ReasonCode.LAUNCH_VERSION_ON_TEST
    world.change(trial, heartbeat_at=world.now)

    again = world.tick(minutes(1))

    assert [len(a.instances) for a in again.requests] == [1]


def test_an_item_between_two_failing_workers_counts_for_it() -> None:
    world = with_policy(max_workers=1)
    world.send(40)
    failed: list[int] = []
    while len(failed) < 4:
        if _fails_all(world, world.tick(minutes(1))):
            world.tick(minutes(1))
            failed.append(world.view().breaker.failed)
            if len(failed) == 2:
                world.do_items(5)

    assert failed == [1, 2, 1, 2]


def test_a_worker_that_finds_no_job_left_is_no_strike() -> None:
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


@pytest.mark.parametrize(
    ("reason", "strikes", "dry"),
    [
        pytest.param("Client.InternalError", 1, 1, id="its volume could not be made"),
        pytest.param("Server.InsufficientInstanceCapacity", 0, 1, id="no capacity after all"),
        pytest.param("Client.UserInitiatedShutdown", 0, 0, id="a person ended it"),
    ],
)
def test_what_ended_an_instance_early_says_whose_fault_it_was(
    reason: str, strikes: int, dry: int
) -> None:
    world = with_policy(max_workers=1, band=0.0)
    world.send()
    (instance_id,) = [i for a in world.tick().requests for i in a.instances]
    worker = world.view().workers[instance_id]
    world.change(
        instance_id,
        reason=ec2_said(reason),
        end_price_per_hour=0.2,
    )
    world.end(instance_id)

    world.tick(minutes(1))

    assert world.view().breaker.silent == strikes
    assert (worker.pool in world.view().pool_cooldowns) == dry
    # Counted once, though the row stays for a while.
    world.tick(minutes(1))
    assert world.view().breaker.silent == strikes


def test_a_row_that_is_gone_is_not_made_anew_to_count() -> None:
    world = with_policy(max_workers=1)
    world.send()
    (instance_id,) = [i for a in world.tick().requests for i in a.instances]
    world.change(instance_id, state=WorkerState.ENDED, end_price_per_hour=0.2)
    world.end(instance_id)
    world.just_before("transact", lambda: world.remove(rows.worker_sort_key(instance_id)))

    world.tick(minutes(1))

    assert world.row(rows.worker_sort_key(instance_id)) is None


@pytest.mark.parametrize("ends", ["by itself", "as condemned"])
def test_boots_while_the_ledger_was_away_are_no_strikes(ends: str) -> None:
    world = with_policy(max_workers=3, warm_workers=3)
    world.tick()
    booting = world.workers()
    assert len(booting) == 3
    # No tick reaches the ledger, and no worker could have checked in.
    world.clock.advance(minutes(30))
    if ends == "by itself":
        for worker in booting:
            world.compute.power_off(worker.instance_id)

    decisions = world.run(4)

    gone = {w.instance_id for w in booting}
    live = {w.instance_id for w in world.workers() if w.is_live}
    assert not live & gone
    assert world.view().breaker.silent == 0
    assert any(d.outcome is Outcome.LAUNCHED for d in decisions)


def _fail_three(world: ControlWorld) -> None:
    while world.view().breaker.failed < STRIKES:
        _fails_all(world, world.tick(minutes(1)))


def test_jobs_that_fail_beside_others_only_slow_launches_down() -> None:
    world = with_policy(max_workers=9)
    world.tick()
    world.do_items(5)
    world.send(40)
    _fail_three(world)

    breaker = world.view().breaker
    assert breaker.open_until is not None
    assert breaker.open_until - world.now <= minutes(5)
    assert breaker.reason.code is ReasonCode.STRIKES_OF_MESSAGES
    # Nobody need repair it.
    assert world.metric("BreakerOpen") == 0
    assert world.tick(minutes(1)).outcome is Outcome.BLOCKED
    # One at a time.
    tried = world.tick(minutes(5))
    assert [len(a.instances) for a in tried.requests] == [1]


def test_what_other_code_has_done_does_not_speak_for_new_code() -> None:
    world = with_policy(max_workers=1)
    world.tick()
    world.do_items(5)
    world.settings.deploy(replace(world.workload_settings(), run=RunSettings(code_digest="new")))
    world.tick(minutes(6))
    world.send(40)
    _fail_three(world)

    breaker = world.view().breaker
    assert breaker.reason.code is ReasonCode.STRIKES_FAILED
    assert breaker.open_until is not None
    assert world.metric("BreakerOpen") == 1


def test_hours_of_jobs_that_all_fail_call_a_person() -> None:
    world = with_policy(max_workers=1)
    world.tick()
    world.do_items(5)
    world.send(400)
    _fail_three(world)
    called, launched = [], 0
    for _ in range(9 * 60):
        launched += _fails_all(world, world.tick(minutes(1)))
        until = world.view().breaker.open_until
        assert until is not None
        assert until - world.now <= minutes(5)
        called.append(world.metric("BreakerOpen") == 1)

    assert not any(called[:300])
    assert any(called[360:])
    # One at a time, 5 minutes apart.
    assert launched <= 9 * 12


def test_machines_whose_claims_get_no_answer_stop_launches() -> None:
    """Each has hidden the message that it could not claim, so nothing waits as it ends."""
    world = with_policy(max_workers=1)
    world.send()
    ended = 0
    for _ in range(120):
        world.tick(minutes(1))
        for worker in world.workers(WorkerState.BOOTING):
            world.check_in(worker.instance_id)
            message = world.queue.receive(wait=minutes(0), visibility=minutes(2))
            assert message is not None
            world.change(worker.instance_id, unanswered_at=world.now)
            world.tick(minutes(1))
            world.compute.power_off(worker.instance_id)
            ended += 1

    assert ended <= STRIKES + 2
    assert world.view().breaker.unclaimed >= STRIKES


def test_a_claim_without_an_answer_is_no_strike_beside_one_with() -> None:
    world = with_policy(max_workers=4)
    world.send(40)
    world.tick()
    world.clock.advance(minutes(1))
    first, *others = world.workers(WorkerState.BOOTING)
    for worker in (first, *others):
        world.check_in(worker.instance_id)
        world.change(worker.instance_id, unanswered_at=world.now)
    world.clock.advance(minutes(1))
    world.claim(first.instance_id)
    world.empty_the_queue()
    for worker in others:
        world.compute.power_off(worker.instance_id)

    world.run(2)

    assert len(others) == 3
    assert world.view().breaker.unclaimed == 0


def test_a_test_machine_that_hangs_has_no_other_for_an_hour() -> None:
    world = with_policy(max_workers=1, idle_timeout=minutes(2))
    world.send(40)
    launched = []
    for _ in range(240):
        decision = world.tick(minutes(1))
        launched += [world.now for each in decision.requests for _ in each.instances]
        for worker in world.workers(WorkerState.BOOTING):
            world.check_in(worker.instance_id)
        world.beat()

    gaps = [after - before for before, after in pairwise(launched)]
    assert len(gaps) > STRIKES + 1
    assert all(gap > minutes(60) for gap in gaps[STRIKES:])


def test_machines_that_leave_work_still_stop_launches() -> None:
    world = with_policy(max_workers=1)
    world.send(40)
    while world.view().breaker.unclaimed < STRIKES:
        for request in world.tick(minutes(1)).requests:
            for instance_id in request.instances:
                world.check_in(instance_id)
                world.clock.advance(minutes(1))
                world.compute.power_off(instance_id)

    until = world.view().breaker.open_until
    assert until is not None
    assert until - world.now > minutes(50)


_IS_USELESS = {
    "a zone": lambda pool: pool.zone == ZONES[0],
    "a family": lambda pool: pool.instance_type.startswith("g4dn."),
    "spot": lambda pool: pool.capacity_type is CapacityType.SPOT,
}


def _is_faulty(world: ControlWorld, instance_id: str) -> None:
    marks = {"unfit_at": world.now, "draining_at": world.now, "reason": Reason(ReasonCode.FAULTY)}
    world.change(instance_id, state=WorkerState.IDLE, **marks)


def _takes_a_job_and_is_faulty(world: ControlWorld, instance_id: str) -> None:
    lease = world.claim(instance_id)
    world.queue.extend(lease.receipt_handle, minutes(0))
    world.remove(rows.lease_sort_key(instance_id, 0))
    _is_faulty(world, instance_id)


_ENDS: dict[str, Callable[[ControlWorld, str], None]] = {
    "hears of no job": lambda *_: None,
    "is faulty": _is_faulty,
    "takes a job and is faulty": _takes_a_job_and_is_faulty,
}


def _machines_for_a_job(
    world: ControlWorld,
    is_useless: Callable[[Pool], bool],
    end: Callable[[ControlWorld, str], None],
) -> int:
    """Return how many machines a job needs, if some check in and are of no use."""
    world.send()
    for bought in range(1, 9):
        decision = world.tick(minutes(1))
        while not decision.requests:
            decision = world.tick(minutes(1))
        ((instance_id,),) = [request.instances for request in decision.requests]
        world.check_in(instance_id)
        world.tick(minutes(1))
        if not is_useless(world.view().workers[instance_id].pool):
            lease = world.claim(instance_id)
            world.tick(minutes(1))
            world.do_items(1)
            world.finish(lease)
            world.compute.power_off(instance_id)
            world.run(2)
            return bought
        end(world, instance_id)
        world.compute.power_off(instance_id)
    raise AssertionError


@pytest.mark.parametrize("useless", _IS_USELESS)
@pytest.mark.parametrize("end", _ENDS)
def test_what_checks_in_and_is_of_no_use_is_asked_last(useless: str, end: str) -> None:
    world = with_policy(max_workers=1)

    bought = [_machines_for_a_job(world, _IS_USELESS[useless], _ENDS[end]) for _ in range(6)]

    # 15 machines in 13 hours, all of one pool, while only what never checked in taught anything.
    assert max(bought) <= 3
    assert bought[-3:] == [1, 1, 1]


@pytest.mark.parametrize(
    ("ladder", "bought"),
    [
        pytest.param(Policy().ladder, "on-demand", id="the ladder lets it"),
        pytest.param(Policy().ladder[:1], "spot", id="the ladder has spot only"),
    ],
)
def test_a_useless_capacity_type_is_left_as_the_ladder_allows(
    ladder: tuple[Rung, ...], bought: str
) -> None:
    world = with_policy(max_workers=1, ladder=ladder)
    world.tick()
    version = world.view().breaker.launch_version
    traits = {
        "spot": UselessTrait(count=3, at=world.now),
        "g4dn": UselessTrait(count=3, at=world.now),
    }
    world.put(rows.BREAKER, useless_traits=traits, launch_version=version)
    world.send()
    world.run(7)

    found = {str(worker.pool) for worker in world.workers()}
    assert len(found) == 1
    assert all(name.endswith(bought) and not name.startswith("g4dn") for name in found)

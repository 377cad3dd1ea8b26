"""A launch whose answer was lost is found again, and never made twice."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spindown.contract.decision import Outcome
from spindown.contract.row import (
    BOOT_RATE,
    DEPLOYMENT_PARTITION,
    LOCK_LEASE,
    budget_sort_key,
    worker_sort_key,
)
from spindown.control.policy_edit import edit_policy
from spindown.domain.fleet import LaunchState
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, Throttled, Unreachable
from spindown.memory import PortCall
from spindown.port import Key, LaunchAnswer, Refusal, RefusalKind
from tests.builders import minutes
from tests.control import AWAY, REGION, WORKLOAD, ControlWorld, codes, with_policy
from tests.failure import failing


@pytest.mark.parametrize("carried_out", [True, False], ids=["after-its-effect", "before-it"])
def test_a_lost_answer_to_a_launch_never_launches_twice(carried_out: bool) -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=carried_out)

    lost = world.tick()
    (intent,) = world.view().launches.values()
    adopted = world.tick(minutes(1))

    assert lost.requests == ()
    assert lost.summary.why.code is ReasonCode.LAUNCH_UNANSWERED
    assert intent.state is LaunchState.INTENDED
    assert [a.outcome for a in adopted.requests] == ["adopted"]
    assert len(world.compute.bills()) == len(world.workers()) == 1
    assert {x.state for x in world.view().launches.values()} == {LaunchState.LAUNCHED}


def test_a_launch_that_no_tick_could_ask_for_keeps_its_places() -> None:
    world = with_policy(max_workers=1)
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()
    world.interfere = failing(Unreachable("on purpose"), "instances")

    # Nothing has run for longer than a launch without an answer counts otherwise.
    unheard = world.tick(minutes(67))
    world.interfere = None
    world.tick(minutes(1))

    assert unheard.requests == ()
    assert len(world.compute.bills()) == len(world.workers()) == 1


def test_a_lost_answer_is_adopted_before_ec2_shows_the_instance() -> None:
    world = ControlWorld()
    world.compute.ec2.lag = minutes(3)
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()

    world.tick(minutes(1))

    assert len(world.compute.bills()) == len(world.workers()) == 1


@pytest.mark.parametrize("seen", [True, False], ids=["seen-again", "never-described"])
def test_a_repeated_launch_teaches_no_boot_and_bills_from_ec2(*, seen: bool) -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=False)
    world.tick()
    world.interfere = failing(Unreachable("no answer"), "instances", "launch")
    world.run(3)
    world.interfere = None
    if seen:
        # The answer to the second request is lost, too, and not the instance that it gave.
        world.compute.lose_next_answer(is_carried_out=True)
        world.tick(minutes(1))
    began = world.now
    world.tick(minutes(1))
    (worker,) = world.workers()
    world.check_in(worker.instance_id)
    world.claim(worker.instance_id)
    world.tick(minutes(1))

    assert BOOT_RATE not in world.view().rates
    intended = min(launch.intended_at for launch in world.view().launches.values())
    assert worker.launched_at == (began if seen else intended)


def test_an_old_intent_that_ec2_does_not_know_never_happened() -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=False)
    world.tick()
    world.empty_the_queue()

    world.tick(minutes(30))

    (launch,) = world.view().launches.values()
    assert (launch.state, launch.reason.code) == (
        LaunchState.REFUSED,
        ReasonCode.NEVER_REACHED_EC2,
    )
    assert world.compute.bills() == []
    assert _committed(world) == pytest.approx(0.0)


def test_a_throttled_replay_says_nothing_of_the_first_request() -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=False)
    world.tick()
    world.compute.refuse_next(RefusalKind.THROTTLE, "RequestLimitExceeded")

    world.tick(minutes(1))
    (intent,) = world.view().launches.values()
    world.tick(minutes(1))

    assert intent.state is LaunchState.INTENDED
    assert len(world.workers()) == 1


def test_a_crash_after_the_launch_is_adopted() -> None:
    world = ControlWorld()
    world.send()

    def crash(call: PortCall, proceed: Callable[[], Any]) -> Any:
        answer = proceed()
        if call.method == "launch":
            raise KeyboardInterrupt
        return answer

    world.interfere = crash
    with pytest.raises(KeyboardInterrupt):
        world.tick()
    world.interfere = None
    shut_out = world.tick(minutes(1))
    adopted = world.tick(LOCK_LEASE)

    assert shut_out.outcome is Outcome.LOCKED
    assert [a.outcome for a in adopted.requests] == ["adopted"]
    assert len(world.compute.bills()) == 1


def _showing(number: int) -> Callable[[PortCall, Callable[[], Any]], Any]:
    """Let EC2's descriptions show so many instances and not the others yet."""

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        answer = proceed()
        return answer[:number] if call.method == "instances" else answer

    return interfere


def _lost(workers: int) -> ControlWorld:
    world = ControlWorld(budget=100.0, policy=Policy(max_workers=workers, warm_workers=workers))
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()
    return world


def _losing_the_answer_to_the_rows(call: PortCall, proceed: Callable[[], Any]) -> Any:
    answer = proceed()
    if call.method == "transact" and any("instance_id" in w.set for w in call.args[0]):
        raise Unreachable("no answer")
    return answer


def test_an_adopted_worker_holds_its_place_until_it_has_ended() -> None:
    world = _lost(2)
    ended = [bill.instance_id for bill in world.compute.bills()]
    for instance_id in ended:
        world.compute.reclaim(instance_id)
    world.interfere = _losing_the_answer_to_the_rows

    unsure = world.tick(minutes(8))
    held = [worker for worker in world.workers() if worker.holds_place]
    world.interfere = None
    sure = world.run(2)

    assert [len(a.instances) for a in unsure.requests if a.outcome != "adopted"] == []
    assert sorted(worker.instance_id for worker in held) == sorted(ended)
    assert sum(len(a.instances) for each in sure for a in each.requests) == 2
    assert not any(w.holds_place for w in world.workers() if w.instance_id in ended)


@pytest.mark.parametrize("shown", [1, 2])
def test_a_launch_of_which_ec2_shows_a_part_is_adopted_whole(shown: int) -> None:
    world = _lost(3)
    world.interfere = _showing(shown)
    world.tick(minutes(1))
    world.interfere = None

    decisions = world.run(8)

    assert len(world.compute.bills()) == len(world.workers()) == 3
    assert not any(d.condemned or d.requests for d in decisions)
    (launch,) = world.view().launches.values()
    assert len(launch.instance_ids) == 3


def test_adopts_what_is_shown_once_it_may_not_ask_again() -> None:
    world = _lost(3)
    shown, slow = _showing(2), failing(Throttled("slow down"), "launch")
    world.interfere = lambda call, proceed: slow(call, lambda: shown(call, proceed))

    early = world.tick(minutes(1))
    (intent,) = world.view().launches.values()
    late = world.tick(minutes(5))

    assert early.requests == ()
    assert intent.state is LaunchState.INTENDED
    assert [len(a.instances) for a in late.requests][:1] == [2]


def test_keeps_what_is_shown_though_asking_again_is_refused() -> None:
    world = _lost(3)
    full = Refusal(kind=RefusalKind.QUOTA, code="VcpuLimitExceeded", message="full")

    def refuse(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch":
            return LaunchAnswer(refusals=(full,))
        return _showing(2)(call, proceed)

    world.interfere = refuse
    world.tick(minutes(1))

    (first, *_) = world.view().launches.values()
    assert first.state is LaunchState.LAUNCHED
    assert len(world.workers()) == len(first.instance_ids) == 2


def test_an_adopted_instance_leaves_its_unreadable_row_alone() -> None:
    world = with_policy(max_workers=1)
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()
    (bill,) = world.compute.bills()
    sort = worker_sort_key(bill.instance_id)
    world.put(sort, instance_id=bill.instance_id, state="later")

    world.tick(minutes(1))

    (launch, *_) = world.view().launches.values()
    assert launch.state is LaunchState.LAUNCHED
    assert (world.row(sort) or {})["state"] == "later"


def test_the_last_repeated_request_is_adopted_however_late() -> None:
    world = ControlWorld(budget=100.0)
    world.compute.ec2.lag = minutes(4)
    world.send()
    # Asked at once and once a minute; only the last time it is carried out.
    for number in range(6):
        world.compute.lose_next_answer(is_carried_out=number == 5)
    world.tick()

    world.run(9)

    (worker,) = world.workers()
    (bill,) = world.compute.bills()
    assert worker.instance_id == bill.instance_id
    (launch,) = world.view().launches.values()
    assert launch.state is LaunchState.LAUNCHED


def test_a_launch_in_a_removed_region_is_dropped_and_refunded() -> None:
    world = ControlWorld(budget=100.0, away=(("g4dn.xlarge", 0.10),))
    world.compute.lose_next_answer(is_carried_out=False)
    world.send()
    world.tick()
    (intent,) = world.view().launches.values()
    assert _committed(world) == pytest.approx(intent.reserved_usd)
    world.empty_the_queue()
    deployed = world.workload_settings()
    home = {REGION: deployed.regions[REGION]}
    world.settings.deploy(replace(deployed, regions=home, outposts=()))

    def gone(call: PortCall, proceed: Callable[[], Any]) -> Any:
        # The grants of a region go with its outpost.
        if call.port == "compute" and call.kwargs.get("region") == AWAY:
            raise AccessDenied("no grant")
        return proceed()

    world.interfere = gone
    decisions = world.run(8)

    (launch,) = world.view().launches.values()
    assert launch.state is LaunchState.REFUSED
    assert launch.reason == Reason(ReasonCode.REGION_REMOVED, {"region": AWAY})
    assert _committed(world) == pytest.approx(0.0)
    assert decisions[-1].outcome is Outcome.IDLE
    assert decisions[-1].notes == ()


def _committed(world: ControlWorld) -> float:
    row = world.table.get(Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort_key(world.now)))
    return float((row or {}).get("committed", 0.0))


@pytest.mark.parametrize("shown", [0, 1])
def test_what_must_not_be_asked_again_is_waited_for(shown: int) -> None:
    world = _lost(3)
    world.interfere = _showing(shown)
    edit_policy(
        WORKLOAD,
        {"max_workers": 1, "warm_workers": 1},
        settings=world.settings,
        table=world.table,
    )
    decision = world.tick(minutes(1))
    world.interfere = None

    world.run(8)

    assert decision.requests == ()
    assert ReasonCode.MAX_WORKERS in codes(decision)
    launched = {bill.instance_id for bill in world.compute.bills()}
    assert {worker.instance_id for worker in world.workers()} == launched
    assert len(launched) == 3

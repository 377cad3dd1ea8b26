"""A launch whose answer was lost is found again, and never made twice."""

from collections.abc import Callable
from typing import Any

import pytest

from spindown.app.port import Key, RefusalKind
from spindown.contract.decision import Outcome
from spindown.contract.row import DEPLOYMENT_PARTITION, LOCK_LEASE, budget_sort
from spindown.domain.fleet import LaunchState
from spindown.memory import PortCall
from tests.builders import minutes
from tests.control import ControlWorld


@pytest.mark.parametrize("carried_out", [True, False], ids=["after-its-effect", "before-it"])
def test_a_lost_answer_to_a_launch_never_launches_twice(carried_out: bool) -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=carried_out)

    lost = world.tick()
    (intent,) = world.view().launches.values()
    adopted = world.tick(minutes(1))

    assert lost.attempts == ()
    assert "gave no answer" in lost.summary
    assert intent.state is LaunchState.INTENDED
    assert [a.outcome for a in adopted.attempts] == ["adopted"]
    assert len(world.compute.bills()) == len(world.workers()) == 1
    assert {x.state for x in world.view().launches.values()} == {LaunchState.LAUNCHED}


def test_a_lost_answer_is_adopted_though_ec2_does_not_show_the_instance_yet() -> None:
    world = ControlWorld()
    world.compute._lag = minutes(3)
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()

    world.tick(minutes(1))

    assert len(world.compute.bills()) == len(world.workers()) == 1


def test_an_old_intent_that_ec2_does_not_know_never_happened() -> None:
    world = ControlWorld()
    world.send()
    world.compute.lose_next_answer(is_carried_out=False)
    world.tick()
    world.empty_the_queue()

    world.tick(minutes(30))

    (launch,) = world.view().launches.values()
    assert (launch.state, launch.reason) == (LaunchState.REFUSED, "it never reached EC2")
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
    assert [a.outcome for a in adopted.attempts] == ["adopted"]
    assert len(world.compute.bills()) == 1


def _committed(world: ControlWorld) -> float:
    row = world.table.get(Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort(world.now)))
    return float((row or {}).get("committed", 0.0))

"""The function that routes: it reads the policy in force, and wakes the scaler after work."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from spindown.control.policy_edit import edit_policy
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.error import Unreachable
from spindown.functions import intake
from tests.control import WORKLOAD, ControlWorld

EVENT = {"source": "spindown.nudge", "workload": WORKLOAD}
TYPES = (JobType(name="small", needs=JobNeeds(memory_gib=5)),)


@dataclass
class Scaler:
    """Counts who wakes it."""

    woken: list[str] = field(default_factory=list)
    fails: bool = False

    def wake(self, workload: str) -> None:
        self.woken.append(workload)
        if self.fails:
            raise Unreachable("no answer")


@pytest.fixture
def world() -> ControlWorld:
    return ControlWorld(policy=replace(Policy(), types=TYPES))


def handle(world: ControlWorld, event: object = EVENT, scaler: Scaler | None = None) -> Any:
    return intake.handle(event, world.ports, lambda _: world.work_ports(), scaler or Scaler())


def test_what_is_routed_wakes_the_scaler(world: ControlWorld) -> None:
    world.ask("j", type="small")
    world.ask("k", type="huge")
    scaler = Scaler()

    said = handle(world, scaler=scaler)

    assert (said["routed"], said["type-unknown"], said["postponed"]) == (1, 1, 0)
    assert scaler.woken == [WORKLOAD]
    assert world.metric("JobsRouted") == 1
    assert (world.metric("DeadLettered"), world.metric("JobsFailed")) == (1, 1)


def test_nothing_routed_wakes_nobody(world: ControlWorld) -> None:
    scaler = Scaler()
    handle(world, scaler=scaler)

    assert scaler.woken == []


def test_a_scaler_that_cannot_be_woken_is_no_failure(world: ControlWorld) -> None:
    world.ask("j", type="small")

    assert handle(world, scaler=Scaler(fails=True))["routed"] == 1


def test_many_messages_are_routed_in_one_run(world: ControlWorld) -> None:
    for number in range(150):
        world.ask(f"j{number}", type="small")

    assert handle(world)["routed"] == 150
    assert len(world.queue_of("c0m8").bodies()) == 150


def test_a_live_edit_of_a_type_holds_at_once(world: ControlWorld) -> None:
    types = [{"name": "small", "memory_gib": 30}]
    edit_policy(WORKLOAD, {"types": types}, settings=world.settings, table=world.table)
    world.ask("j", type="small")
    handle(world)

    assert len(world.queue_of("c0m32").bodies()) == 1


@pytest.mark.parametrize("event", [{}, {"source": "spindown.nudge", "workload": "none"}], ids=repr)
def test_a_malformed_event_is_counted_and_let_go(world: ControlWorld, event: object) -> None:
    assert handle(world, event)["outcome"] == "ignored"
    assert world.metric("MalformedEvents") == 1

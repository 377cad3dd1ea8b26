"""A deployment goes only after its instances, and nothing is launched while it does."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from spindown.contract import tag
from spindown.contract.decision import Outcome
from spindown.contract.event import Leaving
from spindown.contract.row import LOCK_LEASE
from spindown.error import AccessDenied, NotFound, SpindownError, Unreachable
from spindown.ledger import Ledger
from spindown.memory import PortCall
from spindown.operate.teardown import LOOK_EVERY, StillRunning, TeardownPorts, tear_down
from tests.control import DEPLOYMENT, REGION, WORKLOAD, ZONES, ControlWorld

WHOLE = Leaving(
    deployment=DEPLOYMENT,
    home=REGION,
    regions=(REGION,),
    workloads=(WORKLOAD,),
    is_whole=True,
    table="ledger",
)


class Scene:
    """A deployment with work, whose teardown moves the clock as it waits."""

    def __init__(self) -> None:
        self.world = ControlWorld()
        self.waits = 0
        self.ports = TeardownPorts(
            clock=self.world.clock,
            compute=self.world.ports.compute,
            table=self.world.ports.table,
            pause=self.pause,
            queue=self.world.ports.queue,
        )

    def pause(self, length: timedelta) -> None:
        self.waits += 1
        self.world.clock.advance(length)

    def deadline(self, minutes: float = 14) -> datetime:
        return self.world.clock.now() + timedelta(minutes=minutes)

    def tear_down(self, leaving: Leaving = WHOLE, *, minutes: float = 14) -> frozenset[str]:
        return tear_down(leaving, self.ports, holder="request", deadline=self.deadline(minutes))

    def states(self) -> dict[str, str]:
        found = self.world.compute.instances(region=REGION, tags={})
        return {one.instance_id: one.state for one in found}


def silence_table(
    call: PortCall, proceed: Callable[[], object], fault: type[SpindownError] = NotFound
) -> object:
    """Let the table give no answer, as where it or its key is gone."""
    if call.port == "table":
        raise fault("no answer")
    return proceed()


def test_every_instance_is_gone_when_it_returns_orphans_too() -> None:
    scene = Scene()
    scene.world.send(3)
    scene.world.tick()
    astray = scene.world.launch_astray(**{tag.WORKLOAD: "left-the-file-long-ago"})

    ended = scene.tear_down()

    assert astray in ended
    assert len(ended) == len(scene.states()) >= 2
    assert set(scene.states().values()) == {"terminated"}


@pytest.mark.parametrize("theirs", [{tag.DEPLOYMENT: "another"}, {tag.REGION: "eu-west-1"}])
def test_what_is_not_ours_stays(theirs: dict[str, str]) -> None:
    scene = Scene()
    astray = scene.world.launch_astray(**theirs)

    assert scene.tear_down() == frozenset()
    assert scene.states()[astray] != "terminated"


def test_nothing_is_launched_from_its_beginning_on() -> None:
    scene = Scene()
    scene.tear_down()
    scene.world.send(50)

    decisions = scene.world.run(14)

    assert {decision.outcome for decision in decisions} == {Outcome.LOCKED}
    assert scene.states() == {}


def test_waits_for_a_tick_to_finish() -> None:
    scene = Scene()
    scene.world.send(3)
    launched: list[str] = []
    ledger = Ledger(scene.world.table, WORKLOAD)
    fences = [ledger.take_lock(holder="a tick", now=scene.world.clock.now())]

    def tick_first(length: timedelta) -> None:
        scene.pause(length)
        if fences and (fence := fences.pop()) is not None:
            ledger.apply(fence, [], release=True)
            launched.append(scene.world.launch_astray())

    scene.ports = replace(scene.ports, pause=tick_first)

    assert scene.tear_down() == set(launched)


def test_an_answer_of_ec2_that_is_late_ends_nothing_too_early() -> None:
    scene = Scene()
    late: list[str] = []

    def launch_late(length: timedelta) -> None:
        scene.pause(length)
        if not late:
            late.append(scene.world.launch_astray())

    scene.ports = replace(scene.ports, pause=launch_late)

    assert scene.tear_down() == set(late)
    assert set(scene.states().values()) == {"terminated"}


def test_says_what_runs_at_its_time_limit_and_frees_the_lock() -> None:
    scene = Scene()
    instance = scene.world.launch_astray()
    scene.world.interfere = lambda call, proceed: {} if call.method == "terminate" else proceed()

    with pytest.raises(StillRunning, match=f"{instance} is running"):
        scene.tear_down(minutes=1)

    scene.world.interfere = None
    assert scene.world.tick().outcome is not Outcome.LOCKED
    assert scene.tear_down() == {instance}


def test_a_fault_of_ec2_is_asked_again() -> None:
    scene = Scene()
    scene.world.launch_astray()
    faults = [Unreachable("no answer")] * 3

    def fail(call: object, proceed: object) -> object:
        if getattr(call, "method", "") == "instances" and faults:
            raise faults.pop()
        return proceed()  # type: ignore[operator]

    scene.world.interfere = fail

    assert scene.tear_down()


@pytest.mark.parametrize("fault", [NotFound, AccessDenied, Unreachable, SpindownError])
def test_a_ledger_that_is_gone_keeps_no_instance(fault: type[SpindownError]) -> None:
    scene = Scene()
    scene.world.send(3)
    scene.world.tick()
    running = set(scene.states())

    scene.world.interfere = partial(silence_table, fault=fault)
    begun = scene.world.clock.now()

    assert scene.tear_down(replace(WHOLE, workloads=("another", WORKLOAD))) == running
    assert set(scene.states().values()) == {"terminated"}
    # Longer than whoever took a lock before can tick.
    assert scene.world.clock.now() - begun >= LOCK_LEASE


def test_no_workload_leaves_while_ticks_may_still_launch() -> None:
    scene = Scene()
    instance = scene.world.launch_astray()
    scene.world.interfere = silence_table

    with pytest.raises(StillRunning):
        scene.tear_down(replace(WHOLE, is_whole=False))

    assert scene.states()[instance] == "running"


def test_only_the_leaving_workload_s_instances_end() -> None:
    scene = Scene()
    mine, other = scene.world.launch_astray(), scene.world.launch_astray(**{tag.WORKLOAD: "stays"})

    ended = scene.tear_down(replace(WHOLE, is_whole=False))

    assert ended == {mine}
    assert scene.states()[other] != "terminated"


def test_leaving_subnets_lose_their_instances_others_go_on() -> None:
    scene = Scene()
    scene.world.send()
    scene.world.tick()
    (mine,) = scene.world.compute.instances(region=REGION, tags={})
    other = scene.world.launch_astray(zone=ZONES[1])
    assert mine.subnet_id == "subnet-a"
    outcomes: list[Outcome] = []

    def tick_meanwhile(length: timedelta) -> None:
        scene.pause(length)
        outcomes.append(scene.world.tick().outcome)

    scene.ports = replace(scene.ports, pause=tick_meanwhile)
    shrunk = replace(
        WHOLE, is_whole=False, workloads=(), staying=(WORKLOAD,), subnets=("subnet-a",)
    )

    assert scene.tear_down(shrunk) == {mine.instance_id}
    assert scene.states()[other] != "terminated"
    # Nothing is launched into what goes; afterwards all goes on at once.
    assert set(outcomes) == {Outcome.LOCKED}
    assert scene.world.tick().outcome is not Outcome.LOCKED


def test_waits_no_longer_than_it_must() -> None:
    scene = Scene()

    scene.tear_down()

    assert scene.waits * LOOK_EVERY <= timedelta(seconds=10)

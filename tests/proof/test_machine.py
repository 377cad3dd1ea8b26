"""Random stories of users, workers, EC2 and the control plane: nothing is lost or left running."""

from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.bounded import is_bounded
from tests.proof.fault import FAULTS, Fault, Kind
from tests.proof.invariant import Chronicle
from tests.proof.process import Process
from tests.proof.record import count_stories
from tests.proof.recovery import recover
from tests.proof.world import a_world, pick

#: All stories in one test would take longer than a test may.
_PARTS = 10
_NUMBERS = st.integers(0, 11)
_WAITS = st.sampled_from([1, 10, 60, 61, 119, 200, 301, 700, 1500]).map(
    lambda seconds: timedelta(seconds=seconds)
)
_ACTS: Mapping[str, Callable[[Process, int], None]] = {
    "beat": lambda process, slot: process.beat(),
    "checkpoint": Process.checkpoint,
    "fail": lambda process, slot: process.fail(slot, "out of memory"),
    "kill": lambda process, slot: process.die(),
    "leave": lambda process, slot: process.leave(),
    "look": lambda process, slot: process.look(),
    "retire": lambda process, slot: process.retire(),
}


class Story(RuleBasedStateMachine):
    """One deployment, and everything that may happen to it."""

    #: Of the part that is told: its stories so far, and their steps.
    told = 0
    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = a_world()
        self.chronicle = Chronicle(self.world)
        self.happened = 0
        #: Whether the last step was one by which a machine may be bought.
        self.is_event = True

    @initialize(counts=st.lists(st.integers(0, 10), min_size=1, max_size=4))
    def begin(self, counts: list[int]) -> None:
        """Begin with work, and with workers that are up for it."""
        for count in counts:
            self.world.submit(count)
        # Each message may cost a machine, and the beginning counts as one event.
        self.happened += len(counts) - 1
        self.world.tick_once()
        self.world.clock.advance(timedelta(minutes=2))
        for instance_id in self.world.bootable:
            self.world.boot(instance_id)

    # Users.

    @precondition(lambda self: len(self.world.jobs) < 6)
    @rule(count=st.integers(0, 10), stored=st.booleans())
    def submit(self, count: int, stored: bool) -> None:
        self.world.submit(count, stored=stored)

    @rule(number=_NUMBERS, how=st.sampled_from(["send", "send", "show", "show", "cancel"]))
    def ask_again(self, number: int, how: str) -> None:
        """Send a job's message once more, show one that is in flight to others, or cancel."""
        job_id = pick([*self.world.jobs], number)
        if how == "send":
            self.world.send_again(job_id)
        elif how == "show":
            self.world.deliver_twice(number)
        else:
            self.world.cancel(job_id)

    # Time and the control plane.

    @rule(length=_WAITS)
    def wait(self, length: timedelta) -> None:
        self.is_event = False
        self.world.clock.advance(length)

    @rule()
    def tick(self) -> None:
        self.is_event = False
        self.world.tick_once()

    @rule(minutes=st.integers(1, 5))
    def pass_minutes(self, minutes: int) -> None:
        """Let live workers beat and the scaler tick, as they do when nothing goes wrong."""
        self.is_event = False
        for _ in range(minutes):
            self.world.clock.advance(timedelta(minutes=1))
            for process in self.world.live:
                self.world.run_on(process, process.beat)
            self.world.tick_once()

    @precondition(lambda self: self.world.instances)
    @rule(number=_NUMBERS, kind=_NUMBERS)
    def hear(self, number: int, kind: int) -> None:
        self._hear(number, kind)

    def _hear(self, number: int, kind: int) -> None:
        instance = pick(self.world.instances, number)
        event = None if instance is None else self.world.event_of(instance, kind)
        if event is not None:
            self.world.hear(event)

    # EC2.

    @precondition(lambda self: self.world.running)
    @rule(number=_NUMBERS, notice=st.booleans())
    def reclaim(self, number: int, notice: bool) -> None:
        self.world.reclaim(pick(self.world.running, number), notice=notice)

    @rule(number=_NUMBERS, how=st.sampled_from(["dry", "one left", "lost", "unheard", "image"]))
    def spoil_launches(self, number: int, how: str) -> None:
        """Let a pool run dry, an answer be lost, or an instance never come up."""
        if how in {"dry", "one left"}:
            self.world.dry_up(number, int(how == "one left"))
        elif how in {"lost", "unheard"}:
            self.world.compute.lose_next_answer(is_carried_out=how == "lost")
        elif self.world.bootable:
            self.world.broken.add(pick(self.world.bootable, number))

    # Workers.

    @precondition(lambda self: self.world.bootable)
    @rule(number=_NUMBERS)
    def boot(self, number: int) -> None:
        self.is_event = False
        self.world.boot(pick(self.world.bootable, number))

    @precondition(lambda self: self.world.live)
    @rule(number=_NUMBERS, steps=st.integers(1, 6), count=st.integers(1, 4), failing=st.booleans())
    def work(self, number: int, steps: int, count: int, failing: bool) -> None:
        self.is_event = failing
        process = pick(self.world.live, number)
        for _ in range(steps):
            self._run(process, lambda p: p.step(number // 3, count=count, failing=failing))

    @precondition(lambda self: self.world.live)
    @rule(number=_NUMBERS, act=st.sampled_from(sorted(_ACTS)))
    def act(self, number: int, act: str) -> None:
        """Let a worker do something of its own accord, or die."""
        self._run(pick(self.world.live, number), lambda p: _ACTS[act](p, number // 3))

    def _run(self, process: Process, act: Callable[[Process], None]) -> None:
        self.world.run_on(process, lambda: act(process))

    # What goes wrong in the middle of something.

    @rule(at=st.integers(1, 12), kind=st.sampled_from(FAULTS))
    def arm(self, at: int, kind: Kind) -> None:
        self.world.faults.arm(Fault(at=at, kind=kind))

    @rule(at=st.integers(1, 12), number=_NUMBERS, what=st.integers(0, 3), length=_WAITS)
    def meanwhile(self, at: int, number: int, what: int, length: timedelta) -> None:
        """Let a call be held up, while time passes, the scaler ticks or another worker works."""

        def happen() -> None:
            if what == 0:
                self.world.clock.advance(length)
            elif what == 1:
                self.world.tick_once()
            elif what == 2:
                self._hear(number, number // 4)
            else:
                self._others_work(number)

        self.world.faults.arm(Fault(at=at, kind=Kind.MEANWHILE, meanwhile=happen))

    def _others_work(self, number: int) -> None:
        process = pick([p for p in self.world.live if not p.is_working], number)
        if process is not None:
            for _ in range(number):
                self._run(process, lambda p: p.step(number // 3))

    @invariant()
    def nothing_is_lost_or_done_twice(self) -> None:
        Story.steps += 1
        self.happened += self.is_event
        self.is_event = True
        self.chronicle.look()

    def teardown(self) -> None:
        Story.told += 1
        self.chronicle.look()
        recover(self.world, self.chronicle.look)
        self.chronicle.close()
        paid = self.chronicle.record(self.happened)
        assert is_bounded(paid), paid


def test_nothing_is_lost_or_left_running_in_a_few_stories() -> None:
    run_state_machine_as_test(Story, settings=settings(max_examples=40, stateful_step_count=40))


@pytest.mark.proof
@pytest.mark.parametrize("part", range(_PARTS))
def test_nothing_is_lost_or_left_running_in_long_stories(part: int) -> None:
    Story.told = Story.steps = 0
    stories = settings().max_examples // _PARTS
    run_state_machine_as_test(
        Story, settings=settings(max_examples=stories, stateful_step_count=80)
    )
    count_stories(part, Story.told, Story.steps)

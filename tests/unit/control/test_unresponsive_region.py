"""A region that hangs is left alone for a while, and asked nothing that has no time left."""

from datetime import timedelta

import pytest

from spindown.control.unresponsive_region import ACT_WITHIN, OBSERVE_WITHIN, ask
from spindown.error import Unreachable
from tests.control import AWAY, REGION, ControlWorld

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class Region:
    """A question that takes so long, and has an answer or none."""

    def __init__(self, world: ControlWorld, takes: timedelta) -> None:
        self.world, self.takes, self.answers, self.asked = world, takes, False, 0

    def __call__(self) -> str:
        self.asked += 1
        self.world.clock.advance(self.takes)
        if not self.answers:
            raise Unreachable("timed out")
        return "answer"

    def ask(self, region: str = AWAY) -> str:
        return ask(self.world.ports, region, self, tick=self.world.now)

    def fail(self) -> int:
        with pytest.raises(Unreachable):
            self.ask()
        return self.asked


def test_a_region_that_hangs_is_left_alone_for_longer_each_time() -> None:
    world = ControlWorld()
    region = Region(world, 62 * SECOND)
    left_alone = [0]
    for _ in range(40):
        before = region.asked
        if region.fail() > before:
            left_alone.append(0)
        else:
            left_alone[-1] += 1
            world.clock.advance(MINUTE)

    assert left_alone[1:5] == [2, 4, 8, 10]
    region.answers = True
    assert region.ask(REGION) == "answer"


def test_an_answer_ends_the_silence_of_a_region() -> None:
    world = ControlWorld()
    region = Region(world, 62 * SECOND)
    region.fail()
    world.clock.advance(3 * MINUTE)
    region.answers = True

    assert region.ask() == "answer"
    region.answers = False
    region.fail()
    world.clock.advance(2 * MINUTE + SECOND)
    assert region.fail() == 4


def test_a_call_that_fails_at_once_is_made_again() -> None:
    region = Region(ControlWorld(), SECOND)

    assert [region.fail(), region.fail()] == [1, 2]


def test_nothing_is_asked_once_the_time_of_a_tick_is_up() -> None:
    world = ControlWorld()
    region, begun = Region(world, SECOND), world.now
    region.answers = True
    world.clock.advance(OBSERVE_WITHIN + SECOND)

    with pytest.raises(Unreachable):
        ask(world.ports, AWAY, region, tick=begun)
    assert ask(world.ports, AWAY, region, tick=begun, within=ACT_WITHIN) == "answer"

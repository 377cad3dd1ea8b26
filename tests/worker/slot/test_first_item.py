"""A job starts, and a boot is over, when code has its first item, not at the claim."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.worker.slot import Slot
from tests.slot import ScriptedRunner, SlotWorld, square

LOAD = timedelta(seconds=60)


class LoadingRunner(ScriptedRunner):
    """Runner whose code takes its batch at the third look."""

    @property
    def has_begun(self) -> bool:
        """Tell whether it is loaded."""
        return self.polls >= 3


class FirstItem:
    """A slot whose code loads for a minute, and when it told that it has its first item."""

    def __init__(self, scratch: Path) -> None:
        self.runner = LoadingRunner(script=lambda task, batch: [None, None, *square(task, batch)])
        self.of = SlotWorld(scratch, runner=self.runner)
        self.runner.before_poll = lambda _: self.of.world.clock.advance(LOAD / 3)
        self.begun: list[timedelta] = []
        clock, start = self.of.world.clock, self.of.world.clock.now()
        on_first_item = lambda: self.begun.append(clock.now() - start)  # noqa: E731
        self.slot = Slot(replace(self.of.context, on_first_item=on_first_item))

    @property
    def waits(self) -> Sequence[float]:
        """Return what was told of waits, in seconds."""
        self.of.reporter.flush()
        return self.of.world.metrics.values("WaitSeconds")


@pytest.fixture
def one(tmp_path: Path) -> FirstItem:
    return FirstItem(tmp_path)


def test_a_model_that_loads_makes_work_wait(one: FirstItem) -> None:
    one.of.world.send({"job_id": "a", "items": [0, 1]})
    one.slot.step()

    assert one.begun == [LOAD]
    assert one.waits == [LOAD.total_seconds()]


def test_a_boot_is_timed_once(one: FirstItem) -> None:
    for name in ("a", "b"):
        one.of.world.send({"job_id": name, "items": [0]})
        one.slot.step()

    assert len(one.begun) == 1
    assert len(one.waits) == 2


def test_a_machine_that_had_no_work_times_no_boot(one: FirstItem) -> None:
    one.slot.step()
    one.of.world.send({"job_id": "a", "items": [0]})
    one.slot.step()

    assert one.begun == []
    assert len(one.waits) == 1

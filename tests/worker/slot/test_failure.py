"""What counts against a job, and when a worker is itself the one to go."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from spindown.domain.fleet import WorkerState
from spindown.user import Item
from tests.slot import JOB, ScriptedRunner, SlotWorld, square
from tests.work import items
from worker.child.runner import BatchDone, Broken, Event, ItemDone, Task


def test_a_broken_child_is_a_failed_job_that_keeps_what_was_done(tmp_path: Path) -> None:
    def crash(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        if batch[0].index < 2:
            return square(task, batch)
        return [Broken("the process was killed by SIGSEGV")]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=crash))
    slot.world.send(JOB)
    slot.slot.step()
    manifest = slot.world.manifest("j")
    assert manifest.next_item == 2
    assert [f.reason for f in manifest.failures] == ["the process was killed by SIGSEGV"]
    assert slot.world.queue.backlog().visible == 1
    assert slot.world.worker().state is WorkerState.IDLE


def test_ends_after_three_different_jobs_have_failed_in_a_row(tmp_path: Path) -> None:
    runner = ScriptedRunner(script=lambda task, batch: [Broken("bad GPU")])
    slot = SlotWorld(tmp_path, runner=runner)
    for name in "abc":
        assert not slot.life.is_finishing
        slot.world.send({"job_id": name, "items": items(1)})
        while not slot.world.objects.versions(f"jobs/{name}/manifest.json"):
            slot.slot.step()
    assert slot.life.reason == "its last jobs all failed"
    assert slot.events("quarantined")


def test_ends_after_three_jobs_in_which_every_item_failed(tmp_path: Path) -> None:
    def fail(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return [*(ItemDone(index=i.index, error="CUDA error") for i in batch), BatchDone()]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=fail))
    for name in "abc":
        slot.world.send({"job_id": name, "items": items(3)})
        slot.slot.step()
    assert slot.life.is_finishing


def test_a_fault_of_the_machine_gives_the_job_back_and_is_not_hidden(tmp_path: Path) -> None:
    def fail(polls: int) -> None:
        raise OSError("no space left on device")

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=fail))
    slot.world.send(JOB)
    with pytest.raises(OSError, match="no space left"):
        slot.slot.step()
    assert slot.world.queue.backlog().visible == 1
    assert slot.world.worker().state is WorkerState.IDLE
    assert slot.world.lease() is None

"""A heartbeat keeps a job; a job that went to another is dropped."""

from collections.abc import Sequence
from pathlib import Path

from spindown.contract.job.manifest import JobState
from spindown.domain.fleet import WorkerState
from spindown.job.claimed_job import ClaimedJob
from spindown.port import Write
from spindown.user import Item
from spindown.worker.child.runner import Event, Task
from tests.slot import JOB, MINUTE, ScriptedRunner, SlotWorld, square
from tests.work import WorkWorld, a_slot_id, items


def test_a_job_that_another_has_taken_over_is_dropped(tmp_path: Path) -> None:
    def lose(polls: int) -> None:
        if polls == 2:
            # The heartbeat was silent for too long.
            slot.world.clock.advance(6 * MINUTE)
            assert isinstance(slot.world.claim(a_slot_id("i-2")), ClaimedJob)

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=lose))
    slot.world.send(JOB)
    slot.step()
    assert slot.runner.kills == 1
    manifest = slot.world.manifest("j")
    assert (manifest.owner, manifest.parts) == ("i-2/0", ())
    assert slot.world.queue.backlog().in_flight == 1
    assert slot.world.lease_row("i-2/0") is not None
    assert slot.world.worker("i-1").state is WorkerState.IDLE


def test_a_lease_cleared_by_the_control_plane_drops_its_job(tmp_path: Path) -> None:
    def clear(polls: int) -> None:
        if polls == 2:
            slot.world.table.write(Write(key=slot.context.slot_id.lease_key, delete=True))
            slot.watch.beat()

    def stall(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return [*square(task, batch)[:1], *[None] * 9]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=stall, before_poll=clear))
    slot.world.send(JOB)
    slot.step()
    assert slot.events("lease_lost")
    assert (slot.runner.polls, slot.runner.kills) == (2, 1)
    manifest = slot.world.manifest("j")
    # Nobody has claimed it since, so what was done is kept, and it is no loss.
    assert (manifest.next_item, manifest.released) == (1, True)


def test_a_job_without_a_lease_that_is_done_is_completed(tmp_path: Path) -> None:
    def clear(polls: int) -> None:
        if polls == 6:
            slot.world.table.write(Write(key=slot.context.slot_id.lease_key, delete=True))
            slot.watch.beat()

    def stall(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return [*square(task, batch)[:-1], *[None] * 9]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=stall, before_poll=clear), batch_size=5)
    slot.world.send(JOB)
    slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert slot.world.queue.bodies() == []


def test_rows_deleted_by_hand_cost_a_healthy_job_nothing(tmp_path: Path) -> None:
    def clear(polls: int) -> None:
        slot.world.table.write(Write(key=slot.context.slot_id.lease_key, delete=True))
        slot.watch.beat()

    def stall(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return [None] * 9

    world = WorkWorld()
    world.send(JOB)
    for attempt in range(6):
        runner = ScriptedRunner(script=stall, before_poll=clear)
        slot = SlotWorld(tmp_path, world=world, runner=runner, instance_id=f"i-{attempt}")
        assert slot.step()
        world.clock.advance(6 * MINUTE)

    manifest = world.manifest("j")
    assert (manifest.state, manifest.losses, manifest.failures) == (JobState.RUNNING, 0, ())
    assert SlotWorld(tmp_path, world=world, instance_id="i-9").step()
    assert world.manifest("j").state is JobState.COMPLETED


def test_a_zombie_of_a_finished_job_commits_nothing(tmp_path: Path) -> None:
    def sleep(polls: int) -> None:
        if polls == 1:
            slot.world.clock.advance(10 * MINUTE)
            other = SlotWorld(tmp_path, world=slot.world, instance_id="i-2")
            assert other.step()

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=sleep))
    slot.world.send(JOB)
    slot.step()
    manifest = slot.world.manifest("j")
    assert (manifest.state, manifest.owner) == (JobState.COMPLETED, "i-2/0")
    assert [r.index for r in slot.world.records("j")] == [0, 1, 2, 3, 4]


def test_a_heartbeat_keeps_a_long_job(tmp_path: Path) -> None:
    def beat(polls: int) -> None:
        slot.world.clock.advance(MINUTE)
        slot.watch.beat()
        assert slot.world.queue.backlog().visible == 0

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=beat))
    slot.world.send({"job_id": "j", "items": items(60)})
    slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert slot.world.manifest("j").epoch == 1

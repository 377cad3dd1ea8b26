"""What outlives an attempt: the user's own checkpoint, results, what the code printed."""

import itertools
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.job.manifest import JobState
from spindown.contract.job.result import ItemStatus
from spindown.contract.row import CHECKPOINT_RATE, throughput_sort_key, worker_partition
from spindown.domain.policy import Policy
from spindown.job.attachment.log import read_logs
from spindown.memory.interception import PortCall
from spindown.port import Key
from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from spindown.worker.slot import Slot
from tests.slot import ScriptedRunner, SlotWorld, in_line, square
from tests.work import WORKLOAD, WorkWorld, items
from tests.worker.settled import write_settled

JOB = {"job_id": "j", "items": items(5)}
MEBIBYTE = 1024 * 1024
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def state_of(task: Task) -> Path:
    assert task.state is not None
    return task.state


def test_state_that_a_notice_cut_off_is_there_for_who_goes_on(tmp_path: Path) -> None:
    seen: list[str] = []

    def simulate(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        step = state_of(task) / "run" / "step"
        seen.append(step.read_text() if step.exists() else "")
        step.parent.mkdir(parents=True, exist_ok=True)
        step.write_text("41")
        return [*square(task, batch)[:1], *[None] * 99]

    def announce(polls: int) -> None:
        if polls == 2:
            slot.metadata.announce_interruption(slot.world.clock.now() + 2 * MINUTE)
            slot.watch.look()
        slot.world.clock.advance(MINUTE / 6)

    slot = SlotWorld(tmp_path / "1", runner=ScriptedRunner(script=simulate, before_poll=announce))
    slot.world.send(JOB)
    slot.step()
    manifest = slot.world.manifest("j")
    assert [file.path for file in manifest.user_state] == ["run/step"]
    assert manifest.next_item == 1

    def go_on(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        seen.append((state_of(task) / "run" / "step").read_text())
        return square(task, batch)

    other = SlotWorld(
        tmp_path / "2",
        world=slot.world,
        instance_id="i-2",
        runner=ScriptedRunner(script=go_on),
    )
    other.step()
    assert seen == ["", "41", "41", "41"][: len(seen)]
    assert len(seen) >= 2
    assert other.world.manifest("j").state is JobState.COMPLETED
    assert not list(tmp_path.glob("*/j.*")), "nothing of an attempt is left on the machine"


def test_results_are_safe_before_a_checkpoint_out_of_time(tmp_path: Path) -> None:
    def simulate(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        write_settled(state_of(task) / "model", "large")
        return [*square(task, batch)[:3], *[None] * 99]

    def leave(polls: int) -> None:
        if polls == 5:
            slot.leave()

    def take_away(call: PortCall) -> None:
        if call.method == "put_file":
            raise KeyboardInterrupt

    runner = ScriptedRunner(script=simulate, before_poll=leave)
    slot = SlotWorld(tmp_path, runner=runner, batch_size=5)
    slot.world.before = take_away
    slot.world.send(JOB)
    with pytest.raises(KeyboardInterrupt):
        slot.step()
    manifest = slot.world.manifest("j")
    assert (manifest.next_item, manifest.user_state, manifest.released) == (3, (), False)
    slot.world.before = None


def test_state_alone_is_a_checkpoint_when_one_is_due(tmp_path: Path) -> None:
    policy = Policy(checkpoint_interval=MINUTE)
    commits: list[int] = []

    def simulate(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        write_settled(state_of(task) / "step", "a")
        return [*[None] * 30, *square(task, batch)]

    def tick(polls: int) -> None:
        slot.world.clock.advance(10 * SECOND)
        if polls == 25:
            manifest = slot.world.manifest("j")
            commits.append(len(manifest.user_state))
            assert manifest.next_item == 0

    runner = ScriptedRunner(script=simulate, before_poll=tick)
    slot = SlotWorld(tmp_path, runner=runner, policy=policy, batch_size=5)
    in_line(slot)
    slot.world.send(JOB)
    slot.step()
    assert commits == [1]


def saving(slot: SlotWorld, polls: int, *, every: timedelta) -> None:
    """Let an item take so many polls, each of which leaves a newer checkpoint."""
    roots: list[Path] = []

    def compute(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        roots.append(state_of(task))
        return [*[None] * polls, *square(task, batch)]

    def tick(count: int) -> None:
        slot.world.clock.advance(every)
        write_settled(roots[-1] / "step", f"{slot.context.slot_id.instance_id} {'.' * count}")

    slot.runner.script, slot.runner.before_poll = compute, tick


def throughput(slot: SlotWorld, gpu: str = "T4") -> tuple[float, float, list[float]]:
    key = Key(partition=worker_partition(WORKLOAD), sort=throughput_sort_key(gpu, 1.0))
    found = slot.world.table.get(key) or {}
    return found.get("count", 0), found.get("hours", 0.0), found.get("samples", [])


def test_a_checkpoint_without_an_item_is_part_of_its_item(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path, policy=Policy(checkpoint_interval=10 * SECOND), batch_size=1)
    in_line(slot)
    saving(slot, 89, every=SECOND)
    slot.world.send({"job_id": "j", "items": items(3)})
    slot.step()

    count, hours, samples = throughput(slot)
    assert slot.world.calls["objects.put_file"] > 20
    assert count == 3
    assert hours == pytest.approx(3 * 91 / 3600, rel=0.02)
    # Items of 90 s, and the poll that says that the batch is done: 40 an hour.
    assert samples == [pytest.approx(40, rel=0.02)] * len(samples)
    assert slot.world.manifest("j").begun_seconds == {}
    key = Key(partition=worker_partition(WORKLOAD), sort=CHECKPOINT_RATE)
    assert slot.world.table.get(key), "what state costs is learned too"


def test_an_item_that_three_workers_computed_counts_all_time(tmp_path: Path) -> None:
    world = WorkWorld(policy=Policy(checkpoint_interval=MINUTE))
    world.send({"job_id": "j", "items": items(1)})
    for number in range(3):
        name = f"i-{number + 1}"
        slot = SlotWorld(tmp_path / name, world=world, instance_id=name, batch_size=1)
        in_line(slot)
        saving(slot, 60, every=MINUTE)
        tick = slot.runner.before_poll
        assert tick is not None
        if number < 2:
            slot.runner.before_poll = lambda n, t=tick, s=slot: t(n) if n < 30 else s.leave()
        slot.step()
        if number < 2:
            seconds = world.manifest("j").begun_seconds["T4#1"]
            assert seconds == pytest.approx(29 * 60 * (number + 1), rel=0.05)
            assert throughput(slot)[0] == 0, "no rate of what is half done"

    count, hours, _ = throughput(slot)
    assert count == 1
    assert hours == pytest.approx((29 + 29 + 62) / 60, rel=0.03)


def test_an_item_half_done_without_state_is_no_part_of_any(tmp_path: Path) -> None:
    def slowly(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        done = square(task, batch)
        return [*[None] * 9, done[0], *[None] * 9, *done[1:]]

    def tick(polls: int) -> None:
        slot.world.clock.advance(MINUTE)
        if polls == 18:
            slot.leave()

    runner = ScriptedRunner(script=slowly, before_poll=tick)
    slot = SlotWorld(tmp_path, runner=runner)
    in_line(slot)
    slot.world.send(JOB)
    slot.step()

    # One item in 10 minutes; the 8 minutes of the second are lost, and nobody's throughput.
    count, hours, _ = throughput(slot)
    assert count == 1
    assert hours == pytest.approx(10 / 60)
    assert slot.world.manifest("j").busy_seconds >= 17 * 60, "but paid for"


@pytest.mark.parametrize(("days", "writes"), [(6, 1), (8, 2)])
def test_unchanging_state_outlives_the_rule_that_drops_old_ones(
    tmp_path: Path, days: int, writes: int
) -> None:
    def keep(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        table = state_of(task) / "table"
        if not table.exists():
            write_settled(table, "built once")
        assert table.read_text() == "built once"
        return [*square(task, batch)[:1], *[None] * 99]

    def leave(polls: int) -> None:
        if polls > 2:
            world.leave()

    runner = ScriptedRunner(script=keep, before_poll=leave)
    world = SlotWorld(tmp_path / "1", runner=runner)
    world.world.send(JOB)
    world.step()
    [first] = world.world.manifest("j").user_state

    world.world.clock.advance(timedelta(days=days))
    runner = ScriptedRunner(script=keep, before_poll=leave)
    world = SlotWorld(tmp_path / "2", world=world.world, instance_id="i-2", runner=runner)
    while not world.world.manifest("j").owner.startswith("i-2"):
        world.step()

    [again] = world.world.manifest("j").user_state
    assert replace(again, stored_at=first.stored_at) == first
    assert world.world.calls["objects.put_file"] == writes
    assert world.world.clock.now() - again.stored_at <= timedelta(days=7)


def test_results_are_committed_before_they_fill_the_memory(tmp_path: Path) -> None:
    def large(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        done = [ItemDone(index=item.index, value=1, size=8 * MEBIBYTE) for item in batch]
        return [*done, BatchDone()]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=large), batch_size=2)
    in_line(slot)
    slot.world.send({"job_id": "j", "items": items(10)})
    slot.step()
    parts = slot.world.manifest("j").parts
    assert [(part.first, part.last) for part in parts] == [(0, 7), (8, 9)]


def test_code_waits_for_commits_that_are_slower_than_it(tmp_path: Path) -> None:
    def large(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        done = [ItemDone(index=item.index, value=1, size=8 * MEBIBYTE) for item in batch]
        return [*done, BatchDone()]

    def hold(call: PortCall) -> None:
        # The first part is not through before the code has done all that it may beforehand.
        if call.method == "put" and "parts" in call.args[0] and not beforehand:
            while len(slot.runner.batches) < 10:
                threading.Event().wait(0.01)
            threading.Event().wait(0.1)
            beforehand.append(len(slot.runner.batches))

    beforehand: list[int] = []
    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=large), batch_size=2)
    slot.world.before = hold
    slot.world.send({"job_id": "j", "items": items(60)})
    slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED
    # Four batches are under way, eight wait.
    assert beforehand == [12]


def test_a_rebalance_recommendation_commits_and_the_job_goes_on(tmp_path: Path) -> None:
    policy = Policy(checkpoint_interval=timedelta(hours=1))
    parts: list[int] = []

    def advise(polls: int) -> None:
        if polls == 3:
            slot.metadata.recommend_rebalance(slot.world.clock.now())
            slot.watch.look()
        if polls > 6:
            parts.append(len(slot.world.manifest("j").parts))

    runner = ScriptedRunner(before_poll=advise)
    slot = SlotWorld(tmp_path, runner=runner, policy=policy)
    in_line(slot)
    slot.world.send(JOB)
    slot.step()
    assert not slot.life.is_finishing
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert max(parts) >= 1, "committed before the end"
    assert slot.world.manifest("j").epoch == 1


@pytest.mark.parametrize("by", [timedelta(hours=3), timedelta(hours=-3)], ids=["ahead", "back"])
def test_a_clock_that_is_set_changes_no_timeout(tmp_path: Path, by: timedelta) -> None:
    def slowly(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return [*[None] * 9, *square(task, batch)]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=slowly))
    slot.context = replace(slot.context, job_timeout=5 * MINUTE)
    slot.slot = Slot(slot.context)
    polls = itertools.count()

    def move(_: object) -> None:
        # Where it is set back a batch takes nine minutes, else less than one.
        slot.world.clock.advance(MINUTE if by < timedelta(0) else MINUTE / 15)
        if next(polls) == 1:
            slot.world.clock.set_by(by)

    slot.runner.before_poll = move
    slot.world.send(JOB)
    slot.step()

    timed_out = [e for e in slot.events("attempt_failed") if e["cause"] == FailureCause.TIMEOUT]
    assert len(timed_out) == (1 if by < timedelta(0) else 0)


def test_a_job_that_takes_too_long_is_a_failure_of_its_own(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=lambda *_: [None] * 99))
    slot.context = replace(slot.context, job_timeout=5 * MINUTE)
    slot.slot = Slot(slot.context)
    slot.runner.before_poll = lambda _: slot.world.clock.advance(MINUTE)
    slot.world.send(JOB)
    slot.step()
    [failure] = slot.world.manifest("j").failures
    assert "300 s (job_timeout)" in failure.reason
    [event] = slot.events("attempt_failed")
    assert event["cause"] == FailureCause.TIMEOUT
    assert slot.runner.kills >= 1


def test_what_the_code_printed_is_kept_for_each_attempt(tmp_path: Path) -> None:
    broken = Broken(FailureCause.ENDED, "it broke")

    def talk(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        assert task.output_log is not None
        task.output_log.add(f"batch {batch[0].index}")
        return [broken] if batch[0].index == 4 else square(task, batch)

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=talk))
    slot.world.send(JOB)
    slot.step()
    [(epoch, text)] = read_logs("j", slot.world.objects)
    *printed, ours = text.splitlines()
    assert (epoch, printed) == (1, ["batch 0", "batch 2", "batch 4"])
    assert ours.startswith("[spindown] ")
    assert ours.endswith(": it broke")


def test_an_item_whose_result_is_a_file_of_somebody_else_failed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the worker's own")

    def steal(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        for item in batch:
            place = task.outputs / str(item.index)
            place.mkdir(parents=True)
            (place / "a").symlink_to(secret)
        done = [ItemDone(index=item.index, files=("a",)) for item in batch]
        return [*done, BatchDone()]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=steal))
    slot.world.send(JOB)
    slot.step()
    assert {r.status for r in slot.world.records("j")} == {ItemStatus.FAILED}


def test_files_of_committed_items_are_removed_from_the_disk(tmp_path: Path) -> None:
    left: list[list[str]] = []

    def leave_files(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        left.append(sorted(path.name for path in task.outputs.glob("*")))
        for item in batch:
            place = task.outputs / str(item.index)
            place.mkdir(parents=True)
            (place / "half").write_text("of a large file")
        return [*(ItemDone(index=item.index, error="no") for item in batch), BatchDone()]

    policy = Policy(checkpoint_items=1)
    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=leave_files), policy=policy)
    in_line(slot)
    slot.world.send(JOB)
    slot.step()
    assert left == [[], [], []]

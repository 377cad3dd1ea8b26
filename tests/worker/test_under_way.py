"""What is under way between this machine and S3 when the slot needs it, or must leave."""

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from spindown.contract.job.manifest import JobState
from spindown.domain.policy import Policy
from spindown.memory.interception import PortCall
from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from spindown.worker.slot import Slot
from tests.slot import ScriptedRunner, SlotWorld
from tests.work import items
from tests.worker.settled import write_settled

JOB = {"job_id": "j", "items": items(5)}
MEBIBYTE = 1024 * 1024
MINUTE = timedelta(minutes=1)


@dataclass
class Gate:
    """Holds up the calls of one method from the given one on, until it is opened."""

    method: str
    first: int = 1
    is_reached: threading.Event = field(default_factory=threading.Event)
    is_open: threading.Event = field(default_factory=threading.Event)
    calls: int = 0

    def __call__(self, call: PortCall) -> None:
        if call.method == self.method:
            self.calls += 1
            if self.calls >= self.first:
                self.is_reached.set()
                assert self.is_open.wait(20)


def state_of(task: Task) -> Path:
    assert task.state is not None
    return task.state


def leave_at(slot: SlotWorld, poll: int) -> Callable[[int], None]:
    def leave(polls: int) -> None:
        if polls == poll:
            slot.leave()

    return leave


def test_state_still_coming_in_is_not_taken_for_the_job_s(
    tmp_path: Path,
) -> None:
    def simulate(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        write_settled(state_of(task) / "model", "weights")
        write_settled(state_of(task) / "optimizer", "moments")
        return [None] * 99

    first = SlotWorld(tmp_path / "1", runner=ScriptedRunner(script=simulate))
    first.runner.before_poll = leave_at(first, 3)
    first.world.send(JOB)
    first.step()
    saved = first.world.manifest("j").user_state
    assert [file.path for file in saved] == ["model", "optimizer"]

    gate = Gate("get_file", first=2)
    second = SlotWorld(tmp_path / "2", world=first.world, instance_id="i-2")
    second.world.before = gate
    working = threading.Thread(target=second.step)
    working.start()
    assert gate.is_reached.wait(20)
    second.leave()
    working.join(20)
    assert not working.is_alive()
    gate.is_open.set()
    manifest = second.world.manifest("j")
    assert (manifest.epoch, manifest.released, manifest.user_state) == (2, True, saved)


def test_state_being_committed_is_left_alone_until_it_is(tmp_path: Path) -> None:
    def simulate(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        write_settled(state_of(task) / "step", "x" * (1 + batch[0].index))
        done = [ItemDone(index=item.index, size=100 * MEBIBYTE) for item in batch]
        return [*done, None, BatchDone()]

    def hold(call: PortCall) -> None:
        # Until more has come than is let wait for a commit, or as long as that may take.
        if call.method == "put_file":
            path = call.args[1]
            for _ in range(50):
                if path.exists():
                    threading.Event().wait(0.01)

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=simulate), batch_size=1)
    slot.world.before = hold
    slot.world.send({"job_id": "j", "items": items(6)})
    slot.step()
    assert not slot.events("slot_crashed")
    manifest = slot.world.manifest("j")
    assert (manifest.state, manifest.failures) == (JobState.COMPLETED, ())


@pytest.mark.parametrize("batch_size", [20, sys.maxsize])
def test_results_behind_a_gap_fill_no_memory(tmp_path: Path, batch_size: int) -> None:
    def skip_first(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        done = [ItemDone(index=item.index, size=100 * MEBIBYTE) for item in batch]
        return [*done[1:], done[0], BatchDone()]

    runner = ScriptedRunner(script=skip_first)
    slot = SlotWorld(tmp_path, runner=runner, batch_size=batch_size)
    for name, count in (("good", 10), ("bad", 20)):
        slot.world.send({"job_id": name, "items": items(count)})
        slot.step()
    [failed] = slot.events("attempt_failed")
    assert (failed["job_id"], failed["cause"]) == ("bad", FailureCause.TOO_MUCH)
    # The eleventh that waits is too much.
    assert (runner.polls, runner.kills) == (11 + 11, 1)
    assert slot.world.manifest("good").state is JobState.COMPLETED


def test_results_overtake_a_checkpoint_under_way_at_a_notice(
    tmp_path: Path,
) -> None:
    def simulate(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        write_settled(state_of(task) / "model", "large")
        done = [ItemDone(index=item.index, value=item.index) for item in batch]
        return [*done[:2], None, *done[2:4], *[None] * 99]

    def go_on(polls: int) -> None:
        slot.world.clock.advance(MINUTE)
        if polls == 5:
            # The commit that is due at the second item has begun, and two more are done.
            assert upload.is_reached.wait(20)
            slot.leave()

    upload, told = Gate("put_file"), threading.Event()

    def watch(call: PortCall) -> None:
        if call.method == "put" and call.args[0].endswith("manifest.json") and upload.calls:
            told.set()

    policy = Policy(checkpoint_interval=2 * MINUTE)
    runner = ScriptedRunner(script=simulate, before_poll=go_on)
    slot = SlotWorld(tmp_path, runner=runner, policy=policy, batch_size=5)
    slot.world.before, slot.world.after = upload, watch
    slot.world.send(JOB)
    working = threading.Thread(target=slot.step)
    working.start()
    assert told.wait(20), "nothing was committed while the checkpoint was on its way"
    manifest = slot.world.manifest("j")
    assert (manifest.next_item, manifest.user_state, manifest.released) == (4, (), False)
    upload.is_open.set()
    working.join(20)
    manifest = slot.world.manifest("j")
    assert [file.path for file in manifest.user_state] == ["model"]
    assert (manifest.next_item, manifest.released, manifest.failures) == (4, True, ())
    assert [record.index for record in slot.world.records("j")] == [0, 1, 2, 3]
    assert upload.calls == 1


def test_results_commit_at_a_notice_though_the_ledger_is_silent(
    tmp_path: Path,
) -> None:
    def compute(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        done = [ItemDone(index=item.index, value=item.index) for item in batch]
        return [*done[:2], None, *done[2:4], *[None] * 99]

    def go_on(polls: int) -> None:
        slot.world.clock.advance(MINUTE)
        if polls == 5:
            # The commit of the first two items is to be told to the ledger; two more are done.
            assert report.is_reached.wait(20)
            slot.leave()

    def hold_up(call: PortCall) -> None:
        if slot.world.calls["objects.put"] > 2:
            report(call)

    def watch(call: PortCall) -> None:
        if call.method == "put" and call.args[0].endswith("manifest.json") and report.calls:
            told.set()

    report, told = Gate("write"), threading.Event()
    policy = Policy(checkpoint_interval=2 * MINUTE)
    runner = ScriptedRunner(script=compute, before_poll=go_on)
    slot = SlotWorld(tmp_path, runner=runner, policy=policy, batch_size=5)
    slot.world.before, slot.world.after = hold_up, watch
    slot.world.send(JOB)
    working = threading.Thread(target=slot.step)
    working.start()
    is_committed = told.wait(5)
    report.is_open.set()
    working.join(20)
    assert is_committed, "nothing was committed while the ledger was silent"
    assert [record.index for record in slot.world.records("j")] == [0, 1, 2, 3]


class SlowSource:
    """Inputs, of which one comes only when it is let through."""

    def __init__(self, slow: str) -> None:
        self.slow = slow
        self.fetched: list[str] = []
        self.is_reached, self.is_open = threading.Event(), threading.Event()

    def fetch(self, uri: str, path: Path) -> None:
        self.fetched.append(uri)
        path.write_text("x")
        if uri == self.slow:
            self.is_reached.set()
            assert self.is_open.wait(20)


def test_an_input_that_comes_after_its_job_is_gone_is_removed(
    tmp_path: Path,
) -> None:
    source = SlowSource("s3://inputs/2")

    def fail(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        assert source.is_reached.wait(20)
        return [Broken(FailureCause.ENDED, "it broke")]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=fail))
    ports: Any = replace(slot.context.ports, inputs=cast("Any", source))
    slot.context = replace(slot.context, ports=ports)
    slot.slot = Slot(slot.context)
    slot.world.send({"job_id": "j", "items": [f"s3://inputs/{n}" for n in range(6)]})
    slot.step()
    source.is_open.set()
    slot.context.transfers.shutdown(wait=True)
    assert len(source.fetched) == 3
    assert not list(tmp_path.iterdir())

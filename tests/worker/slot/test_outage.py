"""S3 or the ledger gives no answer: nothing counts against a job, and work goes on later."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spindown.contract.job.manifest import JobState
from spindown.contract.row import DONE, worker_partition
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.ec2sim import MemoryClock
from spindown.error import Unreachable
from spindown.memory.interception import PortCall
from spindown.memory.store import MemoryInputSource
from spindown.user import Item
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from spindown.worker.slot import Slot
from tests.slot import JOB, MINUTE, ScriptedRunner, SlotWorld, in_line
from tests.work import WORKLOAD, WorkWorld


def test_gives_the_job_back_when_s3_gives_no_answer(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.before = fail_parts
    slot.world.send(JOB)
    slot.step()
    assert slot.world.manifest("j").state is JobState.RUNNING
    assert slot.world.worker().busy_slots == 0
    # Not at once: who gives no answer now is not asked again every second.
    assert slot.world.queue.backlog().visible == 0
    slot.world.clock.advance(1.5 * MINUTE)
    slot.world.before = None
    slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED


def fail_parts(call: PortCall) -> None:
    if call.method == "put" and "parts" in call.args[0]:
        raise Unreachable("no answer")


def test_an_outage_costs_a_job_nothing_and_slows_its_retries(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.before = fail_parts
    slot.world.send(JOB)
    tries = 0

    for _ in range(6 * 60):
        slot.world.clock.advance(MINUTE)
        tries += slot.step()

    manifest = slot.world.manifest("j")
    assert (manifest.state, manifest.losses) == (JobState.RUNNING, 0)
    assert 8 <= tries <= 20
    slot.world.before = None
    slot.world.clock.advance(40 * MINUTE)
    slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED


class SilentSource(MemoryInputSource):
    """Inputs of which one is not to be had for a while."""

    def fetch(self, uri: str, path: Path) -> None:
        if uri.endswith("3"):
            raise Unreachable("no answer")
        path.write_bytes(b"x")


@pytest.mark.parametrize("has_parts", [True, False], ids=["only inputs", "parts too"])
def test_what_was_computed_before_an_input_failed_is_kept(tmp_path: Path, has_parts: bool) -> None:
    slot = SlotWorld(tmp_path)
    ports = replace(slot.context.ports, inputs=SilentSource({}, ["s3://inputs/"]))
    slot.context = replace(slot.context, ports=ports)
    slot.slot = Slot(slot.context)
    slot.world.before = None if has_parts else fail_parts
    slot.world.send({"job_id": "j", "items": [f"s3://inputs/{n}" for n in range(6)]})
    slot.step()
    manifest = slot.world.manifest("j")
    assert (manifest.next_item, manifest.released) == (2 if has_parts else 0, True)
    assert manifest.failures == ()
    told = slot.world.table.query(worker_partition(WORKLOAD), DONE).values()
    assert sum(int(row.get("items", 0)) for row in told) == manifest.next_item


def test_an_outage_for_one_job_alone_is_not_tried_for_ever(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.before = fail_parts
    slot.world.send(JOB)

    for _ in range(20 * 60):
        slot.world.clock.advance(MINUTE)
        slot.step()

    assert slot.world.manifest("j").state is JobState.FAILED
    assert len(slot.world.dead_letters.bodies()) == 1


def test_a_notice_in_an_outage_makes_the_job_visible_at_once(tmp_path: Path) -> None:
    def announce(polls: int) -> None:
        slot.metadata.announce_interruption(slot.world.clock.now())
        slot.watch.look()

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=announce))
    slot.world.before = fail_parts
    slot.world.send(JOB)
    slot.step()
    assert slot.world.queue.backlog().visible == 1


def test_an_unclaimable_job_is_shown_again_within_minutes(tmp_path: Path) -> None:
    def fail(call: PortCall) -> None:
        if call.method == "transact":
            raise Unreachable("no answer")

    slot = SlotWorld(tmp_path)
    slot.world.before = fail
    slot.world.send(JOB)
    with pytest.raises(Unreachable):
        slot.step()
    slot.world.before = None

    assert slot.world.queue.backlog().visible == 0
    slot.world.clock.advance(1.5 * MINUTE)
    assert slot.step()
    manifest = slot.world.manifest("j")
    assert (manifest.state, manifest.losses) == (JobState.COMPLETED, 0)


def test_a_notice_that_the_ledger_did_not_hear_is_told_again(tmp_path: Path) -> None:
    def fail(call: PortCall) -> None:
        if call.port == "table":
            raise Unreachable("no answer")

    slot = SlotWorld(tmp_path)
    held = slot.world.hold(JOB)
    slot.renewer.take(held, None)
    deadline = slot.world.clock.now() + 2 * MINUTE
    slot.metadata.announce_interruption(deadline)
    slot.world.before = fail
    slot.watch.look()
    slot.world.before = None
    assert slot.world.worker().interrupted_at is None

    slot.watch.look()

    lease = slot.world.lease()
    assert slot.world.worker().interrupted_at == deadline
    assert lease is not None
    assert (lease.deadline, lease.not_after) == (deadline, deadline)
    slot.world.calls.clear()
    slot.watch.look()
    assert not slot.world.calls, "once is enough"


def test_is_idle_again_after_a_ledger_that_gave_no_answer(tmp_path: Path) -> None:
    def fail(call: PortCall) -> None:
        if call.method == "transact" and slot.world.calls["table.transact"] == 2:
            raise Unreachable("no answer")

    slot = SlotWorld(tmp_path)
    slot.world.before = fail
    slot.world.send(JOB)
    slot.step()
    assert slot.world.worker().state is WorkerState.BUSY
    slot.watch.beat()
    assert slot.world.worker().state is WorkerState.IDLE
    assert slot.context.worker_row.drain(Reason(ReasonCode.IDLE))


def test_a_ledger_without_answer_is_no_sign_of_death(tmp_path: Path) -> None:
    def fail(call: PortCall) -> None:
        if call.port == "table":
            raise Unreachable("no answer")

    slot = SlotWorld(tmp_path)
    slot.world.before = fail
    with pytest.raises(Unreachable):
        slot.watch.beat()
    assert (tmp_path / "alive").exists()


def test_a_disk_too_full_for_the_sign_of_life_lets_no_lease_go(tmp_path: Path) -> None:
    def beat(polls: int) -> None:
        slot.world.clock.advance(4 * MINUTE)
        slot.watch.beat()
        assert slot.world.queue.backlog().visible == 0

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=beat))
    # As a file that cannot be written.
    (tmp_path / "alive").mkdir()
    slot.world.send(JOB)
    slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert slot.world.manifest("j").epoch == 1
    assert slot.events("life_not_shown")


class TurnedBack:
    """A clock that somebody sets back by an hour after the first look."""

    def __init__(self, at: datetime) -> None:
        self._at = iter([at])

    def now(self) -> datetime:
        return next(self._at, datetime(2026, 1, 1, tzinfo=UTC))

    def elapsed(self) -> timedelta:
        return timedelta(0)


def test_a_clock_set_back_lets_results_be_committed(tmp_path: Path) -> None:
    def one_by_one(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        found = [[ItemDone(index=item.index), None, None] for item in batch]
        return [*(event for events in found for event in events), BatchDone()]

    clock = MemoryClock()
    policy = Policy(checkpoint_interval=2 * MINUTE)
    runner = ScriptedRunner(script=one_by_one)
    world = WorkWorld(clock=clock, policy=policy)
    slot = SlotWorld(tmp_path, runner=runner, policy=policy, batch_size=5, world=world)
    in_line(slot)
    in_the_middle: list[int] = []

    def turn(polls: int) -> None:
        if polls == 2:
            clock.set_by(-60 * MINUTE)
        clock.advance(MINUTE)
        if polls == 12:
            in_the_middle.append(world.manifest("j").next_item)

    runner.before_poll = turn
    world.send(JOB)
    slot.step()
    assert in_the_middle[0] >= 3

"""When a slot takes no new job, and what becomes of the one in hand."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.job.manifest import JobState
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reason import ReasonCode
from spindown.memory.interception import PortCall
from spindown.user import Item
from spindown.worker.child.failure_cause import FailureCause
from spindown.worker.child.runner import Event, Task
from tests.slot import JOB, MINUTE, ScriptedRunner, SlotWorld, square
from tests.work import items


def test_a_notice_commits_what_is_done_and_gives_the_rest_back(tmp_path: Path) -> None:
    def announce(polls: int) -> None:
        if polls == 2:
            slot.metadata.announce_interruption(slot.world.clock.now() + 2 * MINUTE)
            slot.watch.look()
        if polls > 2:
            slot.world.clock.advance(MINUTE / 6)

    def stall(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        done = square(task, batch)
        return done if batch[0].index < 2 else [*done[:1], *[None] * 99]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=stall, before_poll=announce))
    slot.world.send(JOB)
    noticed_at = slot.world.clock.now()
    slot.step()
    manifest = slot.world.manifest("j")
    assert (manifest.next_item, manifest.interruptions, manifest.released) == (3, 1, True)
    assert manifest.failures == ()
    # It computed on until the margin before the deadline, and not beyond.
    gone_at = slot.world.clock.now()
    assert 2 * MINUTE - timedelta(seconds=20) <= gone_at - noticed_at < 2 * MINUTE
    assert slot.world.queue.backlog().visible == 1
    assert slot.world.worker().interrupted_at == noticed_at + 2 * MINUTE
    assert not slot.step()
    other = SlotWorld(tmp_path, world=slot.world, instance_id="i-2")
    other.step()
    assert [r.index for r in slot.world.records("j")] == [0, 1, 2, 3, 4]
    assert slot.world.manifest("j").losses == 0


def test_a_notice_that_only_the_ledger_knows_drains_too(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    deadline = slot.world.clock.now() + 2 * MINUTE
    slot.world.change_worker("i-1", interrupted_at=deadline)
    slot.watch.beat()
    assert slot.life.state.deadline == deadline
    assert slot.life.is_finishing
    slot.world.send(JOB)
    assert not slot.step()


def test_a_rebalance_finishes_the_job_and_takes_another(tmp_path: Path) -> None:
    def advise(polls: int) -> None:
        if polls == 1:
            slot.metadata.recommend_rebalance(slot.world.clock.now())
            slot.watch.look()

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=advise))
    slot.world.send(JOB)
    slot.world.send({**JOB, "job_id": "k"})
    slot.step()
    assert slot.world.worker().rebalance_at is not None
    assert slot.step()
    assert {slot.world.manifest(job).state for job in ("j", "k")} == {JobState.COMPLETED}


def test_a_job_is_given_back_after_eleven_hours_and_goes_on(tmp_path: Path) -> None:
    def beat(polls: int) -> None:
        for _ in range(20):
            slot.world.clock.advance(MINUTE)
            slot.watch.beat()

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=beat))
    slot.world.send({"job_id": "j", "items": items(40)})
    slot.step()
    manifest = slot.world.manifest("j")
    assert manifest.state is JobState.RUNNING
    assert manifest.released
    assert manifest.next_item > 0
    assert slot.world.queue.backlog().visible == 1
    slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert [r.index for r in slot.world.records("j")] == list(range(40))


def beats(slot: SlotWorld) -> Callable[[int], None]:
    """Return what lets twenty minutes pass before each look, with the heartbeats in them."""

    def beat(polls: int) -> None:
        for _ in range(5):
            slot.world.clock.advance(4 * MINUTE)
            slot.watch.beat()

    return beat


def test_a_single_call_is_released_with_results_after_11_hours(
    tmp_path: Path,
) -> None:
    def pause(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return [event for done in square(task, batch) for event in (done, None)]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=pause), batch_size=20)
    slot.runner.before_poll = beats(slot)
    slot.world.send({"job_id": "j", "items": items(20)})
    began_at = slot.world.clock.now()
    slot.step()
    manifest = slot.world.manifest("j")
    assert manifest.released
    assert 15 < manifest.next_item < 20
    assert slot.world.clock.now() - began_at < timedelta(hours=12), "SQS hides it no longer"
    assert slot.world.queue.backlog().visible == 1
    slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert (slot.world.manifest("j").losses, slot.world.manifest("j").failures) == (0, ())


def test_a_single_call_that_keeps_a_checkpoint_may_take_days(tmp_path: Path) -> None:
    def train(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        assert task.state is not None
        task.state.mkdir(parents=True, exist_ok=True)
        (task.state / "step").write_text(str(slot.world.clock.now()))
        return [None] * 99

    policy = Policy(max_lifetime=timedelta(days=10))
    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=train), policy=policy)
    slot.runner.before_poll = beats(slot)
    slot.world.send({"job_id": "j", "items": items(1)})
    for _ in range(4):
        slot.step()
    manifest = slot.world.manifest("j")
    assert (manifest.epoch, manifest.released, manifest.state) == (4, True, JobState.RUNNING)
    assert (manifest.losses, manifest.failures) == (0, ())


def test_a_single_call_without_results_is_not_tried_for_ever(tmp_path: Path) -> None:
    runner = ScriptedRunner(script=lambda *_: [None] * 99)
    slot = SlotWorld(tmp_path, runner=runner, policy=Policy(max_failures=2))
    slot.runner.before_poll = beats(slot)
    slot.world.send({"job_id": "j", "items": items(1)})
    for _ in range(8):
        slot.world.clock.advance(10 * MINUTE)
        slot.step()
    manifest = slot.world.manifest("j")
    assert manifest.state is JobState.FAILED
    causes = {event["cause"] for event in slot.events("attempt_failed")}
    assert causes == {FailureCause.NO_PROGRESS}
    assert [failure.kind for failure in manifest.failures] == ["failure"] * 2


def test_puts_back_what_it_received_while_it_was_told_to_finish(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)

    def finish(call: PortCall) -> None:
        if call.method == "receive":
            slot.finish()

    slot.world.after = finish
    slot.step()
    assert slot.world.queue.backlog().visible == 1


def test_gives_back_what_it_claimed_while_it_was_told_to_finish(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)

    def finish(call: PortCall) -> None:
        if call.method == "transact":
            slot.finish()

    slot.world.after = finish
    slot.step()

    assert slot.runner.batches == []
    manifest = slot.world.manifest("j")
    assert (manifest.released, manifest.failures, manifest.interruptions) == (True, (), 0)
    assert slot.world.queue.backlog().visible == 1


def test_told_to_finish_while_polling_it_makes_no_pause_after(
    tmp_path: Path,
) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.clock.advance(10 * MINUTE)

    def finish(call: PortCall) -> None:
        if call.method == "receive":
            slot.finish()

    slot.world.after = finish
    slot.run()


def test_leaves_when_a_tick_has_condemned_the_instance(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.change_worker("i-1", state=WorkerState.CONDEMNED)
    slot.watch.beat()
    assert slot.life.reason == "condemned"
    assert slot.life.must_leave()


def test_a_worker_of_other_code_than_deployed_takes_no_new_job(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.set_policy(slot.world.policy, code_digest="e")

    for _ in range(6):
        slot.watch.beat()
        slot.world.clock.advance(MINUTE)
    assert not slot.life.is_finishing
    slot.watch.beat()

    assert slot.life.reason is ReasonCode.OTHER_CODE
    assert not slot.life.must_leave()


@pytest.mark.parametrize("digest", ["d", ""], ids=["the same", "not known"])
def test_a_worker_of_the_deployed_code_goes_on(tmp_path: Path, digest: str) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.set_policy(slot.world.policy, code_digest=digest)

    for _ in range(20):
        slot.watch.beat()
        slot.world.clock.advance(MINUTE)

    assert not slot.life.is_finishing


def test_a_scaler_that_still_names_the_old_code_ends_no_worker(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)

    for minute in range(20):
        # Two scalers take turns, one of which has not read its settings anew.
        slot.world.set_policy(slot.world.policy, code_digest="dc"[minute // 5 % 2])
        slot.watch.beat()
        slot.world.clock.advance(MINUTE)

    assert not slot.life.is_finishing

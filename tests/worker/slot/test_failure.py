"""What counts against a job, and when a worker is itself the one to go."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.aws.clock import SystemClock
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import LeaseLost, Unreachable
from spindown.memory import PortCall
from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from spindown.worker.process_tree.process_tree import Wedged
from tests.slot import JOB, MINUTE, ScriptedRunner, SlotWorld, square
from tests.work import WorkWorld, items


def test_a_broken_child_is_a_failed_job_that_keeps_its_work(tmp_path: Path) -> None:
    def crash(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        if batch[0].index < 2:
            return square(task, batch)
        return [Broken(FailureCause.KILLED, "SIGSEGV")]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=crash))
    slot.world.send(JOB)
    slot.step()
    manifest = slot.world.manifest("j")
    assert manifest.next_item == 2
    assert [f.reason for f in manifest.failures] == ["SIGSEGV"]
    assert slot.world.queue.backlog().visible == 1
    assert slot.world.worker().state is WorkerState.IDLE


def test_a_job_is_not_over_because_its_code_says_so(tmp_path: Path) -> None:
    def lie(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return square(task, batch) if batch[0].index < 2 else [BatchDone()]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=lie))
    slot.world.send(JOB)
    slot.step()
    manifest = slot.world.manifest("j")
    assert (manifest.state, manifest.next_item) == (JobState.RUNNING, 2)
    assert slot.world.queue.backlog().visible == 1
    assert len(manifest.failures) == 1
    [event] = slot.events("attempt_failed")
    assert event["cause"] == FailureCause.UNANSWERED


def test_ends_after_three_different_jobs_have_failed_in_a_row(tmp_path: Path) -> None:
    runner = ScriptedRunner(script=lambda task, batch: [Broken(FailureCause.ENDED, "bad GPU")])
    slot = SlotWorld(tmp_path, runner=runner)
    for name in "abc":
        assert not slot.life.is_finishing
        slot.world.send({"job_id": name, "items": items(1)})
        while not slot.world.objects.versions(f"jobs/{name}/manifest.json"):
            slot.step()
    assert slot.life.reason is ReasonCode.JOBS_FAILED
    assert slot.events("quarantined")


def test_ends_after_three_jobs_in_which_every_item_failed(tmp_path: Path) -> None:
    def fail(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return [*(ItemDone(index=i.index, error="CUDA error") for i in batch), BatchDone()]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=fail))
    for name in "abc":
        slot.world.send({"job_id": name, "items": items(3)})
        slot.step()
    assert slot.life.is_finishing


def test_no_machine_is_blamed_for_the_commands_that_it_is_sent(tmp_path: Path) -> None:
    def fail(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return [*(ItemDone(index=i.index, error="status 7") for i in batch), BatchDone()]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=fail))
    slot.slot._context = replace(slot.context, is_judged_by_items=False)
    for name in "abc":
        slot.world.send({"job_id": name, "items": items(3)})
        slot.step()
    assert not slot.life.is_finishing


def test_a_machine_fault_gives_the_job_back_and_is_reported(tmp_path: Path) -> None:
    def fail(polls: int) -> None:
        raise OSError("no space left on device")

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=fail))
    slot.world.send(JOB)
    with pytest.raises(OSError, match="no space left"):
        slot.step()
    assert slot.world.queue.backlog().visible == 1
    assert slot.world.worker().state is WorkerState.IDLE
    assert slot.world.lease() is None
    [failure] = slot.world.manifest("j").failures
    assert (failure.kind, failure.instance_id) == ("failure", "i-1")
    assert failure.reason.endswith("OSError: no space left on device")


def test_a_full_disk_loses_no_result_in_memory(tmp_path: Path) -> None:
    def fail(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        if batch[0].index >= 90:
            raise OSError("no space left on device")
        return square(task, batch)

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=fail))
    slot.world.send({**JOB, "items": items(100)})
    with pytest.raises(OSError, match="no space left"):
        slot.step()

    manifest = slot.world.manifest("j")
    assert (manifest.next_item, len(slot.world.records("j")), len(manifest.failures)) == (90, 90, 1)


def test_a_fault_after_the_last_item_completes_the_job(tmp_path: Path) -> None:
    def fail(polls: int) -> None:
        # After the last answer, before the word that the batch is done.
        if polls == 6:
            raise OSError("no space left on device")

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=fail), batch_size=5)
    slot.world.send(JOB)
    with pytest.raises(OSError, match="no space left"):
        slot.step()

    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert (slot.world.queue.bodies(), slot.world.lease()) == ([], None)


def test_results_that_cannot_be_saved_do_not_keep_a_job(tmp_path: Path) -> None:
    def fail(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        if batch[0].index:
            raise OSError("no space left on device")
        return square(task, batch)

    def be_full(call: PortCall) -> None:
        if call.method == "put" and "/parts/" in str(call.args):
            raise OSError("no space left on device")

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=fail))
    slot.world.send(JOB)
    slot.world.before = be_full
    with pytest.raises(OSError, match="no space left"):
        slot.step()

    assert slot.world.lease() is None
    manifest = slot.world.manifest("j")
    assert (manifest.next_item, len(manifest.failures)) == (0, 1)


def test_a_full_machine_does_not_use_up_a_job_s_tries(tmp_path: Path) -> None:
    def fail(polls: int) -> None:
        raise OSError("no space left on device")

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=fail))
    slot.world.send(JOB)
    for _ in range(5):
        with suppress(OSError):
            slot.step()
        slot.world.clock.advance(MINUTE / 10)
    assert len(slot.world.manifest("j").failures) == 1

    slot.world.clock.advance(2 * MINUTE)
    other = SlotWorld(tmp_path, world=slot.world, instance_id="i-2")
    other.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED


def test_a_machine_without_room_takes_no_more_than_three_jobs(tmp_path: Path) -> None:
    def fail(polls: int) -> None:
        raise OSError("no space left on device")

    world = WorkWorld(clock=SystemClock())
    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=fail), world=world)
    for name in "abcde":
        slot.world.send({**JOB, "job_id": name})
    began_at = world.clock.now()
    slot.run()
    # A second at least after the first and after the second.
    assert timedelta(seconds=2) <= world.clock.now() - began_at < timedelta(seconds=20)
    worker = slot.world.worker()
    assert (slot.life.reason, worker.reason) == (ReasonCode.FAULTY, Reason(ReasonCode.FAULTY))
    assert worker.unfit_at is not None
    tried = [n for n in "abcde" if slot.world.objects.versions(f"jobs/{n}/manifest.json")]
    assert len(tried) == 3


def test_an_unkillable_process_costs_its_worker_and_not_the_job(tmp_path: Path) -> None:
    def hang(polls: int) -> None:
        raise Wedged("process 7")

    world = WorkWorld(clock=SystemClock())
    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=hang), world=world)
    slot.world.send(JOB)
    slot.run()
    assert world.worker().unfit_at is not None
    assert world.lease() is None
    assert world.queue.backlog().visible == 1
    [failure] = world.manifest("j").failures
    assert failure.reason.endswith("Wedged: process 7")


@pytest.mark.parametrize("cause", [LeaseLost, Unreachable, ValueError], ids=lambda e: e.__name__)
def test_no_lease_is_kept_for_an_unkillable_process(tmp_path: Path, cause: type[Exception]) -> None:
    class Stuck(ScriptedRunner):
        def kill(self) -> None:
            raise Wedged("process 7")

    def fail(polls: int) -> None:
        raise cause("so it is")

    slot = SlotWorld(tmp_path, runner=Stuck(before_poll=fail))
    slot.world.send(JOB)
    with pytest.raises(Wedged):
        slot.step()
    assert slot.world.lease() is None
    assert not slot.renewer.is_keeping
    assert slot.world.worker().state is WorkerState.IDLE


def test_a_job_that_every_worker_fails_on_is_dead_lettered(tmp_path: Path) -> None:
    def fail(polls: int) -> None:
        raise ValueError("ours")

    world = None
    for instance in ("i-1", "i-2", "i-3"):
        runner = ScriptedRunner(before_poll=fail)
        slot = SlotWorld(tmp_path, runner=runner, world=world, instance_id=instance)
        if world is None:
            slot.world.send(JOB)
        world = slot.world
        with pytest.raises(ValueError, match="ours"):
            slot.step()

    assert world is not None
    assert world.manifest("j").state is JobState.FAILED
    assert len(world.dead_letters.bodies()) == 1
    assert world.queue.bodies() == []


def letters_by_reason(slot: SlotWorld) -> list[tuple[float, str]]:
    slot.reporter.flush()
    letters = [one for one in slot.world.metrics.data if one.name == "DeadLettered"]
    return [(one.value, one.dimensions["Reason"]) for one in letters]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ReasonCode.FAILED_TOO_OFTEN, "failures"),
        (ReasonCode.FAILED_ON_SEVERAL, "failures"),
        (ReasonCode.NEVER_DONE, "interruptions"),
        (ReasonCode.ITEM_TOO_LONG, "item-too-long"),
        (ReasonCode.NONE, "input"),
    ],
)
def test_a_letter_is_counted_by_why_its_job_failed(
    tmp_path: Path, code: ReasonCode, told: str
) -> None:
    """Found at a claim, as when the worker that gave it up died before it moved the message."""
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)
    slot.world.put_manifest(state=JobState.FAILED, code=code.value, released=True, owner="")
    slot.step()

    assert slot.world.manifest("j").code == code.value
    assert letters_by_reason(slot) == [(1, told)]


def test_a_letter_of_a_later_version_s_job_is_no_fault(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    later = Manifest(job_id="j", epoch=1, owner="", state=JobState.RUNNING, schema=99)
    slot.world.objects.put(manifest_key("j"), encode_manifest(later))
    slot.world.send({**JOB, "type": "small"})
    slot.step()

    assert letters_by_reason(slot) == [(1, ReasonCode.NO_TYPES.value)]
    assert slot.world.queue.bodies() == []


def test_an_item_too_long_for_its_limit_is_counted_so(tmp_path: Path) -> None:
    """Found as the job is given back: nothing has failed, and nothing was interrupted."""

    def save(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        assert task.state is not None
        task.state.mkdir(parents=True, exist_ok=True)
        (task.state / "step").write_text(str(slot.world.clock.now()))
        return [None] * 99

    def beat(polls: int) -> None:
        for _ in range(5):
            slot.world.clock.advance(4 * MINUTE)
            slot.watch.beat()

    policy = Policy(max_lifetime=timedelta(days=10), max_item_time=timedelta(hours=15))
    slot = SlotWorld(tmp_path, runner=ScriptedRunner(save, beat), policy=policy)
    slot.world.send({"job_id": "j", "items": items(1)})
    slot.step()
    assert letters_by_reason(slot) == []
    slot.step()

    assert slot.world.manifest("j").code == ReasonCode.ITEM_TOO_LONG
    assert slot.world.manifest("j").interruptions == 0
    assert letters_by_reason(slot) == [(1, "item-too-long")]


def test_a_message_with_another_job_s_id_is_counted(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)
    slot.step()
    slot.world.send({**JOB, "items": items(9)})
    slot.step()

    assert letters_by_reason(slot) == [(1, ReasonCode.JOB_ID_REUSED.value)]

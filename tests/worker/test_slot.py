"""One slot, step by step on a clock moved by hand: what becomes of jobs, whatever happens."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.app.port import Key, Write
from spindown.app.work.held import Held
from spindown.contract.job.manifest import JobState
from spindown.contract.row import JOB_RATE, spend_sort, throughput_sort, workload_partition
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.error import Unreachable
from spindown.memory.interception import PortCall
from spindown.user import Item
from tests.slot import ScriptedRunner, SlotWorld, square
from tests.work import WORKLOAD, WorkWorld, a_seat, items
from worker.child.runner import BatchDone, Broken, Event, ItemDone, Task

JOB = {"job_id": "j", "items": items(5)}
MINUTE = timedelta(minutes=1)


def test_works_a_job_off_in_batches(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)
    assert slot.slot.step()
    assert slot.runner.batches == [[0, 1], [2, 3], [4]]
    assert [r.result for r in slot.world.records("j")] == [0, 1, 4, 9, 16]
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert slot.world.queue.bodies() == []
    assert slot.world.worker().state is WorkerState.IDLE
    assert not slot.slot.step()


def test_a_job_of_one_part_costs_this_many_requests(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)
    slot.slot.step()
    slot.world.clock.advance(MINUTE / 2)
    slot.world.send({**JOB, "job_id": "k"})
    slot.world.calls.clear()
    slot.slot.step()
    assert slot.world.calls == {
        "queue.receive": 1,
        "queue.delete": 1,
        "objects.put": 3,
        "table.transact": 2,
        # The count of claims, the day's account, the throughput.
        "table.write": 3,
    }


def test_tells_the_ledger_what_was_done(tmp_path: Path) -> None:
    def slowly(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        slot.world.clock.advance(MINUTE)
        failed = ItemDone(index=batch[0].index, error="no")
        return [failed, *square(task, batch)[1:]]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=slowly))
    slot.world.send(JOB)
    slot.slot.step()
    assert row(slot.world, spend_sort(slot.world.clock.now())) == {
        "items": 2,
        "items_failed": 3,
        "jobs": 1,
    }
    rate = row(slot.world, throughput_sort("T4", 1.0))
    assert (rate["count"], rate["hours"], rate["reports"]) == (5, pytest.approx(0.05), 1)
    assert rate["samples"] == [pytest.approx(100)]
    assert row(slot.world, JOB_RATE)["samples"] == [5.0]
    slot.account.flush()
    values = slot.world.metrics.values
    assert (values("ItemsDone"), values("ItemsFailed")) == ([2], [3])
    assert (values("JobsCompleted"), values("JobSeconds")) == ([1], [180])
    assert slot.world.manifest("j").cost_usd == pytest.approx(0.36 / 20)


def test_commits_while_it_computes_when_a_checkpoint_is_due(tmp_path: Path) -> None:
    policy = Policy(checkpoint_items=2)
    slot = SlotWorld(tmp_path, policy=policy)
    slot.runner.before_poll = lambda _: slot.world.clock.advance(MINUTE / 60)
    slot.world.send(JOB)
    slot.slot.step()
    ranges = [(part.first, part.last) for part in slot.world.manifest("j").parts]
    assert len(ranges) > 1
    assert [first for first, _ in ranges] == [0, *(last + 1 for _, last in ranges[:-1])]
    assert ranges[-1][1] == 4


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
    slot.slot.step()
    manifest = slot.world.manifest("j")
    assert (manifest.next_item, manifest.interruptions, manifest.released) == (3, 1, True)
    assert manifest.failures == ()
    # It computed on until the margin before the deadline, and not beyond.
    gone_at = slot.world.clock.now()
    assert 2 * MINUTE - timedelta(seconds=20) <= gone_at - noticed_at < 2 * MINUTE
    assert slot.world.queue.backlog().visible == 1
    assert slot.world.worker().interrupted_at == noticed_at + 2 * MINUTE
    assert not slot.slot.step()
    other = SlotWorld(tmp_path, world=slot.world, instance_id="i-2")
    other.slot.step()
    assert [r.index for r in slot.world.records("j")] == [0, 1, 2, 3, 4]
    assert slot.world.manifest("j").losses == 0


def test_a_notice_that_only_the_ledger_knows_drains_too(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    deadline = slot.world.clock.now() + 2 * MINUTE
    slot.world.change_worker("i-1", interrupted_at=deadline)
    slot.watch.beat()
    assert slot.life.deadline == deadline
    assert slot.life.is_finishing
    slot.world.send(JOB)
    assert not slot.slot.step()


def test_a_rebalance_finishes_the_job_in_hand_and_takes_no_other(tmp_path: Path) -> None:
    def advise(polls: int) -> None:
        if polls == 1:
            slot.metadata.recommend_rebalance(slot.world.clock.now())
            slot.watch.look()

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=advise))
    slot.world.send(JOB)
    slot.world.send({**JOB, "job_id": "k"})
    slot.slot.step()
    done = [job for job in ("j", "k") if slot.world.objects.versions(f"jobs/{job}/manifest.json")]
    assert len(done) == 1
    assert slot.world.manifest(done[0]).state is JobState.COMPLETED
    assert not slot.slot.step()
    assert slot.world.worker().rebalance_at is not None


def test_a_job_that_another_has_taken_over_is_dropped(tmp_path: Path) -> None:
    def lose(polls: int) -> None:
        if polls == 2:
            # The heartbeat was silent for too long.
            slot.world.clock.advance(6 * MINUTE)
            assert isinstance(slot.world.claim(a_seat("i-2")), Held)

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=lose))
    slot.world.send(JOB)
    slot.slot.step()
    assert slot.runner.kills == 1
    manifest = slot.world.manifest("j")
    assert (manifest.owner, manifest.parts) == ("i-2/0", ())
    assert slot.world.queue.backlog().in_flight == 1
    assert slot.world.lease_row("i-2/0") is not None
    assert slot.world.worker("i-1").state is WorkerState.IDLE


def test_a_lease_that_the_control_plane_cleared_drops_its_job_at_once(tmp_path: Path) -> None:
    def clear(polls: int) -> None:
        if polls == 2:
            slot.world.table.write(Write(key=slot.bench.seat.lease_key, delete=True))
            slot.watch.beat()

    def stall(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        return [*square(task, batch)[:1], *[None] * 9]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=stall, before_poll=clear))
    slot.world.send(JOB)
    slot.slot.step()
    assert slot.events("lease_lost")
    assert (slot.runner.polls, slot.runner.kills) == (2, 1)
    assert slot.world.manifest("j").parts == ()


def test_a_zombie_that_wakes_after_its_job_was_finished_commits_nothing(tmp_path: Path) -> None:
    def sleep(polls: int) -> None:
        if polls == 1:
            slot.world.clock.advance(10 * MINUTE)
            other = SlotWorld(tmp_path, world=slot.world, instance_id="i-2")
            assert other.slot.step()

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=sleep))
    slot.world.send(JOB)
    slot.slot.step()
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
    slot.slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert slot.world.manifest("j").epoch == 1


def test_a_job_is_given_back_after_eleven_hours_and_goes_on(tmp_path: Path) -> None:
    def beat(polls: int) -> None:
        for _ in range(20):
            slot.world.clock.advance(MINUTE)
            slot.watch.beat()

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=beat))
    slot.world.send({"job_id": "j", "items": items(40)})
    slot.slot.step()
    manifest = slot.world.manifest("j")
    assert manifest.state is JobState.RUNNING
    assert manifest.released
    assert manifest.next_item > 0
    assert slot.world.queue.backlog().visible == 1
    slot.slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert [r.index for r in slot.world.records("j")] == list(range(40))


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


def test_tells_the_ledger_how_many_bytes_an_item_moves(tmp_path: Path) -> None:
    def write(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        place = task.outputs / str(batch[0].index)
        place.mkdir(parents=True)
        (place / "a.bin").write_bytes(bytes(700))
        made = ItemDone(index=batch[0].index, value=1, files=("a.bin",))
        return [made, *square(task, batch)[1:]]

    world = WorkWorld(sources={"s3://inputs/a.png": bytes(3000), "s3://inputs/b.png": bytes(50)})
    slot = SlotWorld(tmp_path, world=world, runner=ScriptedRunner(script=write), batch_size=3)
    world.send({"job_id": "j", "items": ["s3://inputs/a.png", "s3://inputs/b.png", "inline"]})
    slot.slot.step()

    rate = row(world, throughput_sort("T4", 1.0))
    (part,) = world.manifest("j").parts
    assert rate["moved"] == 3
    assert rate["gib_in"] == pytest.approx(3050 / 2**30)
    assert rate["gib_out"] == pytest.approx((700 + part.bytes) / 2**30)


def test_an_input_that_is_not_there_fails_its_item_alone(tmp_path: Path) -> None:
    world = WorkWorld(sources={"s3://inputs/a.png": b"A", "s3://inputs/c.png": b"C"})
    slot = SlotWorld(tmp_path, world=world, batch_size=3)
    names = ["s3://inputs/a.png", "s3://inputs/b.png", "s3://inputs/c.png", "s3://other/x"]
    world.send({"job_id": "j", "items": names})
    slot.slot.step()
    errors = [record.error for record in world.records("j")]
    assert errors[0] is errors[2] is None
    assert "s3://inputs/b.png is not there" in str(errors[1])
    assert "outside the workload's inputs" in str(errors[3])
    assert [path and path.name for path in slot.runner.paths] == ["a.png", "c.png"]
    assert not any(path.exists() for path in slot.runner.paths if path)


def test_a_list_that_is_not_there_sends_the_job_to_the_dead_letters(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send({"job_id": "j", "items_uri": "s3://inputs/none.jsonl"})
    slot.slot.step()
    manifest = slot.world.manifest("j")
    assert manifest.state is JobState.FAILED
    assert manifest.reason == (
        "items_uri is 's3://inputs/none.jsonl': put the object there, then redrive the job"
    )
    assert len(slot.world.dead_letters.bodies()) == 1
    assert slot.world.worker().state is WorkerState.IDLE


def test_splits_a_large_job_and_works_its_children_off(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path, policy=Policy(max_items_per_job=2))
    slot.world.send(JOB)
    while slot.world.queue.bodies():
        slot.slot.step()
    children = slot.world.manifest("j").children
    assert len(children) == 3
    done = [record.item for child in children for record in slot.world.records(child)]
    assert done == items(5)


def test_commits_the_files_that_an_item_leaves(tmp_path: Path) -> None:
    def leave(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        for item in batch:
            (task.outputs / str(item.index)).mkdir(parents=True)
            (task.outputs / str(item.index) / "out.txt").write_text(f"{item.value}")
        return [
            *(ItemDone(index=item.index, files=("out.txt",)) for item in batch),
            BatchDone(),
        ]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=leave))
    slot.world.send(JOB)
    slot.slot.step()
    found = [slot.world.objects.get(r.outputs[0].key).data for r in slot.world.records("j")]
    assert found == [item.encode() for item in items(5)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../../secret", "/etc/hostname", "link", "none"])
def test_never_uploads_a_file_from_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("secret")

    def steal(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        root = task.outputs / "0"
        root.mkdir(parents=True)
        (root / "link").symlink_to(tmp_path / "secret")
        return [ItemDone(index=0, value=1, files=(name,)), BatchDone()]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=steal))
    slot.world.send({"job_id": "j", "items": ["x"]})
    slot.slot.step()
    [record] = slot.world.records("j")
    assert record.error == "its files lie outside its output directory"
    assert record.outputs == ()


def test_gives_the_job_back_when_s3_gives_no_answer(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.before = fail_parts
    slot.world.send(JOB)
    slot.slot.step()
    assert slot.world.manifest("j").state is JobState.RUNNING
    assert slot.world.worker().busy_slots == 0
    # Not at once: who gives no answer now is not asked again every second.
    assert slot.world.queue.backlog().visible == 0
    slot.world.clock.advance(1.5 * MINUTE)
    slot.world.before = None
    slot.slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED


def fail_parts(call: PortCall) -> None:
    if call.method == "put" and "parts" in call.args[0]:
        raise Unreachable("no answer")


def test_an_outage_counts_nothing_against_a_job_and_tries_it_less_and_less(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.before = fail_parts
    slot.world.send(JOB)
    tries = 0

    for _ in range(6 * 60):
        slot.world.clock.advance(MINUTE)
        tries += slot.slot.step()

    manifest = slot.world.manifest("j")
    assert (manifest.state, manifest.losses) == (JobState.RUNNING, 0)
    assert 8 <= tries <= 20
    slot.world.before = None
    slot.world.clock.advance(40 * MINUTE)
    slot.slot.step()
    assert slot.world.manifest("j").state is JobState.COMPLETED


def test_an_outage_that_one_job_alone_meets_does_not_try_it_for_ever(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.before = fail_parts
    slot.world.send(JOB)

    for _ in range(20 * 60):
        slot.world.clock.advance(MINUTE)
        slot.slot.step()

    assert slot.world.manifest("j").state is JobState.FAILED
    assert len(slot.world.dead_letters.bodies()) == 1


def test_a_notice_in_an_outage_makes_the_job_visible_at_once(tmp_path: Path) -> None:
    def announce(polls: int) -> None:
        slot.watch.interrupt(slot.world.clock.now(), "metadata")

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=announce))
    slot.world.before = fail_parts
    slot.world.send(JOB)
    slot.slot.step()
    assert slot.world.queue.backlog().visible == 1


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


def test_is_idle_again_after_a_ledger_that_gave_no_answer(tmp_path: Path) -> None:
    def fail(call: PortCall) -> None:
        if call.method == "transact" and slot.world.calls["table.transact"] == 2:
            raise Unreachable("no answer")

    slot = SlotWorld(tmp_path)
    slot.world.before = fail
    slot.world.send(JOB)
    slot.slot.step()
    assert slot.world.worker().state is WorkerState.BUSY
    slot.watch.beat()
    assert slot.world.worker().state is WorkerState.IDLE
    assert slot.bench.presence.drain("idle")


def test_counts_items_that_had_to_be_computed_again(tmp_path: Path) -> None:
    def die(polls: int) -> None:
        if polls == 4:
            slot.watch.beat()
            raise KeyboardInterrupt

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=die))
    slot.world.send(JOB)
    with pytest.raises(KeyboardInterrupt):
        slot.slot.step()
    slot.world.clock.advance(6 * MINUTE)
    other = SlotWorld(tmp_path, world=slot.world, instance_id="i-2")
    other.slot.step()
    spend = row(slot.world, spend_sort(slot.world.clock.now()))
    assert (spend["items"], spend["items_redone"]) == (5, 2)


def test_puts_back_what_it_received_while_it_was_told_to_finish(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)

    def finish(call: PortCall) -> None:
        if call.method == "receive":
            slot.life.finish("stopped")

    slot.world.after = finish
    slot.slot.step()
    assert slot.world.queue.backlog().visible == 1


def test_leaves_when_reconcile_has_condemned_the_instance(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.change_worker("i-1", state=WorkerState.CONDEMNED)
    slot.watch.beat()
    assert slot.life.reason == "condemned"
    assert slot.life.must_leave()


def test_the_heartbeat_follows_the_policy_in_force(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    changed = replace(Policy(), idle_timeout=timedelta(minutes=2), commit_margin=timedelta(3))
    slot.world.set_policy(changed)
    slot.watch.beat()
    assert slot.life.standing.policy == changed
    assert slot.life.standing.idle_timeout == timedelta(minutes=2)


def test_a_policy_that_cannot_be_read_leaves_the_last_one_in_force(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    changed = replace(Policy(), idle_timeout=timedelta(minutes=2))
    slot.world.set_policy(changed)
    slot.watch.beat()
    slot.world.set_policy("{")
    slot.watch.beat()
    assert slot.life.standing.policy == changed


def test_the_heartbeat_shows_the_longest_life_to_the_dead_man_check(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.watch.beat()
    assert (tmp_path / "alive").read_text() == f"{24 * 3600 + 900}\n"


def row(world: WorkWorld, sort: str) -> dict[str, object]:
    found = world.table.get(Key(partition=workload_partition(WORKLOAD), sort=sort))
    assert found is not None
    return found


def test_a_worker_of_other_code_than_the_deployed_takes_no_new_job(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.set_policy(slot.world.policy, code_digest="e")

    for _ in range(6):
        slot.watch.beat()
        slot.world.clock.advance(MINUTE)
    assert not slot.life.is_finishing
    slot.watch.beat()

    assert slot.life.reason == "other code is deployed"
    assert not slot.life.must_leave()


@pytest.mark.parametrize("digest", ["d", ""], ids=["the same", "not known"])
def test_a_worker_of_the_deployed_code_goes_on(tmp_path: Path, digest: str) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.set_policy(slot.world.policy, code_digest=digest)

    for _ in range(20):
        slot.watch.beat()
        slot.world.clock.advance(MINUTE)

    assert not slot.life.is_finishing


def test_a_scaler_that_still_tells_of_the_old_code_ends_no_worker(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)

    for minute in range(20):
        # Two scalers take turns, one of which has not read its settings anew.
        slot.world.set_policy(slot.world.policy, code_digest="dc"[minute // 5 % 2])
        slot.watch.beat()
        slot.world.clock.advance(MINUTE)

    assert not slot.life.is_finishing


def test_a_ledger_without_answer_is_no_sign_of_death(tmp_path: Path) -> None:
    def fail(call: PortCall) -> None:
        if call.port == "table":
            raise Unreachable("no answer")

    slot = SlotWorld(tmp_path)
    slot.world.before = fail
    with pytest.raises(Unreachable):
        slot.watch.beat()
    assert (tmp_path / "alive").exists()


def test_a_warm_worker_polls_at_length_and_without_a_pause(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.clock.advance(60 * MINUTE)
    until = slot.world.clock.now() + MINUTE
    slot.world.change_worker("i-1", warm_until=until)
    waits: list[timedelta] = []

    def watch(call: PortCall) -> None:
        if call.method == "receive":
            waits.append(call.kwargs["wait"])

    slot.world.before = watch
    slot.slot.step()
    slot.watch.beat()
    assert slot.life.is_warm
    slot.slot.step()
    slot.world.clock.advance(MINUTE)
    slot.slot.step()

    assert [wait.total_seconds() for wait in waits] == [0, 20, 0]

"""A slot works jobs off: results, files, counts, what it costs, what lies in the way of an item."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from spindown.contract.job.manifest import JobState
from spindown.contract.job.result import ItemStatus
from spindown.contract.row import JOB_RATE, done_sort_key, throughput_sort_key, worker_partition
from spindown.domain.fleet import CodeProgress, WorkerState
from spindown.domain.policy import Policy
from spindown.job.result import read_progress
from spindown.memory.interception import PortCall
from spindown.port import Key
from spindown.user import Item
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from spindown.worker.code_folder import list_files
from tests.slot import JOB, MINUTE, ScriptedRunner, SlotWorld, in_line, square
from tests.work import WORKLOAD, WorkWorld, a_slot_id, items


def test_works_a_job_off_in_batches(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)
    assert slot.step()
    assert slot.runner.batches == [[0, 1], [2, 3], [4]]
    assert [r.result for r in slot.world.records("j")] == [0, 1, 4, 9, 16]
    assert slot.world.manifest("j").state is JobState.COMPLETED
    assert slot.world.queue.bodies() == []
    assert slot.world.worker().state is WorkerState.IDLE
    assert not slot.step()


def test_a_job_of_one_part_costs_this_many_requests(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)
    slot.step()
    slot.world.clock.advance(MINUTE / 2)
    slot.world.send({**JOB, "job_id": "k"})
    slot.world.calls.clear()
    slot.step()
    assert slot.world.calls == {
        "queue.receive": 1,
        "queue.delete": 1,
        "objects.put": 3,
        "table.transact": 2,
        # The count of claims, the day's spend, the throughput.
        "table.write": 3,
    }


def test_tells_the_ledger_what_was_done(tmp_path: Path) -> None:
    def slowly(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        slot.world.clock.advance(MINUTE)
        failed = ItemDone(index=batch[0].index, error="no")
        return [failed, *square(task, batch)[1:]]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=slowly))
    slot.world.send(JOB)
    slot.step()
    day = row(slot.world, done_sort_key(slot.world.clock.now()))
    assert (day["items"], day["items_failed"], day["jobs"]) == (2, 3, 1)
    assert (day["failed_job"], day["failed_with"]) == (slot.world.manifest("j").job_id, "no")
    rate = row(slot.world, throughput_sort_key("T4", 1.0))
    assert (rate["count"], rate["hours"], rate["reports"]) == (5, pytest.approx(0.05), 1)
    assert rate["samples"] == [pytest.approx(100)]
    assert row(slot.world, JOB_RATE)["samples"] == [5.0]
    slot.reporter.flush()
    values = slot.world.metrics.values
    assert (values("ItemsDone"), values("ItemsFailed")) == ([2], [3])
    assert values("JobSeconds") == [180]
    assert slot.world.manifest("j").cost_usd == pytest.approx(0.36 / 20)


@pytest.mark.parametrize(("error", "counted"), [(None, (1, 0)), ("no", (0, 1))])
def test_a_job_is_counted_as_the_pages_tell_its_end(
    tmp_path: Path, error: str | None, counted: tuple[int, int]
) -> None:
    slot = SlotWorld(tmp_path)
    slot.runner.script = lambda *_: [ItemDone(index=0, error=error), BatchDone()]
    slot.world.send({"job_id": "j", "items": items(1)})
    slot.step()
    slot.reporter.flush()

    names = ("JobsCompleted", "JobsFailed")
    assert tuple(len(slot.world.metrics.values(name)) for name in names) == counted
    word = read_progress("j", slot.world.objects).word
    assert word == ("failed" if error else "completed")


@pytest.mark.parametrize("batch", [None, "b"])
def test_tells_what_has_failed_in_no_batch(tmp_path: Path, batch: str | None) -> None:
    slot = SlotWorld(tmp_path)
    slot.runner.script = lambda *_: [ItemDone(index=0, error="no"), BatchDone()]
    slot.world.send({"job_id": "j", "items": items(1), "batch_id": batch})
    slot.step()
    slot.world.send({"job_id": "k", "items_uri": "s3://inputs/none.jsonl", "batch_id": batch})
    slot.step()

    day = row(slot.world, done_sort_key(slot.world.clock.now()))
    assert day.get("failed_alone", 0) == (0 if batch else 2)


def test_commits_while_it_computes_when_a_checkpoint_is_due(tmp_path: Path) -> None:
    policy = Policy(checkpoint_items=2)
    slot = SlotWorld(tmp_path, policy=policy)
    slot.runner.before_poll = lambda _: slot.world.clock.advance(MINUTE / 60)
    slot.world.send(JOB)
    slot.step()
    ranges = [(part.first, part.last) for part in slot.world.manifest("j").parts]
    assert len(ranges) > 1
    assert [first for first, _ in ranges] == [0, *(last + 1 for _, last in ranges[:-1])]
    assert ranges[-1][1] == 4


def test_the_code_s_output_is_kept_with_some_commits(tmp_path: Path) -> None:
    def talk(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        assert task.output_log is not None
        task.output_log.add("x" * 1000)
        return square(task, batch)

    kept: list[int] = []

    def note(call: PortCall) -> None:
        if call.method == "put" and "/logs/" in call.args[0]:
            kept.append(len(call.args[1]))

    policy = Policy(checkpoint_items=1)
    runner = ScriptedRunner(script=talk)
    slot = SlotWorld(tmp_path, policy=policy, runner=runner, batch_size=1)
    in_line(slot)
    runner.before_poll = lambda _: slot.world.clock.advance(MINUTE / 20)
    slot.world.before = note
    slot.world.send({"job_id": "j", "items": items(40)})
    slot.step()
    commits = len(slot.world.manifest("j").parts)
    # Items take 6 s: the log goes with the first commit, then once a minute, and at the end.
    assert commits > 30
    assert 4 <= len(kept) <= 6
    assert kept[-1] == 40 * 1001


def test_what_code_says_of_its_progress_goes_with_a_heartbeat(tmp_path: Path) -> None:
    said = CodeProgress(done=3, of=7, text="epoch 3")

    def talk(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        assert task.output_log is not None
        task.output_log.progress = said if task.job_id == "j" else None
        return [None, *square(task, batch)]

    told: list[CodeProgress | None] = []

    runner = ScriptedRunner(script=talk)
    slot = SlotWorld(tmp_path, runner=runner)

    def look(_: object) -> None:
        slot.slot.renewer.beat(slot.world.policy)
        lease = slot.world.lease(a_slot_id())
        told.append(lease.progress if lease else None)

    runner.before_poll = look
    for job_id in ("j", "k"):
        slot.world.send({"job_id": job_id, "items": items(2)})
        slot.step()

    polls = len(told) // 2
    assert told[0] is None
    assert said in told[:polls]
    # The next job begins without it.
    assert set(told[polls:]) == {None}


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
    slot.step()

    rate = row(world, throughput_sort_key("T4", 1.0))
    (part,) = world.manifest("j").parts
    assert rate["moved"] == 3
    assert rate["gib_in"] == pytest.approx(3050 / 2**30)
    assert rate["gib_out"] == pytest.approx((700 + part.bytes) / 2**30)


def test_an_input_that_is_not_there_fails_its_item_alone(tmp_path: Path) -> None:
    world = WorkWorld(sources={"s3://inputs/a.png": b"A", "s3://inputs/c.png": b"C"})
    slot = SlotWorld(tmp_path, world=world, batch_size=3)
    names = ["s3://inputs/a.png", "s3://inputs/b.png", "s3://inputs/c.png", "s3://other/x"]
    world.send({"job_id": "j", "items": names})
    slot.step()
    errors = [record.error for record in world.records("j")]
    assert errors[0] is errors[2] is None
    assert "s3://inputs/b.png" in str(errors[1])
    assert "s3://other/x" in str(errors[3])
    assert [path and path.name for path in slot.runner.paths] == ["a.png", "c.png"]
    assert not any(path.exists() for path in slot.runner.paths if path)


def test_an_error_without_a_word_is_an_error_all_the_same(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path, batch_size=2)
    slot.runner.script = lambda *_: [ItemDone(index=0, error=""), ItemDone(index=1), BatchDone()]
    slot.world.send({"job_id": "j", "items": items(2)})
    slot.step()
    failed, went_well = slot.world.records("j")
    assert (failed.status, bool(failed.error)) == (ItemStatus.FAILED, True)
    assert (went_well.status, went_well.error) == (ItemStatus.OK, None)
    assert slot.world.manifest("j").items_failed == 1


def test_a_failed_item_keeps_what_it_has_told_and_left(tmp_path: Path) -> None:
    def fail(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        place = task.outputs / "0"
        place.mkdir(parents=True)
        (place / "made").write_text("m")
        return [ItemDone(index=0, value=7, error="status 7", files=("made",)), BatchDone()]

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=fail))
    slot.world.send({"job_id": "j", "items": items(1)})
    slot.step()

    (record,) = slot.world.records("j")
    assert (record.status, record.result, record.error) == (ItemStatus.FAILED, 7, "status 7")
    assert [output.path for output in record.outputs] == ["made"]


def test_a_missing_list_sends_the_job_to_the_dead_letters(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send({"job_id": "j", "items_uri": "s3://inputs/none.jsonl"})
    slot.step()
    manifest = slot.world.manifest("j")
    assert manifest.state is JobState.FAILED
    assert manifest.reason.startswith("items_uri is 's3://inputs/none.jsonl': ")
    assert len(slot.world.dead_letters.bodies()) == 1
    assert slot.world.worker().state is WorkerState.IDLE


def test_splits_a_large_job_and_works_its_children_off(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path, policy=Policy(max_items_per_job=2))
    slot.world.send(JOB)
    while slot.world.queue.bodies():
        slot.step()
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
    slot.step()
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
    slot.step()
    [record] = slot.world.records("j")
    assert record.status is ItemStatus.FAILED
    assert record.outputs == ()


@pytest.mark.parametrize("replaced", ["outputs/0", "outputs", "."])
def test_never_uploads_through_a_link_in_its_directory_s_place(
    tmp_path: Path, replaced: str
) -> None:
    elsewhere, scratch = tmp_path / "elsewhere", tmp_path / "slot"
    (elsewhere / "outputs" / "0").mkdir(parents=True)
    (elsewhere / "outputs" / "0" / "secret").write_text("secret")
    scratch.mkdir()

    def steal(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        place = task.outputs.parent / replaced
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.exists():
            # On an instance only what is in its outputs is the code's to replace.
            place.resolve().rename(tmp_path / "away")
        place.symlink_to(elsewhere / replaced)
        return [ItemDone(index=0, value=1, files=("secret",)), BatchDone()]

    slot = SlotWorld(scratch, runner=ScriptedRunner(script=steal))
    slot.world.send({"job_id": "j", "items": ["x"]})
    slot.step()
    [record] = slot.world.records("j")
    assert (record.status, record.outputs) == (ItemStatus.FAILED, ())
    assert (elsewhere / "outputs" / "0" / "secret").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (b"caf\xe9.png", r"caf\xe9.png"),
        (b"/".join([b"d" * 200] * 6), "800 bytes"),
    ],
    ids=["Latin-1", "long"],
)
def test_a_file_no_object_can_be_named_after_fails_its_item(
    tmp_path: Path, name: bytes, says: str
) -> None:
    def leave(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        if batch[0].index == 0:
            path = task.outputs / "0" / os.fsdecode(name)
            path.parent.mkdir(parents=True)
            path.write_text("x")
        return [
            *(
                ItemDone(index=item.index, files=tuple(list_files(task.outputs / str(item.index))))
                for item in batch
            ),
            BatchDone(),
        ]

    def refuse(call: PortCall) -> None:
        if call.method in {"put", "put_file"}:
            assert len(call.args[0].encode()) <= 1024, "S3 takes no longer key"

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=leave))
    slot.world.before = refuse
    slot.world.send(JOB)
    slot.step()
    first, *rest = (record.error for record in slot.world.records("j"))
    assert says in str(first)
    assert rest == [None] * 4
    assert slot.world.manifest("j").state is JobState.COMPLETED


def test_counts_items_that_had_to_be_computed_again(tmp_path: Path) -> None:
    def die(polls: int) -> None:
        if polls == 4:
            slot.watch.beat()
            raise KeyboardInterrupt

    slot = SlotWorld(tmp_path, runner=ScriptedRunner(before_poll=die))
    slot.world.send(JOB)
    with pytest.raises(KeyboardInterrupt):
        slot.step()
    slot.world.clock.advance(6 * MINUTE)
    other = SlotWorld(tmp_path, world=slot.world, instance_id="i-2")
    other.step()
    spend = row(slot.world, done_sort_key(slot.world.clock.now()))
    assert (spend["items"], spend["items_redone"]) == (5, 2)


def row(world: WorkWorld, sort: str) -> dict[str, object]:
    found = world.table.get(Key(partition=worker_partition(WORKLOAD), sort=sort))
    assert found is not None
    return found

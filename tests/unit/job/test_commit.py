"""Committing: every result exactly once, whatever fails between."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.codec import encode
from spindown.contract.job.manifest import JobState, manifest_key
from spindown.contract.job.result import ItemStatus
from spindown.domain.fleet import WorkerState
from spindown.error import LeaseLost, Unreachable
from spindown.job.claimed_job import ClaimedJob, Finished, LocalFile
from spindown.job.commit import Portion, commit, complete
from spindown.memory.interception import PortCall
from spindown.port import Write
from tests.work import WorkWorld, a_portion, a_record, a_slot_id, items

JOB = {"job_id": "j", "items": items(5)}


def test_lists_a_part_with_its_range_size_and_digest() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = commit(held, a_portion(held, 3), slot_id=a_slot_id(), ports=world.ports)
    [part] = held.manifest.parts
    assert part.key == "jobs/j/parts/00000001-00000000-00000002.jsonl"
    assert (part.first, part.last, part.failed) == (0, 2, 0)
    assert part.bytes == len(world.objects.get(part.key).data)
    assert held.manifest.next_item == 3
    assert [r.index for r in world.records("j")] == [0, 1, 2]


def test_two_portions_join_in_order_with_the_later_state() -> None:
    held = WorkWorld().hold(JOB)
    both = replace(a_portion(held, 2), bytes_in=3, bytes_out=5, state=())
    later = (LocalFile(path="model", local=Path("model")),)
    first = replace(both, finished=both.finished[:1], busy=timedelta(seconds=4))
    rest = Portion(
        finished=both.finished[1:],
        busy=timedelta(seconds=6),
        bytes_in=4,
        bytes_out=6,
        state=later,
    )

    assert first.followed_by(rest) == replace(both, bytes_in=7, bytes_out=11, state=later)


def test_completes_the_job_with_its_last_item() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = commit(held, a_portion(held, 3, seconds=60), slot_id=a_slot_id(), ports=world.ports)
    held = commit(held, a_portion(held, seconds=40), slot_id=a_slot_id(), ports=world.ports)
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    manifest = world.manifest("j")
    assert (manifest.state, manifest.released, manifest.reason) == (JobState.COMPLETED, True, "")
    assert manifest.finished_at == world.clock.now()
    assert manifest.busy_seconds == 100
    assert manifest.cost_usd == pytest.approx(0.01)
    assert world.queue.bodies() == []
    assert world.lease() is None
    assert world.worker().state is WorkerState.IDLE


def test_completes_a_job_without_items() -> None:
    world = WorkWorld()
    held = world.hold({"job_id": "j", "items": []})
    held = commit(held, Portion(), slot_id=a_slot_id(), ports=world.ports)
    assert held.manifest.state is JobState.COMPLETED
    assert held.manifest.reason


def test_counts_the_failed_items_of_a_part() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    bad = a_record("j", 0, status=ItemStatus.FAILED, result=None, error="no")
    portion = Portion(finished=(Finished(record=bad), Finished(record=a_record("j", 1))))
    held = commit(held, portion, slot_id=a_slot_id(), ports=world.ports)
    assert held.manifest.parts[0].failed == 1


def test_commits_the_files_of_an_item_before_its_part(tmp_path: Path) -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    local = tmp_path / "thumb.png"
    local.write_bytes(b"png")
    done = Finished(record=a_record("j", 0), files=(LocalFile(path="deep/thumb.png", local=local),))
    order: list[str] = []
    world.before = lambda call: order.append(call.method)
    commit(held, Portion(finished=(done,)), slot_id=a_slot_id(), ports=world.ports)
    assert order == ["put_file", "put", "put"]
    [output] = world.records("j")[0].outputs
    assert output.key == "jobs/j/parts/00000001-00000000-00000000/0/deep/thumb.png"
    assert world.objects.get(output.key).data == b"png"
    assert output.bytes == 3


def test_commits_the_user_s_state_before_its_manifest(tmp_path: Path) -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    local = tmp_path / "model.bin"
    local.write_bytes(b"weights")
    portion = replace(a_portion(held, 2), state=(LocalFile(path="model.bin", local=local),))
    held = commit(held, portion, slot_id=a_slot_id(), ports=world.ports)
    [file] = held.manifest.user_state
    assert file.key == f"state/j/{hashlib.sha256(b'weights').hexdigest()}"
    assert world.objects.get(file.key).data == b"weights"
    again = commit(held, a_portion(held, 1), slot_id=a_slot_id(), ports=world.ports)
    assert again.manifest.user_state == held.manifest.user_state


def test_a_fenced_off_worker_commits_nothing() -> None:
    world = WorkWorld()
    zombie = world.hold(JOB)
    world.clock.advance(timedelta(minutes=6))
    owner = world.hold(slot_id=a_slot_id("i-2"))
    with pytest.raises(LeaseLost, match=r"^j: epoch 1 is over$"):
        commit(zombie, a_portion(zombie), slot_id=a_slot_id(), ports=world.ports)
    assert world.manifest("j").parts == ()
    done = commit(owner, a_portion(owner), slot_id=a_slot_id("i-2"), ports=world.ports)
    assert [part.key[:21] for part in done.manifest.parts] == ["jobs/j/parts/00000002"]


def test_repeats_a_conflicting_write_with_the_same_etag() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.objects.conflict_next(manifest_key("j"), times=3)
    held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    assert held.manifest.state is JobState.COMPLETED


def test_gives_up_on_a_write_that_conflicts_for_ever() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.objects.conflict_next(manifest_key("j"), times=100)
    with pytest.raises(Unreachable):
        commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)


@pytest.mark.parametrize("method", ["put", "put_file"])
@pytest.mark.parametrize("what", ["part", "outputs", "state"])
def test_a_commit_outlasts_seconds_without_answers_from_s3(
    tmp_path: Path, method: str, what: str
) -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    local = tmp_path / "file"
    local.write_bytes(b"png")
    file, left = LocalFile(path="file", local=local), [4]
    portion = replace(a_portion(held, 1), state=(file,) if what == "state" else None)
    if what == "outputs":
        portion = Portion(finished=(Finished(record=a_record("j", 0), files=(file,)),))

    def give_no_answer(call: PortCall) -> None:
        is_manifest = call.args[0] == manifest_key("j")
        if call.method == method and not is_manifest and left[0]:
            left[0] -= 1
            raise Unreachable("no answer")

    world.before = give_no_answer
    held = commit(held, portion, slot_id=a_slot_id(), ports=world.ports)
    assert held.manifest.next_item == 1
    assert len(held.manifest.user_state) == (what == "state")


def test_knows_its_own_commit_again_after_a_lost_answer() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.after = fail_once(lambda call: call.args[:1] == (manifest_key("j"),))
    held = commit(held, a_portion(held, 2), slot_id=a_slot_id(), ports=world.ports)
    held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    assert [r.index for r in world.records("j")] == [0, 1, 2, 3, 4]


def test_refuses_a_portion_that_leaves_items_out() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    gap = Portion(finished=(Finished(record=a_record("j", 1)),))
    with pytest.raises(ValueError, match=r"^j: "):
        commit(held, gap, slot_id=a_slot_id(), ports=world.ports)


def test_deletes_the_message_by_the_handle_left_in_the_row() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    world.claim(a_slot_id("i-2"))
    held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    assert world.queue.bodies() == []


def test_a_stale_handle_deletes_nothing_of_the_row_s_new_job() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    other = world.hold({"job_id": "k", "items": items(2)}, a_slot_id("i-2"))
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    world.table.write(Write(key=a_slot_id().lease_key, set=encode(other.lease)))
    held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)

    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)

    assert len(world.queue.bodies()) == 2


def test_a_damaged_lease_row_keeps_no_completed_job_alive() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    world.table.write(Write(key=a_slot_id().lease_key, set={"deadline": "soon"}))
    held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)

    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)

    assert world.table.get(a_slot_id().lease_key) is None
    assert world.calls["queue.delete"] == 1


def test_a_new_job_of_one_part_costs_this_many_requests() -> None:
    world = WorkWorld()
    world.worker_row()
    world.send(JOB)
    world.calls.clear()
    message = world.receive()
    assert message is not None
    held = world.claim_message(message)
    assert isinstance(held, ClaimedJob)
    held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    assert world.calls == {
        "queue.receive": 1,
        "queue.delete": 1,
        # Manifest, part, manifest.
        "objects.put": 3,
        # Lease and worker at each end, and the count of claims.
        "table.transact": 2,
        "table.write": 1,
    }


def fail_once(match: Callable[[PortCall], bool]) -> Callable[[PortCall], None]:
    left = iter([True])

    def fail(call: PortCall) -> None:
        if match(call) and next(left, False):
            raise Unreachable("the answer was lost")

    return fail
